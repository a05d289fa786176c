"""Linking: lowering steps from a graph to buffers, steps and kernels; memory planning."""
