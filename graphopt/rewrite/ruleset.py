"""Rule sets: the standard one, those from files and from Python, and the choice of which are on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from graphopt.display import Displayed
from graphopt.errors import ReadError, RuleError, nearest
from graphopt.frozen import dataclass
from graphopt.rewrite.reading.parsed import parsed
from graphopt.rewrite.rule.rule import Rule, RuleStage, Soundness, calls, soundness
from graphopt.target import Target

if TYPE_CHECKING:
    from graphopt.rewrite.passes import NativePass

RULES, MODEL = ".rules", ".onnx"
"""How the names of rule files end, and of models whose functions are rules."""
_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, repr=False)
class Ruleset(Displayed):
    """Rules in the order in which they are tried, and native passes. Names are unique.

    >>> rules = graphopt.standard()
    >>> len(rules.always) + len(rules.explore) == len(rules.rules)
    True
    >>> rules.named("max-zero")
    <Ruleset of 1 rules and 0 passes>
    >>> rules.check(["max-zero"], ["H"])
    >>> graphopt.Ruleset.from_files([])
    <Ruleset of 0 rules and 0 passes>
    """

    rules: tuple[Rule, ...] = ()
    passes: tuple[NativePass, ...] = ()
    chosen: tuple[Soundness, str | Target, int] | None = field(default=None, compare=False)
    """The policy, target and opset by which all of them were selected, where they were."""

    def __repr__(self) -> str:
        return f"<Ruleset of {len(self.rules)} rules and {len(self.passes)} passes>"

    def __post_init__(self) -> None:
        for name, times in Counter([r.name for r in self.rules] + [p.name for p in self.passes]).items():
            if times > 1:
                places = [r.source for r in self.rules if r.name == name and r.source]
                where = f" ({', '.join(places)})" if places else ""
                raise RuleError(f"two rules are called {name}{where}: give one of them another name")

    @staticmethod
    def from_files(paths: Iterable[str | Path], strict: bool = False) -> Ruleset:
        """The rules of these files, of Python files, of Python modules and of installed packages, by their names.

        Raises ReadError, or RuleError with the line, and the column where that is known.
        """
        return Ruleset(tuple(rule for path in paths for rule in _read(Path(path), strict)))

    @property
    def always(self) -> tuple[Rule, ...]:
        """The rules that run directed, to a fixed point."""
        return tuple(r for r in self.rules if r.stage is RuleStage.ALWAYS)

    @property
    def explore(self) -> tuple[Rule, ...]:
        """The rules whose two sides both live on in the e-graph, until cost decides."""
        return tuple(r for r in self.rules if r.stage is RuleStage.EXPLORE)

    def __add__(self, other: Ruleset | Iterable[Rule]) -> Ruleset:
        """These rules, then those; passes that are in both once."""
        added = other if isinstance(other, Ruleset) else Ruleset(tuple(other))
        return Ruleset(self.rules + added.rules, tuple(dict.fromkeys(self.passes + added.passes)))

    def select(
        self,
        only: Sequence[str] = (),
        without: Sequence[str] = (),
        policy: Soundness | str = Soundness.REALS,
        target: str | Target = "portable",
        opset: int = 0,
    ) -> Ruleset:
        """The rules that the policy admits and the target uses; ``only`` these and ``without`` those.

        A target uses the rules and passes for it (by its tags, or its name alone) that make no op it does not take in
        models of the ``opset``.

        Both name rules, passes, families (``H8``) or all families of a letter (``H``). Raises
        RuleError with the nearest names where one names nothing, and UsageError where there is no such policy.
        """
        self.check(only, without)
        policy = soundness(policy)
        chosen = (policy, target, opset)
        if not only and not without and chosen == self.chosen:
            return self
        off = partial(_why_off, policy=policy, target=target, opset=opset, allows=_allowing(target, opset))

        def is_on(rule: Rule | NativePass) -> bool:
            return (
                not off(rule)
                and (not only or any(_is_called(rule, n) for n in only))
                and not any(_is_called(rule, n) for n in without)
            )

        rules = tuple(r for r in self.rules if is_on(r))
        return Ruleset(rules, tuple(p for p in self.passes if is_on(p)), chosen)

    def check(self, only: Sequence[str], without: Sequence[str]) -> None:
        """Raise RuleError, as ``select`` does, where one of the names means nothing."""
        for name in (*only, *without):
            self._find(name)

    def named(self, name: str) -> Ruleset:
        """The rules and passes that a name means. Raises RuleError with the nearest names where it means nothing."""
        self._find(name)
        rules = tuple(r for r in self.rules if _is_called(r, name))
        return Ruleset(rules, tuple(p for p in self.passes if _is_called(p, name)))

    def has(self, name: str) -> bool:
        """Whether a name means rules or passes: one of these, or a family.

        >>> graphopt.standard().has("max-zero"), graphopt.standard().has("H8"), graphopt.standard().has("max-one")
        (True, True, False)
        """
        everything: list[Rule | NativePass] = [*self.rules, *self.passes]
        return any(_is_called(r, name) for r in everything) or _is_family(name)

    def _find(self, name: str) -> None:
        if self.has(name):
            return
        everything: list[Rule | NativePass] = [*self.rules, *self.passes]
        names = {r.name for r in everything} | {f for r in everything for f in r.family.split(",")}
        hint = nearest(name, names) or "; `graphopt rules list` shows them all"
        raise RuleError(f"unknown rule or family {name}{hint}{_elsewhere()}")


def why_off(rule: Rule | NativePass, policy: Soundness, target: Target, opset: int = 0) -> str:
    """Why a policy, or a target for models of the opset, does not use a rule; empty where both do."""
    return _why_off(rule, policy, target, opset, _allowing(target, opset))


def _why_off(
    rule: Rule | NativePass, policy: Soundness, target: str | Target, opset: int, allows: Callable[[str], bool]
) -> str:
    if not rule.soundness.allowed_by(policy):
        return f"it is {rule.soundness.value}, which --policy {policy.value} does not admit"
    if rule.targets and not rule.targets & ({target} if isinstance(target, str) else target.tags):
        return f"it is for {', '.join(sorted(rule.targets))}"
    made = (
        (c.op for side in rule.rhs for c in calls(side) if not c.is_variable) if isinstance(rule, Rule) else rule.makes
    )
    lacked = next((op for op in made if not allows(op)), None)
    if lacked is None or isinstance(target, str):
        return ""
    return f"{target.name} takes no {lacked}" + (f" of opset {opset}" if target.allows(lacked) else "")


def _allowing(target: str | Target, opset: int) -> Callable[[str], bool]:
    """Whether a target takes an op in models of the opset; each is asked about once."""
    return cache(lambda op: isinstance(target, str) or target.allows(op, opset))


def _is_called(rule: Rule | NativePass, name: str) -> bool:
    """Whether a name is the rule's own, its family's or its family's letter."""
    return name == rule.name or any(name in (f, f[:1]) for f in rule.family.split(",") if f)


def _is_family(name: str) -> bool:
    from graphopt.rewrite.reading.wellformed import FAMILIES

    number = name[1:]
    return name[:1] in FAMILIES and (not number or (number.isdecimal() and 1 <= int(number) <= FAMILIES[name[0]]))


def _elsewhere() -> str:
    """Where else rules are, behind the error of a name that means none: packages, which are not run to look there."""
    from graphopt.rewrite.reading.modules import names_of, packages

    found = list(dict.fromkeys(names_of(entry)[0] for entry in packages()))
    return f" (rules of a package are read where it is named: {', '.join(found)})" if found else ""


def _read(source: Path, strict: bool) -> list[Rule]:
    """The rules of a file, by how its name ends; where there is no such file, of a package or module of that name."""
    from graphopt.rewrite.reading.modules import PYTHON, rules_of_file, rules_of_name
    from graphopt.rewrite.reading.parse import parse_rules  # which loads a grammar: standard rules come from the cache

    if source.suffix == PYTHON:
        return rules_of_file(source, strict)
    if source.suffix == MODEL:
        from graphopt.rewrite.reading.functions import load_rules  # with all that reads models

        return load_rules(source, strict)
    if not source.exists():
        named = rules_of_name(str(source), strict)
        if named is not None:
            return named
        if source.suffix != RULES:
            raise ReadError(f"{source}: no file is there, and no installed package of rules or module is called so")
    return parse_rules(read_text(source), str(source), strict)


def read_text(path: Path) -> str:
    """The text of a rule file. Raises ReadError where it cannot be read, or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ReadError(f"{path}: cannot be read as a rule file: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ReadError(f"{path}: is not a rule file: byte {error.start} is not UTF-8 text") from None


def standard_folder() -> Path:
    """The folder of the standard rules: in the installed package, or in a checkout."""
    folder = _PACKAGE / "_rules"
    return folder if folder.is_dir() else _PACKAGE.parent / "rules"


@cache
def standard() -> Ruleset:
    """The standard rules and native passes, files in order of name. Raises ReadError where there are no rules."""
    from graphopt.rewrite.passes import PASSES

    folder = standard_folder()
    texts = {f"rules/{file.name}": read_text(file) for file in sorted(folder.glob("*.rules"))}

    def each() -> list[Rule]:  # of which one has changed most often
        return [rule for name, text in texts.items() for rule in _standard(text, name)]

    rules = tuple(parsed("\0".join(part for pair in texts.items() for part in pair), "rules", each))
    if not rules:
        raise ReadError(
            f"{folder}: the standard rules (*.rules) are not there; install graphopt again "
            f"(pip install --force-reinstall --no-deps graphopt), or take a whole checkout"
        )
    return Ruleset(rules, PASSES)


def ruleset(rules: Ruleset | str | Path | Sequence[str | Path] | None) -> Ruleset:
    """The rules that are meant: the standard set, the standard set and some files, or the set itself."""
    if isinstance(rules, Ruleset):
        return rules
    files = [rules] if isinstance(rules, str | Path) else rules or ()
    return standard() + Ruleset.from_files(files) if files else standard()


def names_of(names: str | Sequence[str]) -> Sequence[str]:
    """The names, where one alone may stand for a list of one."""
    return [names] if isinstance(names, str) else names


def _standard(text: str, name: str) -> list[Rule]:
    def parse() -> list[Rule]:
        from graphopt.rewrite.reading.parse import parse_rules

        return parse_rules(text, name, strict=True)

    return parsed(text, name, parse)
