"""Directed matching: patterns against graphs, right sides built, and the journal of what was done."""
