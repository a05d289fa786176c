"""Writes the corpus models that stand for applications as exporters write them: tiny widths, random weights.

    python tests/corpus/make_applications.py [NAME ...]

A model is text in ONNX's own syntax, in which ``{name:3,4}`` is a weight of that shape: no exporter is needed. What is
in them is what exporters make of detectors, readers of text and tables, speech and segmentation: sizes that are
computed, loops that go on until something is found, lengths that depend on what is computed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

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
table (float[b,8,h,w] image) => (float[b,rows,6] structure)
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
speech (float[b,n] wave) => (float[b,frames,5] words)
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


def tagger(branches: int = 12) -> str:
    """An LSTM over words, of which each of many parallel heads reads its own part."""
    lines = []
    for k in range(branches):
        lines.append(
            f"from{k} = Constant<value_ints=[{k}]>() to{k} = Constant<value_ints=[{k + 1}]>()"
            f" p{k} = Slice(y2, from{k}, to{k}, two) q{k} = Squeeze(p{k}, two)"
            f" m{k} = MatMul(q{k}, {{t{k}:4,3}}) u{k} = Unsqueeze(m{k}, two) s{k} = Add(u{k}, {{o{k}:3}})"
        )
    heads = ", ".join(f"s{k}" for k in range(branches))
    body = "\n   ".join(lines)
    return f"""<ir_version: 8, opset_import: ["" : 17]>
tagger (int64[b,n] words) => (float[b,n,{branches},3] tags) <int64[1] two={{2}}> {{
   x0 = Gather({{table:20,6}}, words)
   x = Transpose<perm=[1,0,2]>(x0)
   y0, h, c = LSTM<hidden_size={2 * branches}, direction="bidirectional">(
     x, {{lw:2,{8 * branches},6}}, {{lr:2,{8 * branches},{2 * branches}}}, {{lb:2,{16 * branches}}})
   y1 = Transpose<perm=[2,0,1,3]>(y0)
   shape = Constant<value_ints=[0,0,{branches},4]>()
   y2 = Reshape(y1, shape)
   {body}
   tags = Concat<axis=2>({heads})
}}"""


MODELS = {
    "table_grows": TABLE.replace("UPDATE", GROWS).replace("START", "zero"),
    "table_sets": TABLE.replace("UPDATE", SETS).replace("START", "limit"),
    "detector": DETECTOR,
    "reader": READER,
    "speech": SPEECH,
    "spoken": SPOKEN,
    "segments": SEGMENTS,
    "tagger": tagger(),
}
_WEIGHT = re.compile(r"\{(\w+):([\d,]+)\}")


def made(name: str) -> onnx.ModelProto:
    """The model of that name."""
    text = MODELS[name]
    rng = np.random.default_rng(sorted(MODELS).index(name))
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
    for name in sys.argv[1:] or MODELS:
        onnx.save(made(name), FOLDER / f"{name}.onnx")


if __name__ == "__main__":
    main()
