"""Guards and attribute functions: what rules may ask of what they matched."""
