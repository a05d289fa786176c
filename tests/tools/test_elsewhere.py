import json
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from graphopt.cli import run
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.rewrite.ruleset import ruleset
from graphopt.tools.batch import BatchJob, optimize_all, optimize_job
from graphopt.tools.elsewhere import on_workers, optimize_packed, packed
from graphopt.tuning.executors import TRIES


def job(folder: Path, name: str = "a", **options: Any) -> BatchJob:
    graph = parse("x: float32[2, 3]\nt = Transpose(x)\nu = Transpose(t)\ny = Relu(u)\nreturn y")
    (folder / "in").mkdir(exist_ok=True)
    onnx_io.save(graph, folder / "in" / f"{name}.onnx")
    place = folder / "out" / f"{name}.onnx"
    return BatchJob(f"{name}.onnx", folder / "in" / f"{name}.onnx", place, options, journal=True, certificate=True)


def test_what_comes_back_is_what_is_written_here(tmp_path: Path) -> None:
    jobs = [job(tmp_path, name, verify="off") for name in "abcde"]
    with ThreadPoolExecutor(2) as executor:
        summary = optimize_all(jobs, optimize_job, runs=on_workers(executor))
    assert [(o.model, o.exit_code, o.ops_after) for o in summary.outcomes] == [(j.name, 0, 1) for j in jobs]
    here = job(tmp_path, "here", verify="off")
    here.output.parent.mkdir(exist_ok=True)
    optimize_job(here)
    assert jobs[0].output.read_bytes() == here.output.read_bytes().replace(b"here", b"a")
    files = {file.name for file in here.output.parent.iterdir()}
    assert {"a.onnx", "a.journal.json", "a.certificate.json", "e.onnx"} <= files
    assert json.loads((here.output.parent / "a.journal.json").read_text())["model"] == "a.onnx"
    assert (
        run(["certify", str(jobs[0].model), str(jobs[0].output), str(jobs[0].output)[:-5] + ".certificate.json"]) == 0
    )


def test_data_files_go_along_and_inputs_are_read_here(tmp_path: Path) -> None:
    weights = onnx.numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "w")
    info = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [2, 3]), ("y", [2, 4]))]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g", info[:1], info[1:], [weights]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    (tmp_path / "in").mkdir()
    onnx.save(model, tmp_path / "in" / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    made = BatchJob("m", tmp_path / "in" / "m.onnx", tmp_path / "o.onnx", {"inputs": {"x": str(tmp_path / "x.npy")}})
    package = packed(made)
    assert sorted(package.files) == ["m.onnx", "w.data"]
    (tmp_path / "x.npy").unlink()
    assert optimize_packed(package).outcome.verification == "verified"


def test_what_fails_names_the_model_here(tmp_path: Path) -> None:
    bad, missing = job(tmp_path, "bad"), BatchJob("missing.onnx", tmp_path / "missing.onnx", tmp_path / "o.onnx")
    bad.model.write_bytes(b"garbage")
    with ThreadPoolExecutor(1) as executor:
        summary = optimize_all([bad, missing], optimize_job, runs=on_workers(executor))
    assert [o.exit_code for o in summary.outcomes] == [3, 3]
    assert str(bad.model) in summary.outcomes[0].error
    assert "missing.onnx: cannot read" in summary.outcomes[1].error


def test_the_reproducer_of_a_wrong_rewrite_comes_back(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "w.rules").write_text("# not true      [C1] exact always\nwrong:  Relu(x)  =>  Abs(x)\n")
    refused = job(tmp_path, "a", rules=ruleset(tmp_path / "w.rules"), on_mismatch="refuse")
    with ThreadPoolExecutor(1) as executor:
        (outcome,) = optimize_all([refused], optimize_job, runs=on_workers(executor)).outcomes
    assert outcome.exit_code == 6
    (small,) = refused.output.parent.iterdir()
    assert f"reproducer  {small}" in outcome.notes
    assert [node.op_type for node in onnx.load(small).graph.node] == ["Relu"]


class Losing(ThreadPoolExecutor):
    """Loses its worker each time."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        def lost() -> None:
            losses.append(1)
            raise RuntimeError("killed")

        return super().submit(lost)


losses: list[int] = []


def test_a_job_whose_workers_die_fails_after_some_tries(tmp_path: Path) -> None:
    losses.clear()
    with Losing(1) as executor:
        summary = optimize_all([job(tmp_path)], optimize_job, runs=on_workers(executor))
    assert (summary.outcomes[0].exit_code, len(losses)) == (1, TRIES)
    assert "its workers were lost (RuntimeError: killed)" in summary.outcomes[0].error


def test_a_folder_goes_through_a_cluster_and_is_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    distributed = pytest.importorskip("distributed")
    for name in "abc":
        job(tmp_path, name)
    (tmp_path / "in" / "bad.onnx").write_bytes(b"garbage")
    with distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        address = cluster.scheduler_address.removeprefix("tcp://")
        arguments = ["optimize", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--resume"]
        arguments += ["--executor", f"dask://{address}"]
        assert run(arguments) == 3
        shown = capsys.readouterr()
        assert "4 models, 1 failed" in shown.out
        assert shown.out.count("verified") == 3
        assert "bad.onnx" in shown.err
        assert (tmp_path / "out" / "b.journal.json").is_file()
        (tmp_path / "in" / "bad.onnx").unlink()
        assert run(arguments) == 0
        assert capsys.readouterr().out.count(" kept ") == 3
    assert run(["optimize", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--executor", "ssh://x:1"]) == 2
    assert "expected dask://HOST:PORT" in capsys.readouterr().err
