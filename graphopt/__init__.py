"""Rewrites ONNX models into faster equal ones."""
