"""What torch's operators are in ONNX, a table for each theme; ``graphopt.frontends.torch.standard`` lists them."""
