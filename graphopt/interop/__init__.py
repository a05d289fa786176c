"""Models and rules of other tools as rules of ours: regions of models, pairs of models, onnxscript's rules, passes."""
