"""Tensor intrinsics: the programs that ``tensorize`` matches in nests, and their implementations."""
