"""Modules that every run needs, and the standard rules, read once, by the process that runs are forked from."""

from graphopt.rewrite.ruleset import standard
from graphopt.serving import tasks

__all__ = ["tasks"]

standard()
