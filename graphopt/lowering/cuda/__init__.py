"""Nests for CUDA: which threads do what, and the source that numba compiles for the device."""
