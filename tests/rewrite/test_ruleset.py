from pathlib import Path

import pytest

import graphopt.rewrite.ruleset
from graphopt.errors import ReadError, RuleError, UsageError
from graphopt.rewrite.passes import PASSES
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Soundness, Stage
from graphopt.rewrite.ruleset import Ruleset, standard

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
    assert {r.stage for r in rules.rules} == set(Stage)
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
