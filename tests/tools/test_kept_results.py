from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphopt.errors import ReadError
from graphopt.ir import onnx_io
from graphopt.ir.constants import Constant
from graphopt.ir.text import parse
from graphopt.rewrite.ruleset import Ruleset, standard
from graphopt.run.report import Report
from graphopt.tools.batch import BatchJob, BatchOutcome, optimize_all
from graphopt.tools.kept_results import FILE, KeptResults


@pytest.fixture
def job(tmp_path: Path) -> BatchJob:
    for name in ("a.onnx", "out/a.onnx", "prices"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    options = {"rules": standard(), "inputs": {"x": np.ones(3)}, "costs": str(tmp_path / "prices")}
    return BatchJob("a.onnx", tmp_path / "a.onnx", tmp_path / "out" / "a.onnx", options)


DONE = BatchOutcome("a.onnx", ops_before=3, ops_after=1, warnings=("one",))


def test_a_result_is_kept_for_another_run(job: BatchJob) -> None:
    kept = KeptResults(job.output.parent)
    assert kept.get(job) is None
    kept.put(job, DONE)
    assert KeptResults(job.output.parent).get(job) == DONE


@pytest.mark.parametrize(
    "change",
    [
        lambda job: job.model.write_bytes(b"another"),
        lambda job: job.output.write_bytes(b"another"),
        lambda job: job.output.unlink(),
        lambda job: Path(job.options["costs"]).write_bytes(b"another"),
        lambda job: replace(job, options={**job.options, "policy": "exact"}),
        lambda job: replace(job, options={**job.options, "rules": Ruleset(standard().rules[:-1])}),
        lambda job: replace(job, options={**job.options, "inputs": {"x": np.zeros(3)}}),
        lambda job: replace(job, journal=True),
        lambda job: replace(job, name="b.onnx"),
    ],
)
def test_what_rests_on_something_else_is_done_again(job: BatchJob, change) -> None:  # type: ignore[no-untyped-def]
    KeptResults(job.output.parent).put(job, DONE)
    changed = change(job)
    assert KeptResults(job.output.parent).get(changed if isinstance(changed, BatchJob) else job) is None


def test_a_result_whose_weights_are_gone_is_made_again(job: BatchJob) -> None:
    weights = Constant.of(np.arange(10_000, dtype=np.float32))
    graph = parse("x: float32[10000]\ny = Add(x, x)\nreturn y")
    (node,) = (node for node in graph.nodes() if node.op == "Add")
    graph.update(node.id, inputs=(node.inputs[0], graph.add_constant(weights)))
    onnx_io.save(graph, job.output, external=True)
    KeptResults(job.output.parent).put(job, DONE)
    assert KeptResults(job.output.parent).get(job) == DONE
    (data,) = onnx_io.data_files(job.output)
    (job.output.parent / data).unlink()
    assert KeptResults(job.output.parent).get(job) is None


def test_what_failed_is_not_kept(job: BatchJob) -> None:
    kept = KeptResults(job.output.parent, {"a.onnx": "checks"})
    kept.put(job, DONE)
    assert KeptResults(job.output.parent).get(job) is None  # other checks
    kept.put(job, replace(DONE, exit_code=6))
    assert KeptResults(job.output.parent, {"a.onnx": "checks"}).get(job) is None


def test_a_file_of_something_else_is_told(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"schema": 1}')
    with pytest.raises(ReadError, match="holds no results of graphopt"):
        KeptResults(tmp_path)


def test_what_was_interrupted_goes_on(tmp_path: Path) -> None:
    jobs = [BatchJob(name, tmp_path / name, tmp_path / "out" / name) for name in ("a", "b", "c")]
    for job in jobs:
        job.model.write_bytes(b"model")
    done = list[str]()

    def run(job: BatchJob) -> Report:
        if job.name == "b" and not done[1:]:
            done.append("interrupted")
            raise KeyboardInterrupt
        done.append(job.name)
        job.output.parent.mkdir(exist_ok=True)
        job.output.write_bytes(b"result")
        return Report("", "", {}, {})

    first = optimize_all(jobs, run, kept=KeptResults(tmp_path / "out"))
    assert [o.exit_code for o in first.outcomes] == [0, 130, 130]
    second = optimize_all(jobs, run, kept=KeptResults(tmp_path / "out"))
    assert [(o.exit_code, o.is_kept) for o in second.outcomes] == [(0, True), (0, False), (0, False)]
    assert done == ["a", "interrupted", "b", "c"]
