"""Targets as plain data: the ops that each takes, the rules that are for it, and what its work costs.

A target is a frozen value, and a file that anyone can write: ``graphopt/targets`` has those that come with graphopt.
Its prices are a roofline (how fast products, how fast memory, what a call costs) of five numbers, with exceptions by
op; its ``Layout``, where it has one, says which ops compute in a blocked layout of their own and what entering and
leaving that layout costs; its ``fusions`` name the groups of ops that its runtime makes into one by itself, so that a
rewrite which does no more than that is not rewarded. Nothing here computes: ``rewrite.extract.cost`` reads these
numbers.

Files are TOML from anybody: keys, types and ranges are checked, and nothing in them is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, Final

from graphopt.errors import ReadError, UsageError, nearest, nearest_or_some


@dataclass(frozen=True)
class DeviceKind:
    """What programs run on, by what it can do. Nobody asks for its name but to print it."""

    name: str
    is_host: bool = False
    """Programs run in this process, on the caller's own arrays, by machine code that can be kept."""
    has_blocks: bool = False
    """Loops are bound to blocks of threads, and functions of libraries compute products beside our own."""
    has_machine_code: bool = True
    """Kernels become machine code, which can be written, and timed; else Python stands in for the device."""


HOST: Final = DeviceKind("cpu", is_host=True)
GPU: Final = DeviceKind("cuda", has_blocks=True)
SIMULATION: Final = DeviceKind("simulated", has_blocks=True, has_machine_code=False)
DEVICES: Final[Mapping[str, DeviceKind]] = {d.name: d for d in (HOST, GPU, SIMULATION)}
"""What programs can run on, by the name that files have for it."""


@dataclass(frozen=True)
class ProductPrices:
    """What a product of matrices of float32 takes in one of our functions for it: seconds, for one thread."""

    call: float
    """To call it."""
    step: float
    """For each multiplication and addition."""
    moved: tuple[float, float]
    """For each element of an operand that is arranged anew: of one that lies in the second cache, and of others."""

    def seconds(self, steps: float, moved: float, bits: int) -> float:
        """So many multiplications of operands of so many bits and elements in all, on a device: the longer of
        arithmetic and memory. It is what schedules and the e-graph go by both."""
        return self.call + bits / 32 * max(self.step * steps, self.moved[1] * moved)


KINDS_OF_CONVOLUTION: Final = {
    "dense": "convolutions of many channels",
    "narrow": "convolutions of fewer than eight input channels",
    "grouped": "convolutions in groups",
    "depthwise": "convolutions of one channel each",
}
KINDS_OF_PRODUCT: Final = {
    "matmul": "matrix products",
    "recurrent": "LSTM, GRU and RNN: many small products in a row",
    "pointwise": "convolutions of many channels and no windows, as matrix products",
    **KINDS_OF_CONVOLUTION,
    **{f"blocked {kind}": f"{what}, in a blocked layout" for kind, what in KINDS_OF_CONVOLUTION.items()},
    "blocked winograd": "convolutions by Winograd's minimal filtering, in a blocked layout",
}
"""The kinds of products that have an efficiency of their own."""


@dataclass(frozen=True)
class Prices:
    """What work costs. All times are seconds, for one thread. The first four fields are a whole roofline."""

    node: float
    """To call an op, whatever it does."""
    flops: float
    """Multiplications and additions a second that a large product of matrices reaches."""
    bandwidth: tuple[float, float]
    """Bytes a second that an op reads and writes: within the caches, and beyond them."""
    cache: float
    """How many bytes of an op's operands count as within the caches."""
    lanes: int = 1
    """Columns of a product, and output channels of a convolution, that are computed at a time: as many are computed as
    fill them up."""
    efficiency: Mapping[str, float] = field(default_factory=dict)
    """By one of ``KINDS_OF_PRODUCT``, the part of ``flops`` that it reaches, if not all."""
    elements: Mapping[str, float] = field(default_factory=dict)
    """By op: seconds for each element, where arithmetic and not memory is what takes long."""
    movement: Mapping[str, float] = field(default_factory=dict)
    """By op that only moves data: how many times dearer its bytes are than those of a plain copy."""
    span: float = 0.0
    """For each contiguous run of elements that a broadcasting op works on at a time."""
    matrix: float = 0.0
    """For each matrix of a product of many."""
    store: float = 0.0
    """To store an element of a product of matrices takes as long as so many multiplications."""
    weights: float = inf
    """Bytes a second at which constants come from memory: other layers have driven them out of the caches."""
    strided: Mapping[str, float] = field(default_factory=dict)
    """By op (reductions under ``Reduce``): seconds for each element where the axis is not the last."""
    run: float = 0.0
    """For each run of neighbouring elements that an op which moves data copies at a time."""
    edge: float = 0.0
    """Columns' worth of work that a product costs beyond its columns."""
    scattered: float = 0.0
    """Seconds for each element of a Transpose that does more than move one axis, or rows."""
    powers: Mapping[float, float] = field(default_factory=dict)
    """Seconds for each element of a Pow whose exponent is one of these."""
    stored_byte: float = 1e-13
    """For each byte of constants that an op reads: decides between equals in favour of the smaller file."""
    processors: int = 1
    """How many tiles of a product are computed at a time,"""
    tile: int = 1
    """each of so many rows and columns of its result."""
    short_rows: float = 0.0
    """How many times as long a convolution of plain images takes, by vectors along rows, whose rows fill none; 0 where
    the length of rows does not matter."""
    strided_rows: float = 1.0
    """The same of one whose rows are read in strides."""
    open_rows: float = 1.0
    """The same of one of whose rows it is not known how long they are."""
    signed: float = 1.0
    """How many times as long a product of bytes takes as one of bytes without signs, where its first operand has
    them."""
    columns: float = 0.0
    """Columns' worth of work that a convolution costs beyond its columns, where it is a product of matrices."""
    free: frozenset[str] = frozenset()
    """Ops for which nothing is called: what they make is looked at where it is."""
    products: Mapping[str, ProductPrices] = field(default_factory=dict)
    """By function that computes products of matrices: what these take."""


@dataclass(frozen=True)
class Variant:
    """Other prices, for devices that can do as much as ``least`` says, until a later variant asks for more.

    ``least`` is a GPU's compute capability (``(8, 0)``), or how many elements of float32 the processor's vectors hold
    (``(16,)``).
    """

    least: tuple[int, ...]
    prices: Prices = field(hash=False)
    base: Prices = field(hash=False)
    """The prices that these take the place of: those of a target whose prices were changed since are its user's."""
    sources: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)


@dataclass(frozen=True)
class Layout:
    """A blocked layout of images (``[N, C/block, H, W, block]``) that a runtime uses inside, by a policy of its own.

    Convolutions with constant weights compute in it, if their channels allow, and pools whose
    channels fill blocks: both enter it for that. Others stay in it where what they read is there.
    """

    block: int
    """Channels in a block."""
    multiple: int
    """Input channels of a convolution come in multiples of this; below ``block`` it reads the plain layout instead."""
    reorder: float
    """How many times dearer the bytes of entering or leaving the layout are than those of a plain copy."""
    keeps: frozenset[str]
    """Elementwise ops of one input that stay in the layout."""
    joins: frozenset[str]
    """Ops of several inputs that stay where all have the layout and equal shapes."""
    pools: frozenset[str]
    """Ops over windows of an image that compute in the layout."""
    epilogues: Mapping[str, float]
    """Ops that a convolution applies to what it writes, where nobody else reads that: seconds an element."""


@dataclass(frozen=True)
class Target:
    """A runtime, as far as rewriting cares.

    ``ops`` lists what results may use, by domain: None stands for every op of the domain that the
    model's opset has. ``tags`` are the names under which rules call this target (``for ort``).
    ``fusions`` are rules, in the syntax of rule files, that the runtime applies by itself.
    """

    name: str
    summary: str
    prices: Prices = field(hash=False)
    ops: Mapping[str, frozenset[str] | None] = field(default_factory=lambda: {"": None}, hash=False)
    tags: frozenset[str] = frozenset()
    layout: Layout | None = field(default=None, hash=False)
    fusions: str = ""
    lacking_since: Mapping[str, int] = field(default_factory=dict, hash=False, repr=False)
    """By op: the opset from which on there is no kernel for it, because that opset states it anew."""
    within: frozenset[str] = frozenset()
    """Ops that run within the loops of what they read or are read by: what they take alone says nothing."""
    runtime: str = ""
    """The engine (``engines``) in which its prices can be measured, where there is one."""
    device: DeviceKind = HOST
    """What programs for it run on."""
    measured: Mapping[str, float] | None = field(default=None, hash=False, repr=False)
    """Seconds that calls took, by ``rewrite.workload``; what is not among them is priced by ``prices``."""
    paces: Mapping[str, float] = field(default_factory=dict, hash=False, repr=False)
    """By call, by op, and under no name for all others: how many times as long as ``prices`` say those take that are
    not among them."""
    opsets: tuple[int, int] | None = None
    """The first and the last opset that it reads, where that is known."""
    variants: tuple[Variant, ...] = field(default=(), hash=False, repr=False)
    """Other prices, by what the device that is there can do; the least first."""
    sources: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    """Where each number comes from, by the field of ``Prices`` (``flops``), or that and the op (``elements.Pow``); the
    list of ops under ``ops``."""

    @property
    def makes_models(self) -> bool:
        """Whether what is optimized for it is an ONNX model: no op of ours is in it."""
        return "graphopt" not in self.ops

    def allows(self, op: str, opset: int = 0) -> bool:
        """Whether results of an opset may use the op (``domain::Name``, or a name of ONNX's own)."""
        if opset >= self.lacking_since.get(op, inf):
            return False
        domain, _, name = op.rpartition("::")
        allowed = self.ops.get(domain, frozenset())
        return allowed is None or name in allowed

    def reads(self, opset: int) -> bool:
        """Whether it reads models of the opset, as far as that is known."""
        return self.opsets is None or self.opsets[0] <= opset <= self.opsets[1]


def ops(names: str) -> frozenset[str]:
    """The set of the ops named in a text, with spaces between."""
    return frozenset(names.split())


# -- what no file says yet

DEVICE_FUNCTIONS: Mapping[frozenset[str], tuple[str, ...]] = {
    ops("MatMul Gemm com.microsoft::FusedMatMul com.microsoft::FusedGemm"): ("gemm", "product"),
    ops("Conv com.microsoft::FusedConv"): ("convolution", "product"),
}
"""By op: the functions of a device that compute it, those of libraries first. The fastest does, by ``Prices.products``,
which has those that are there."""


# -- reading a file

FOLDER: Final = Path(__file__).parent / "targets"
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

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OP = re.compile(r"(?:[A-Za-z][\w.-]*::)?[A-Za-z]\w*")
_DOMAIN = re.compile(r"[A-Za-z][\w.-]*")

MUST: Final = ("node", "flops", "bandwidth", "cache")
"""The prices that a file states, or takes from another target: five numbers, for there is a bandwidth within the caches
and one beyond them. All others have defaults."""
_RATES: Final = ("flops", "weights")
_COUNTS: Final = ("lanes", "processors", "tile")
_BY_OP: Final = {"elements": ("nanoseconds", 1e-9), "movement": ("times", 1.0)}
"""Prices that are lists of groups of ops, by what a group has beside its ops, and what that counts."""
_TABLES: Final = ("efficiency", "strided", "powers")
_LARGEST: Final = 1e30

Toml = dict[str, Any]


class _Absent:
    def __str__(self) -> str:
        return "nothing"


_ABSENT: Final = _Absent()


class _Reading:
    """A file of a target on its way to a value: mistakes are collected, and what is around them is read on."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.mistakes: list[str] = []
        self.inherited: dict[str, int] = {}
        """By key, how many groups come before the file's own, by ``like``."""

    def wrong(self, key: str, expected: str, value: object = _ABSENT) -> None:
        """Note a mistake: the key, what was expected there, and what stands there."""
        shown = f", not {_shown(value)}" if value is not _ABSENT else ""
        self.mistakes.append(f"{self.file}: {key}: expected {expected}{shown}")

    def table(self, of: Toml, key: str, keys: Collection[str] | None = None, within: str = "") -> Toml:
        """The table of a key, with none but the known keys; empty where there is none."""
        table, name = of.get(key, {}), f"{within}{key}"
        if not isinstance(table, dict):
            self.wrong(name, "a table", table)
            return {}
        if keys is not None:
            self.keys(table, keys, f"{name}.")
        return table

    def keys(self, table: Toml, keys: Collection[str], within: str = "") -> None:
        """Note the keys of a table that mean nothing."""
        for key in table:
            if key not in keys:
                hint = nearest(key, keys).removeprefix("; ") or f"there are {', '.join(sorted(keys))}"
                self.mistakes.append(f"{self.file}: {within}{key}: expected a known key; {hint}")

    def text(self, of: Toml, key: str, within: str = "", default: str = "", most: int = 300) -> str:
        """A line of text."""
        value = of.get(key, default)
        if isinstance(value, str) and len(value) <= most and value.isprintable():
            return value
        self.wrong(within + key, f"a line of text of {most} characters at most", value)
        return default

    def number(self, value: object, key: str, least: float = 0.0, above: bool = False, infinite: bool = False) -> float:
        """A number of at least so much, or above that."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            if infinite and value == inf:
                return inf
            fits = value > least or (value == least and not above)
            if fits and value <= _LARGEST:  # no number that is none fits
                return float(value)
        self.wrong(key, f"a number {'above' if above else 'of at least'} {least:g}", value)
        return max(least, 1.0)

    def count(self, value: object, key: str, least: int = 1, most: int = 1 << 20) -> int:
        """A whole number."""
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        self.wrong(key, f"a whole number from {least} to {most}", value)
        return least

    def names(self, value: object, key: str, form: re.Pattern[str] = _OP, what: str = "ops") -> list[str]:
        """Names with spaces between."""
        if not isinstance(value, str):
            self.wrong(key, f"names of {what} with spaces between, as one text", value)
            return []
        listed = value.split()
        for name in listed:
            if not form.fullmatch(name):
                self.wrong(key, f"names of {what}", name)
        return listed

    def rows(self, table: object, key: str, value: str) -> Iterator[tuple[str, Toml, list[str]]]:
        """Groups of ops: the key of each, the group, its ops."""
        if not isinstance(table, list):
            self.wrong(key, f"groups [[{key}]], each of {value} and ops", table)
            return
        for i, row in enumerate(table):
            at = f"{key}[{i - self.inherited.get(key, 0)}]"
            if not isinstance(row, dict):
                self.wrong(at, f"a table of {value} and ops", row)
                continue
            self.keys(row, (value, "ops", "source"), f"{at}.")
            for needed in (value, "ops"):
                if needed not in row:
                    self.wrong(f"{at}.{needed}", "to be stated")
            yield at, row, self.names(row["ops"], f"{at}.ops") if "ops" in row else []

    def by_op(self, table: object, key: str, value: str, unit: float) -> dict[str, float]:
        """Numbers by op, from groups of them; later groups count."""
        result: dict[str, float] = {}
        for at, row, listed in self.rows(table, key, value):
            if value in row:
                result.update(dict.fromkeys(listed, self.number(row[value], f"{at}.{value}") * unit))
        return result

    # -- prices

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
            if not _DOMAIN.fullmatch(domain):
                self.wrong(f"ops.{domain}", f"a domain: {ONNX}, com.microsoft")
                continue
            named = "" if domain == ONNX else domain
            result[named] = None if listed == ALL else frozenset(self.names(listed, f"ops.{domain}", _DOMAIN))
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
            frozenset(self.names(raw.get("tags", name), "tags", _NAME, "tags")),
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
        if isinstance(name, str) and name in TARGETS:
            return _shipped_content(name)
        self.wrong(key, "the name of a target that comes with graphopt", name)
        return {}


def _shown(value: object) -> str:
    text = repr(value) if value is not None else "nothing"
    return text if len(text) <= 60 else f"{text[:57]}..."


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
    reading = _Reading(str(path))
    name = path.name.removesuffix(SUFFIX)
    if not _NAME.fullmatch(name):
        reading.mistakes.append(f"{path}: expected a file name of letters, digits and - . _, then {SUFFIX}")
    elif name in TARGETS and path.parent.resolve() != FOLDER.resolve():
        reading.mistakes.append(f"{path}: expected another file name: {name} is a target that comes with graphopt")
    try:
        result = reading.target(name, content)
    except (ArithmeticError, RecursionError) as error:  # numbers that make no sense together
        reading.mistakes.append(f"{path}: prices: expected numbers of use together ({error})")
        result = Target(name, name, Prices(1.0, 1.0, (1.0, 1.0), 1.0))
    return result, list(dict.fromkeys(reading.mistakes))


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


# -- finding one


@cache
def _shipped_content(name: str) -> Toml:
    """What the file of a target that comes with graphopt says, its tables complete."""
    path = FOLDER / (name + SUFFIX)
    return _Reading(str(path)).like(_content(path))


@cache
def _shipped(name: str) -> Target:
    return read(FOLDER / (name + SUFFIX))


class _Targets(Mapping[str, Target]):
    """The targets that come with graphopt, each read when it is asked for."""

    def __getitem__(self, name: str) -> Target:
        if name not in self._names():
            raise KeyError(name)
        return _shipped(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    @staticmethod
    @cache
    def _names() -> tuple[str, ...]:
        """In order of name, but for the one that holds for all."""
        return tuple(sorted((p.stem for p in FOLDER.glob(f"*{SUFFIX}")), key=lambda n: (n != "portable", n)))


TARGETS: Final[Mapping[str, Target]] = _Targets()
"""The targets that come with graphopt, by name; each is read when it is asked for."""

PORTABLE: Target
ORT: Target
CPU: Target
CUDA: Target
SIMULATED: Target
T4: Target


def __getattr__(name: str) -> Target:
    """A target that comes with graphopt, by its name in capitals: ``PORTABLE``."""
    spelled = name.lower().replace("_", "-")
    if not name.isupper() or spelled not in TARGETS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return TARGETS[spelled]


def is_file(name: str) -> bool:
    """Whether a text means a file, and not a target that comes with graphopt."""
    return name.endswith(SUFFIX) or "/" in name or os.sep in name


def target(name: str | os.PathLike[str] | Target, makes_models: bool | None = None) -> Target:
    """The target of this name, that of a file (``mine.toml``), or the target itself.

    UsageError, with the nearest names, where there is none, ReadError where its file is wrong; ``makes_models`` is
    which of them are of use.
    """
    if isinstance(name, Target):
        return name
    if not isinstance(name, str) or is_file(name):
        return read(name)
    if name in TARGETS:
        return TARGETS[name]
    there = [t.name for t in TARGETS.values() if makes_models in (None, t.makes_models)]
    raise UsageError(f"no target is called {name!r}{nearest_or_some(name, there)}")
