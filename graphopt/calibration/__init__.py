"""Calibration: times of ops on this machine, measured in a runtime, kept in a database, and prices fitted to them."""

ANALYTIC, MEASURED, AUTO = "analytic", "measured", "auto"
COSTS = (AUTO, ANALYTIC, MEASURED)
"""Which prices to go by: those that the target comes with, measured ones, or measured ones where there are some."""
