"""Reading of target files: TOML from anybody becomes a target, with every mistake that is in it.

Tables may take what another target's say, by ``like``. Nothing in a file is run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from graphopt.errors import ReadError, nearest
from graphopt.target.checks import DOMAIN, NAME, Checks, Toml
from graphopt.target.data import (
    DEVICES,
    HOST,
    KINDS_OF_PRODUCT,
    Layout,
    Prices,
    ProductPrices,
    Target,
    Variant,
)

FOLDER: Final = Path(__file__).parents[1] / "targets"
"""Where the files of the targets that come with graphopt are."""
SUFFIX: Final = ".toml"
MOST_BYTES: Final = 1 << 18
"""Bytes of a file at most."""
MOST_MISTAKES: Final = 50
"""So many mistakes of a file are told."""
RUNTIMES: Final = ("", "ONNX Runtime", "graphopt")
"""Engines in which prices can be measured."""
ALL: Final = "*"
"""What stands for every op of a domain."""
ONNX: Final = "ai.onnx"
"""What files call ONNX's own domain."""

MUST: Final = ("node", "flops", "bandwidth", "cache")
"""The prices that a file states, or takes from another target: five numbers, for there is a bandwidth within the caches
and one beyond them. All others have defaults."""
_RATES: Final = ("flops", "weights")
_COUNTS: Final = ("lanes", "processors", "tile")
_BY_OP: Final = {"elements": ("nanoseconds", 1e-9), "movement": ("times", 1.0)}
"""Prices that are lists of groups of ops, by what a group has beside its ops, and what that counts."""
_TABLES: Final = ("efficiency", "strided", "powers")


class Reading(Checks):
    """A file of a target on its way to a value."""

    def prices(self, raw: Toml, within: str = "prices.") -> tuple[Prices, dict[str, str]]:
        """Prices from their table, and where each comes from."""
        self.keys(raw, {f.name for f in fields(Prices)} | {"source", "sources", "like"}, within)
        stated: dict[str, Any] = {}
        for key, content in raw.items():
            if key in ("source", "sources", "like"):
                continue
            if (value := self.price(key, content, within + key)) is not None:
                stated[key] = value
        for key in MUST:
            if key not in raw:
                self.wrong(within + key, "to be stated (node, flops, bandwidth and cache are a whole roofline)")
                stated[key] = (1.0, 1.0) if key == "bandwidth" else 1.0
        if "products" in raw:
            stated["products"] = self.products(raw, stated, within)
        return Prices(**stated), self.sources(raw, within)

    def price(self, key: str, value: object, at: str) -> Any:
        """One of ``Prices`` as its table states it; None for what is no price, or is read later."""
        if key == "bandwidth":
            return self.pair(value, at)
        if key in _COUNTS:
            return self.count(value, at)
        if key in _BY_OP:
            return self.by_op(value, at, *_BY_OP[key])
        if key == "free":
            return frozenset(self.names(value, at))
        if key in _TABLES:
            return self.numbers(value, at, key)
        if key == "products" or key not in {f.name for f in fields(Prices)}:
            return None
        return self.number(value, at, above=key in _RATES or key == "node", infinite=key == "weights")

    def pair(self, value: object, at: str) -> tuple[float, float]:
        """One rate, or that within the caches and that beyond them."""
        both = value if isinstance(value, list) else [value, value]
        if len(both) != 2:
            self.wrong(at, "one number, or two: within the caches, and beyond them", value)
            return 1.0, 1.0
        near, far = (self.number(n, at, above=True) for n in both)
        return near, far

    def numbers(self, table: object, at: str, key: str) -> dict[Any, float]:
        """A table of numbers, by name or by exponent."""
        if not isinstance(table, dict):
            self.wrong(at, "a table of numbers", table)
            return {}
        if key == "efficiency":
            self.keys(table, KINDS_OF_PRODUCT, f"{at}.")
        result: dict[Any, float] = {}
        for name, number in table.items():
            where = f"{at}.{name}"
            by: Any = name
            if key == "powers":
                try:
                    by = float(name)
                except ValueError:
                    self.wrong(where, "an exponent")
            result[by] = self.number(number, where, above=key == "efficiency")
        return result

    def products(self, raw: Toml, stated: Toml, within: str) -> dict[str, ProductPrices]:
        """What functions for products take: as stated, or from the part of the roofline that they reach."""
        result: dict[str, ProductPrices] = {}
        for name, row in self.table(raw, "products", within=within).items():
            at = f"{within}products.{name}"
            if not isinstance(row, dict) or set(row) not in ({"part"}, {"call", "step", "moved"}):
                self.wrong(at, "a table of part, or of call, step and moved", row)
            elif "part" in row:
                part = self.number(row["part"], f"{at}.part", above=True)
                near, far = stated["bandwidth"]
                result[name] = ProductPrices(stated["node"], 2 / (part * stated["flops"]), (4 / near, 4 / far))
            else:
                call, step = (self.number(row[k], f"{at}.{k}") for k in ("call", "step"))
                result[name] = ProductPrices(call, step, self.pair(row["moved"], f"{at}.moved"))
        return result

    def sources(self, raw: Toml, within: str) -> dict[str, str]:
        """Where each price comes from; a mistake where one does not say."""
        usual = self.text(raw, "source", within)
        given = self.table(raw, "sources", within=within)
        self.keys(given, {f.name for f in fields(Prices)}, f"{within}sources.")
        result: dict[str, str] = {}
        for key in (f.name for f in fields(Prices) if f.name in raw):
            table = raw[key]
            source = self.text(given, key, f"{within}sources.") or usual
            rows = table if key in _BY_OP and isinstance(table, list) else ()
            for i, row in enumerate(rows):
                if isinstance(row, dict) and isinstance(row.get("ops"), str) and "source" in row:
                    source_of_row = self.text(
                        row, "source", f"{within}{key}[{i - self.inherited.get(f'{within}{key}', 0)}]."
                    )
                    result.update({f"{key}.{op}": source_of_row for op in row["ops"].split()})
            if source:
                result[key] = source
            elif not rows or not all(isinstance(row, dict) and row.get("source") for row in rows):
                self.wrong(f"{within}source", f"where {key} comes from: measured (by what), a data sheet, or assumed")
        return result

    # -- the other tables

    def ops(self, raw: Toml) -> tuple[dict[str, frozenset[str] | None], str]:
        """What results may use, by domain; and where that is known from."""
        table = self.table(raw, "ops")
        result: dict[str, frozenset[str] | None] = {}
        for domain, listed in table.items():
            if domain in ("source", "like"):
                continue
            if not DOMAIN.fullmatch(domain):
                self.wrong(f"ops.{domain}", f"a domain: {ONNX}, com.microsoft")
                continue
            named = "" if domain == ONNX else domain
            result[named] = None if listed == ALL else frozenset(self.names(listed, f"ops.{domain}", DOMAIN))
        if not result:
            if "ops" in raw and not table:
                return {"": None}, ""
            result[""] = None
        source = self.text(table, "source", "ops.")
        if any(listed is not None for listed in result.values()) and not source:
            self.wrong("ops.source", "where the list of ops comes from")
        return result, source

    def layout(self, raw: Toml) -> Layout | None:
        """The blocked layout, where there is one."""
        if "layout" not in raw:
            return None
        keys = ("block", "multiple", "reorder", "keeps", "joins", "pools", "epilogues", "source")
        table = self.table(raw, "layout", keys)
        for key in keys[:6]:
            if key not in table:
                self.wrong(f"layout.{key}", "to be stated")
        keeps, joins, pools = (frozenset(self.names(table.get(k, ""), f"layout.{k}")) for k in keys[3:6])
        return Layout(
            self.count(table.get("block", 1), "layout.block"),
            self.count(table.get("multiple", 1), "layout.multiple"),
            self.number(table.get("reorder", 1.0), "layout.reorder"),
            keeps,
            joins,
            pools,
            self.by_op(table.get("epilogues", []), "layout.epilogues", *_BY_OP["elements"]),
        )

    def opsets(self, raw: Toml) -> tuple[int, int] | None:
        """The first and the last opset."""
        value = raw.get("opsets")
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != 2:
            self.wrong("opsets", "the first and the last opset", value)
            return None
        first, last = (self.count(n, "opsets", most=1000) for n in value)
        if last < first:
            self.wrong("opsets", "the first opset, and a last one that is none before it", value)
        return first, last

    def variants(self, raw: Toml, base: Prices) -> tuple[Variant, ...]:
        """Other prices, by what the device can do."""
        rows = raw.get("variants", [])
        if not isinstance(rows, list):
            self.wrong("variants", "groups [[variants]], each of least and prices", rows)
            return ()
        result: list[Variant] = []
        for i, row in enumerate(rows):
            at = f"variants[{i}]"
            if not isinstance(row, dict):
                self.wrong(at, "a table of least and prices", row)
                continue
            self.keys(row, ("least", "prices"), f"{at}.")
            least = row.get("least")
            if not isinstance(least, list) or not least or len(least) > 4:
                self.wrong(f"{at}.least", "what the device can do at least, as [8, 0] or [16]", least)
                continue
            numbers = tuple(self.count(n, f"{at}.least", 0, 4096) for n in least)
            stated = self.table(row, "prices", within=f"{at}.")
            merged = _merged(_with_sources(self.table(raw, "prices")), _with_sources(stated))
            prices, sources = self.prices(merged, f"{at}.prices.")
            result.append(Variant(numbers, prices, base, sources))
        if [v.least for v in result] != sorted({v.least for v in result}):
            self.wrong("variants", "one for each least, in their order", [list(v.least) for v in result])
        return tuple(result)

    def target(self, name: str, content: Toml) -> Target:
        """The target of a file's content."""
        keys = {
            "summary", "tags", "runtime", "device", "opsets", "ops", "within", "lacking_since", "fusions", "layout",
            "prices", "variants",
        }  # fmt: skip
        self.keys(content, keys)
        raw = self.like(content)
        prices, sources = self.prices(self.table(raw, "prices"))
        takes, source = self.ops(raw)
        device = DEVICES.get(raw["device"]) if isinstance(raw.get("device", ""), str) and "device" in raw else HOST
        if device is None or not isinstance(raw.get("device", ""), str):
            self.wrong("device", f"one of {', '.join(DEVICES)}", raw["device"])
        runtime = self.text(raw, "runtime")
        if runtime not in RUNTIMES:
            self.wrong("runtime", f"one of {', '.join(RUNTIMES[1:])}, or none", runtime)
        since = self.table(raw, "lacking_since")
        fused = self.table(raw, "fusions", ("like", "rules"))
        rules = fused.get("rules", "")
        if not isinstance(rules, str):
            self.wrong("fusions.rules", "rules, as in a rule file", rules)
        inside = self.table(raw, "within", ("like", "ops"))
        return Target(
            name,
            self.text(raw, "summary", default=name),
            prices,
            takes,
            frozenset(self.names(raw.get("tags", name), "tags", NAME, "tags")),
            self.layout(raw),
            rules if isinstance(rules, str) else "",
            {op: self.count(n, f"lacking_since.{op}", most=1000) for op, n in since.items()},
            frozenset(self.names(inside.get("ops", ""), "within.ops")),
            runtime,
            device or HOST,
            opsets=self.opsets(raw),
            variants=self.variants(raw, prices),
            sources={**sources, **({"ops": source} if source else {})},
        )

    def like(self, content: Toml) -> Toml:
        """The content of a file with what its tables take from other targets, by ``like``."""
        raw = dict(content)
        for key in ("prices", "ops", "within", "lacking_since", "fusions"):
            table = content.get(key)
            if not isinstance(table, dict):
                continue
            table = _with_sources(table) if key == "prices" else table
            if "like" in table:
                before = self.shipped(table["like"], f"{key}.like").get(key, {})
                if key == "fusions":
                    joined = (t["rules"] for t in (before, table) if isinstance(t.get("rules"), str))
                    table = {"rules": "".join(joined)} if isinstance(table.get("rules", ""), str) else table
                else:
                    lists = (k for k in _BY_OP if isinstance(before.get(k), list))
                    self.inherited |= {f"{key}.{k}": len(before[k]) for k in lists}
                    table = _merged(before, {k: v for k, v in table.items() if k != "like"})
            raw[key] = table
        return raw

    def shipped(self, name: object, key: str) -> Toml:
        """The content of a target that comes with graphopt; nothing where there is none."""
        if isinstance(name, str) and name in shipped_names():
            return _shipped_content(name)
        self.wrong(key, "the name of a target that comes with graphopt", name)
        return {}


def _merged(first: Toml, second: Toml) -> Toml:
    """A table with another's entries over its own: tables entry by entry, and lists of groups one after the other."""
    result = dict(first)
    for key, value in second.items():
        before = result.get(key)
        if isinstance(before, dict) and isinstance(value, dict) and "part" not in value and "call" not in value:
            result[key] = _merged(before, value)
        elif key in _BY_OP and isinstance(before, list) and isinstance(value, list):
            result[key] = [*before, *value]
        else:
            result[key] = value
    return result


def _with_sources(prices: Toml) -> Toml:
    """A table of prices in which each says where it comes from, so that tables can be merged."""
    usual, given = prices.get("source"), prices.get("sources", {})
    if usual is None or not isinstance(given, dict):
        return prices
    result = {key: value for key, value in prices.items() if key != "source"}
    for key in _BY_OP:
        if isinstance(prices.get(key), list):
            source = given.get(key, usual)
            result[key] = [{"source": source, **row} if isinstance(row, dict) else row for row in prices[key]]
    plain = {f.name: usual for f in fields(Prices) if f.name in result and f.name not in _BY_OP}
    return {**result, "sources": {**plain, **given}}


def _content(path: Path) -> Toml:
    """What a file says. Raises ReadError where it cannot be read, is too large, or is no TOML."""
    import tomllib

    try:
        if not path.is_file():
            raise ReadError(f"{path}: there is no such file")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ReadError(f"{path}: cannot be read as a target: {error.strerror or error}") from None
    except ValueError as error:  # a zero byte in a path
        raise ReadError(f"{str(path)!r}: cannot be read as a target: {error}") from None
    if len(data) > MOST_BYTES:
        raise ReadError(f"{path}: is no target: it has more than {MOST_BYTES} bytes")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ReadError(f"{path}: is no target: byte {error.start} is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise ReadError(f"{path}: is no TOML: {' '.join(str(error).split())}") from None


def _read(path: Path, content: Toml) -> tuple[Target, list[str]]:
    """The target of a file's content, and what is wrong in it."""
    reading = Reading(str(path))
    name = path.name.removesuffix(SUFFIX)
    if not NAME.fullmatch(name):
        reading.mistakes.append(f"{path}: expected a file name of letters, digits and - . _, then {SUFFIX}")
    elif name in shipped_names() and path.parent.resolve() != FOLDER.resolve():
        reading.mistakes.append(f"{path}: expected another file name: {name} is a target that comes with graphopt")
    try:
        result = reading.target(name, content)
    except (ArithmeticError, RecursionError) as error:  # numbers that make no sense together
        reading.mistakes.append(f"{path}: prices: expected numbers of use together ({error})")
        result = Target(name, name, Prices(1.0, 1.0, (1.0, 1.0), 1.0))
    if path.parent.resolve() != FOLDER.resolve():
        result = replace(result, digest=_digest(content))
        reading.mistakes += () if reading.mistakes else _unknown_ops(path, result)
    return result, list(dict.fromkeys(reading.mistakes))


def _digest(content: Toml) -> str:
    """The digest of what a file says, whatever its comments and spaces."""
    import hashlib
    import json

    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _unknown_ops(path: Path, target: Target) -> Iterator[str]:
    """Mistakes: names in ONNX's own domain that it has no op for."""
    from graphopt.ir import ops  # only a file of a user's needs the schemas, which take long to load

    named = {
        "ops.ai.onnx": target.ops.get("") or (),
        "within.ops": target.within,
        "lacking_since": target.lacking_since,
        "prices.elements": {name.partition(".")[0] for name in target.prices.elements if "::" not in name},
        "prices.movement": {name.partition(".")[0] for name in target.prices.movement if "::" not in name},
        "prices.free": target.prices.free,
    }
    for key, listed in named.items():
        for name in sorted(n for n in listed if "::" not in n and n not in ops.names() and ops.schema(n) is None):
            yield f"{path}: {key}: expected ops of ONNX, not {name}{nearest(name, ops.names())}"


def mistakes(path: str | os.PathLike[str]) -> list[str]:
    """What is wrong in a target's file, a line each: the file, the key, and what was expected. Raises ReadError where
    it cannot be read, or is no TOML."""
    file = Path(path)
    return _read(file, _content(file))[1][:MOST_MISTAKES]


def read(path: str | os.PathLike[str]) -> Target:
    """The target of a file, which is called as the file is. Raises ReadError with the file and the key of what is wrong
    in it."""
    file = Path(path)
    result, wrong = _read(file, _content(file))
    if wrong:
        more = f" (and {len(wrong) - 1} more: graphopt target check {file})" if len(wrong) > 1 else ""
        raise ReadError(wrong[0] + more)
    return result


@cache
def shipped_names() -> tuple[str, ...]:
    """The targets that come with graphopt, in order of name, but for the one that holds for all."""
    return tuple(sorted((p.stem for p in FOLDER.glob(f"*{SUFFIX}")), key=lambda n: (n != "portable", n)))


@cache
def _shipped_content(name: str) -> Toml:
    """What the file of a target that comes with graphopt says, its tables complete."""
    path = FOLDER / (name + SUFFIX)
    return Reading(str(path)).like(_content(path))
