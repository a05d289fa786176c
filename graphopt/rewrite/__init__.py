"""Rewriting: rules, matching, equality saturation, cost and extraction."""
