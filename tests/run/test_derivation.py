"""A journal, read back from its file and applied to the model, gives the result byte for byte."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest

import graphopt
from graphopt.errors import InvalidModelError, ReadError, RuleError, UsageError
from graphopt.ir import onnx_io
from graphopt.ir.evaluate import run
from graphopt.ir.text import parse
from graphopt.optimize import optimize_graph
from graphopt.rewrite.match.journal import Action
from graphopt.rewrite.rule.rule import Soundness
from graphopt.run.derivation import Derivation, check_is_of, journal_path, read_derivation, reverted
from graphopt.target import target
from tests.random_graphs import random_graph
from tests.test_random_graphs import bits, drawn

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

BODIES = """c: bool[] x: float32[3, 4] w: float32[4, 4]
    h = Relu(Relu(Add(MatMul(x, w), x)))
    y = If(c | h, then_branch={ q: ? r = Neg(Neg(Exp(q))) return r }, else_branch={ q: ? r = Abs(Relu(q)) return r })
    return y"""


def derivation_of(text: str, place: str = "portable") -> tuple[bytes, Derivation, graphopt.Graph]:
    graph = parse(text)
    result, report = optimize_graph(graph, target=target(place))
    assert report.derivation is not None
    return onnx_io.to_bytes(result), report.derivation, graph


@pytest.mark.parametrize("place", ["portable", "ort"])
@pytest.mark.parametrize(
    "name", ["squeezenet", "shufflenet", "inception_v1", pytest.param("densenet121", marks=pytest.mark.slow)]
)
def test_a_journal_gives_the_result_byte_for_byte(name: str, place: str, tmp_path: Path) -> None:
    model, output = LIGHT / f"light_{name}.onnx", tmp_path / "out.onnx"
    graphopt.optimize(model, output=output, target=place, verify="off", journal=journal_path(output))
    derivation = read_derivation(journal_path(output))
    check_is_of(derivation, model)
    replayed = derivation.apply(onnx_io.load(model))
    assert replayed.lost == ()
    onnx_io.save(replayed.graph, tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == output.read_bytes()
    assert len(derivation.rewrites) > 3


@pytest.mark.parametrize("seed", range(12))
def test_journals_of_random_models_replay(seed: int) -> None:
    graph = random_graph(Random(seed), 16)
    result, report = optimize_graph(graph)
    assert report.derivation is not None
    read = Derivation.from_json(report.derivation.to_json())
    assert onnx_io.to_bytes(read.apply(graph).graph) == onnx_io.to_bytes(result)


def test_a_journal_says_the_same_after_it_was_written_and_read() -> None:
    _, derivation, _ = derivation_of(BODIES)
    assert Derivation.from_json(derivation.to_json()) == derivation


def test_bodies_are_replayed_too() -> None:
    result, derivation, graph = derivation_of(BODIES)
    assert [e for e in derivation.entries if e.action is Action.OPEN and e.at]
    assert onnx_io.to_bytes(derivation.apply(graph).graph) == result


def test_a_preparation_is_part_of_it(tmp_path: Path) -> None:
    source, output = tmp_path / "in.onnx", tmp_path / "out.onnx"
    graph = parse("x: float32[n, 3] y = Reshape(Relu(Relu(x)), Shape(x)) return y")
    onnx_io.save(graph, source)
    graphopt.optimize(source, output=output, dims={"n": 4}, opset=22, verify="off", journal=tmp_path / "j.json")
    derivation = read_derivation(tmp_path / "j.json")
    assert (derivation.preparation.opset, dict(derivation.preparation.dims)) == (22, {"n": 4})
    assert onnx_io.to_bytes(derivation.apply(onnx_io.load(source)).graph) == output.read_bytes()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_left_out_the_rest_is_equal(seed: int) -> None:
    graph = random_graph(Random(seed), 12)
    _, report = optimize_graph(graph, target=target("ort"), policy=Soundness.EXACT)
    derivation = report.derivation
    assert derivation is not None
    feeds = drawn(graph, np.random.default_rng(seed))
    try:
        wanted = bits(run(graph, feeds))
    except Exception as error:  # whatever the Python of an op raises on these inputs
        pytest.skip(f"the reference does not run it: {error}")
    for entry in derivation.rewrites[::2]:
        rest = derivation.apply(graph, [entry.id]).graph
        try:
            found = bits(run(rest, feeds))
        except IndexError as error:  # GatherElements of the reference evaluator takes indices that are none
            pytest.skip(f"the inputs hold an index beyond a tensor: {error}")
        assert found == wanted, entry


def test_what_needed_what_is_left_out_goes_with_it() -> None:
    result, derivation, graph = derivation_of("x: float32[4] y = Neg(Neg(Relu(Relu(x)))) return y")
    outer = next(e for e in derivation.rewrites if "Neg(Neg" in e.before)
    without = derivation.apply(graph, [outer.id])
    assert [n.op for n in without.graph.nodes()].count("Neg") == 2
    assert onnx_io.to_bytes(without.graph) != result
    left = reverted(derivation, [outer.id], without.lost)
    assert onnx_io.to_bytes(left.apply(graph).graph) == onnx_io.to_bytes(without.graph)
    assert outer not in left.rewrites


def test_rewrites_are_called_by_number_or_rule() -> None:
    _, derivation, _ = derivation_of("x: float32[4] y = Neg(Neg(Relu(Relu(x)))) return y")
    first = derivation.rewrites[0]
    assert derivation.meant([f"#{first.id}"]) == derivation.meant([str(first.id)]) == {first.id}
    assert first.id in derivation.meant([first.rule])
    with pytest.raises(UsageError, match="no rewrite of this journal is called 999"):
        derivation.meant(["999"])


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda d: {**d, "schema": 99}, ReadError),
        (lambda d: {**d, "entries": [{"id": 1}]}, ReadError),
        (lambda d: {**d, "entries": [{"id": 1, "action": "equal", "at": [{"value": "x"}]}]}, ReadError),
        (lambda d: {**d, "entries": d["entries"][1:]}, ReadError),
        (lambda d: {**d, "entries": [{**e, "at": [1]} for e in d["entries"] if e["action"] == "open"]}, ReadError),
        (lambda d: {**d, "rules": []}, ReadError),
        (lambda d: {**d, "rules": ["not a rule"]}, RuleError),
        (lambda d: [], ReadError),
        (lambda d: {k: v for k, v in d.items() if k != "passes"}, ReadError),
        (lambda d: {**d, "preparation": {**d["preparation"], "shapes": 1e308}}, ReadError),
        (lambda d: {**d, "preparation": {**d["preparation"], "dims": {"n": 0.5}}}, ReadError),
        (lambda d: {**d, "preparation": {**d["preparation"], "opset": "x"}}, ReadError),
    ],
)
def test_what_is_no_journal_is_said_to_be_none(change: object, error: type[Exception]) -> None:
    _, derivation, _ = derivation_of("x: float32[4] y = Neg(Neg(x)) return y")
    text = json.dumps(change(json.loads(derivation.to_json())))  # type: ignore[operator]
    with pytest.raises(error, match=r"j\.json"):
        Derivation.from_json(text, "j.json")


def test_a_journal_makes_nothing_that_its_rules_do_not_allow() -> None:
    _, derivation, graph = derivation_of("x: float32[4] y = Neg(Neg(Relu(x))) return y")
    forged = replace(
        derivation,
        entries=tuple(
            replace(e, at=(graph.inputs[0],)) if e.action is Action.REWRITE else e for e in derivation.entries
        ),
    )
    replayed = forged.apply(graph)
    assert [n.op for n in replayed.graph.nodes()].count("Neg") in (0, 2)
    assert "Relu" in [n.op for n in replayed.graph.nodes()]


def test_a_journal_of_another_model_is_refused(tmp_path: Path) -> None:
    for name, op in (("a", "Neg(Neg(x))"), ("b", "Abs(Abs(x))")):
        onnx_io.save(parse(f"x: float32[4] y = {op} return y"), tmp_path / f"{name}.onnx")
    journal = tmp_path / "o.journal.json"
    graphopt.optimize(tmp_path / "a.onnx", output=tmp_path / "o.onnx", verify="off", journal=journal)
    with pytest.raises(InvalidModelError, match=r"b\.onnx: the journal is of another file \(a\.onnx\)"):
        check_is_of(read_derivation(journal), tmp_path / "b.onnx")


@pytest.mark.parametrize(
    "model", sorted((Path(__file__).parents[1] / "corpus" / "tensorflow").glob("c*.onnx")), ids=lambda path: path.stem
)
def test_all_that_is_found_in_exporters_models_can_be_derived(model: Path) -> None:
    _, report = optimize_graph(onnx_io.load(model), target=target("ort"))
    assert not [w for w in report.warnings if w.startswith("found, but not applied")]


def test_it_prints_its_rewrites() -> None:
    _, report = optimize_graph(
        parse("x: float32[2, 3]\nw = float32[3]{1.0, 2.0, 3.0}\nv = Neg(w)\ny = Add(Neg(Neg(x)), v)\nreturn y")
    )
    assert report.derivation is not None
    rewrites = report.derivation.rewrites
    assert repr(report.derivation) == f"<Derivation: {len(rewrites)} rewrites by 1 rule>"
    first, *lines = str(report.derivation).splitlines()
    assert first == repr(report.derivation)[1:-1]
    (double,) = (line for line in lines if " neg-neg at " in line)
    assert double.endswith(": Neg(Neg(x)) => x")
    assert len(lines) == len(rewrites)
    assert not any(line.endswith((" ", ":", "=>")) for line in lines)
