"""Rules from text and from Python, parsed, checked, formatted, and put together in rule sets."""
