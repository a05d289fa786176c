"""Files that are written whole or not at all: what was there before stays until all of the new one is on disk."""

from graphopt.saving import beside, whole

__all__ = ["beside", "whole"]
