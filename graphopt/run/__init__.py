"""Runs of the optimizer: their steps, their journals as files, their reports, their results."""
