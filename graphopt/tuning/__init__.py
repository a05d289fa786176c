"""Finds schedules that are faster than the default ones on this machine, by measuring, and remembers them."""
