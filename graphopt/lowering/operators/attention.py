"""What attention compute."""

from __future__ import annotations

from graphopt.lowering.operators.operation import Table

TABLE: Table = {}
