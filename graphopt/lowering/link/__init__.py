"""From a lowered graph to what the runtime runs: buffers, steps, and the kernels that they call."""
