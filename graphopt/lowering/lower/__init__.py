"""Lowering: what becomes of each node of a graph, and what computes those that no nest does."""
