"""Checks of rules: drawn instances, verdicts that are kept, matches explained step by step."""
