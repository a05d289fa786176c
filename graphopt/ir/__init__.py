"""Intermediate representation: graphs, types, constants, and reading and writing them."""
