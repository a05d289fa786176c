"""Files of targets: what they say, what they leave out, and each mistake by its key."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from graphopt.errors import ReadError
from graphopt.ir.text import parse
from graphopt.optimize import optimize_graph
from graphopt.target import FOLDER, ORT, Prices, mistakes, read, target

FIVE = """
[prices]
source = "data sheet"
node = 3e-6
flops = 2e12
bandwidth = [400e9, 60e9]
cache = 2e6
"""


def written(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_five_numbers_are_a_target(tmp_path: Path) -> None:
    path = written(tmp_path, FIVE)
    found = target(path)
    assert found == target(str(path)) == read(path)
    assert target(found) is found
    assert (found.name, found.tags, found.ops) == ("mine", {"mine"}, {"": None})
    assert found.prices == Prices(3e-6, 2e12, (400e9, 60e9), 2e6)
    assert set(found.sources.values()) == {"data sheet"}
    graph = parse("x: float32[8, 16]\ny = Div(Mul(x, Clip(Add(x, 3.0), 0.0, 6.0)), 6.0)\nreturn y")
    assert [n.op for n in optimize_graph(graph, target=found)[0].nodes()] == ["Input", "HardSwish"]


def test_each_op_is_priced_by_five_numbers(tmp_path: Path) -> None:
    """Whatever the model holds: no table of prices by op is needed."""
    graph = parse(
        "x: float32[1, 4, 8, 8]\nw = float32[4, 4, 3, 3]{0.5, ...}\na = Conv(x, w)\n"
        "b = DepthToSpace(a, blocksize=2)\nc = Pow(b, 2.5)\nd = ReduceMean(c, [1])\ne = Softmax(d, axis=1)\n"
        "f = Transpose(e, perm=[3, 1, 0, 2])\nreturn f"
    )
    cost = optimize_graph(graph, target=read(written(tmp_path, FIVE)))[1].cost_before
    assert 0 < cost < inf


def test_groups_count_from_the_first_of_the_file(tmp_path: Path) -> None:
    text = '[prices]\nlike = "ort"\nsource = "x"\n[[prices.elements]]\nnanoseconds = -1\nops = "Tanh"\n'
    with pytest.raises(ReadError, match=r"prices\.elements\[0\]\.nanoseconds: expected a number of at least 0"):
        read(written(tmp_path, text))


def test_a_target_takes_what_it_does_not_say_from_another(tmp_path: Path) -> None:
    text = """
summary = "a faster one"
[ops]
like = "ort"
[lacking_since]
like = "ort"
[fusions]
like = "ort"
[prices]
like = "ort"
source = "assumed"
flops = 1e12
[[prices.elements]]
nanoseconds = 2.0
ops = "Tanh Tanh.fast"
source = "measured: by hand"
"""
    found = read(written(tmp_path, text))
    assert found.ops == ORT.ops
    assert found.fusions == ORT.fusions
    assert found.lacking_since == ORT.lacking_since
    elements = {**ORT.prices.elements, "Tanh": 2.0 * 1e-9, "Tanh.fast": 2.0 * 1e-9}
    assert found.prices == replace(ORT.prices, flops=1e12, elements=elements)
    assert (found.sources["flops"], found.sources["elements.Tanh"]) == ("assumed", "measured: by hand")
    assert found.sources["node"] == ORT.sources["node"]


def test_variants_are_asked_for_by_what_the_device_can_do(tmp_path: Path) -> None:
    text = FIVE + "products.gemm.part = 0.5\n[[variants]]\nleast = [8, 0]\nprices.flops = 4e12\n"
    (variant,) = read(written(tmp_path, text + "prices.source = 'assumed'\n")).variants
    assert variant.least == (8, 0)
    assert variant.prices.flops == 4e12
    assert variant.prices.products["gemm"].step == 2 / (0.5 * 4e12)
    assert (variant.sources["flops"], variant.sources["node"]) == ("assumed", "data sheet")


WRONG = {
    "prices: no roofline": ("", "prices.node: expected to be stated"),
    "a key": (FIVE + "flopps = 1", "prices.flopps: expected a known key; did you mean flops?"),
    "a key above": ("summry = 'x'" + FIVE, "summry: expected a known key; did you mean summary?"),
    "no source": (FIVE.replace("source", "#"), "prices.source: expected where node comes from"),
    "negative": (FIVE.replace("3e-6", "-3e-6"), "prices.node: expected a number above 0, not -3e-06"),
    "not a number": (FIVE.replace("2e12", "nan"), "prices.flops: expected a number above 0, not nan"),
    "infinite": (FIVE.replace("2e12", "inf"), "prices.flops: expected a number above 0, not inf"),
    "huge": (FIVE.replace("2e12", "1" + "0" * 400), "prices.flops: expected a number above 0"),
    "a text": (FIVE.replace("2e12", "'fast'"), "prices.flops: expected a number above 0, not 'fast'"),
    "a truth": (FIVE.replace("2e12", "true"), "prices.flops: expected a number above 0, not True"),
    "three rates": (FIVE.replace("[400e9,", "[1, 400e9,"), "prices.bandwidth: expected one number, or two"),
    "lanes": (FIVE + "lanes = 1.5", "prices.lanes: expected a whole number from 1 to 1048576, not 1.5"),
    "a table": ("prices = 3", "prices: expected a table, not 3"),
    "rows": (FIVE + "elements = 3", "prices.elements: expected groups"),
    "a row": (FIVE + "[[prices.elements]]\nops = 'Relu'", "prices.elements[0].nanoseconds: expected to be stated"),
    "ops": (FIVE + "[ops]\n'ai.onnx' = 'Relu'", "ops.source: expected where the list of ops comes from"),
    "an op": (FIVE + "[ops]\nsource = 'x'\n'ai.onnx' = 'Re;lu'", "ops.ai.onnx: expected names of ops, not 'Re;lu'"),
    "a domain": (FIVE + "[ops]\n'a b' = '*'", "ops.a b: expected a domain"),
    "opsets": ("opsets = [9, 7]" + FIVE, "opsets: expected the first opset, and a last one"),
    "a device": ("device = 'tpu'" + FIVE, "device: expected one of cpu, cuda, simulated, not 'tpu'"),
    "a device of lists": ("device = [1]" + FIVE, "device: expected one of"),
    "a runtime": ("runtime = 'mine'" + FIVE, "runtime: expected one of ONNX Runtime, graphopt, or none"),
    "like": (FIVE + "like = '../x'", "prices.like: expected the name of a target that comes with graphopt, not '../x'"),
    "a layout": (FIVE + "[layout]\nblock = 8", "layout.multiple: expected to be stated"),
    "a kind of product": (
        FIVE + "efficiency.depthwse = 1",
        "prices.efficiency.depthwse: expected a known key; did you",
    ),
    "products": (FIVE + "products.gemm = 1", "prices.products.gemm: expected a table of part, or of call, step"),
    "variants": (FIVE + "[[variants]]\nprices.flops = 1", "variants[0].least: expected what the device can do"),
    "a summary": ('summary = "a\\u0007b"' + FIVE, "summary: expected a line of text"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_says_file_key_and_what_was_expected(case: str, tmp_path: Path) -> None:
    text, expected = WRONG[case]
    path = written(tmp_path, text)
    found = mistakes(path)
    assert any(line.startswith(f"{path}: {expected}") for line in found), found
    with pytest.raises(ReadError) as raised:
        target(path)
    assert str(raised.value).startswith(found[0])


def test_what_is_no_target_is_refused(tmp_path: Path) -> None:
    cases = {
        "toml": ("x = ", "is no TOML: "),
        "deep": ("x = " + "[" * 5000, "is no TOML: "),
        "large": ("#" * (1 << 19), "has more than 262144 bytes"),
    }
    for name, (text, said) in cases.items():
        with pytest.raises(ReadError, match=said):
            read(written(tmp_path, text, f"{name}.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    for path, said in (("bytes", "is not UTF-8"), ("none", "there is no such file")):
        with pytest.raises(ReadError, match=said):
            target(str(tmp_path / f"{path}.toml"))
    with pytest.raises(ReadError, match="there is no such file"):
        target(tmp_path)


def test_no_file_takes_the_name_of_a_target_that_there_is(tmp_path: Path) -> None:
    """What was measured for a target is found by its name."""
    with pytest.raises(ReadError, match="expected another file name: ort is a target that comes with graphopt"):
        read(written(tmp_path, FIVE, "ort.toml"))
    assert read(FOLDER / "ort.toml") == ORT


# -- those that come with graphopt


def test_files_of_one_name_are_told_apart_by_what_they_say(tmp_path: Path) -> None:
    """What is measured for one is not taken for the other."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    one = read(written(tmp_path / "a", FIVE))
    other = read(written(tmp_path / "b", FIVE.replace("3e-6", "4e-6")))
    again = read(written(tmp_path / "c", "# the same\n" + FIVE))
    assert one.name == other.name
    assert one.key == again.key != other.key
    assert ORT.key == "ort"
