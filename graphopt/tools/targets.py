"""Targets in lines of text, each number with its source; and the mistakes in a target's file. A tool, free of the
terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields

from graphopt.errors import ReadError
from graphopt.rewrite.extract.fusions import rules_of
from graphopt.target import Prices, ProductPrices, Target, read
from graphopt.target import mistakes as mistakes_of_file

UNITS: Mapping[str, str] = {
    "node": "s a call",
    "flops": "operations/s",
    "bandwidth": "bytes/s, within the caches and beyond",
    "cache": "bytes",
    "weights": "bytes/s of constants",
    "span": "s a run",
    "run": "s a run",
    "matrix": "s a matrix",
    "scattered": "s an element",
    "strided": "s an element",
    "elements": "s an element",
    "powers": "s an element",
    "movement": "times a copy",
    "efficiency": "of the operations/s",
    "stored_byte": "s a byte",
}
"""What prices are counted in, where it is not plain times."""


def lines(target: Target) -> Iterator[str]:
    """All that a target says: what it takes, and each price that is not the usual one with its source behind it."""
    yield f"{target.name}: {target.summary}"
    yield f"makes    {'models' if target.makes_models else f'programs for {target.device.name}'}"
    yield f"rules    for any target, and for {', '.join(sorted(target.tags))}"
    if target.opsets is not None:
        yield f"opsets   {target.opsets[0]} to {target.opsets[1]}"
    for domain, names in target.ops.items():
        listed = "every op" if names is None else f"{len(names)} ops: {' '.join(sorted(names, key=str.lower))}"
        yield f"ops      {domain or 'ai.onnx'}: {listed}"
    if source := target.sources.get("ops"):
        yield f"         {source}"
    for op, opset in sorted(target.lacking_since.items()):
        yield f"lacks    {op} from opset {opset} on"
    if target.layout is not None:
        yield f"layout   images in blocks of {target.layout.block} channels"
    if rules := rules_of(target):
        yield f"fuses    {', '.join(rule.name for rule in rules)}"
    yield from _of_prices("prices", target.prices, target.sources)
    for variant in target.variants:
        yield from _of_prices(f"prices from {'.'.join(map(str, variant.least))} on", variant.prices, variant.sources)


def _of_prices(head: str, prices: Prices, sources: Mapping[str, str]) -> Iterator[str]:
    yield head
    for field in fields(Prices):
        general = sources.get(field.name, "")
        if not any(key.partition(".")[0] == field.name for key in sources):
            continue
        value, unit = getattr(prices, field.name), UNITS.get(field.name, "")
        if isinstance(value, frozenset):
            yield _line(field.name, " ".join(sorted(value)), unit, general)
        elif not isinstance(value, Mapping):
            shown = ", ".join(f"{n:g}" for n in (value if isinstance(value, tuple) else (value,)))
            yield _line(field.name, shown, unit, general)
        else:
            for key, number in value.items():
                source = sources.get(f"{field.name}.{key}", general)
                yield _line(f"{field.name} {key}", _number(number), unit, source)


def _number(value: float | ProductPrices) -> str:
    if not isinstance(value, ProductPrices):
        return f"{value:g}"
    return f"{value.call:g} s a call, {value.step:g} s a step, {value.moved[0]:g} or {value.moved[1]:g} s an element"


def _line(name: str, value: str, unit: str, source: str) -> str:
    return f"  {name:<42} {f'{value} {unit}'.strip():<44} {source}".rstrip()


def mistakes(path: str | os.PathLike[str]) -> list[str]:
    """What is wrong in a target's file, a line each, with the file and the key; and where that is well, fusions that
    are no rules. ReadError where it is no TOML."""
    if wrong := mistakes_of_file(path):
        return wrong
    try:
        rules_of(read(path))
    except ReadError as error:
        return [str(error)]
    return []
