"""Interoperability: models and rules of other tools as rules, drop-in calls, passes of onnx_ir, ONNX's Backend."""
