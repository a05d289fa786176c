from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphopt.benchmark.bench import accepted_feeds, bench, random_feeds
from graphopt.compile import CompiledModel, ReferenceWarning, compile
from graphopt.errors import ExecutionError, InputError, UsageError
from graphopt.ir import onnx_io
from graphopt.ir.text import parse

GRAPH = parse("x: float32[n, 4] y: float32[n] z = Add(x, Unsqueeze(y, [1])) return z")


def test_times_of_several_runs(tmp_path: Path) -> None:
    onnx_io.save(GRAPH, tmp_path / "m.onnx")
    (found,) = bench(tmp_path / "m.onnx", seconds=0.05)
    assert found.engine == "graphopt"
    assert found.p99 is not None
    assert 0 < found.median <= found.p90 <= found.p99
    assert found.limit is not None
    assert found.limit <= 1
    assert found.runs >= 10
    assert found.ratio == 1
    assert found.error is None
    assert found.unlowered == 0


def test_nodes_that_no_kernel_computes_are_told_with_their_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = parse("x: float32[200, 64] r: float32[50, 64] y = com.microsoft::CDist(Neg(x), r) return y")
    onnx_io.save(graph, tmp_path / "m.onnx")
    given = {"x": np.ones((200, 64), np.float32), "r": np.ones((50, 64), np.float32)}
    with pytest.warns(
        ReferenceWarning, match=r"^\d+% of the time goes to com.microsoft::CDist in ONNX Runtime: no kernel"
    ):
        (found,) = bench(tmp_path / "m.onnx", inputs=given, seconds=0.01)
    assert found.unlowered is not None
    assert 0.05 < found.unlowered <= 1
    monkeypatch.setattr("graphopt.benchmark.bench.SHARE", 1.0)
    with pytest.warns(ReferenceWarning) as told:
        bench(tmp_path / "m.onnx", inputs=given, seconds=0.01)
    assert not [w for w in told if "of the time" in str(w.message)]


def test_an_engine_that_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'tvm'"):
        bench(tmp_path / "m.onnx", against=["tvm"])


def test_given_arrays_fix_the_sizes_of_others() -> None:
    feeds = next(random_feeds(GRAPH, {"x": np.zeros((7, 4), np.float32), "y": "random"}, {}))
    assert feeds["x"].shape == (7, 4)
    assert feeds["y"].shape == (7,)
    assert next(random_feeds(GRAPH, {}, {"n": 3}))["x"].shape == (3, 4)


def test_names_are_checked() -> None:
    with pytest.raises(UsageError, match="no input 'q'"):
        next(random_feeds(GRAPH, {"q": "random"}, {}))


def test_the_first_inputs_that_are_taken() -> None:
    def run(feeds: dict[str, int]) -> None:
        if feeds["x"] < 2:
            raise ExecutionError(f"not {feeds['x']}")

    assert accepted_feeds(({"x": k} for k in range(4)), run) == {"x": 2}
    with pytest.raises(ExecutionError, match="not 0"):
        accepted_feeds(({"x": k} for k in range(2)), run)
    with pytest.raises(InputError):
        accepted_feeds([{}], lambda feeds: (_ for _ in ()).throw(InputError("no")))


def test_default_schedules_are_an_engine(tmp_path: Path) -> None:
    onnx_io.save(GRAPH, tmp_path / "m.onnx")
    tuned, untuned = bench(tmp_path / "m.onnx", against=["untuned"], seconds=0.05)
    assert (tuned.engine, untuned.engine) == ("graphopt", "untuned")
    assert untuned.error == 0


@pytest.mark.parametrize("against", [[], ["untuned"]])
def test_the_target_of_a_file_is_compiled_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, against: list[str]
) -> None:
    onnx_io.save(GRAPH, tmp_path / "m.onnx")
    file = tmp_path / "mine.toml"
    file.write_text('device = "cpu"\n[prices]\nlike = "cpu"\nsource = "assumed"\n')
    compiled_for = []

    def spy(*arguments: Any, **keywords: Any) -> CompiledModel:
        compiled_for.append(keywords["target"].name)
        return compile(*arguments, **keywords)

    monkeypatch.setattr("graphopt.benchmark.bench.compile", spy)
    assert len(bench(tmp_path / "m.onnx", against=against, target=str(file), seconds=0.05)) == 1 + len(against)
    assert compiled_for == ["mine"] * (1 + len(against))
    file.write_text('device = "simulated"\n[prices]\nlike = "cpu"\nsource = "assumed"\n')
    with pytest.raises(UsageError, match="bench measures on the CPU: the target mine is for simulated"):
        bench(tmp_path / "m.onnx", target=str(file))
