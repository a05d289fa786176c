"""Why two terms are equal: a forest of the unions that were made, each with its rule or its congruence.

The forest of an explaining e-graph (Flatt et al., "Small proofs from congruence closure", 2022):
every union adds one edge between the two terms that it was made for, so that between any two equal
terms there is exactly one path. An edge of a rule is one step; an edge of congruence (equal children,
same op) stands for the steps between the children.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One application of a rule, read from left to right, or from right to left where ``backward``."""

    rule: str
    site: int
    """The term that the whole rewritten term has at this place before the step."""
    before: int
    after: int
    backward: bool = False


class Provenance:
    """Terms and the reasons for which they are equal."""
