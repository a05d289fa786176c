"""Schedule primitives: checked rewrites of a nest, kept as a trace."""
