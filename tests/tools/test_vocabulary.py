"""The vocabulary has what rules may say, as the readers of rules have it."""

from __future__ import annotations

from graphopt.rewrite.guards.expressions import FACTS
from graphopt.rewrite.guards.functions import FUNCTIONS
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.tools.catalogue import catalogue
from graphopt.tools.vocabulary import vocabulary


def test_it_has_every_word_and_what_that_means() -> None:
    words = vocabulary()
    assert {f.name for f in words.functions} == {name for name in FUNCTIONS if name.isidentifier()}
    assert all(f.meaning.startswith("(") and ") " in f.meaning for f in words.functions)
    assert [f.name for f in words.families] == [*catalogue()]
    assert {f.name for f in words.facts} == {*FACTS}
    assert {"ort", "portable"} <= {tag.name for tag in words.tags} | {"portable"}
    assert {"family", "exact", "always", "targets"} <= {a.name for a in words.arguments}


def test_its_ops_and_their_attributes_are_read() -> None:
    """Every op with all its attributes, where it has required inputs alone."""
    for op in vocabulary().ops:
        inputs = [f"x{k}*" if i.endswith("*") else f"x{k}" for k, i in enumerate(op.inputs) if not i.endswith("?")]
        call = f"{op.name}({', '.join([*inputs, *(f'{a}=v{k}' for k, a in enumerate(op.attributes))])})"
        [rule] = parse_rules(f"# r  [A1] exact\nr: {call} => {call}")
        assert rule.lhs == rule.rhs, op
