"""Equality saturation: terms and matches in egglog, classes, provenance."""
