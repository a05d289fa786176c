"""Operator fusion: groups of nodes that share a nest, by the fusion kinds of their tensors."""
