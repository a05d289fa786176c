"""Verification: original and result side by side on random inputs, and the runtimes that run them."""
