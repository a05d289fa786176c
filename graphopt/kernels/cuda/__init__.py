"""Kernels for NVIDIA GPUs: what their source may say, and how it becomes PTX and machine code, or is simulated."""
