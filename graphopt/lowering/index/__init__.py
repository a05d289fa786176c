"""Index arithmetic: polynomials over loop variables, their ranges and simpler forms."""
