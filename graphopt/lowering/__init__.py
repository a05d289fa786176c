"""Chosen nodes become loops: tensor programs, schedules, and the programs that run them."""
