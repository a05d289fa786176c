"""Operator fusion: groups of nodes that one nest computes, by the kinds of their tensors."""
