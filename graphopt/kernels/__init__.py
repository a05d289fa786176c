"""Kernels: hand-written loops on arrays, independent of graphs."""
