"""Runs that somebody else disturbed do not count, or count without what they waited; every session is opened without
telemetry, in one place."""

import ast
from pathlib import Path

import onnxruntime
import pytest

import graphopt
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.runtime import onnxruntime as sessions
from graphopt.verify.runtimes import OnnxRuntimeProfiler, ProfiledKernel, open_for_timing, open_model, undisturbed


def run(own: float, other: float = 1e-4) -> list[ProfiledKernel]:
    return [ProfiledKernel("a", "Abs", other), ProfiledKernel("b", "LRN", own)]


def test_runs_without_waiting_are_those_that_count() -> None:
    runs = [run(1e-2), run(3e-2), run(1.1e-2), run(5e-2), run(1.2e-2)]
    assert undisturbed(runs, [1.1e-2, 1.1e-2, 1.2e-2, 1.1e-2, 1.23e-2]) == [runs[0], runs[2], runs[4]]


def test_where_all_waited_it_is_subtracted_from_what_took_longest() -> None:
    runs = [run(3e-2), run(1e-2, 2e-2 + 1e-4), run(4e-2)]
    (found,) = undisturbed(runs, [1.01e-2, 1.01e-2, 1.01e-2])
    assert [round(k.seconds, 6) for k in found] == [1e-4, 1e-2]


def test_telemetry_is_off_before_any_session_is_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done: list[str] = []
    open_session, turn_off = onnxruntime.InferenceSession, onnxruntime.disable_telemetry_events

    def opened(*args: object, **options: object) -> object:
        done.append("session")
        return open_session(*args, **options)

    monkeypatch.setattr(onnxruntime, "InferenceSession", opened)
    monkeypatch.setattr(onnxruntime, "disable_telemetry_events", lambda: (done.append("off"), turn_off()))
    path = tmp_path / "m.onnx"
    graph = parse("x: float32[2] y = Neg(x) return y")
    onnx_io.save(graph, path)
    for use in (
        lambda: open_model(path),
        lambda: open_for_timing(path, {"x": [0.0, 0.0]}, 1),
        lambda: OnnxRuntimeProfiler().profile(path.read_bytes(), {"x": [0.0, 0.0]}, 0.0, (1, 1), 0),
    ):
        done.clear()
        use()
        assert done[0] == "off"
        assert done.count("session") == 1


def test_one_function_opens_all_sessions() -> None:
    root = Path(graphopt.__file__).parent
    names = {"InferenceSession", "onnxruntime"}
    found: dict[str, set[str]] = {}
    for file in root.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            imported = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                imported = [node.module or ""]
            used = [node.attr] if isinstance(node, ast.Attribute) else []
            if there := names & {name.partition(".")[0] for name in (*imported, *used)}:
                found.setdefault(file.relative_to(root).as_posix(), set()).update(there)
    assert found == {"runtime/onnxruntime.py": names}
    text = Path(sessions.__file__).read_text(encoding="utf-8")
    assert text.count("InferenceSession(") == 1
    assert text.count("import onnxruntime") == 1
