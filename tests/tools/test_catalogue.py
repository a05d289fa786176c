from graphopt.rewrite.reading.wellformed import FAMILIES
from graphopt.rewrite.ruleset import standard
from graphopt.tools.catalogue import catalogue, ids


def test_every_family_is_described_once_in_order() -> None:
    assert list(catalogue()) == [f"{letter}{n}" for letter, count in FAMILIES.items() for n in range(1, count + 1)]
    assert len(catalogue()) == 222
    assert len({family.name for family in catalogue().values()}) == 222
    assert all(f.name and f.meaning and f.sound in tuple("EPRAL") for f in catalogue().values())


def test_rules_and_passes_name_families_that_are_there() -> None:
    named = {id for rule in (*standard().rules, *standard().passes) for id in ids(rule.family)}
    assert named <= set(catalogue())


def test_several_families() -> None:
    assert ids("D1,D2") == ("D1", "D2")
    assert ids("") == ()
