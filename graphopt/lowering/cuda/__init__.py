"""CUDA lowering: schedules for blocks of threads, library calls, and the source that numba compiles."""
