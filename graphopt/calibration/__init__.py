"""Calibration: times of ops on this machine, measured in a runtime, kept in a database, and prices fitted to them."""
