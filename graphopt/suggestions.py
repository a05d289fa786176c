"""What to say of a name that there is not: the names most like it, or some of those there are."""

from __future__ import annotations

from collections.abc import Iterable

FEW = 8
"""So many names, and no more, are told where none is like the one that is wanted."""


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean ...?`` with the names most like this one, or nothing."""
    from difflib import get_close_matches

    found = get_close_matches(name, sorted(known), 3)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def nearest_or_some(name: str, known: Iterable[str]) -> str:
    """``; did you mean ...?``, or ``; there are ...`` with the first of the names there are, and their number."""
    there = list(known)
    if hint := nearest(name, there):
        return hint
    some = ", ".join(there[:FEW]) or "none"
    if len(there) > FEW:
        return f"; there are {len(there)}: {some}, ..."
    return f"; there {'are' if len(there) > 1 else 'is'} {some}"
