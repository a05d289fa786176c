"""Tools on models beside optimizing and compiling them, as functions; ``graphopt.cli`` has a command for each."""
