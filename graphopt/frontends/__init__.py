"""Frontends for frameworks other than ONNX: each makes a graph of a model, and needs its framework for it."""
