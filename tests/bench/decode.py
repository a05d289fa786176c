"""Text generation by decoders with random weights: prefill and decode, against ONNX Runtime and against bandwidth.

    python -m tests.bench.decode [NAME ...] [--threads 1] [--prompts 128,1024] [--pasts 128,2048] [--batches 1,8]
                                 [--dtype bfloat16] [--exporter dynamo] [--engines ort,graphopt] [--peers PYTHON]
                                 [--genai PYTHON] [--cpu-time]

Models (``llama-0.1b``, ``qwen-0.5b``, ...; ``llama-tiny`` runs in seconds) are written as exporters write them, in
plain ONNX: keys and values of the past are inputs, and those of all tokens outputs (``Concat``). With ``--exporter``
one of torch's own writes them, of a model of transformers that has these sizes. In a line: the engine, its tokens in a
second, the share of the memory bandwidth that was measured in the same run that reading weights and cache at that rate
takes, and its peak memory. Each engine is a process of its own, and they take turns; the least of bursts counts. ONNX
Runtime gets the present of a call as the past of the next one without a copy.

``--peers`` is a Python in which onnxruntime, onnxscript, onnxsim and onnxslim are installed: what each makes of the
model runs in ONNX Runtime. ``--genai`` is one in which onnxruntime-genai is installed. ``--cpu-time`` measures the time
of the processor, of one thread, for machines that others use.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.bench.turns import Table, arguments, keep_to_cores, session

Array: TypeAlias = "np.ndarray[Any, Any]"
OPSET: Final = 17
BASE, EPSILON = 10000.0, 1e-6
PAST: Final = "past_key_values"


@dataclass(frozen=True, slots=True)
class Decoder:
    """Sizes of a decoder. ``heads`` of queries share ``groups`` of keys and values."""

    layers: int
    width: int
    heads: int
    groups: int
    head: int
    inner: int
    words: int
    norms_heads: bool = False
    """Whether queries and keys of each head are normalized, as in Qwen 3."""
    ties_words: bool = False
    """Whether the table of words is the weight of the last product, too."""


MODELS: Mapping[str, Decoder] = {
    "llama-tiny": Decoder(2, 64, 4, 2, 16, 128, 256),
    "qwen-tiny": Decoder(2, 64, 4, 2, 32, 128, 256, norms_heads=True, ties_words=True),
    "llama-0.1b": Decoder(12, 768, 12, 4, 64, 2048, 32000),
    "qwen-0.1b": Decoder(12, 640, 10, 2, 64, 1920, 64000, norms_heads=True, ties_words=True),
    "llama-0.5b": Decoder(24, 1280, 20, 4, 64, 3456, 32000),
    "qwen-0.5b": Decoder(24, 896, 14, 2, 64, 4864, 151936, norms_heads=True, ties_words=True),
}


class _Writer:
    """Nodes and initializers of a graph; elements of large ones go to a file as they are drawn."""

    def __init__(self, data: Path, seed: int, dtype: str) -> None:
        self.data, self.rng, self.dtype = data, np.random.default_rng(seed), dtype
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self.count, self.parameters = 0, 0
        data.write_bytes(b"")

    def __call__(self, op: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """The name of what a node gives."""
        self.count += 1
        name = output or f"{op}_{self.count}"
        self.nodes.append(helper.make_node(op, inputs, [name], f"node_{name}", **attributes))
        return name

    def integers(self, *numbers: int) -> str:
        """The name of a vector of integers."""
        return self._held("int_" + "_".join(map(str, numbers)), np.array(numbers, np.int64))

    def number(self, number: float) -> str:
        """The name of a scalar."""
        return self._held(f"number_{number}", np.array(number, np.float32))

    def array(self, name: str, array: Array) -> str:
        """The name of an initializer."""
        return self._held(name, array)

    def _held(self, name: str, array: Array) -> str:
        self.initializers.setdefault(name, onnx.numpy_helper.from_array(array, name))
        return name

    def weight(self, name: str, *shape: int) -> str:
        """The name of a weight, drawn so that products keep the size of what they multiply; as float32 where it is
        stored in another dtype."""
        drawn: Array = self.rng.standard_normal(shape, np.float32)
        drawn *= np.float32(shape[0] ** -0.5)
        is_narrow = self.dtype == "bfloat16"
        drawn = drawn.astype(ml_dtypes.bfloat16) if is_narrow else drawn
        kind = TensorProto.BFLOAT16 if is_narrow else TensorProto.FLOAT
        tensor = TensorProto(name=name, dims=shape, data_type=kind)
        tensor.data_location = TensorProto.EXTERNAL
        with self.data.open("ab") as file:
            entries = {"location": self.data.name, "offset": file.tell(), "length": drawn.nbytes}
            drawn.tofile(file)
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
        self.initializers[name] = tensor
        self.parameters += drawn.size
        return self("Cast", name, to=TensorProto.FLOAT) if is_narrow else name

    def norm(self, x: str, name: str, width: int) -> str:
        """The root mean square norm along the last axis."""
        self.parameters += width
        scale = self.array(name, 1 + np.float32(0.1) * self.rng.standard_normal(width, np.float32))
        mean = self("ReduceMean", self("Pow", x, self.number(2.0)), axes=[-1], keepdims=1)
        root = self("Sqrt", self("Add", mean, self.number(EPSILON)))
        return self("Mul", scale, self("Mul", x, self("Div", self.number(1.0), root)))


def write(sizes: Decoder, path: Path, seed: int = 0, dtype: str = "float32") -> int:
    """Write a decoder and its weights, which lie beside it, in this dtype; gives the number of parameters."""
    w = _Writer(path.with_suffix(".data"), seed, dtype)
    total = w("Gather", w("Shape", "attention_mask"), w.integers(1), axis=0)
    length = w("Gather", w("Shape", "input_ids"), w.integers(1), axis=0)
    mask = _mask(w, length, total)
    cos, sin = _angles(w, sizes.head)
    table = w.weight("model.embed_tokens.weight", sizes.words, sizes.width)
    # rows of the table are drawn as columns of the last product: a token is as large as what layers add to it
    x = w("Mul", w("Gather", table, "input_ids"), w.number(math.sqrt(sizes.words)))
    outputs = []
    for k in range(sizes.layers):
        name = f"model.layers.{k}"
        attended, present = _attention(
            w, w.norm(x, f"{name}.input_layernorm.weight", sizes.width), sizes, k, mask, cos, sin
        )
        outputs += present
        x = w("Add", x, attended)
        h = w.norm(x, f"{name}.post_attention_layernorm.weight", sizes.width)
        gate = w("MatMul", h, w.weight(f"{name}.mlp.gate_proj.weight", sizes.width, sizes.inner))
        up = w("MatMul", h, w.weight(f"{name}.mlp.up_proj.weight", sizes.width, sizes.inner))
        gated = w("Mul", w("Mul", gate, w("Sigmoid", gate)), up)
        x = w("Add", x, w("MatMul", gated, w.weight(f"{name}.mlp.down_proj.weight", sizes.inner, sizes.width)))
    x = w.norm(x, "model.norm.weight", sizes.width)
    if sizes.ties_words:
        head = w("Transpose", table, perm=[1, 0])
    else:
        head = w.weight("lm_head.weight", sizes.width, sizes.words)
    w("MatMul", x, head, output="logits")
    cache = ["batch", sizes.groups, "past", sizes.head]
    grown = ["batch", sizes.groups, "past + length", sizes.head]
    inputs = {
        "input_ids": ["batch", "length"],
        "attention_mask": ["batch", "past + length"],
        "position_ids": ["batch", "length"],
    }
    given = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in inputs.items()]
    past = [
        helper.make_tensor_value_info(n.replace("present", "past_key_values"), TensorProto.FLOAT, cache)
        for n in outputs
    ]
    made = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "length", sizes.words])]
    made += [helper.make_tensor_value_info(name, TensorProto.FLOAT, grown) for name in outputs]
    graph = helper.make_graph(w.nodes, path.stem, [*given, *past], made, list(w.initializers.values()))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.save(model, path)
    return w.parameters


def _mask(w: _Writer, length: str, total: str) -> str:
    """What is added to scores, [batch, 1, length, past + length]: keys behind a query's place are not seen, nor those
    whose mask is 0."""
    last, all = w("Squeeze", length, w.integers(0)), w("Squeeze", total, w.integers(0))
    zero, one = w.array("zero", np.array(0)), w.array("one", np.array(1))
    queries = w("Unsqueeze", w("Range", w("Sub", all, last), all, one), w.integers(1))
    keys = w("Unsqueeze", w("Range", zero, all, one), w.integers(0))
    seen = w("Unsqueeze", w("LessOrEqual", keys, queries), w.integers(0, 1))
    given = w("Unsqueeze", w("Cast", "attention_mask", to=TensorProto.BOOL), w.integers(1, 2))
    return w("Where", w("And", seen, given), w.number(0.0), w.number(float(np.finfo(np.float32).min)))


def _angles(w: _Writer, head: int) -> tuple[str, str]:
    """The cosines and sines of positions, [batch, 1, length, head]."""
    frequencies = (BASE ** (-np.arange(0, head, 2) / head)).astype(np.float32)
    places = w("Unsqueeze", w("Cast", "position_ids", to=TensorProto.FLOAT), w.integers(1))
    angles = w("MatMul", w.array("inv_freq", frequencies[None, :, None]), places)
    turned = w("Transpose", angles, perm=[0, 2, 1])
    both = w("Concat", turned, turned, axis=-1)
    return w("Unsqueeze", w("Cos", both), w.integers(1)), w("Unsqueeze", w("Sin", both), w.integers(1))


def _attention(w: _Writer, x: str, sizes: Decoder, k: int, mask: str, cos: str, sin: str) -> tuple[str, list[str]]:
    """The result of the attention of a layer, and the names of keys and values of all tokens."""
    name, width = f"model.layers.{k}.self_attn", sizes.heads * sizes.head

    def heads(part: str, count: int) -> str:
        made = w("MatMul", x, w.weight(f"{name}.{part}_proj.weight", sizes.width, count * sizes.head))
        split = w("Reshape", made, w.integers(0, 0, count, sizes.head))
        if sizes.norms_heads and part != "v":
            split = w.norm(split, f"{name}.{part}_norm.weight", sizes.head)
        return w("Transpose", split, perm=[0, 2, 1, 3])

    def turned(x: str) -> str:
        half = sizes.head // 2
        first = w("Slice", x, w.integers(0), w.integers(half), w.integers(3))
        second = w("Slice", x, w.integers(half), w.integers(2**63 - 1), w.integers(3))
        other = w("Concat", w("Neg", second), first, axis=-1)
        return w("Add", w("Mul", x, cos), w("Mul", other, sin))

    def all_tokens(x: str, kind: str) -> str:
        return w("Concat", f"{PAST}.{k}.{kind}", x, axis=2, output=f"present.{k}.{kind}")

    def repeated(x: str) -> str:
        repeats = sizes.heads // sizes.groups
        shape = w("Shape", x)
        batch, length = (w("Gather", shape, w.integers(n), axis=0) for n in (0, 2))
        groups, head = w.integers(sizes.groups), w.integers(sizes.head)
        wide = w(
            "Expand",
            w("Unsqueeze", x, w.integers(2)),
            w("Concat", batch, groups, w.integers(repeats), length, head, axis=0),
        )
        return w("Reshape", wide, w("Concat", batch, w.integers(sizes.heads), length, head, axis=0))

    query, key, value = turned(heads("q", sizes.heads)), turned(heads("k", sizes.groups)), heads("v", sizes.groups)
    key, value = all_tokens(key, "key"), all_tokens(value, "value")
    scores = w("MatMul", query, w("Transpose", repeated(key), perm=[0, 1, 3, 2]))
    scaled = w("Mul", scores, w.number(sizes.head**-0.5))
    shares = w("Softmax", w("Add", scaled, mask), axis=-1)
    seen = w("Transpose", w("MatMul", shares, repeated(value)), perm=[0, 2, 1, 3])
    merged = w("Reshape", seen, w.integers(0, 0, width))
    projected = w("MatMul", merged, w.weight(f"{name}.o_proj.weight", width, sizes.width))
    return projected, [key, value]


def export(sizes: Decoder, path: Path, exporter: str) -> int:
    """Write a decoder as torch's exporter writes that of transformers; gives the number of parameters."""
    import transformers

    from tests.bench.attentions import decoder, exported

    kind = "Qwen3" if sizes.norms_heads else "Llama"
    config = getattr(transformers, f"{kind}Config")(
        hidden_size=sizes.width, num_hidden_layers=sizes.layers, num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.groups, head_dim=sizes.head, intermediate_size=sizes.inner, vocab_size=sizes.words,
        tie_word_embeddings=sizes.ties_words, rms_norm_eps=EPSILON,
    )  # fmt: skip
    case = decoder(getattr(transformers, f"{kind}ForCausalLM"), config)
    path.write_bytes(exported(case, exporter, {"batch": 2, "seq": 3, "past": 5}))
    return sum(p.numel() for p in case.make().parameters())


def feeds(sizes: Decoder, tokens: Array, past: Sequence[Array] | int = 0) -> dict[str, Any]:
    """Inputs for tokens [batch, length] behind a past: arrays of keys and values, or so many random ones."""
    batch, length = tokens.shape
    if isinstance(past, int):
        rng = np.random.default_rng(1)
        past = [
            rng.standard_normal((batch, sizes.groups, past, sizes.head), np.float32) for _ in range(2 * sizes.layers)
        ]
    before = past[0].shape[2]
    names = (f"{PAST}.{k}.{kind}" for k in range(sizes.layers) for kind in ("key", "value"))
    return {
        "input_ids": tokens,
        "attention_mask": np.ones((batch, before + length), np.int64),
        "position_ids": np.broadcast_to(np.arange(before, before + length), (batch, length)).copy(),
        **dict(zip(names, past, strict=True)),
    }


# -- engines, each in a process of its own

Run: TypeAlias = "Callable[[], object]"


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that runs a decoder: what prepares a call of tokens [batch, length] behind so many others."""

    call: Callable[[Array, int], Run]


def onnxruntime_engine(sizes: Decoder, path: Path, threads: int) -> Engine:
    """ONNX Runtime, inputs and outputs bound."""
    import onnxruntime

    opened = session(str(path), threads)
    known = {given.name for given in opened.get_inputs()}
    outputs = [output.name for output in opened.get_outputs()]

    def call(tokens: Array, past: int) -> Run:
        binding = opened.io_binding()
        for name, array in feeds(sizes, tokens, past).items():
            if name not in known:  # exporters drop inputs that nothing reads
                continue
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        for name in outputs:
            binding.bind_output(name)
        return lambda: opened.run_with_iobinding(binding)

    return Engine(call)


def optimized_engine(sizes: Decoder, path: Path, threads: int) -> Engine:
    """ONNX Runtime with what ``graphopt optimize --target ort`` makes of the model."""
    import graphopt

    result = path.with_name(f"{path.stem}.ort.onnx")
    graphopt.optimize(path, output=result, target="ort", verify="off")
    return onnxruntime_engine(sizes, result, threads)


def compiled_engine(sizes: Decoder, path: Path, threads: int) -> Engine:
    """The compiled model, which keeps its state."""
    import graphopt

    model = graphopt.compile(path, threads=threads, verify="off")
    state = model.bind_state()

    def call(tokens: Array, past: int) -> Run:
        given = feeds(sizes, tokens, past)
        state.set({name: given.pop(name) for name in list(given) if name.startswith(PAST)})
        given = {name: array for name, array in given.items() if name in model.input_names}

        def run() -> None:
            state.rewind(past)
            model(given)

        return run

    return Engine(call)


ENGINES: Mapping[str, Callable[[Decoder, Path, int], Engine]] = {
    "ort": onnxruntime_engine,
    "ort optimized": optimized_engine,
    "graphopt": compiled_engine,
}


def peer_engine(peer: str, python: str) -> Callable[[Decoder, Path, int], Engine]:
    """ONNX Runtime with what a peer makes of the model."""

    def engine(sizes: Decoder, path: Path, threads: int) -> Engine:
        result = path.with_name(f"{path.stem}.{peer}.onnx")
        command = [python, "-c", PEERS[peer], path, result, str(sizes.heads), str(sizes.width)]
        subprocess.run(command, check=True, stdout=sys.stderr)
        return onnxruntime_engine(sizes, result, threads)

    return engine


PEERS: Mapping[str, str] = {
    "onnxsim": """
import sys, onnx, onnxsim
made = onnxsim.simplify(onnx.load(sys.argv[1]))[0]
onnx.save(made, sys.argv[2], save_as_external_data=True, location=sys.argv[2].rpartition("/")[2] + ".data")
""",
    "onnxslim": """
import sys, onnxslim
onnxslim.slim(sys.argv[1], sys.argv[2], save_as_external_data=True)
""",
    "onnxscript": """
import sys, onnx_ir, onnxscript.optimizer, onnxscript.rewriter
made = onnx_ir.load(sys.argv[1])
onnxscript.optimizer.optimize(made)
made = onnxscript.rewriter.rewrite(made)
onnx_ir.save(made, sys.argv[2], external_data=sys.argv[2].rpartition("/")[2] + ".data")
""",
    "transformers": """
import sys
from onnxruntime.transformers.optimizer import optimize_model
made = optimize_model(sys.argv[1], "gpt2", int(sys.argv[3]), int(sys.argv[4]), opt_level=0)
made.save_model_to_file(sys.argv[2], use_external_data_format=True)
""",
}
"""What the peers do by default, ``onnxruntime.transformers`` as ONNX Runtime's own scripts for Llama call it."""


def drawn(sizes: Decoder, batch: int, tokens: int) -> Array:
    """So many sequences of so many tokens."""
    return np.random.default_rng(tokens).integers(0, sizes.words, (batch, tokens))


def serve(engine: str, name: str, path: Path, options: argparse.Namespace) -> None:
    """Measure what each line of the input asks for (batch, tokens, past, seconds), a number of seconds in a line for
    each."""
    keep_to_cores(options.threads)
    clock = time.process_time if options.cpu_time else time.perf_counter
    make = ENGINES.get(engine) or peer_engine(engine, options.peers)
    made = make(MODELS[name], path, options.threads)
    calls: dict[tuple[int, int, int], Run] = {}
    print("ready", flush=True)
    for line in sys.stdin:
        *shape, seconds = json.loads(line)
        batch, tokens, past = shape
        if (batch, tokens, past) not in calls:
            calls.clear()  # before the next is made: a large past would be held twice
            calls[batch, tokens, past] = made.call(drawn(MODELS[name], batch, tokens), past)
        run = calls[batch, tokens, past]
        best, end = math.inf, time.perf_counter() + seconds
        while best == math.inf or time.perf_counter() < end:
            start = clock()
            run()
            best = min(best, clock() - start)
        print(json.dumps([best, _peak_memory()]), flush=True)


def _peak_memory() -> int:
    """The most bytes of memory that this process had; getrusage counts what had started it, too."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


GENAI = """
import json, math, sys, time
import numpy as np
import onnxruntime_genai as og

folder, clock = sys.argv[1:]
clock = getattr(time, clock)
model = og.Model(folder)
print("ready", flush=True)
for line in sys.stdin:
    batch, tokens, past, seconds = json.loads(line)
    best, end = math.inf, time.perf_counter() + seconds
    while best == math.inf or time.perf_counter() < end:
        params = og.GeneratorParams(model)
        params.set_search_options(max_length=past + tokens + 1, batch_size=batch)
        generator = og.Generator(model, params)
        if past:
            generator.append_tokens(np.ones((batch, past), np.int32))
        start = clock()
        generator.append_tokens(np.ones((batch, tokens), np.int32))
        best = min(best, clock() - start)
        del generator
    peak = next(int(s.split()[1]) for s in open("/proc/self/status") if s.startswith("VmHWM"))
    print(json.dumps([best, peak * 1024]), flush=True)
"""
"""The worker of onnxruntime-genai, in a Python of its own."""


def genai_folder(sizes: Decoder, path: Path, threads: int) -> Path:
    """A folder as onnxruntime-genai wants a model: beside the model what says how it is called."""
    names = {"input_ids": "input_ids", "attention_mask": "attention_mask", "position_ids": "position_ids"}
    past = {f"past_{kind}_names": f"{PAST}.%d.{kind}" for kind in ("key", "value")}
    present = {f"present_{kind}_names": f"present.%d.{kind}" for kind in ("key", "value")}
    decoder = {
        "session_options": {"intra_op_num_threads": threads, "provider_options": []},
        "filename": path.name,
        "head_size": sizes.head,
        "hidden_size": sizes.width,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.groups,
        "num_hidden_layers": sizes.layers,
        "inputs": names | past,
        "outputs": {"logits": "logits", **present},
    }
    model = {
        "type": "llama",
        "vocab_size": sizes.words,
        "context_length": 1 << 16,
        "bos_token_id": 0,
        "eos_token_id": sizes.words - 1,
        "pad_token_id": 0,
        "decoder": decoder,
    }
    search = {"max_length": 1 << 16, "past_present_share_buffer": False}
    (path.parent / "genai_config.json").write_text(json.dumps({"model": model, "search": search}), encoding="utf-8")
    return path.parent


class Worker:
    """A process with an engine, which is asked for measurements."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.peak = 0
        self._read()

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(self.process.args[:5])} ended with status {self.process.wait()}")
        return line

    def measure(self, batch: int, tokens: int, past: int, seconds: float) -> float:
        """The seconds of the fastest of some calls of so many tokens behind so many others."""
        assert self.process.stdin is not None
        print(json.dumps([batch, tokens, past, seconds]), file=self.process.stdin, flush=True)
        best, self.peak = json.loads(self._read())
        return float(best)

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextmanager
def workers(name: str, path: Path, options: argparse.Namespace) -> Iterator[dict[str, Worker]]:
    """A process for each engine."""
    with ExitStack() as stack:
        made = {}
        for engine in (*options.engines, *(PEERS if options.peers else ())):
            command = [sys.executable, "-m", "tests.bench.decode", name, "--serve", engine, "--model", str(path)]
            command += ["--threads", str(options.threads), *(["--cpu-time"] if options.cpu_time else [])]
            command += ["--peers", options.peers] if options.peers else []
            made[engine] = Worker(command)
            stack.callback(made[engine].close)
        if options.genai:
            folder = genai_folder(MODELS[name], path, options.threads)
            clock = "process_time" if options.cpu_time else "perf_counter"
            made["genai"] = Worker([options.genai, "-c", GENAI, str(folder), clock])
            stack.callback(made["genai"].close)
        yield made


TABLE = Table("engine", 16, "batch:6 tokens:8 past:8 a_second:12.1f share:8.2f to_ort:8.2f GiB:8.2f")
ROUNDS, SECONDS = 3, 0.5


def bytes_read(sizes: Decoder, parameters: int, past: int, width: int, batch: int = 1) -> int:
    """The bytes that one token of each sequence has to read: weights of so many bytes, of a table of words one row,
    and the cache."""
    rows = 0 if sizes.ties_words else sizes.words - batch
    cache = 2 * batch * sizes.layers * sizes.groups * sizes.head * past * np.dtype(np.float32).itemsize
    return (parameters - rows * sizes.width) * width + cache


def bandwidth_of(options: argparse.Namespace) -> float:
    """Bytes of memory that are read in a second of the clock that is asked for."""
    from graphopt.benchmark.ceilings import FAR, SERIES, read_bandwidth

    if not options.cpu_time:
        return read_bandwidth(options.threads)
    memory, best = np.ones(FAR // 4, np.float32), math.inf  # zeros would be one page of memory
    for _ in range(SERIES + 1):
        start = time.process_time()
        memory.max()
        best = min(best, time.process_time() - start)
    return memory.nbytes / best


def report(name: str, folder: Path, options: argparse.Namespace) -> Iterator[str]:
    """The lines of a model."""
    sizes, path = MODELS[name], folder / f"{name}.onnx"
    way = options.exporter
    parameters = export(sizes, path, way) if way else write(sizes, path, dtype=options.dtype)
    width = 2 if options.dtype == "bfloat16" else 4
    calls = [(n, 0) for n in options.prompts] + [(1, n) for n in options.pasts]
    asked = [(batch, *call) for batch in options.batches for call in calls]
    with workers(name, path, options) as engines:
        bandwidth = 0.0
        found: dict[tuple[int, int, int], dict[str, float]] = {}
        for shape in asked:
            best = dict.fromkeys(engines, math.inf)
            for _ in range(ROUNDS):
                bandwidth = max(bandwidth, bandwidth_of(options))
                for engine, worker in engines.items():
                    best[engine] = min(best[engine], worker.measure(*shape, options.seconds))
            found[shape] = best
        yield f"{name}: {parameters / 1e6:.0f} million parameters; memory is read at {bandwidth / 1e9:.1f} GB/s"
        yield TABLE.heading
        for (batch, tokens, past), best in found.items():
            least = bytes_read(sizes, parameters, past, width, batch) / bandwidth
            for engine, seconds in best.items():
                share = least / seconds if tokens == 1 else math.nan
                peak = engines[engine].peak / 2**30
                to_ort = best.get("ort", math.nan) / seconds
                yield TABLE.line(engine, batch, tokens, past, batch * tokens / seconds, share, to_ort, peak)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def _engines(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in ENGINES]:
        raise argparse.ArgumentTypeError(f"there is no engine {unknown[0]!r}; there are {', '.join(ENGINES)}")
    return names


def main() -> None:
    """Read the command line, and print a table for each model."""
    parser = arguments(__doc__ or "", f"models: {', '.join(MODELS)}")
    parser.add_argument("--prompts", type=_numbers, default=[128, 1024], help="tokens of a prefill")
    parser.add_argument("--pasts", type=_numbers, default=[128, 2048], help="tokens before the one that is decoded")
    parser.add_argument("--batches", type=_numbers, default=[1], help="sequences of a call")
    parser.add_argument("--exporter", choices=["dynamo", "torchscript"], help="torch's, in place of our own writer")
    parser.add_argument("--engines", type=_engines, default=list(ENGINES), help=", ".join(ENGINES))
    parser.add_argument("--peers", metavar="PYTHON")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long a turn is")
    parser.add_argument("--genai", metavar="PYTHON")
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--serve", choices=[*ENGINES, *PEERS], help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.names[0], options.model, options)
        return
    keep_to_cores(options.threads)
    for name in options.names or ["llama-0.1b", "qwen-0.1b"]:
        with tempfile.TemporaryDirectory() as folder:
            for line in report(name, Path(folder), options):
                print(line, flush=True)


if __name__ == "__main__":
    main()
