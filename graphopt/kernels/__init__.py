"""Loops that run: hand-shaped kernels that know arrays, never graphs."""
