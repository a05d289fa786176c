"""The directed matcher: patterns against graphs, right sides built, a journal of what was done."""
