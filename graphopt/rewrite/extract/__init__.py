"""Extraction: what terms cost on a target, and the cheapest DAG."""
