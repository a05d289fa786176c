"""Constants of other models written as terms of right sides."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphopt.errors import RuleError
from graphopt.ir.constants import Array, Constant
from graphopt.ir.dtypes import CODES
from graphopt.rewrite.guards.expressions import SMALL
from graphopt.rewrite.reading.region import literal_of
from graphopt.rewrite.rule.rule import CallPattern, Computed, GuardExpr, Lit, Series, Term


def term_of(array: Array) -> Term:
    """The term that makes an array, dtype included. RuleError where rules cannot write it."""
    constant = Constant.of(np.asarray(array))
    return typed(constant, literal_of(constant) or Computed(spelled(constant)))


def typed(constant: Constant, term: Term) -> Term:
    """The term that makes a constant's elements, cast to its dtype where its numbers alone mean another."""
    plain = "bool" if constant.dtype == "bool" else "int64" if "int" in constant.dtype else "float32"
    return term if constant.dtype == plain else CallPattern("Cast", (term,), (("to", Lit(CODES[constant.dtype])),))


def spelled(constant: Constant) -> GuardExpr:
    """The elements as nested sequences. RuleError where there are too many, or some cannot be written."""
    if constant.size > SMALL:
        raise RuleError(f"a constant has {constant.size} elements; a rule writes at most {SMALL}: make it an input")
    if constant.dtype == "string" or "complex" in constant.dtype:
        raise RuleError(f"a constant of {constant.dtype} cannot be written in a rule: make it an input")
    kind = bool if constant.dtype == "bool" else int if "int" in constant.dtype else float
    if kind is float and any(math.isnan(float(e)) for e in constant.array.reshape(-1)):
        raise RuleError("a constant has NaN among its elements, which equals nothing: make it an input")

    def nested(array: Any) -> GuardExpr:
        return Lit(kind(array)) if array.ndim == 0 else Series(tuple(nested(part) for part in array))

    return nested(np.asarray(constant.array))
