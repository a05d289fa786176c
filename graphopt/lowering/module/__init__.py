"""Modules of graphs, tensor programs and external functions; the builder, and passes over them."""
