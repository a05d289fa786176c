"""Display of values in notebooks: ``graphopt.web.cards`` draws them, imported when one is first shown.

Values lie below what draws them, so that it is named here and not imported.
"""

from __future__ import annotations

from importlib import import_module

CARDS = "graphopt.web.cards"


class Displayed:
    """What a notebook shows as a card of HTML, without scripts, in which nothing of a model's is markup."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(import_module(CARDS).card(self))
