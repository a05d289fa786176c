"""Small models in which exporters' ways of computing sizes stand, drawn from a seed.

Each pattern is a function of a generator that gives the nodes of a model as text. Its inputs are images ``x`` of
``[b, 3, h, w]`` and ``z`` of ``[b, 3, p, q]``, and sequences ``s`` of ``[b, n, 8]``, of which it reads what it wants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np
import onnx
import onnx.parser

INPUTS = {"x": "float[b,3,h,w]", "z": "float[b,3,p,q]", "s": "float[b,n,8]"}
SCALES = (0.25, 0.3, 0.5, 0.6, 0.7, 0.75, 1.1, 1.25, 1.3, 1.5, 2.0, 2.5, 3.0, 1 / 3, 4.0)
Pattern = Callable[["Writer"], None]


@dataclass
class Writer:
    """The nodes of a model, written one after another."""

    rng: np.random.Generator

    def __post_init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, str] = {}
        self.names = (f"v{i}" for i in count())

    def __call__(self, op: str, *inputs: str, **attributes: object) -> str:
        """Another node; its output."""
        name = next(self.names)
        spelled = ", ".join(f"{k} = {v}" for k, v in attributes.items())
        self.lines.append(f"{name} = {op}{f' <{spelled}>' if spelled else ''} ({', '.join(inputs)})")
        return name

    def ints(self, *values: int, scalar: bool = False) -> str:
        """A constant of whole numbers."""
        return self._constant("int64", [str(v) for v in values], scalar)

    def floats(self, *values: float, scalar: bool = False, dtype: str = "float") -> str:
        """A constant of floats."""
        return self._constant(dtype, [repr(float(v)) for v in values], scalar)

    def _constant(self, dtype: str, values: list[str], scalar: bool) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = (
            f"{dtype} {name} = {{{values[0]}}}"
            if scalar
            else (f"{dtype}[{len(values)}] {name} = {{{', '.join(values)}}}")
        )
        return name

    def one_of(self, *values: object) -> object:
        """One of some values, by chance."""
        return values[int(self.rng.integers(len(values)))]

    def scale(self) -> float:
        """A scale by chance."""
        return float(SCALES[int(self.rng.integers(len(SCALES)))])

    def size(self, value: str, axis: int, scalar: bool = True) -> str:
        """A size of a value, read off in one of the ways of exporters."""
        match self.rng.integers(3):
            case 0:
                return self("Gather", self("Shape", value), self.ints(axis, scalar=scalar), axis=0)
            case 1:
                taken = self("Slice", self("Shape", value), self.ints(axis), self.ints(axis + 1), self.ints(0))
            case _:
                taken = self("Shape", value, start=axis, end=axis + 1)
        return self("Squeeze", taken, self.ints(0)) if scalar else taken

    def vector(self, *sizes: str | int) -> str:
        """Scalars and numbers as a vector."""
        parts = [self.ints(s) if isinstance(s, int) else self("Unsqueeze", s, self.ints(0)) for s in sizes]
        return self("Concat", *parts, axis=0)

    def real(self, size: str, dtype: int = 1) -> str:
        """A size as a float."""
        return self("Cast", size, to=dtype)

    def whole(self, number: str) -> str:
        """A float as a whole number."""
        return self("Cast", number, to=7)

    def returned(self, value: str) -> None:
        """Let the model give a value."""
        self.lines.append(f"y = Identity ({value})")


def model(pattern: Pattern, seed: int) -> onnx.ModelProto:
    """The model of a pattern and a seed, with an output of unknown sizes."""
    write = Writer(np.random.default_rng(seed))
    pattern(write)
    body = "\n".join(write.lines)
    read = [f"{kind} {name}" for name, kind in INPUTS.items() if f"({name}" in body or f" {name}" in body]
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    g ({", ".join(read)}) => (float y) <{", ".join(write.constants.values())}> {{
    {body}
    }}"""
    proto = onnx.parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return proto


# -- sizes of images


def _resized(w: Writer, value: str, sizes: list[str]) -> None:
    """The image in other sizes, as exporters ask for them."""
    match w.rng.integers(3):
        case 0:
            target = w(
                "Concat", w("Slice", w("Shape", value), w.ints(0), w.ints(2), w.ints(0)), w.vector(*sizes), axis=0
            )
            w.returned(w("Resize", value, "", "", target, mode='"nearest"'))
        case 1:
            target = w.vector(*sizes)
            w.returned(w("Resize", value, "", "", target, axes="[2, 3]", mode='"linear"'))
        case _:
            target = w("Concat", w.ints(1, 3), w.vector(*sizes), axis=0)
            row = w("Slice", value, w.ints(0), w.ints(1), w.ints(0))
            shape = w("Concat", w.ints(1, 3), w.vector(w.size(value, 2), w.size(value, 3)), axis=0)
            w.returned(w("Resize", w("Reshape", row, shape), "", "", target, mode='"nearest"'))


def scaled_sizes(w: Writer) -> None:
    """torch's interpolate: floor(float(size) * scale) as a size."""
    scale = w.scale()
    dtype = int(w.one_of(1, 1, 11))  # type: ignore[call-overload]
    factor = w.floats(scale, scalar=True, dtype="float" if dtype == 1 else "double")
    sizes = []
    for axis in (2, 3):
        product = w("Mul", w.real(w.size("x", axis), dtype), factor)
        rounding = w.one_of("Floor", "Floor", "Ceil", "Round", None)
        sizes.append(w.whole(w(str(rounding), product) if rounding else product))
    _resized(w, "x", sizes)


def scaled_all_at_once(w: Writer) -> None:
    """Both sizes scaled in one vector."""
    sizes = w("Slice", w("Shape", "x"), w.ints(2), w.ints(4), w.ints(0))
    factor = w.floats(w.scale(), w.scale())
    scaled = w.whole(w("Floor", w("Mul", w.real(sizes), factor)))
    head = w("Slice", w("Shape", "x"), w.ints(0), w.ints(2), w.ints(0))
    w.returned(w("Resize", "x", "", "", w("Concat", head, scaled, axis=0), mode='"linear"'))


def scales(w: Writer) -> None:
    """Resize by scales that are constants."""
    w.returned(w("Resize", "x", "", w.floats(1, 1, w.scale(), w.scale()), mode='"nearest"'))


def computed_scales(w: Writer) -> None:
    """Resize by scales that are quotients of sizes, as older exporters write them."""
    ratios = [w("Div", w.real(w.size("z", a)), w.real(w.size("x", a))) for a in (2, 3)]
    parts = [w("Unsqueeze", r, w.ints(0)) for r in ratios]
    w.returned(w("Resize", "x", "", w("Concat", w.floats(1, 1), *parts, axis=0), mode='"nearest"'))


def as_other(w: Writer) -> None:
    """Paddle's and torch's upsampling to the sizes of another map."""
    sizes = w("Slice", w("Shape", "z"), w.ints(2), w.ints(4), w.ints(0))
    if w.one_of(True, False):
        sizes = w.whole(w("Cast", sizes, to=6))
    head = w("Slice", w("Shape", "x"), w.ints(0), w.ints(2), w.ints(0))
    w.returned(w("Resize", "x", "", "", w("Concat", head, sizes, axis=0), mode='"linear"'))


def halved(w: Writer) -> None:
    """An image in parts of whole numbers: size // k, rounded up or down."""
    k = int(w.one_of(2, 3, 4, 7))  # type: ignore[call-overload]
    sizes = []
    for axis in (2, 3):
        size = w.size("x", axis)
        match w.rng.integers(5):
            case 0:
                sizes.append(w("Div", size, w.ints(k, scalar=True)))
            case 1:
                sizes.append(w.whole(w("Floor", w("Div", w.real(size), w.floats(k, scalar=True)))))
            case 2:
                sizes.append(w.whole(w("Ceil", w("Div", w.real(size), w.floats(k, scalar=True)))))
            case 3:
                more = w("Add", size, w.ints(k - 1, scalar=True))
                sizes.append(w("Div", more, w.ints(k, scalar=True)))
            case _:
                sizes.append(w.whole(w("Div", w.real(size), w.floats(k, scalar=True))))
    _resized(w, "x", sizes)


def multiples(w: Writer) -> None:
    """OCR's sizes: multiples of 32, at least one of them, at most so many."""
    k = int(w.one_of(8, 16, 32))  # type: ignore[call-overload]
    sizes = []
    for axis in (2, 3):
        size = w.size("x", axis)
        match w.rng.integers(3):
            case 0:
                part = w.whole(w("Round", w("Div", w.real(size), w.floats(k, scalar=True))))
            case 1:
                part = w("Div", size, w.ints(k, scalar=True))
            case _:
                part = w.whole(w("Ceil", w("Div", w.real(size), w.floats(k, scalar=True))))
        at_least = w("Max", w("Mul", part, w.ints(k, scalar=True)), w.ints(k, scalar=True))
        sizes.append(at_least)
    _resized(w, "x", sizes)


def clipped(w: Writer) -> None:
    """Sizes that are the less or the greater of two."""
    sizes = []
    for axis in (2, 3):
        size, other = w.size("x", axis), w.size("z", axis)
        match w.rng.integers(5):
            case 0:
                sizes.append(w("Min", size, w.ints(9, scalar=True)))
            case 1:
                sizes.append(w("Max", size, other))
            case 2:
                sizes.append(w("Clip", size, w.ints(4, scalar=True), w.ints(11, scalar=True)))
            case 3:
                sizes.append(w("Where", w("Greater", size, other), size, other))
            case _:
                enough = w("Less", size, w.ints(8, scalar=True))
                sizes.append(w("Where", enough, w.ints(8, scalar=True), size))
    _resized(w, "x", sizes)


def aspect_ratio(w: Writer) -> None:
    """A letterbox: both sizes times the least of two ratios."""
    h, v = w.real(w.size("x", 2)), w.real(w.size("x", 3))
    ratio = w("Min", w("Div", w.floats(16, scalar=True), h), w("Div", w.floats(24, scalar=True), v))
    rounding = str(w.one_of("Floor", "Round", "Ceil"))
    _resized(w, "x", [w.whole(w(rounding, w("Mul", size, ratio))) for size in (h, v)])


def kept_ratio(w: Writer) -> None:
    """Resize that keeps the ratio itself."""
    policy = str(w.one_of('"not_larger"', '"not_smaller"'))
    sizes = w.vector(w.size("z", 2), w.size("z", 3))
    w.returned(w("Resize", "x", "", "", sizes, axes="[2, 3]", keep_aspect_ratio_policy=policy, mode='"nearest"'))


def padded_to_multiples(w: Writer) -> None:
    """Swin's windows: padded to a multiple of the window, cut into windows, and merged again."""
    k = int(w.one_of(2, 4, 7))  # type: ignore[call-overload]
    pads = []
    for axis in (2, 3):
        left = w("Mod", w.size("x", axis), w.ints(k, scalar=True))
        rest = w("Sub", w.ints(k, scalar=True), left)
        pads.append(w("Mod", rest, w.ints(k, scalar=True)))
    zero = w.ints(0, scalar=True)
    padded = w("Pad", "x", w.vector(zero, zero, zero, zero, zero, zero, *pads))
    if w.one_of(True, False):
        w.returned(padded)
        return
    high = w("Div", w.size(padded, 2), w.ints(k, scalar=True))
    wide = w("Div", w.size(padded, 3), w.ints(k, scalar=True))
    cut = w("Reshape", padded, w.vector(w.size("x", 0), 3, high, k, wide, k))
    moved = w("Transpose", cut, perm="[0, 2, 4, 3, 5, 1]")
    w.returned(w("Reshape", moved, w.ints(-1, k, k, 3)))


def pixel_shuffle(w: Writer) -> None:
    """Pixels into channels by reshapes, the number of blocks computed."""
    high, wide = w.size("x", 2), w.size("x", 3)
    big = w("Resize", "x", "", w.floats(1, 1, 2, 2), mode='"nearest"')
    shape = w.vector(w.size("x", 0), 3, high, 2, wide, 2)
    moved = w("Transpose", w("Reshape", big, shape), perm="[0, 1, 3, 5, 2, 4]")
    w.returned(w("Reshape", moved, w.vector(w.size("x", 0), 12, high, wide)))


def batched(w: Writer) -> None:
    """A batch that is divided by another product of sizes: the quotient is a number."""
    k = int(w.one_of(2, 3, 4))  # type: ignore[call-overload]
    high, wide, batch = (w.size("x", a) for a in (2, 3, 0))
    spots = w("Mul", w("Add", high, w.ints(1, scalar=True)), wide)
    rows = w("Mul", w("Mul", spots, batch), w.ints(8 * k, scalar=True))
    zeros = w("ConstantOfShape", w("Unsqueeze", rows, w.ints(0)))
    low = w("Mul", spots, w.ints(8, scalar=True))
    count = w("Div", rows, low)
    w.returned(w("Reshape", zeros, w.vector(count, 2, 4, w("Add", high, w.ints(1, scalar=True)), wide)))


def cut_to_other(w: Writer) -> None:
    """A transposed convolution's result cut to the sizes of a skip connection."""
    weights = w("ConstantOfShape", w.ints(3, 3, 3, 3))
    up = w("ConvTranspose", "x", weights, strides="[2, 2]")
    ends = w.vector(w.size("z", 2), w.size("z", 3))
    w.returned(w("Slice", up, w.ints(0, 0), ends, w.ints(2, 3)))


def centre(w: Writer) -> None:
    """The middle of an image: its offset is half of a difference."""
    pads = []
    for axis in (2, 3):
        difference = w("Sub", w.size("x", axis), w.ints(4, scalar=True))
        offset = w("Div", difference, w.ints(2, scalar=True))
        if w.one_of(True, False):
            half = w("Mul", w.real(difference), w.floats(0.5, scalar=True))
            offset = w.whole(w(str(w.one_of("Round", "Floor", "Ceil")), half))
        pads.append(offset)
    ends = w.vector(*(w("Add", p, w.ints(4, scalar=True)) for p in pads))
    w.returned(w("Slice", "x", w.vector(*pads), ends, w.ints(2, 3)))


def convolved(w: Writer) -> None:
    """Maps of a convolution and a pool, flattened; the count of anchors as the product of sizes."""
    weights = w("ConstantOfShape", w.ints(6, 3, 3, 3))
    maps = w("Conv", "x", weights, strides="[2, 2]", pads="[1, 1, 1, 1]")
    if w.one_of(True, False):
        maps = w("MaxPool", maps, kernel_shape="[2, 2]", strides="[2, 2]", ceil_mode=int(w.rng.integers(2)))
    count = w("ReduceProd", w("Slice", w("Shape", maps), w.ints(2), w.ints(4), w.ints(0)), keepdims=1)
    parts = w("Div", w.ints(6), w.ints(2))
    shape = w("Concat", w("Shape", maps, start=0, end=1), parts, w("Mul", count, w.ints(2)), axis=0)
    w.returned(w("Reshape", maps, shape))


def grid(w: Writer) -> None:
    """A mesh of coordinates as wide and high as an image, for a stride."""
    stride = w.floats(int(w.one_of(2, 4, 8)), scalar=True)  # type: ignore[call-overload]
    rows = []
    for axis in (2, 3):
        limit = w.whole(w("Ceil", w("Div", w.real(w.size("x", axis)), stride)))
        rows.append(w("Range", w.ints(0, scalar=True), limit, w.ints(1, scalar=True)))
    high, wide = (w("Shape", r) for r in rows)
    column = w("Unsqueeze", w.real(rows[0]), w.ints(1))
    w.returned(w("Expand", column, w("Concat", high, wide, axis=0)))


def real_range(w: Writer) -> None:
    """A range of floats: from a half on, by a step."""
    step = float(w.one_of(1.0, 0.5, 2.0, 0.3))  # type: ignore[arg-type]
    start = w.floats(float(w.one_of(0.0, 0.5)), scalar=True)  # type: ignore[arg-type]
    w.returned(w("Range", start, w.real(w.size("x", 2)), w.floats(step, scalar=True)))


# -- sizes of sequences


def heads(w: Writer) -> None:
    """Attention's reshapes, the width of a head by division."""
    width = w("Div", w.size("s", 2), w.ints(2, scalar=True))
    if w.one_of(True, False):
        width = w.whole(w("Cast", width, to=1))
    split = w("Reshape", "s", w.vector(w.size("s", 0), w.size("s", 1), 2, width))
    moved = w("Transpose", split, perm="[0, 2, 1, 3]")
    w.returned(w("Reshape", moved, w.vector(w("Mul", w.size("s", 0), w.ints(2, scalar=True)), -1, width)))


def expanded(w: Writer) -> None:
    """torch's expand: sizes of -1 are those of the input."""
    shape = w.vector(w.size("s", 0), w.size("s", 1), -1)
    ones = w("ConstantOfShape", w("Shape", shape), value="int64[1] {1}")
    target = w("Where", w("Equal", shape, w("Mul", ones, w.ints(-1))), ones, shape)
    row = w("Slice", "s", w.ints(0), w.ints(1), w.ints(1))
    w.returned(w("Expand", row, target))


def skewed(w: Writer) -> None:
    """Relative positions: padded by one, reshaped, cut: (2n + 2) // 2 rows."""
    n = w.size("s", 1)
    two = w.ints(2, scalar=True)
    double = w("Concat", "s", "s", axis=1)
    zero, one = w.ints(0, scalar=True), w.ints(1, scalar=True)
    padded = w("Pad", double, w.vector(zero, one, zero, zero, one, zero))
    rows = w("Div", w("Add", w("Mul", n, two), two), two)
    cut = w("Reshape", padded, w.vector(w.size("s", 0), rows, 2, 8))
    w.returned(w("Slice", cut, w.ints(1), w("Unsqueeze", rows, w.ints(0)), w.ints(1)))


def square_root(w: Writer) -> None:
    """A transformer's patches as a square: the side is the root of their number."""
    n = w.size("s", 1)
    side = w.whole(w(str(w.one_of("Floor", "Ceil")), w("Sqrt", w.real(n))))
    w.returned(w("ConstantOfShape", w.vector(side, w("Mul", side, w.ints(2, scalar=True)))))


def root_of_constant(w: Writer) -> None:
    """A size times the root of a constant."""
    root = w("Sqrt", w.floats(float(w.one_of(4.0, 2.0, 9.0)), scalar=True))  # type: ignore[arg-type]
    size = w.whole(w("Floor", w("Mul", w.real(w.size("s", 1)), root)))
    w.returned(w("ConstantOfShape", w("Unsqueeze", size, w.ints(0))))


def frames(w: Writer) -> None:
    """A speech front end: frames of a length, hop by hop."""
    length, hop = int(w.one_of(3, 4, 5)), int(w.one_of(1, 2, 3))  # type: ignore[call-overload]
    n = w("Add", w.size("s", 1), w.ints(8, scalar=True))
    if w.one_of(True, False):
        left = w("Sub", n, w.ints(length, scalar=True))
        count = w("Add", w("Div", left, w.ints(hop, scalar=True)), w.ints(1, scalar=True))
    else:
        left = w("Sub", w.real(n), w.floats(length, scalar=True))
        count = w.whole(w("Floor", w("Div", left, w.floats(hop, scalar=True))))
        count = w("Add", count, w.ints(1, scalar=True))
    starts = w("Mul", w("Range", w.ints(0, scalar=True), count, w.ints(1, scalar=True)), w.ints(hop, scalar=True))
    within = w("Range", w.ints(0, scalar=True), w.ints(length, scalar=True), w.ints(1, scalar=True))
    index = w("Add", w("Unsqueeze", starts, w.ints(1)), within)
    padded = w("Pad", "s", w.ints(0, 0, 0, 0, 8, 0))
    w.returned(w("Gather", padded, index, axis=1))


def chunks(w: Writer) -> None:
    """A sequence in two parts at a computed place."""
    n = w.size("s", 1)
    half = w("Div", n, w.ints(2, scalar=True))
    parts = w.vector(half, w("Sub", n, half))
    first, second = next(w.names), next(w.names)
    w.lines.append(f"{first}, {second} = Split <axis = 1> (s, {parts})")
    w.returned(w("Concat", second, first, second, axis=1))


def tails(w: Writer) -> None:
    """The last part of a sequence, or its first, of computed length."""
    n = w.size("s", 1)
    length = w("Min", n, w.ints(5, scalar=True))
    if w.one_of(True, False):
        w.returned(w("Slice", "s", w.ints(0), w("Unsqueeze", length, w.ints(0)), w.ints(1)))
    else:
        start = w("Unsqueeze", w("Sub", n, length), w.ints(0))
        w.returned(w("Slice", "s", start, w.ints(2**62), w.ints(1)))


def repeated(w: Writer) -> None:
    """A row repeated as often as another tensor is long."""
    times = w.size("z", int(w.one_of(2, 3)))  # type: ignore[call-overload]
    w.returned(w("Tile", "s", w.vector(1, times, 1)))


def flattened(w: Writer) -> None:
    """All but the last axis in one, by a product or by the size of all."""
    if w.one_of(True, False):
        rows = w("Div", w("Size", "s"), w.ints(8, scalar=True))
    else:
        rows = w("ReduceProd", w("Shape", "s", start=0, end=2), keepdims=0)
    flat = w("Reshape", "s", w.vector(rows, 8))
    w.returned(w("Reshape", flat, w("Concat", w("Shape", "s", start=0, end=1), w.ints(-1, 4, 2), axis=0)))


def best(w: Writer) -> None:
    """The best of a sequence, of which there may be fewer than are asked for."""
    k = w("Unsqueeze", w("Min", w.size("s", 1), w.ints(6, scalar=True)), w.ints(0))
    values, indices = next(w.names), next(w.names)
    w.lines.append(f"{values}, {indices} = TopK <axis = 1> (s, {k})")
    w.returned(values)


def scattered_shape(w: Writer) -> None:
    """Paddle's way of changing one size of a shape."""
    shape = w("Shape", "s")
    double = w("Mul", w.size("s", 1, scalar=False), w.ints(2))
    changed = w("ScatterND", shape, "index", double)
    w.constants["index"] = "int64[1,1] index = {1}"
    w.returned(w("Resize", "s", "", "", changed, mode='"nearest"'))


def all_ones(w: Writer) -> None:
    """Old torch's arange: the places where a tensor of ones is not zero."""
    ones = w("ConstantOfShape", w.size("s", 1, scalar=False), value="int64[1] {1}")
    places = w("Transpose", w("NonZero", ones), perm="[1, 0]")
    w.returned(w.real(w("Squeeze", places, w.ints(1))))


PATTERNS: dict[str, Pattern] = {
    f.__name__: f
    for f in (
        scaled_sizes, scaled_all_at_once, scales, computed_scales, as_other, halved, multiples, clipped, aspect_ratio,
        kept_ratio, padded_to_multiples, pixel_shuffle, batched, cut_to_other, centre, convolved, grid, real_range,
        heads, expanded, skewed, square_root, root_of_constant, frames, chunks, tails, repeated, flattened, best,
        scattered_shape, all_ones,
    )
}  # fmt: skip
"""All patterns by name."""


def drawn_sizes(rng: np.random.Generator) -> dict[str, int]:
    """Sizes for all names, small, large and odd ones."""
    return {name: int(rng.integers(1, 4 if name == "b" else 70)) for name in "bhwpqn"}


def feeds(proto: onnx.ModelProto, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Inputs of a model in these sizes."""
    rng = np.random.default_rng(0)
    result = {}
    for value in proto.graph.input:
        dims = value.type.tensor_type.shape.dim
        result[value.name] = rng.random([sizes.get(d.dim_param, d.dim_value) for d in dims], np.float32)
    return result
