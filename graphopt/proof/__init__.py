"""Proofs of rules, for all numbers and for all small shapes, and the evidence that is kept of them."""
