"""From a model to its program, and programs that are kept."""
