"""Code generation: nests as Python source that numba compiles."""
