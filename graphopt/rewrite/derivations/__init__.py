"""Derivations: the chosen graph as rule instances that replay, once for repeated blocks."""
