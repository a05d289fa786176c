"""Writes the corpus models that stand for applications as exporters write them: tiny widths, random weights.

    python tests/corpus/make_applications.py [NAME ...]

A model is text in ONNX's own syntax, in which ``{name:3,4}`` is a weight of that shape: no exporter is needed. Those in
files (``applications/NAME.txt``) leave out the name of the graph, and integers that all of them have (``SHARED``). What
is in them is what exporters make of detectors, readers of text and tables, speech and segmentation: sizes that are
computed, loops that go on until something is found, lengths that depend on what is computed.
"""

from __future__ import annotations

import re
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

FOLDER = Path(__file__).parent / "applications"

CELL = """
      gi0 = MatMul(xin, {wih:CI,CH}) gi = Add(gi0, {bih:CH})
      gh0 = MatMul(hs, {whh:H,CH}) gh = Add(gh0, {bhh:CH})
      ir, iz, ic = Split<axis=1>(gi)
      hr, hz, hc = Split<axis=1>(gh)
      r0 = Add(ir, hr) r = Sigmoid(r0)
      z0 = Add(iz, hz) z = Sigmoid(z0)
      rc = Mul(r, hc) n0 = Add(ic, rc) n = Tanh(n0)
      d = Sub(hs, n) zd = Mul(z, d) h2 = Add(zd, n)"""

TABLE = """<ir_version: 8, opset_import: ["" : 17]>
table (float[b,8,3,w] image) => (float[b,rows,6] structure)
<int64[1] one={1}, int64[1] zero={0}, int64[1] limit={7}, int64[1] end={5}, int64[1] width={8}, int64[1] classes={6}> {
   s = Shape<start=0,end=2>(image)
   rest = Constant<value_ints=[-1]>()
   shape = Concat<axis=0>(s, rest)
   flat = Reshape(image, shape)
   features = Transpose<perm=[0,2,1]>(flat)
   batch = Shape<start=0,end=1>(image)
   hshape = Concat<axis=0>(batch, width)
   h0 = ConstantOfShape(hshape)
   pshape = Concat<axis=0>(batch, START, classes)
   p0 = ConstantOfShape(pshape)
   chars0 = ConstantOfShape<value=int64[1]{0}>(batch)
   c0 = Less(zero, limit)
   keys = MatMul(features, {i2h:8,8})
   i_f, h_f, chars_f, p_f = Loop("", c0, zero, h0, chars0, p0) <body: graph = body
     (int64[1] it, bool[1] cc, int64[1] i, float[b1,8] hs, int64[b1] chars, float[b1,r1,6] p)
     => (bool[1] co, int64[1] i2, float[b1,8] h2, int64[b1] chars2, float[b1,r2,6] p2) {
      depth = Constant<value_ints=[6]>()
      values = Constant<value=float[2]{0,1}>()
      onehot = OneHot<axis=-1>(chars, depth, values)
      q0 = MatMul(hs, {h2h:8,8}) q1 = Add(q0, {h2hb:8})
      q = Unsqueeze(q1, one)
      e0 = Add(keys, q) e = Tanh(e0)
      score = MatMul(e, {attend:8,1})
      alpha = Softmax<axis=1>(score)
      turned = Transpose<perm=[0,2,1]>(alpha)
      context1 = MatMul(turned, features)
      context = Squeeze(context1, one)
      xin = Concat<axis=1>(context, onehot)
      CELL
      o0 = MatMul(h2, {gen:8,6}) o1 = Add(o0, {genb:6})
      probabilities = Softmax<axis=-1>(o1)
      chars2 = ArgMax<axis=1, keepdims=0>(probabilities)
      i2 = Add(i, one)
      UPDATE
      less = Less(i2, limit)
      at_end = Equal(chars2, end) ended0 = Cast<to=6>(at_end) ended1 = ReduceMin<keepdims=0>(ended0)
      ended = Cast<to=9>(ended1) runs = Not(ended)
      co = And(less, runs)
   }>
   structure = Identity(p_f)
}""".replace("CELL", CELL.replace("CI", "14").replace("CH", "24").replace("H", "8"))

GROWS = """row = Unsqueeze(probabilities, one)
      p2 = Concat<axis=1>(p, row)"""
SETS = """lines = Shape<start=0,end=1>(p)
      last = Squeeze(lines)
      from = Constant<value_int=0>() by = Constant<value_int=1>()
      index = Range(from, last, by)
      rows = Unsqueeze(index, one)
      column0 = Expand(i, lines)
      column = Unsqueeze(column0, one)
      places = Concat<axis=1>(rows, column)
      p2 = ScatterND(p, places, probabilities)"""

DETECTOR = """<ir_version: 8, opset_import: ["" : 17]>
detector (float[b,3,h,w] image) => (float[found,4] boxes, float[found] scores, int64[found] labels)
<int64[2] two={2,4}, int64[1] zero={0}, int64[1] one={1}, int64[1] most={20}, float[1] overlap={0.5},
 float[1] least={0.3}, int64[1] c1={1}, int64[1] c2={2}, int64[1] c4={4}, int64[1] all={-1}, float stride={4}> {
   a0 = Conv<strides=[2,2], pads=[1,1,1,1]>(image, {k1:8,3,3,3}, {b1:8}) a = Relu(a0)
   c0 = Conv<strides=[2,2], pads=[1,1,1,1]>(a, {k2:8,8,3,3}, {b2:8}) c = Relu(c0)
   head = Conv(c, {k3:7,8,1,1}, {b3:7})
   batch = Shape<start=0,end=1>(head)
   seven = Constant<value_ints=[7]>()
   shape = Concat<axis=0>(batch, seven, all)
   flat0 = Reshape(head, shape)
   flat = Transpose<perm=[0,2,1]>(flat0)
   offsets = Slice(flat, zero, c4, c2)
   raw = Slice(flat, c4, seven, c2)
   certain = Sigmoid(raw)
   hw = Shape<start=2,end=4>(head)
   high1 = Slice(hw, zero, one) wide1 = Slice(hw, one, c2)
   high = Squeeze(high1, zero) wide = Squeeze(wide1, zero)
   n0 = Constant<value_int=0>() n1 = Constant<value_int=1>()
   ys0 = Range(n0, high, n1) xs0 = Range(n0, wide, n1)
   ys1 = Cast<to=1>(ys0) xs1 = Cast<to=1>(xs0)
   ys2 = Mul(ys1, stride) xs2 = Mul(xs1, stride)
   ys3 = Unsqueeze(ys2, one) xs3 = Unsqueeze(xs2, zero)
   ys4 = Expand(ys3, hw) xs4 = Expand(xs3, hw)
   ys5 = Reshape(ys4, all) xs5 = Reshape(xs4, all)
   ys = Unsqueeze(ys5, c1) xs = Unsqueeze(xs5, c1)
   centres = Concat<axis=1>(ys, xs, ys, xs)
   corners = Constant<value=float[4]{-1,-1,1,1}>()
   grown0 = Exp(offsets)
   grown1 = Mul(grown0, corners) grown = Mul(grown1, stride)
   every = Add(grown, centres)
   scored = Transpose<perm=[0,2,1]>(certain)
   kept = NonMaxSuppression(every, scored, most, overlap, least)
   place = Slice(kept, zero, one, c1)
   label1 = Slice(kept, one, c2, c1)
   pair0 = Slice(kept, c2, seven, c1)
   of_boxes = Concat<axis=1>(place, pair0)
   boxes = GatherND(every, of_boxes)
   scores = GatherND(scored, kept)
   labels = Squeeze(label1, c1)
}"""

READER = """<ir_version: 8, opset_import: ["" : 18]>
reader (float[b,3,h,w] image) => (float[b,t,11] letters)
<int64[1] one={1}, int64[1] zero={0}, int64[1] two={2}, int64[1] three={3}, int64[1] four={4},
 float f32={32}, float f48={48}> {
   s = Shape(image)
   h1 = Slice(s, two, three) w1 = Slice(s, three, four)
   hf = Cast<to=1>(h1) wf = Cast<to=1>(w1)
   ratio = Div(wf, hf)
   wanted0 = Mul(ratio, f32) wanted1 = Ceil(wanted0) wanted2 = Max(wanted1, f48)
   eighths0 = Constant<value_float=8.0>()
   eighths1 = Div(wanted2, eighths0) eighths2 = Ceil(eighths1) eighths3 = Mul(eighths2, eighths0)
   wide = Cast<to=7>(eighths3)
   high = Constant<value_ints=[32]>()
   sizes = Concat<axis=0>(high, wide)
   line = Resize<axes=[2,3], mode="linear">(image, "", "", sizes)
   a0 = Conv<strides=[2,2], pads=[1,1,1,1]>(line, {k1:8,3,3,3}, {b1:8}) a = HardSwish(a0)
   c0 = Conv<strides=[2,1], pads=[1,1,1,1], group=8>(a, {k2:8,1,3,3}, {b2:8}) c1 = HardSwish(c0)
   c = Conv(c1, {k3:12,8,1,1}, {b3:12})
   p = MaxPool<kernel_shape=[8,1], strides=[8,1]>(c)
   row = Squeeze(p, two)
   steps = Transpose<perm=[2,0,1]>(row)
   y0, hn, cn = LSTM<hidden_size=6, direction="bidirectional">(steps, {lw:2,24,12}, {lr:2,24,6}, {lb:2,48})
   y1 = Transpose<perm=[2,0,1,3]>(y0)
   shape = Constant<value_ints=[0,0,12]>()
   y2 = Reshape(y1, shape)
   logits0 = MatMul(y2, {out:12,11}) logits = Add(logits0, {outb:11})
   letters = Softmax<axis=-1>(logits)
}"""

SPEECH = """<ir_version: 8, opset_import: ["" : 17]>
speech (float[b,samples] wave) => (float[b,frames,5] words)
<int64 step={8}, int64 length={16}, int64[1] one={1}, int64[1] two={2}, int64[1] last={-1}, float least={0.00001}> {
   pads = Constant<value_ints=[0,8,0,8]>()
   padded = Pad<mode="reflect">(wave, pads)
   signal = Unsqueeze(padded, last)
   window = HannWindow(length)
   spectrum = STFT<onesided=1>(signal, step, window, length)
   squares = ReduceSumSquare<axes=[-1], keepdims=0>(spectrum)
   mel0 = MatMul(squares, {mel:9,6}) mel1 = Abs(mel0) mel2 = Max(mel1, least) mel3 = Log(mel2)
   mean = ReduceMean<axes=[1], keepdims=1>(mel3)
   centred = Sub(mel3, mean)
   turned = Transpose<perm=[0,2,1]>(centred)
   a0 = Conv<strides=[2], pads=[1,1]>(turned, {k1:8,6,3}, {b1:8}) a = Erf(a0)
   back = Transpose<perm=[0,2,1]>(a)
   q = MatMul(back, {wq:8,8}) k = MatMul(back, {wk:8,8}) v = MatMul(back, {wv:8,8})
   kt = Transpose<perm=[0,2,1]>(k)
   s = MatMul(q, kt) p = Softmax<axis=-1>(s) o = MatMul(p, v)
   r = Add(o, back)
   words = MatMul(r, {out:8,5})
}"""

SPOKEN = """<ir_version: 8, opset_import: ["" : 17]>
spoken (int64[b,n] letters, float speed) => (float[b,samples] wave, int64[b] lengths)
<int64[1] one={1}, int64[1] zero={0}, int64[1] last={-1}, float least={1}> {
   x = Gather({table:10,8}, letters)
   d0 = MatMul(x, {dur:8,1}) d1 = Squeeze(d0, last) d2 = Exp(d1) d3 = Div(d2, speed) d4 = Ceil(d3) d = Max(d4, least)
   axis = Constant<value_int=1>()
   ends = CumSum(d, axis)
   total0 = ReduceSum<keepdims=0>(d, one)
   lengths = Cast<to=7>(total0)
   most = ReduceMax<keepdims=0>(lengths)
   n0 = Constant<value_int=0>() n1 = Constant<value_int=1>()
   times0 = Range(n0, most, n1)
   times1 = Cast<to=1>(times0)
   times = Unsqueeze(times1, one)
   before = Unsqueeze(ends, one)
   over0 = LessOrEqual(before, times)
   over1 = Cast<to=7>(over0)
   which0 = ReduceSum<keepdims=0>(over1, two)
   count = Shape<start=1,end=2>(letters)
   top = Sub(count, one)
   which = Min(which0, top)
   which2 = Unsqueeze(which, last)
   eight = Constant<value_ints=[1,1,8]>()
   index = Expand(which2, eight)
   frames = GatherElements<axis=1>(x, index)
   turned = Transpose<perm=[0,2,1]>(frames)
   up0 = ConvTranspose<strides=[4], pads=[2,2]>(turned, {k1:8,4,8}, {b1:4})
   up = LeakyRelu<alpha=0.1>(up0)
   y0 = Conv<pads=[3,3]>(up, {k2:1,4,7}, {b2:1}) y1 = Tanh(y0)
   wave = Squeeze(y1, one)
}""".replace("int64[1] last={-1}", "int64[1] last={-1}, int64[1] two={2}")

SEGMENTS = """<ir_version: 8, opset_import: ["" : 17]>
segments (float[b,3,h,w] image) => (int64[b,h,w] classes)
<int64[1] zero={0}, int64[1] two={2}, int64[1] four={4}, float half={0.5}> {
   s = Shape(image)
   hw = Slice(s, two, four)
   hwf = Cast<to=1>(hw)
   small0 = Mul(hwf, half) small1 = Floor(small0) small = Cast<to=7>(small1)
   head = Slice(s, zero, two)
   to_small = Concat<axis=0>(head, small)
   low = Resize<mode="linear", coordinate_transformation_mode="pytorch_half_pixel">(image, "", "", to_small)
   a0 = Conv<strides=[2,2], pads=[1,1,1,1]>(low, {k1:8,3,3,3}, {b1:8}) a = Relu(a0)
   c0 = Conv<dilations=[2,2], pads=[2,2,2,2]>(a, {k2:8,8,3,3}, {b2:8}) c = Relu(c0)
   g0 = GlobalAveragePool(c) g = Conv(g0, {k3:8,8,1,1}, {b3:8})
   cs = Shape<start=2,end=4>(c)
   e = Constant<value_ints=[1,8]>()
   gshape = Concat<axis=0>(e, cs)
   ge = Expand(g, gshape)
   both = Concat<axis=1>(c, ge)
   l = Conv(both, {k4:5,16,1,1}, {b4:5})
   ls = Shape(l) lhw = Slice(ls, two, four) lf = Cast<to=1>(lhw)
   scales0 = Div(hwf, lf)
   ones = Constant<value_floats=[1.0,1.0]>()
   scales = Concat<axis=0>(ones, scales0)
   big = Resize<mode="linear", coordinate_transformation_mode="asymmetric">(l, "", scales)
   classes = ArgMax<axis=1, keepdims=0>(big)
}"""


def tagger(branches: int = 12, joined: str = "Concat") -> str:
    """An LSTM over words, of which each of many parallel heads reads a part; a Concat joins them, or a chain or tree of
    Adds."""
    lines, parts = [], 12
    for k in range(branches):
        lines.append(
            f"from{k} = Constant<value_ints=[{k % parts}]>() to{k} = Constant<value_ints=[{k % parts + 1}]>()"
            f" p{k} = Slice(y2, from{k}, to{k}, two) q{k} = Squeeze(p{k}, two)"
            f" m{k} = MatMul(q{k}, {{t{k}:4,3}}) u{k} = Unsqueeze(m{k}, two) s{k} = Add(u{k}, {{o{k}:3}})"
        )
    heads = [f"s{k}" for k in range(branches)]
    if joined == "Concat":
        lines.append(f"tags = Concat<axis=2>({', '.join(heads)})")
    while joined != "Concat" and len(heads) > 1:
        name = "tags" if len(heads) == 2 else f"j{len(lines)}"
        lines.append(f"{name} = Add({heads[0]}, {heads[1]})")
        heads = [name, *heads[2:]] if joined == "chain" else [*heads[2:], name]
    body = "\n   ".join(lines)
    return f"""<ir_version: 8, opset_import: ["" : 17]>
tagger (int64[b,n] words) => (float[b,n,{branches if joined == "Concat" else 1},3] tags) <int64[1] two={{2}}> {{
   x0 = Gather({{table:20,6}}, words)
   x = Transpose<perm=[1,0,2]>(x0)
   y0, h, c = LSTM<hidden_size={2 * parts}, direction="bidirectional">(
     x, {{lw:2,{8 * parts},6}}, {{lr:2,{8 * parts},{2 * parts}}}, {{lb:2,{16 * parts}}})
   y1 = Transpose<perm=[2,0,1,3]>(y0)
   shape = Constant<value_ints=[0,0,{parts},4]>()
   y2 = Reshape(y1, shape)
   {body}
}}"""


SHARED = {
    **{f"i{n}": f"int64 i{n}={{{n}}}" for n in range(4)},
    **dict(zip(("zero", "one", "two", "three", "four", "five"), (f"{{{n}}}" for n in range(6)), strict=True)),
    "c7": "{7}",
    "eight": "{8}",
    "last": "{-1}",
    "pair": "{0,1}",
    "pair12": "{1,2}",
    "pair_zero": "{0,0}",
    "pair_two": "{2,3}",
}
"""Integers, and vectors of one or two, by name."""


def _written(path: Path) -> str:
    """The text of a model in a file, with its head."""
    text = path.read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", text))
    told = [
        given if given.startswith("int64") else f"int64[{given.count(',') + 1}] {name}={given}"
        for name, given in SHARED.items()
        if name in words
    ]
    shared = f"<{', '.join(told)}> {{\n" if told else "{\n"
    opset = 20 if "DFT" in words else 17
    return f'<ir_version: 8, opset_import: ["" : {opset}]>\n{path.stem} ' + text.replace("{\n", shared, 1)


MODELS = {
    "table_grows": TABLE.replace("UPDATE", GROWS).replace("START", "zero"),
    "table_sets": TABLE.replace("UPDATE", SETS).replace("START", "limit"),
    "detector": DETECTOR,
    "reader": READER,
    "speech": SPEECH,
    "spoken": SPOKEN,
    "segments": SEGMENTS,
    "tagger": tagger(),
    "tagger_200": tagger(200),
    "tagger_tree": tagger(200, "tree"),
    **{path.stem: _written(path) for path in sorted(FOLDER.glob("*.txt"))},
}
Quantizer: TypeAlias = Callable[[onnx.ModelProto, str, str], None]


def static(format: str, weights: str, activations: str, **more: bool) -> Quantizer:
    """What quantizes the model in one file into another, by the ranges of its runs."""

    def quantize(model: onnx.ModelProto, before: str, after: str) -> None:
        from onnxruntime import quantization as q

        class Runs(q.CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self.runs = iter([feeds(model, 0)])

            def get_next(self) -> dict[str, np.ndarray] | None:
                return next(self.runs, None)

        kinds = {"activation_type": getattr(q.QuantType, activations), "weight_type": getattr(q.QuantType, weights)}
        options = {"extra_options": {name: True for name in more if name != "per_channel"}}
        per_channel = more.get("per_channel", False)
        q.quantize_static(
            before, after, Runs(), getattr(q.QuantFormat, format), per_channel=per_channel, **kinds, **options
        )

    return quantize


def dynamic(weights: str, per_channel: bool = False) -> Quantizer:
    """What quantizes weights, and says that what they are applied to is quantized as it comes."""

    def quantize(model: onnx.ModelProto, before: str, after: str) -> None:
        from onnxruntime import quantization as q

        q.quantize_dynamic(before, after, weight_type=getattr(q.QuantType, weights), per_channel=per_channel)

    return quantize


def blocks(bits: int, is_symmetric: bool) -> Quantizer:
    """What quantizes the weights of products in blocks of so many bits."""

    def quantize(model: onnx.ModelProto, before: str, after: str) -> None:
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        quantizer = MatMulNBitsQuantizer(onnx.load(before), bits=bits, block_size=16, is_symmetric=is_symmetric)
        quantizer.process()
        onnx.save(quantizer.model.model, after)

    return quantize


QUANTIZED: dict[str, tuple[str, Quantizer]] = {
    "classifier_u8s8": ("classifier", static("QDQ", "QInt8", "QUInt8")),
    "classifier_s8s8": ("classifier", static("QDQ", "QInt8", "QInt8", per_channel=True, ActivationSymmetric=True)),
    "classifier_u8u8": ("classifier", static("QDQ", "QUInt8", "QUInt8")),
    "classifier_16": ("classifier", static("QDQ", "QInt8", "QUInt16", UseQDQContribOps=True)),
    "classifier_operator": ("classifier", static("QOperator", "QInt8", "QUInt8")),
    "classifier_operator_channels": ("classifier", static("QOperator", "QInt8", "QUInt8", per_channel=True)),
    "classifier_dynamic": ("classifier", dynamic("QUInt8")),
    "encoder_u8s8": ("encoder", static("QDQ", "QInt8", "QUInt8", per_channel=True)),
    "encoder_operator": ("encoder", static("QOperator", "QInt8", "QUInt8")),
    "encoder_dynamic": ("encoder", dynamic("QInt8")),
    "encoder_dynamic_channels": ("encoder", dynamic("QInt8", per_channel=True)),
    "encoder_blocks_4": ("encoder", blocks(4, False)),
    "encoder_blocks_8": ("encoder", blocks(8, True)),
    "transcriber_dynamic": ("transcriber", dynamic("QInt8")),
}
"""Models that ONNX Runtime's tools quantize, each with what it is made of and how."""
SIZES = {
    "b": (1, 2, 1),
    "h": (37, 43, 37),
    "w": (45, 54, 39),
    "n": (9, 14, 7),
    "m": (6, 8, 7),
    "samples": (211, 248, 175),
    "past": (3, 5, 4),
    "total": (12, 19, 11),
    "r": (3, 1, 5),
}
"""The sizes of inputs, by name, in three runs."""
WORDS = 10
"""How many words tables have at least."""


def feeds(model: onnx.ModelProto, k: int) -> dict[str, np.ndarray]:
    """Inputs of a model for its k-th run."""
    rng, found = np.random.default_rng(k), {}
    for given in model.graph.input:
        type = given.type.tensor_type
        sizes = {name: values[k] for name, values in SIZES.items()}
        shape = [d.dim_value or sizes[d.dim_param] for d in type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(type.elem_type)
        if given.name in CHOSEN:
            found[given.name] = np.asarray(CHOSEN[given.name][k], dtype)
        elif dtype.kind == "f":
            found[given.name] = rng.standard_normal(shape).astype(dtype)
        else:
            most = 2 if "mask" in given.name else 256 if dtype == np.uint8 else WORDS
            found[given.name] = rng.integers(0, most, shape).astype(dtype)
    return found


CHOSEN = {
    "speed": (1.1, 0.7, 1.1),
    "length_scale": (1.0, 1.5, 0.8),
    "limit": (5, 9, 3),
    "rate": (16000, 8000, 16000),
    "lengths": ([9], [14, 8], [5]),
    "scale": ([[1.0, 2.0]], [[1.0, 0.5], [2.0, 2.0]], [[1.0, 1.0]]),
}
"""What inputs are whose elements mean something, in each run."""
STORED = ("detector", "reader", "segments", "speech", "spoken", "table_grows", "table_sets", "tagger")
"""Models that lie in the corpus as files, too, where all that the corpus is for is tried on them."""
SEED = "d"
"""With which loops go on for several rounds."""
_WEIGHT = re.compile(r"\{(\w+):([\d,]+)\}")


def made(name: str) -> onnx.ModelProto:
    """The model of that name."""
    if name in QUANTIZED:
        source, quantize = QUANTIZED[name]
        model = made(source)
        with tempfile.TemporaryDirectory() as folder:
            before, after = f"{folder}/before.onnx", f"{folder}/after.onnx"
            onnx.save(model, before)
            quantize(model, before, after)
            return onnx.load(after)
    text = MODELS[name]
    rng = np.random.default_rng(zlib.crc32(f"{SEED}{name}".encode()))
    shapes = {w: tuple(map(int, dims.split(","))) for w, dims in _WEIGHT.findall(text)}
    model = onnx.parser.parse_model(_WEIGHT.sub(r"\1", text))
    for weight, shape in shapes.items():
        fan = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        values = rng.standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(fan) if len(shape) > 1 else 4)
        model.graph.initializer.append(numpy_helper.from_array(values, weight))
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or STORED:
        onnx.save(made(name), FOLDER / f"{name}.onnx")


if __name__ == "__main__":
    main()
