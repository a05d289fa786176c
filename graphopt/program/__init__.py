"""Programs of models: compilation, the cache of programs, and models as functions."""
