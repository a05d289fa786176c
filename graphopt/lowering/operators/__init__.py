"""Operator lowering: a table of tensor programs, one for each ONNX op, to which users can add."""
