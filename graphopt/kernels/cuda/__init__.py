"""CUDA kernels: the functions of their source, compilation to PTX and machine code, and simulation."""
