import ast
from dataclasses import replace
from pathlib import Path

import pytest

import graphopt.rewrite.ruleset
from graphopt.errors import ReadError, RuleError, UsageError
from graphopt.ir.graph import CONSTANT
from graphopt.ir.text import parse
from graphopt.optimize import optimize_graph
from graphopt.rewrite import passes
from graphopt.rewrite.passes import PASSES
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import RuleStage, Soundness, calls
from graphopt.rewrite.ruleset import Ruleset, standard, why_off
from graphopt.target import ORT, PORTABLE, TARGETS

FEW = Ruleset(
    tuple(
        parse_rules("""
# a [H7] exact always
relu-relu: Relu(Relu(x)) => Relu(x)

# b [H8,K4] reals
relu-abs: Relu(x) => Abs(x)

# c [H10] approx
approximate: Abs(x) => Relu(x)

# d [K4] exact for ort
fused: Exp(x) => Log(x)
""")
    )
)


def names(rules: Ruleset) -> list[str]:
    return [r.name for r in rules.rules]


def test_stages() -> None:
    assert [r.name for r in FEW.always] == ["relu-relu"]
    assert [r.name for r in FEW.explore] == ["relu-abs", "approximate", "fused"]


def test_policy_and_target() -> None:
    assert names(FEW.select()) == ["relu-relu", "relu-abs"]
    assert names(FEW.select(policy="exact")) == ["relu-relu"]
    assert names(FEW.select(policy=Soundness.APPROX, target="ort")) == names(FEW)


def test_it_is_told_why_a_rule_is_off() -> None:
    text = "# one [A1] {}\nr: Relu(Relu(x)) => {}(x)\n"
    assert why_off(parse_rules(text.format("exact", "Relu"), "r")[0], Soundness.REALS, PORTABLE) == ""
    quick, approx, gelu = (
        parse_rules(text.format(*parts), "r")[0]
        for parts in (("exact for ort", "Relu"), ("approx", "Relu"), ("exact", "com.microsoft::Gelu"))
    )
    assert why_off(quick, Soundness.REALS, PORTABLE) == "it is for ort"
    assert why_off(quick, Soundness.REALS, ORT) == ""
    assert why_off(approx, Soundness.REALS, PORTABLE) == "it is approx, which --policy reals does not admit"
    assert why_off(gelu, Soundness.REALS, PORTABLE) == "portable takes no com.microsoft::Gelu"
    lacking = replace(ORT, lacking_since={"com.microsoft::Gelu": 20})
    assert why_off(gelu, Soundness.REALS, lacking, 20) == "ort takes no com.microsoft::Gelu of opset 20"
    assert why_off(gelu, Soundness.REALS, lacking, 19) == ""


def test_names_families_and_letters() -> None:
    assert names(FEW.select(only=["H8"])) == ["relu-abs"]
    assert names(FEW.select(only=["K4"], target="ort")) == ["relu-abs", "fused"]
    assert names(FEW.select(only=["H"])) == ["relu-relu", "relu-abs"]
    assert names(FEW.select(only=["relu-relu"])) == ["relu-relu"]
    assert names(FEW.select(without=["H7"])) == ["relu-abs"]
    assert names(FEW.select(only=["H"], without=["relu-abs"])) == ["relu-relu"]
    assert names(FEW.select(only=["Q16"])) == []


def test_unknown_names() -> None:
    with pytest.raises(RuleError, match="unknown rule or family relu-ab; did you mean relu-abs"):
        FEW.select(only=["relu-ab"])
    with pytest.raises(RuleError, match="unknown rule or family Q17"):
        FEW.select(without=["Q17"])
    with pytest.raises(UsageError, match="no policy is called 'fast'; there are exact, finite, reals, approx"):
        FEW.select(policy="fast")


def test_sets_are_joined_and_names_are_unique() -> None:
    other = Ruleset(tuple(parse_rules("# exact\nmine: Exp(x) => Log(x)")), PASSES)
    assert names(FEW + other) == [*names(FEW), "mine"]
    assert names(FEW + other.rules) == [*names(FEW), "mine"]
    assert (other + Ruleset((), PASSES)).passes == PASSES
    with pytest.raises(RuleError, match=r"two rules are called relu-relu \(<rules>:3, <rules>:3\)"):
        FEW + FEW


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "my.rules"
    file.write_text("# exact\nmine: Exp(x) => Log(x)\n")
    (mine,) = Ruleset.from_files([file]).rules
    assert mine.source == f"{file}:2"
    with pytest.raises(RuleError, match=r"my.rules:2:1: expected a reason"):
        Ruleset.from_files([file], strict=True)
    with pytest.raises(ReadError, match=r"none.rules: cannot be read as a rule file: No such file"):
        Ruleset.from_files([tmp_path / "none.rules"])
    file.write_bytes(b"\xef\xbb\xbf# exact\r\nmine: Exp(x) => Log(x)\r\n")
    assert Ruleset.from_files([file]).rules == (mine,)
    file.write_bytes(b"\xff")
    with pytest.raises(ReadError, match=r"my.rules: is not a rule file: byte 0 is not UTF-8"):
        Ruleset.from_files([file])


def test_the_standard_rules() -> None:
    rules = standard()
    assert len(rules.rules) > 100
    assert rules.passes == PASSES
    assert all(r.reason and r.family for r in rules.rules)
    assert {r.stage for r in rules.rules} == set(RuleStage)
    assert standard() is rules
    without = rules.select(without=[PASSES[0].name])
    assert PASSES[0] not in without.passes


@pytest.mark.parametrize("files", [{}, {"families.toml": ""}, {"empty.rules": ""}])
def test_a_tree_without_the_standard_rules_is_refused(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is optimized with no rules in silence: the message says what is missing, where, and what to do."""
    folder = tmp_path / "rules"
    if files:
        folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    monkeypatch.setattr(graphopt.rewrite.ruleset, "_PACKAGE", tmp_path / "graphopt")
    with pytest.raises(ReadError, match=rf"^{folder}: the standard rules .* are not there; install graphopt again .*$"):
        standard.__wrapped__()


# -- what a target takes


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("opset", [13, 17, 21, 26])
def test_no_rule_makes_an_op_that_the_target_does_not_list(name: str, opset: int) -> None:
    place = TARGETS[name]
    chosen = standard().select(policy="approx", target=place, opset=opset)
    made = {c.op for rule in chosen.rules for side in rule.rhs for c in calls(side) if not c.is_variable}
    made |= {op for native in chosen.passes for op in native.makes}
    for op in made:
        domain, _, plain = op.rpartition("::")
        listed = place.ops.get(domain, frozenset())
        assert listed is None or plain in listed, op
        assert opset < place.lacking_since.get(op, opset + 1), op


def test_passes_say_which_ops_they_make() -> None:
    """Each op that the file of a pass names where a node is made is one that the pass says it makes, or that is there
    before: what it copies or edits is named by nothing but its own node."""
    folder = Path(str(passes.__file__)).parent
    made: dict[str, set[str]] = {}
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("add", "call")
            ):
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    made.setdefault(path.stem, set()).add(first.value)
    told = {
        "control": passes.UNROLL.makes,
        "orders": passes.ORDERS.makes,
        "reorder": passes.ORDERS.makes,
        "scatter": passes.SLABS[0].makes & passes.SLABS[1].makes,
        "parallel": passes.PACKED[1].makes,
        "sequences": passes.SEQUENCES.makes,
        "shapes": passes.TAKEN.makes & passes.RANGE.makes | passes.PICKED.makes,
        "branches": passes.NAMED.makes | {"If"},  # the node's own
        "loops": passes.COLLECT.makes | passes.REPEATED.makes | {"Loop"},  # the node's own
        "precision": frozenset({"Cast"}),  # it comes before rules, whose opsets and targets are another matter
    }
    for name, ops in made.items():
        assert ops <= told.get(name, frozenset()), name


CLOSED = (
    "x: float32[2, 3, 4]\ny = Reshape(Transpose(Reshape(x, [2, 3, 2, 2]), perm=[0, 2, 1, 3]), [4, 6])\nreturn y",
    "x: float32[n, 3, 4]\na = Shape(x)\nb = Gather(a, [0])\nc = Gather(a, [1])\ny = Concat(b, c, axis=0)\nreturn y",
    "x: float32[8, 16]\ny = Div(Mul(x, Clip(Add(x, 3.0), 0.0, 6.0)), 6.0)\nreturn y",
    "x: float32[1, 8, 8, 3]\nw = float32[4, 3, 3, 3]{0.5, ...}\nb = float32[4]{0.1, ...}\n"
    "a = Transpose(x, perm=[0, 3, 1, 2])\nc = Conv(a, w)\nd = Transpose(c, perm=[0, 2, 3, 1])\n"
    "y = Add(Relu(d), b)\nreturn y",
    "x: float32[4, 8]\nw = float32[8, 8]{0.5, ...}\nv = float32[8, 8]{0.25, ...}\n"
    "a = MatMul(x, w)\nb = MatMul(x, v)\ny = Add(Mul(a, Sigmoid(a)), Pow(b, 2.0))\nreturn y",
)


@pytest.mark.parametrize("text", CLOSED)
def test_results_hold_no_op_that_neither_the_target_nor_the_model_has(text: str) -> None:
    graph = parse(text)
    own = {node.op for node in graph.nodes()}
    place = replace(PORTABLE, name="closed", ops={"": frozenset(own)})
    assert {node.op for node in optimize_graph(graph, target=place)[0].nodes()} <= {*own, CONSTANT}


def test_what_was_selected_is_not_selected_again() -> None:
    chosen = FEW.select(policy="exact", target=PORTABLE, opset=18)
    assert chosen.select(policy="exact", target=PORTABLE, opset=18) is chosen
    assert chosen == FEW.select(policy="exact", target=PORTABLE, opset=18)
    assert names(chosen.select(policy="exact", target="ort", opset=18)) == names(chosen)
    assert names(chosen.select(["H7"], policy="exact", target=PORTABLE, opset=18)) == ["relu-relu"]


def test_names_are_checked_without_a_selection() -> None:
    FEW.check(["H7", "fused"], ["K"])
    with pytest.raises(RuleError, match="unknown rule or family fusd; did you mean fused"):
        FEW.check([], ["fusd"])
