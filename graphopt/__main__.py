"""``python -m graphopt`` is the command line."""

from graphopt.cli import main

main()
