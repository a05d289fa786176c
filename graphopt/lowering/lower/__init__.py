"""Lowering of nodes: legalization, reference evaluation, function expansion, embedded programs."""
