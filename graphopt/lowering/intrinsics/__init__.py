"""Tensor intrinsics: what ``tensorize`` looks for in nests, and what it puts in its place."""
