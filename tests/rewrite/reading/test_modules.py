import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphopt.errors import ReadError, RuleError
from graphopt.rewrite.reading.modules import packages
from graphopt.rewrite.ruleset import Ruleset

RULE = '''from graphopt import ops, rule


@rule(family="H7", finite=True)
def {name}(x):
    """A clip at zero makes a Relu before it needless."""
    return ops.Clip(ops.Relu(x), 0.0, 6.0).becomes(ops.Clip(x, 0.0, 6.0))
'''


def install(folder: Path, package: str, points: str, source: str, version: str = "1.0") -> None:
    """What pip leaves of a package of one module."""
    (folder / f"{package}.py").write_text(source)
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[graphopt.rules]\n{points}\n")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, in which what is imported is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def names(*sources: str | Path) -> list[str]:
    return [rule.name for rule in Ruleset.from_files(sources).rules]


def test_a_file_is_run_with_what_lies_beside_it(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "beside.py").write_text("NAME = 'named-elsewhere'\n")
    text = RULE.format(name="first").replace("(family=", "(name=NAME, family=")
    (folder / "sub" / "mine.py").write_text(f"from beside import NAME\n{text}\n\nAGAIN = first\nMORE = [first]\n")
    path = list(sys.path)
    (rule,) = Ruleset.from_files(["sub/mine.py"]).rules
    assert (rule.name, rule.source) == ("named-elsewhere", "sub/mine.py:5")
    assert sys.path == path


def test_a_file_is_read_anew_where_it_changed(folder: Path) -> None:
    for name in ("one", "two"):
        (folder / "mine.py").write_text(RULE.format(name=name))
        assert names("mine.py") == [name]


def test_a_module_of_the_current_folder_is_imported(folder: Path) -> None:
    (folder / "not_on_the_path.py").write_text(RULE.format(name="there"))
    assert names("not_on_the_path") == ["there"]


def test_a_module_is_imported_by_a_path_that_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "my_package").mkdir()
    (folder / "my_package" / "__init__.py").write_text("")
    (folder / "my_package" / "rules.py").write_text(RULE.format(name="of_a_module"))  # named like a file of rules
    (folder / "my_module.py").write_text(RULE.format(name="alone"))
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    path = list(sys.path)
    assert names("my_package.rules", "my_module") == ["of-a-module", "alone"]
    assert sys.path == path


def test_all_of_a_module_is_what_it_lists(folder: Path) -> None:
    body = RULE.format(name="first") + RULE.format(name="second").partition("rule\n")[2]
    (folder / "mine.py").write_text(body + "__all__ = ['second']\n")
    assert names("mine.py") == ["second"]


def test_a_missing_file_of_rules_runs_no_file_of_python(folder: Path) -> None:
    (folder / "mine.py").write_text("raise SystemExit('was run')")
    with pytest.raises(ReadError, match=r"^mine\.rules: cannot be read as a rule file"):
        names("mine.rules")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import graphopt\n\nx = 1 / 0\n", r"^mine\.py:3: ZeroDivisionError: division by zero$"),
        ("import json\n\njson.loads('{')\n", r"^mine\.py:3: JSONDecodeError: "),
        ("def f(:\n    pass\n", r"^mine\.py:1: SyntaxError: "),
        ("import no_such_thing\n", r"^mine\.py:1: ModuleNotFoundError: No module named 'no_such_thing'$"),
        ("import sys\nsys.exit(3)\n", r"^mine\.py:2: SystemExit: 3$"),
        ("x = 1\n", r"^mine\.py: holds no rules"),
        (RULE.format(name="f").replace("ops.Relu(x)", "ops.Reluu(x)"), r"^mine\.py:4: f: .*Reluu"),
        (RULE.format(name="f").replace("finite=True", ""), r"^mine\.py:4: f: expected one soundness class"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(folder: Path, text: str, told: str) -> None:
    (folder / "mine.py").write_text(text)
    with pytest.raises(RuleError, match=told) as error:
        names("mine.py")
    assert "\n" not in str(error.value)


def test_an_error_in_a_module_beside_is_told_there(folder: Path) -> None:
    (folder / "beside.py").write_text("\n\nraise KeyError('k')\n")
    (folder / "mine.py").write_text("import beside\n")
    with pytest.raises(RuleError, match=r"^beside\.py:3: KeyError: 'k'$"):
        names("mine.py")


@pytest.mark.parametrize("name", ["absent.py", "absent", "no.such.module", "a/b", "json.absent"])
def test_what_is_not_there_is_told(folder: Path, name: str) -> None:
    with pytest.raises((ReadError, RuleError), match=name.partition(".")[0]):
        names(name)


def test_python_is_asked_for_reasons_as_files_are_where_it_is_checked(folder: Path) -> None:
    (folder / "mine.py").write_text(RULE.format(name="f").replace('family="H7", ', ""))
    assert names("mine.py") == ["f"]
    with pytest.raises(RuleError, match=r"mine\.py:4: f: .*family"):
        Ruleset.from_files(["mine.py"], strict=True)


def test_installed_packages_announce_rules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = folder / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    body = RULE.format(name="first") + RULE.format(name="second").partition("rule\n")[2] + "SOME = [second]\n"
    install(site, "acme_rules", "all = acme_rules\nsome = acme_rules:SOME", body)
    assert [entry.name for entry in packages()] == ["all", "some"]
    assert names("all") == ["first", "second"]
    assert names("some") == ["second"]
    assert names("acme-rules") == ["first", "second"]  # all that the package announces, each once


def test_a_package_announces_files_of_rules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = folder / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    (site / "acme.rules").write_text("# a reason  [A22] exact\ntwice:  Relu(Relu(x))  =>  Relu(x)\n")
    read = "FILES = Ruleset.from_files([Path(__file__).parent / 'acme.rules'])"
    body = f"from pathlib import Path\nfrom graphopt import Ruleset\n{read}\n"
    install(site, "acme_files", "files = acme_files:FILES", body)
    assert names("acme-files") == ["twice"]


def test_a_package_that_fails_is_told_where(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = folder / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    install(site, "acme_broken", "broken = acme_broken:RULES", "RULES = 1 / 0\n")
    with pytest.raises(RuleError, match=r"^site/acme_broken\.py:1: ZeroDivisionError"):
        names("broken")


@pytest.mark.parametrize("value", ["acme_absent.rules", "no_such_package", "acme_absent:RULES"])
def test_a_package_without_what_it_announces_is_told_by_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    site = folder / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    install(site, "acme_absent", f"absent = {value}", "")
    with pytest.raises(RuleError, match=rf"^acme-absent \(graphopt\.rules: {value}\): (ModuleNotFound|Attribute)Error"):
        names("absent")


def test_a_name_that_means_no_rule_says_which_packages_have_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = folder / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    install(site, "acme_unread", "all = acme_unread", "raise SystemExit('was run')\n")
    with pytest.raises(RuleError, match=r"^unknown rule or family first.* where it is named: acme-unread\)$"):
        Ruleset(()).named("first")
