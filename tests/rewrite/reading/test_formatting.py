from pathlib import Path

import pytest

from graphopt.cli import run
from graphopt.errors import RuleError
from graphopt.rewrite.reading.formatting import WIDTH, format_rules
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.ruleset import standard_folder

UGLY = """

#a comment about the file



# twice is once  [A22] exact always
relu-relu:Relu( Relu(x) )
   =>   Relu(x)
# a comment between
# double negation   [C11] exact always
neg-neg: Neg(Neg(x)) => x   where x.dtype in float   and x.rank==2
    # a last comment"""

NEAT = """\
# a comment about the file

# twice is once  [A22] exact always
relu-relu:  Relu(Relu(x))  =>  Relu(x)
# a comment between
# double negation   [C11] exact always
neg-neg:  Neg(Neg(x))  =>  x
    where x.dtype in float and x.rank == 2
# a last comment
"""


def test_comments_stay_and_spaces_are_the_same_everywhere() -> None:
    assert format_rules(UGLY) == NEAT
    assert format_rules(NEAT) == NEAT


def test_long_rules_are_broken() -> None:
    names = ", ".join(f'my.domain::Custom(x, name_of_attribute_{i}="a, b and c")' for i in range(6))
    guards = " and ".join(f"x.shape[{i}] == {i}" for i in range(12))
    text = f"# why  [C1] exact\nlong: Sum({names}) => Sum({names}) where {guards}\n"
    formatted = format_rules(text)
    assert all(len(line) <= WIDTH for line in formatted.splitlines())
    assert formatted.count("\n") > 6
    assert "=>  Sum(" in formatted
    assert parse_rules(formatted) == parse_rules(text)


@pytest.mark.parametrize(
    "text",
    [
        "# [C1] exact\na: Relu(Relu(x))  # why\n    => Relu(x)\n",
        "# [C1] exact\na: Relu(Relu(x)) => Relu(x) b: Neg(Neg(x)) => x\n",
        "# nothing but a comment\n",
        '# [C1] exact\na: my::Custom(x, word="# no comment") => Relu(x)\n',
    ],
)
def test_what_cannot_be_taken_apart_stays(text: str) -> None:
    assert format_rules(text) == text


def test_nothing_is_a_line() -> None:
    assert format_rules("") == "\n"


@pytest.mark.parametrize("path", sorted(standard_folder().glob("*.rules")), ids=lambda path: path.stem)
def test_the_standard_rules_mean_the_same_afterwards(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    formatted = format_rules(text, path.name)
    assert format_rules(formatted, path.name) == formatted
    assert [c for c in formatted.splitlines() if c.startswith("#")] == [
        line.strip() for line in text.splitlines() if line.startswith("#")
    ]


def test_a_mistake_is_told_by_its_place() -> None:
    with pytest.raises(RuleError, match=r"my\.rules:1:"):
        format_rules("a: Relu(", "my.rules")


def test_the_command_writes_in_place_or_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my.rules"
    path.write_text(UGLY)
    assert run(["rules", "fmt", "--check", str(path)]) == 7
    assert "1 of 1 files would change" in capsys.readouterr().err
    assert path.read_text() == UGLY
    assert run(["rules", "fmt", str(path)]) == 0
    assert path.read_text() == NEAT
    assert run(["rules", "fmt", "--check", str(path)]) == 0
