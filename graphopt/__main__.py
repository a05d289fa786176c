"""Command line, as ``python -m graphopt``."""

from graphopt.cli import main

main()
