"""Same meaning, better shape: rules, matching, equality saturation, cost and extraction."""
