"""What a target says is shown with its sources; and what ONNX knows nothing of is a mistake in its file."""

from pathlib import Path

import pytest

from graphopt.errors import ReadError
from graphopt.ir.text import parse
from graphopt.optimize import optimize_graph
from graphopt.target import FOLDER, TARGETS, target
from graphopt.tools.targets import lines, mistakes

FIVE = "[prices]\nsource = 'assumed'\nnode = 3e-6\nflops = 2e12\nbandwidth = 60e9\ncache = 2e6\n"


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_that_comes_with_graphopt_has_no_mistake(name: str) -> None:
    assert mistakes(FOLDER / f"{name}.toml") == []
    assert sum(line.startswith("  flops ") for line in lines(TARGETS[name])) == 1 + len(TARGETS[name].variants)


def test_each_price_is_shown_with_its_source() -> None:
    shown = list(lines(TARGETS["cpu"]))
    head = shown.index("prices")
    assert all(len(line.split("  ")) > 2 for line in shown[head + 1 :] if line.startswith("  "))
    assert any("python -m tests.bench.winograd" in line and "BlockedWinogradConv" in line for line in shown)
    assert any(line.startswith("prices from 8 on") for line in shown)


def test_ops_and_rules_that_there_are_not(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FIVE + "[ops]\nsource = 'assumed'\n'ai.onnx' = 'Conv Reluu'\n")
    assert mistakes(path) == [
        f"{path}: ops.ai.onnx: expected ops of ONNX, not Reluu; did you mean Relu or PRelu or Selu?"
    ]
    path.write_text(FIVE + "[fusions]\nrules = 'x: Relu(' \n")
    (found,) = mistakes(path)
    assert found.startswith("mine.toml: fusions.rules:1:")


@pytest.mark.parametrize(
    "wrong", ["[ops]\nsource = 'assumed'\n'ai.onnx' = 'Conv Reluu'\n", "[fusions]\nrules = 'x: Relu(' \n"]
)
def test_what_a_check_finds_is_refused_wherever_the_file_is_read(wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FIVE + wrong)
    (found,) = mistakes(path)
    with pytest.raises(ReadError) as error:
        optimize_graph(parse("x: float32[4] y = Relu(Neg(Neg(x))) return y"), target=target(path))
    assert str(error.value) == found
