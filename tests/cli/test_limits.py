"""Models of a few hundred bytes that would take all memory, or for ever, end with their exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from graphopt.ir import onnx_io
from graphopt.ir.text import parse

GREAT = 2**40
DOUBLES = "x: float32[8] y = Loop(40, _, x, body={ i: ? go: ? s: ? t = Concat(s, s, axis=0) return go, t }) return y"
MOST = 512 << 20

MEASURED = """
import pathlib, resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
pathlib.Path("peak").write_text(str(used.ru_maxrss))
pathlib.Path("seconds").write_text(str(used.ru_utime + used.ru_stime))
sys.exit(code)
"""
"""Runs a command and writes the peak of its memory and its seconds of processors: the tests' own process has had other
children."""


def ended(folder: Path, text: str, *words: str) -> tuple[int, str]:
    """How a command on a model ended, whose processes may have no more memory than all such models need."""
    onnx_io.save(parse(text), folder / "m.onnx")
    command = [sys.executable, "-m", "graphopt", words[0], "m.onnx", *words[1:]]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *command], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    assert int((folder / "peak").read_text()) << 10 < MOST
    return done.returncode, done.stderr


@pytest.mark.parametrize("text", [f"x: float32[1] y = Tile(x, [{GREAT}]) return y", DOUBLES], ids=["Tile", "Loop"])
def test_a_model_too_large_to_verify_is_written_and_told(text: str, tmp_path: Path) -> None:
    code, said = ended(tmp_path, text, "optimize", "-o", "o.onnx", "-q")
    assert (code, (tmp_path / "o.onnx").exists()) == (0, True)
    assert "unverified" in said
    assert "--memory allows more" in said
    assert ended(tmp_path, text, "optimize", "-o", "p.onnx", "-q", "--verify", "require")[0] == 6
    assert not (tmp_path / "p.onnx").exists()


def test_a_model_too_large_to_run_is_refused_before_it_is_compiled(tmp_path: Path) -> None:
    text = f"x: float32[1] y = Tile(x, [{GREAT}]) return y"
    code, said = ended(tmp_path, text, "run", "--input", "x=random")
    assert code == 5
    assert f"take {4 * GREAT + 4} bytes" in said


@pytest.mark.parametrize(
    "text",
    [
        f"x: float32[1] e = Expand(x, [{GREAT}]) y = ReduceSum(e, keepdims=0) return y",
        f"x: float32[8] y = Loop({2**62}, _, x, body={{ i: ? go: ? s: float32[8] t = Neg(s) return go, t }}) return y",
    ],
    ids=["sum", "loop"],
)
@pytest.mark.parametrize("command", [("run", "--input", "x=random"), ("bench",)], ids=["run", "bench"])
def test_a_run_of_too_many_operations_is_refused_before_it_is_compiled(
    text: str, command: tuple[str, ...], tmp_path: Path
) -> None:
    code, said = ended(tmp_path, text, *command)
    assert code == 5
    assert ("--seconds allows more" in said) == (command[0] == "run")
    assert "operations, and may take 120 s" in said


def sparse_model() -> onnx.ModelProto:
    """A model of which one constant has a single element of 2^30."""
    add = onnx.helper.make_node("Add", ["x", "s"], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in BOTH)
    values = onnx.numpy_helper.from_array(np.array([1.0], np.float32), "s")
    at = onnx.numpy_helper.from_array(np.array([5], np.int64), "at")
    sparse = [onnx.helper.make_sparse_tensor(values, at, [2**30])]
    graph = onnx.helper.make_graph([add], "g", [x], [y], sparse_initializer=sparse)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)


BOTH = (("x", [1]), ("y", None))
FOREVER = f"x: float32[8] y = Loop({2**62}, _, x, body={{ i: ? go: ? s: float32[8] t = Neg(s) return go, t }}) return y"
BOMBS = {
    "concat": "x: float32[1] "
    + " ".join(f"c{k} = Concat({f'c{k - 1}, c{k - 1}' if k else 'x, x'}, axis=0)" for k in range(40))
    + " return c39",
    "tile": f"x: float32[1] y = Tile(x, [{GREAT}]) return y",
    "tile of a constant": f"x: float32[1] y = Add(Tile([1.0, 2.0], [{GREAT}]), x) return y",
    "expand": f"x: float32[1] y = ReduceSum(Expand(x, [{GREAT}]), keepdims=0) return y",
    "resize": f"x: float32[1, 1, 4, 4] y = Resize(x, _, [1.0, 1.0, {2.0**19}, {2.0**17}]) return y",
    "product": """x: float32[1]
        a = Expand(Unsqueeze(Range(0.0, 1000000000.0, 1.0), [0]), [1000, 1000000000])
        y = Add(ReduceSum(MatMul(a, Transpose(a, perm=[1, 0])), keepdims=0), x)
        return y""",
    "loop that doubles": DOUBLES,
    "loop without end": FOREVER,
    "einsum": 'x: float32[1000, 1000] y = Einsum(x, x, x, x, equation="ab,cd,ef,gh->") return y',
    "window": "x: float32[1, 1048576, 1, 1] y = LRN(x, size=2147483647) return y",
    "input": f"x: float32[{2**38}] y = Relu(x) return y",
    "sparse": "",
    "concat of inputs": "x: float32[1024] "
    + " ".join(f"c{k + 1} = Concat({', '.join([f'c{k}' if k else 'x'] * 100)}, axis=0)" for k in range(5))
    + " y = Relu(c5) return y",
    "many folds": "x: float32[1] b = Reshape(Range(0.0, 4194304.0, 1.0), [2, 2097152]) "
    + " ".join(f"s{k} = ReduceSum(Sin(Add(b, {k}.0)), keepdims=0)" for k in range(80))
    + f" y = Add(x, Sum({', '.join(f's{k}' for k in range(80))})) return y",
    "folds in bodies": "x: float32[1] c = Less(ReduceMax(x), 0.0) "
    "b = Reshape(Range(0.0, 1048576.0, 1.0), [1024, 1024]) "
    + " ".join(
        f"s{k} = If(c | b, then_branch={{ q: ? r = ReduceSum(MatMul(Add(q, {k}.0), q), keepdims=0) return r }}, "
        f"else_branch={{ q: ? r = ReduceSum(MatMul(q, Sub(q, {k}.0)), keepdims=0) return r }})"
        for k in range(8)
    )
    + f" y = Add(x, Sum({', '.join(f's{k}' for k in range(8))})) return y",
    "chain of products": "x: float32[1] a = Reshape(Range(0.0, 1048576.0, 1.0), [1024, 1024]) c0 = MatMul(a, a) "
    + " ".join(f"c{k + 1} = MatMul(c{k}, a)" for k in range(20))
    + " y = Add(ReduceSum(c20, keepdims=0), x) return y",
    "loop of data": "x: float32[8] n = Cast(Add(Abs(ReduceSum(x, keepdims=0)), 1e15), to=7) "
    "y = Loop(n, _, x, body={ i: ? go: ? s: float32[8] t = Neg(s) return go, t }) return y",
}
"""Models of a few kilobytes at most whose run would take all memory, or long, or for ever."""
RUNS = {"many folds", "folds in bodies", "chain of products", "loop of data"}
"""Those that commands which are asked to compile or run a model may take their time for, up to ``--seconds``."""
COMPILES = {"run", "bench", "tune", "compile", "graphopt.compile"}
ENDS = {"concat", "tile", "tile of a constant", "resize", "loop that doubles", "input", "concat of inputs", "sparse"}
"""Those whose ends alone take more than all memory: no program of them is made."""
COMMANDS = {
    "inspect": ("inspect", 0),
    "show": ("show", 0),
    "diff": ("diff m.onnx", 0),
    "optimize": ("optimize -o o.onnx -q", 0),
    "convert": ("convert --to float16 -o h.onnx -q", 0),
    "extract": ("extract --outputs y -o e.onnx -q", 0),
    "explain": ("explain --rule identity", 0),
    "run": ("run --input x=random", 5),
    "bench": ("bench --seconds 0", 5),
    "tune": ("tune --seconds 1 --trials 1 --database d.sqlite -q", 5),
    "compile": ("compile -o p -q", 0),
    "graphopt.compile": ("", 0),
    "certify": ("certify o.onnx c.json", 0),
    "serve": ("", 0),
}
"""The commands that take a model, and how they end: what runs it refuses."""
REQUEST = {
    "task": "run",
    "model": "m.onnx",
    "name": "m",
    "folder": ".",
    "rules": "",
    "language": "rules",
    "with": "all",
    "target": "portable",
    "policy": "reals",
    "memory": None,
    "seconds": 120,
}
PROCESSES = {
    "graphopt.compile": """
import sys, graphopt
try:
    graphopt.compile("m.onnx", cache=False)
except graphopt.errors.GraphoptError as error:
    sys.exit(error.exit_code)
""",
    "serve": f"""
import json, multiprocessing, sys
from graphopt.serving import worker
fork = multiprocessing.get_context("fork")
answers, theirs = fork.Pipe(duplex=False)
process = fork.Process(target=worker.serve, args=(theirs, {REQUEST}))
process.start()
theirs.close()
answer = json.loads(answers.recv_bytes())
process.join()
sys.exit(answer["error"] if "process of the run ended" in answer.get("error", "") else process.exitcode)
""",
}
"""What is no command line: a program that compiles, and the run of a model that was sent to ``graphopt serve``."""
DEFAULT = {
    *(("concat", "diff"), ("product", "optimize"), ("tile of a constant", "run"), ("loop without end", "tune")),
    *(("concat of inputs", "compile"), ("folds in bodies", "optimize"), ("resize", "serve")),
}
"""What is tried each time; all else is slow."""
BEYOND = 3.0
"""How many seconds of processors a bomb may take beyond start-up; as many as that takes where they are slow, or others
keep them busy."""
STARTED: dict[str, float] = {}
"""By command, the seconds that it takes for a model that does next to nothing."""


def plain(size: int) -> onnx.ModelProto:
    return onnx_io.to_proto(parse(f"x: float32[{size}] y = Relu(x) return y"))


def measured(folder: Path, model: onnx.ModelProto, command: str) -> tuple[int, str, float]:
    """How a command line, or a process, ended, what it said, and how many seconds of processors it took."""
    onnx.save(model, folder / "m.onnx")
    if command in PROCESSES:
        words = ["-c", PROCESSES[command]]
    else:
        name, *rest = command.split()
        words = ["-m", "graphopt", name, "m.onnx", *rest]
    if command.startswith("certify"):
        made = ["optimize", "m.onnx", "-o", "o.onnx", "--certificate", "c.json", "--verify", "off", "-q"]
        subprocess.run([sys.executable, "-m", "graphopt", *made], cwd=folder, timeout=100, check=True)
    line = [sys.executable, "-c", MEASURED, sys.executable, *words]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert int((folder / "peak").read_text()) << 10 < MOST
    return done.returncode, done.stderr, float((folder / "seconds").read_text())


def start_up(folder: Path, command: str) -> float:
    """The seconds of processors that a command takes for a model that does next to nothing, and that no cache holds."""
    line = (
        (COMMANDS[command][0] or command)
        .replace("tune", "compile -o p -q #")
        .replace("bench", "run --input x=random #")
    )
    line = line.partition("#")[0]  # these take as long as they are asked to
    if line not in STARTED:
        measured(folder, plain(8), line)
        STARTED[line] = measured(folder, plain(int.from_bytes(os.urandom(2), "little") + 9), line)[2]
    return STARTED[line]


@pytest.mark.parametrize(
    ("bomb", "command"),
    [
        pytest.param(bomb, command, marks=() if (bomb, command) in DEFAULT else pytest.mark.slow)
        for bomb in BOMBS
        for command in COMMANDS
        if not (bomb in RUNS and command in COMPILES)
    ],
)
def test_bombs_end_at_once_with_their_exit_code(bomb: str, command: str, tmp_path: Path) -> None:
    line, wanted = COMMANDS[command]
    if bomb == "sparse" and command == "show":
        wanted = 5  # what is compiled has its constants written out
    if bomb in ENDS and "compile" in command:
        wanted = 5
    started = start_up(tmp_path, command)
    model = onnx_io.to_proto(parse(BOMBS[bomb])) if BOMBS[bomb] else sparse_model()
    if bomb == "concat":
        line = line.replace("--outputs y", "--outputs c39")
    code, said, seconds = measured(tmp_path, model, line or command)
    assert code == wanted, said
    assert "Traceback" not in said
    assert seconds < started + max(BEYOND, started)


def test_sparse_constants_are_not_written_out(tmp_path: Path) -> None:
    code, said, _ = measured(tmp_path, sparse_model(), "compile -o p")
    assert code == 5
    assert f"its constants take {4 << 30} bytes" in said


@pytest.mark.parametrize("command", ["run --input x=random --seconds 1", "optimize -o o.onnx -q"])
def test_a_chain_of_products_is_run_only_if_there_is_time(command: str, tmp_path: Path) -> None:
    """2 * 10^11 operations, which take half a minute at best: what default verification does not take on, either."""
    chain = " ".join(f"c{k + 1} = MatMul(c{k}, a)" for k in range(200))
    start = "x: float32[1] a = Reshape(Range(0.0, 1048576.0, 1.0), [1024, 1024]) c0 = MatMul(a, a)"
    text = f"{start} {chain} y = Add(c200, x) return y"
    code, said, seconds = measured(tmp_path, onnx_io.to_proto(parse(text)), command)
    assert code == (0 if command.startswith("optimize") else 5)
    assert "operations, and may take" in said
    assert seconds < 10


def test_a_run_takes_no_more_than_it_may(tmp_path: Path) -> None:
    text = "x: float32[4] y = Expand(x, [16777216, 4]) return y"
    code, said = ended(tmp_path, text, "run", "--input", "x=random", "--memory", "64MB")
    assert code == 5
    assert "may take 67108864;" in said


def test_a_run_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    text = """n: int64[], x: float32[1]
        y = Loop(n, bool[]{true}, x, body={ i: int64[] c: bool[] s: ? t = Mul(s, 2.0) return c, t })
        return y"""
    np.save(tmp_path / "n.npy", np.array(2**62))
    code, said = ended(
        tmp_path, text, "run", "--input", f"n={tmp_path / 'n.npy'}", "--input", "x=random", "--seconds=1"
    )
    assert code == 5
    assert "--seconds allows more" in said


def test_memory_is_a_number_of_bytes(tmp_path: Path) -> None:
    for wrong in ("", "0", "much", "-1GB", "1.5GB"):
        code, said = ended(tmp_path, DOUBLES, "run", f"--memory={wrong}", "--input", "x=random")
        assert code == 2
        assert "expected a number of bytes" in said
