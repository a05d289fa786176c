"""``.ci/full`` runs stages apart, goes on where they stopped, and takes nothing that was not judged for a pass."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FULL = ROOT / ".ci" / "full"

pytestmark = pytest.mark.skipif(not FULL.is_file(), reason="what is run is in a checkout only")

STAGES = """
[right]
about = "two that pass"
tests = ["test_right.py"]
select = "not slow"

[empty]
about = "nothing that is selected"
tests = ["test_right.py"]
select = "slow"

[half]
about = "one that passes, and one that fails until it is mended"
tests = ["test_half.py"]
select = "not slow"

[absent]
about = "what cannot be had here"
make = ["{python}", "-c", "raise SystemExit('no models today')"]
tests = ["test_right.py"]
select = "not slow"

[skipped]
about = "tests that are skipped"
tests = ["test_skipped.py"]
select = "not slow"

[command]
about = "no tests at all"
command = ["{python}", "-c", "open(r'{state}/ran', 'w')"]

[late]
about = "what takes too long"
command = ["{python}", "-c", "import time; time.sleep(600)"]
"""

FILES = {
    ".ci/stages.toml": STAGES,
    "pytest.ini": "[pytest]\nmarkers = slow: slow\n",
    "test_right.py": (
        "import subprocess, sys\n\ndef test_a():\n    pass\n\n"
        "def test_b(tmp_path):\n    subprocess.run([sys.executable, '-c', 'import ours'], cwd=tmp_path, check=True)\n"
    ),
    "ours.py": "",
    "test_half.py": (
        "from pathlib import Path\nRUNS = Path(__file__).with_name('runs')\n\n"
        "def test_passes():\n    RUNS.open('a').write('passes ')\n\n"
        "def test_fails():\n    RUNS.open('a').write('fails ')\n    assert RUNS.with_name('mended').exists()\n"
    ),
    "test_skipped.py": "import pytest\npytest.importorskip('nothing_of_that_name')\n",
    ".gitignore": "runs\nmended\n__pycache__\n.pytest_cache\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small project of its own, with the script."""
    tree = tmp_path / "tree"
    for name in ("full", "judged.py"):
        (tree / ".ci").mkdir(parents=True, exist_ok=True)
        (tree / ".ci" / name).write_bytes((FULL.parent / name).read_bytes())
    for name, text in FILES.items():
        (tree / name).write_text(text)
    subprocess.run(["git", "init", "--quiet", tree], check=True)
    subprocess.run(["git", "-C", tree, "add", "--all"], check=True)
    return tree


def full(tree: Path, *words: str) -> tuple[int, dict[str, list[str]]]:
    """The exit status of a run, and the rows of its table by the stage: passed, failed, skipped, verdict."""
    command = [sys.executable, tree / ".ci" / "full", "--state", tree.parent / "state", "--python", sys.executable]
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "GIT_"))}
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}  # no others are imported
    environment = plain | alone | {"PYTEST_XDIST_AUTO_NUM_WORKERS": "1"}
    done = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, check=False)
    table = done.stdout.rpartition("verdict\n")[2]
    rows = [line.split(maxsplit=5) for line in table.splitlines()]
    return done.returncode, {row[0]: row[2:] for row in rows}


def test_what_passed_stays_judged_until_something_changes(tree: Path) -> None:
    assert full(tree, "right", "command") == (
        0, {"right": ["2", "0", "0", "passed"], "command": ["1", "0", "0", "passed"]},
    )  # fmt: skip
    (ran,) = tree.parent.glob("state/command/*/ran")
    ran.unlink()
    again = "passed: before, and nothing has changed"
    assert full(tree, "right", "command") == (0, {"right": ["2", "0", "0", again], "command": ["1", "0", "0", again]})
    assert not ran.exists()
    assert full(tree, "--fresh", "command") == (0, {"command": ["1", "0", "0", "passed"]})
    assert ran.exists()
    (tree / "test_right.py").write_text("def test_a():\n    pass\n")
    assert full(tree, "right") == (0, {"right": ["1", "0", "0", "passed"]})


def test_a_stage_goes_on_where_it_stopped(tree: Path) -> None:
    assert full(tree, "half") == (1, {"half": ["1", "1", "0", "failed: 1 tests"]})
    (tree / "mended").touch()
    assert full(tree, "half") == (0, {"half": ["2", "0", "0", "passed"]})
    assert sorted((tree / "runs").read_text().split()) == ["fails", "fails", "passes"]


def test_what_was_not_judged_is_no_pass(tree: Path) -> None:
    status, rows = full(tree, "empty", "absent", "skipped")
    assert status == 1
    assert rows["empty"] == ["0", "0", "0", "failed: there is nothing in it to run"]
    assert rows["absent"] == ["0", "0", "0", "skipped: no models today"]
    assert rows["skipped"][:3] == ["0", "0", "1"]
    assert rows["skipped"][3].startswith("skipped: could not import 'nothing_of_that_name'")
    assert full(tree, "absent")[0] == 3
    status, rows = full(tree, "--minutes", "0.005", "late")
    assert status == 3
    assert rows["late"][3] == "not done: stopped after 0.005 minutes; run it again, and it goes on"


def test_the_stages_are_of_files_that_there_are() -> None:
    """Files that have a stage of their own are left out by the one for all the others, which takes all the rest."""
    stages = tomllib.loads((FULL.parent / "stages.toml").read_text())
    named = [path for stage in stages.values() for path in (*stage.get("tests", ()), *stage.get("ignore", ()))]
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert stages["slow"]["tests"] == ["tests"]
    assert stages["slow"]["select"] == "slow"
    whole = {path for stage in stages.values() for path in stage.get("tests", ()) if "slow" in stage["select"]}
    assert set(stages["slow"]["ignore"]) == whole - {"tests"}
