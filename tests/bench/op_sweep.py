"""Sweeps instances of all ops, drawn from a seed, beside ONNX Runtime at one thread, and makes a page of the results.

    python tests/bench/op_sweep.py [--ops NAME,...] [--seed N] [--cases N] [--results FILE] [--page FILE]

Each case is compiled by ``graphopt.compile`` and compared with ONNX Runtime, and with ONNX's reference implementation
where that has no kernel or disagrees; calls take turns. Cases run in a process of their own, which may crash. Results
are lines of JSON, appended; cases that the file has are not run again. ``--page`` writes the table in the docs from
the file.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import platform
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[2])]

from tests.bench.turns import Call, burst, least, session  # noqa: E402
from tests.recipes import instances  # noqa: E402

ROUNDS, TURN = 5, 0.008
"""Turns of each side, and seconds of one."""

LIMIT = 90.0
"""Seconds that a case may take in all."""

SLOW, SLOWEST = 0.8, 0.5
"""Ratios that no op's median, and no case, is to be below."""

CALL = 8
"""Microseconds more than ONNX Runtime's that Python may take for a call: sizes found out on the way, nodes that run
there."""

OLDER = (28, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 14, 13, 12, 11, 10)
"""Opsets in which ONNX Runtime may have a kernel that it lacks in the newest."""

RANDOM = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")
)
"""Ops whose results differ from run to run: their shapes and dtypes are compared."""

ROUNDED = ("Quantize", "QLinear", "QGemm")
"""Ops that round to integers: one step is allowed where the other engine rounds a tie, or computes in another order."""


class Refused(Exception):  # noqa: N818 - an answer
    """ONNX Runtime does not run a model."""


# -- one case


def case(op: str, seed: int, number: int) -> dict[str, Any]:
    """What was found of a case."""
    drawn = instances.instance(op, seed, number)
    row: dict[str, Any] = {"op": op, "seed": seed, "case": number}
    if drawn is None:
        return row | {"status": "none"}
    model, feeds = drawn
    row["what"] = described(model)
    try:
        return row | compared(op, model, feeds)
    except Exception as failed:
        return row | {"status": "failed", "why": f"{type(failed).__name__}: {first_line(failed)}"}


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:300]


def described(model: Any) -> str:
    """The inputs and attributes of a model's nodes, in a line."""
    from onnx import helper

    graph = model.graph
    known = {}
    for value in graph.input:
        tensor = value.type.tensor_type
        sizes = [d.dim_param or str(d.dim_value) for d in tensor.shape.dim]
        known[value.name] = (
            f"{helper.tensor_dtype_to_np_dtype(tensor.elem_type)}[{','.join(sizes)}]" if tensor.elem_type else "?"
        )
    for tensor in graph.initializer:
        kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        known[tensor.name] = f"const {kind}[{','.join(map(str, tensor.dims))}]"
    calls = []
    for node in graph.node[:3]:
        attrs = [f"{a.name}={_attr(a)}" for a in node.attribute]
        calls.append(f"{node.op_type}({', '.join([*(known.get(i, i or '_') for i in node.input), *attrs])})")
    return "; ".join(calls)[:400]


def _attr(attribute: Any) -> str:
    from onnx import helper

    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float):
        return f"{value:g}"
    return str(list(value) if isinstance(value, (list, tuple)) else value)[:60].split("\n")[0]


def compared(op: str, model: Any, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """How a model's program does."""
    import graphopt

    try:
        theirs, wanted, opset = onnxruntime(model, feeds)
    except Refused as refused:
        theirs, wanted, opset = None, None, str(refused)[:120]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = graphopt.compile(model, threads=1, jobs=1, verify="off")
            got = program(feeds)
        except Exception as failed:
            if wanted is None and reference(model, feeds) is None:
                return {"status": "no engine", "why": first_line(failed), "ort": opset}
            return {"status": "failed", "why": f"{type(failed).__name__}: {first_line(failed)}", "ort": opset}
        left = [[node.op, node.why, node.engine] for node in program.report.unlowered]
        row: dict[str, Any] = {"left": left, "kernels": program.report.calls, "ort": opset}
        row |= judged(op, model, feeds, wanted, got)
        row |= timed(program, feeds, theirs)
    return row


def judged(op: str, model: Any, feeds: Mapping[str, Any], wanted: Any, got: Mapping[str, Any]) -> dict[str, Any]:
    """Whether results are right: as ONNX Runtime's, or as those of ONNX's reference implementation."""
    errors = {}
    if wanted is not None:
        errors["ONNX Runtime"] = distance(op, wanted, got)
    if wanted is None or errors["ONNX Runtime"] > 1:
        expected = reference(model, feeds)
        if expected is not None:
            errors["reference"] = distance(op, expected, got)
        elif wanted is None:
            return {"status": "unjudged", "error": None}
    best = min(errors.values())
    status = "right" if best <= 1 else "wrong"
    return {
        "status": status,
        "error": round(best, 4) if math.isfinite(best) else "inf",
        "errors": {k: str(v) for k, v in errors.items()},
    }


def distance(op: str, wanted: Mapping[str, Any], got: Mapping[str, Any]) -> float:
    """The largest error of the outputs, in units of what their dtypes allow."""
    return max((_distance(op, wanted[name], got[name]) for name in wanted if name in got), default=0.0)


def _distance(op: str, want: Any, got: Any) -> float:
    from graphopt.ir.tolerance import error

    if isinstance(want, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(want) != len(got):
            return math.inf
        return max((_distance(op, a, b) for a, b in zip(want, got, strict=True)), default=0.0)
    if want is None or got is None:
        return 0.0 if want is got else math.inf
    want, got = np.asarray(want), np.asarray(got)
    if op in RANDOM:
        return 0.0 if (want.shape, want.dtype) == (got.shape, got.dtype) else math.inf
    if want.dtype.kind in "OSTU":
        return 0.0 if want.astype(str).tolist() == got.astype(str).tolist() else math.inf
    is_code = any(word in op for word in ROUNDED) and want.dtype.kind in "iu" and want.dtype == got.dtype
    if is_code and want.shape == got.shape:
        steps = np.abs(want.astype(np.int64) - got.astype(np.int64)).max(initial=0)
        return 0.0 if steps <= 1 else math.inf
    return float(error(want, got))


def reference(model: Any, feeds: Mapping[str, Any]) -> dict[str, Any] | None:
    """What ONNX's reference implementation makes of a model; None where it does not run it."""
    from graphopt.ir import evaluate, onnx_io

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return evaluate.run(onnx_io.load(model), dict(feeds))
    except Exception:
        return None


def onnxruntime(model: Any, feeds: Mapping[str, Any]) -> tuple[Call, dict[str, Any], int]:
    """A call of ONNX Runtime, what it makes, and the opset in which it has a kernel."""
    import onnx

    reason = ""
    own = next((entry.version for entry in model.opset_import if entry.domain == ""), 0)
    for opset in (own, *(n for n in OLDER if n < own)):
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        changed.ir_version = min(model.ir_version, instances.IR)
        for entry in changed.opset_import:
            entry.version = opset if entry.domain == "" else entry.version
        try:
            return (*_session_call(session(changed.SerializeToString()), feeds), opset)
        except Exception as refused:
            reason = reason or first_line(refused)
            if "NOT_IMPLEMENTED" not in str(refused) and "Could not find an implementation" not in str(refused):
                break
    raise Refused(reason)


def _session_call(opened: Any, feeds: Mapping[str, Any]) -> tuple[Call, dict[str, Any]]:
    """A call of a session, and what it makes."""
    given = dict(feeds)
    want = dict(zip([o.name for o in opened.get_outputs()], opened.run(None, given), strict=True))
    return lambda: opened.run(None, given), want


def timed(program: Any, feeds: Mapping[str, Any], theirs: Call | None) -> dict[str, Any]:
    """Microseconds of the least of bursts that take turns, from arrays to new arrays, as users call both."""
    given = dict(feeds)

    def call() -> object:
        return program(given)

    sides = [lambda: burst(call, TURN)] + ([] if theirs is None else [lambda: burst(theirs, TURN)])
    found = least(*sides, rounds=ROUNDS)
    row = {"us": round(found[0] * 1e6, 2)}
    if theirs is not None:
        row |= {"ort_us": round(found[1] * 1e6, 2), "ratio": round(found[1] / found[0], 3)}
        if row["ratio"] < SLOW:
            row["kernels_us"] = round(min(sum(r.seconds for r in program.profile(feeds)) for _ in range(5)) * 1e6, 2)
    return row


# -- a process for cases


def _serve(pipe: Any) -> None:
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - warnings of engines
    os.dup2(sys.stderr.fileno(), 2)
    while True:
        asked = pipe.recv()
        pipe.send(case(*asked))


class Worker:
    """A process that runs cases, started anew where one ends it or takes too long."""

    def __init__(self) -> None:
        self.process: Any = None

    def run(self, op: str, seed: int, number: int) -> dict[str, Any]:
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, other = context.Pipe()
            self.process = context.Process(target=_serve, args=(other,), daemon=True)
            self.process.start()
            other.close()
        self.pipe.send((op, seed, number))
        try:
            if self.pipe.poll(LIMIT):
                return dict(self.pipe.recv())
            why = f"took longer than {LIMIT:g} s"
        except EOFError:
            why = "the process ended"
        self.stop()
        return {"op": op, "seed": seed, "case": number, "status": "failed", "why": why}

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


# -- results


def read(path: Path) -> list[dict[str, Any]]:
    """The results of a file; of a case that was run twice the last."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return list({(row["op"], row["seed"], row["case"]): row for row in rows}.values())


def sweep(ops: Sequence[str], seed: int, cases: int, path: Path) -> Iterator[dict[str, Any]]:
    """Run the cases that the file of results lacks, and append them."""
    had = {(row["op"], row["seed"], row["case"]) for row in read(path)}
    worker = Worker()
    with path.open("a") as file:
        for number in range(cases):
            for op in ops:
                if (op, seed, number) not in had:
                    row = worker.run(op, seed, number)
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    yield row
    worker.stop()


def line(row: Mapping[str, Any]) -> str:
    """A result as text."""
    times = (
        f"{row['us']:10.1f} {row['ort_us']:10.1f} {row['ratio']:7.2f}"
        if "ratio" in row
        else f"{row.get('us', 0):10.1f} {'':18}"
    )
    left = (
        " left: " + "; ".join(f"{op} ({why}; {engine})" for op, why, engine in row["left"]) if row.get("left") else ""
    )
    why = f" {row['why']}" if "why" in row else ""
    wrong = f" errors {row['errors']}" if row["status"] == "wrong" else ""
    return f"{row['op']:34}{row['case']:3} {row['status']:9}{times} {row.get('what', '')}{left}{why}{wrong}"


# -- the page

HEADING = """# Speed of each op

Each op of ONNX (opset {opset}), and of `com.microsoft` those that ONNX Runtime's own tools write, in instances drawn
from a seed: dtypes, ranks, small, large, odd and open sizes, transposed inputs, attributes. Each is compiled by
`graphopt.compile` and compared with ONNX Runtime {version}, one thread, calls taking turns, from arrays to new arrays.
Above 1: faster than ONNX Runtime. {machine}; other programs may have run beside it, so
that single figures are off, and rows of ops whose kernels did not change are kept from earlier commits (`--results`).

{cases} cases of {ops} ops: {right} right, {wrong} wrong, {failed} failed; geometric mean {mean:.2f}x; {slow} ops with a
median below {limit}x, {slowest} cases below {least}x. The last column has the reason, and what ran in another engine.

```sh title="usage"
python tests/bench/op_sweep.py --seed {seed} --cases {number} --page docs/op-speed.md
```
"""


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The page of the docs."""
    ran = [row for row in rows if row["status"] != "none"]
    by_op = {op: [row for row in ran if row["op"] == op] for op in instances.ops()}
    ratios = [row["ratio"] for row in ran if "ratio" in row]
    medians = {op: median(found) for op, of in by_op.items() if (found := [r["ratio"] for r in of if "ratio" in r])}
    heading = HEADING.format(
        opset=instances.OPSET,
        version=version("onnxruntime"),
        machine=f"{processor()} with {os.cpu_count()} cores",
        cases=len(ran),
        ops=sum(bool(of) for of in by_op.values()),
        right=sum(row["status"] == "right" for row in ran),
        wrong=sum(row["status"] == "wrong" for row in ran),
        failed=sum(row["status"] == "failed" for row in ran),
        mean=math.exp(sum(map(math.log, ratios)) / len(ratios)),
        slow=sum(m < SLOW for m in medians.values()),
        slowest=sum(r < SLOWEST for r in ratios),
        limit=SLOW,
        least=SLOWEST,
        seed=max((row["seed"] for row in ran), default=0),
        number=max((row["case"] for row in ran), default=0) + 1,
    )
    table = ["| op | cases | median | least | most | |", "|---|---|---|---|---|---|"]
    for op, of in by_op.items():
        known = [row["ratio"] for row in of if "ratio" in row]
        figures = [f"{n:.2f}x" for n in (median(known), min(known), max(known))] if known else ["", "", ""]
        table.append(f"| {op} | {len(of)} | {' | '.join(figures)} | {'; '.join(notes(of))} |")
    return heading + "\n" + "\n".join(table) + "\n"


def processor() -> str:
    """What the machine's processor is called."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.machine())


def notes(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What is to be said of an op's cases."""
    if not rows:
        yield "ONNX has no test of it, and nobody draws one"
        return
    for status in ("wrong", "failed", "unjudged"):
        if number := sum(row["status"] == status for row in rows):
            yield f"{number} {status}"
    engines = {
        engine: sum(any(e == engine for *_, e in row.get("left", ())) for row in rows)
        for engine in ("ONNX Runtime", "reference evaluator")
    }
    engines |= {
        e: sum(any(e == x for *_, x in row.get("left", ())) for row in rows)
        for row in rows
        for *_, e in row.get("left", ())
    }
    for engine, number in engines.items():
        if number:
            yield f"{number} ran in {engine}"
    if all("ratio" not in row for row in rows):
        yield "ONNX Runtime has no kernel, or was not timed"
    for row in rows:
        if row.get("ratio", 1) < SLOWEST and not row.get("left"):
            yield f"{row['ratio']:.2f}x: {reason(row)}"


def reason(row: Mapping[str, Any]) -> str:
    """Why a case is slow, as far as its times tell."""
    if row["us"] - row.get("ort_us", 0) < CALL:
        return f"{row['us']:.0f} µs, most of it the call"
    return f"{row['us']:.0f} µs: `{row['what']}`".replace("|", "\\|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", default="", help="ops, with commas between (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=4, help="instances of each op")
    parser.add_argument("--results", type=Path, default=Path("op_sweep.jsonl"))
    parser.add_argument("--page", type=Path, help="write the page of the docs; with --cases 0 of what is known")
    given = parser.parse_args()
    ops = given.ops.split(",") if given.ops else instances.ops()
    for row in sweep(ops, given.seed, given.cases, given.results):
        if row["status"] != "none":
            print(line(row), flush=True)
    if given.page:
        given.page.write_text(page(read(given.results)))


if __name__ == "__main__":
    main()
