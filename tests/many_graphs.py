"""Thousands of random graphs: optimized for each target and compared, and compiled and compared.

    python -m tests.many_graphs [--graphs 5000] [--programs 500] [--jobs 2] [--data FILE] [--most 0.002]

Graphs are grown from all recipes and from ONNX's own tests of nodes. What a graph was found to be is kept in FILE under
a digest of it and of what is made of it, so that only what changed, and what was not right, is compared again.
Verdicts: ``verified``; ``wrong``, with ``failed`` where anything is raised and ``ended`` where the process did not
survive; ``excused`` where outputs differ as much as the original's do when its inputs move by one unit; ``untold``
where nothing can be told (no engine runs the original, or its outputs do not depend on its inputs). The exit status is
1 where a graph is wrong, failed or ended, more than a share of ``--most`` is excused, or less than 95 % are verified.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import onnx

import graphopt
from graphopt.ir import onnx_io
from graphopt.ir.graph import Graph
from graphopt.optimize import optimize_graph
from graphopt.target import target as target_named
from graphopt.verify.compare import MismatchError, UnverifiedError
from tests.random_graphs import RECIPES, compared, graph_on_trial
from tests.recipes.samples import sample
from tests.test_random_programs import RoundingError, check

MODELS, PROGRAMS = ("portable", "ort"), "programs"
LEAST = 0.95
"""The share that must be verified at least."""

CHUNK = 500
BAD = ("wrong", "failed", "ended")
BROAD = (*RECIPES, *(sample,) * 20)

Verdict = tuple[str, str, str]
"""The digest that it stands under, the verdict, and the reason."""


def grown(seed: int, most: int) -> Graph:
    """One graph, of 3 steps or more."""
    random = Random(seed)
    return graph_on_trial(random, random.randint(3, most), BROAD)


def with_function(model: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """The model with some of its nodes in a local function, for one in four."""
    nodes = model.graph.node
    first = random.randrange(max(1, len(nodes)))
    last = min(first + random.randint(1, 4), len(nodes))
    taken, others = list(nodes[first:last]), [*nodes[:first], *nodes[last:]]
    has_bodies = any(a.HasField("g") for node in taken for a in node.attribute)
    is_standard = all(not node.domain and onnx.defs.has(node.op_type) for node in taken)  # else runtimes crash
    if random.random() < 0.75 or has_bodies or not is_standard:
        return model
    made = {name for node in taken for name in node.output if name}
    inputs = dict.fromkeys(name for node in taken for name in node.input if name and name not in made)
    outside = {output.name for output in model.graph.output}.union(*map(_read, others))
    outputs = [name for node in taken for name in node.output if name in outside]
    opsets = [opset for opset in model.opset_import if not opset.domain]
    body = onnx.helper.make_function("local", "Part", list(inputs), outputs, taken, opsets)
    model.functions.append(body)
    model.opset_import.append(onnx.helper.make_opsetid("local", 1))
    call = onnx.helper.make_node("Part", list(inputs), outputs, domain="local")
    kept = [*nodes[:first], call, *nodes[last:]]
    del nodes[:]
    nodes.extend(kept)
    return model


def _read(node: onnx.NodeProto) -> set[str]:
    """The names that a node and its bodies read."""
    bodies = [a.g for a in node.attribute if a.HasField("g")]
    results = {output.name for body in bodies for output in body.output}
    return {*node.input, *results}.union(*(_read(inner) for body in bodies for inner in body.node))


def of_model(seed: int, target: str, known: str) -> Verdict:
    """Whether the optimized graph computes the same, unless that is known of the same bytes."""
    with TemporaryDirectory() as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        before.write_bytes(with_function(onnx_io.to_proto(grown(seed, 16)), Random(seed)).SerializeToString())
        found, report = optimize_graph(onnx_io.load(before), target=target_named(target))
        if left_out := [line for line in report.warnings if "was left out" in line]:
            return "", "failed", left_out[0]
        onnx_io.save(found, after)
        onnx_io.load(after)  # what cannot be read again is no result
        key = digest(before.read_bytes(), after.read_bytes())
        if key == known:
            return key, "", ""
        try:
            answer = compared(before, after)
        except UnverifiedError as refusal:
            return key, "untold", str(refusal)
        except MismatchError as mismatch:
            return key, "wrong", str(mismatch)
    if answer["status"] == "verified":
        return key, "verified", ""
    return key, "excused" if "move by one" in answer["reason"] else "untold", answer["reason"]


def of_program(seed: int, target: str, known: str) -> Verdict:
    """Whether the compiled graph computes the same, unless nothing that compiles it has changed."""
    key = digest(*(path.read_bytes() for path in sorted(Path(graphopt.__file__).parent.rglob("*.py"))))
    if key == known:
        return key, "", ""
    try:
        check(grown(seed, 12), seed)
    except RoundingError as mismatch:
        return key, "excused", str(mismatch)
    except AssertionError as mismatch:
        return key, "wrong", str(mismatch)
    return key, "verified", ""


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]


def judge(target: str, first: int, last: int, known: dict[str, str]) -> Iterator[dict[str, object]]:
    """The verdicts of some seeds, each after a line that says which is at work."""
    one: Callable[[int, str, str], Verdict] = of_program if target == PROGRAMS else of_model
    for seed in range(first, last):
        yield {"at": seed}
        try:
            key, verdict, reason = one(seed, target, known.get(str(seed), ""))
        except Exception as raised:
            key, verdict, reason = "", "failed", f"{type(raised).__name__}: {raised}"
        if verdict:
            yield {"target": target, "seed": seed, "key": key, "verdict": verdict, "reason": reason[:300]}


def judged(target: str, first: int, last: int, kept: dict[str, dict[str, object]]) -> list[dict[str, object]]:
    """The same in a process of its own, and in another from the next seed on where it ends."""
    lines: list[dict[str, object]] = []
    while first < last:
        held = [v for v in kept.values() if v["target"] == target and v["verdict"] not in BAD]  # else judge better now
        known = {str(v["seed"]): str(v["key"]) for v in held}
        command = [sys.executable, "-m", "tests.many_graphs", "--chunk", target, str(first), str(last)]
        done = subprocess.run(command, input=json.dumps(known), capture_output=True, text=True, check=False)
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        lines += [line for line in told if "at" not in line]
        if done.returncode == 0:
            break
        at = max((int(line["at"]) for line in told if "at" in line), default=first)
        reason = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[0]
        lines.append({"target": target, "seed": at, "key": "", "verdict": "ended", "reason": reason[:300]})
        first = at + 1
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=5000, help="how many are optimized for each target (5000)")
    parser.add_argument("--programs", type=int, default=500, help="how many are compiled (500)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--data", type=Path, help="where verdicts are kept")
    parser.add_argument("--most", type=float, default=0.002, help="the largest share that may be excused (0.002)")
    parser.add_argument("--chunk", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.chunk:
        target, first, last = options.chunk
        warnings.simplefilter("ignore")
        for line in judge(target, int(first), int(last), json.load(sys.stdin)):
            print(json.dumps(line), flush=True)
        return 0
    kept: dict[str, dict[str, object]] = {}
    if options.data and options.data.exists():
        kept = {f"{v['target']} {v['seed']}": v for v in map(json.loads, options.data.read_text().splitlines())}
    counts = dict.fromkeys(MODELS, options.graphs) | {PROGRAMS: options.programs}
    chunks = [(name, i, min(i + CHUNK, n)) for name, n in counts.items() for i in range(0, n, CHUNK)]
    with ThreadPoolExecutor(options.jobs) as pool:
        for lines in pool.map(partial(judged, kept=dict(kept)), *zip(*chunks, strict=True)):
            kept |= {f"{v['target']} {v['seed']}": v for v in lines}
            if options.data:
                options.data.write_text("".join(json.dumps(kept[key], sort_keys=True) + "\n" for key in sorted(kept)))
    wanted = [v for v in kept.values() if int(str(v["seed"])) < counts.get(str(v["target"]), 0)]
    for verdict in wanted:
        if verdict["verdict"] in (*BAD, "excused"):
            print(f"{verdict['target']} {verdict['seed']}: {verdict['verdict']}, {verdict['reason']}")
    is_right = True
    for name in counts:
        found = Counter(str(v["verdict"]) for v in wanted if v["target"] == name)
        print(f"{name:10}", ", ".join(f"{n} {verdict}" for verdict, n in sorted(found.items())))
        is_right &= not any(found[bad] for bad in BAD) and found["excused"] <= options.most * max(1, counts[name])
        is_right &= found["verified"] >= LEAST * min(counts[name], sum(found.values()))
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
