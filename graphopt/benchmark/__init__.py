"""Benchmarks: compiled models beside other engines, prices of ops, ceilings of the machine, rooflines."""
