"""Analyses of nests: dependence, regions, iteration domains, access patterns."""
