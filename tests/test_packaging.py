"""The wheel holds all that graphopt needs, and works where there is no checkout."""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from graphopt.cli import run
from graphopt.ir import onnx_io
from graphopt.ir.text import parse

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT]
    subprocess.run(command, check=True)
    (found,) = folder.glob("graphopt-*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_holds_the_rules(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {Path(n).name for n in names if n.startswith("graphopt/_rules/")}
    assert shipped == {p.name for p in (ROOT / "rules").iterdir()}
    targets = {Path(n).name for n in names if n.startswith("graphopt/targets/")}
    assert targets == {p.name for p in (ROOT / "graphopt" / "targets").iterdir()}
    assert {"graphopt/py.typed", "graphopt/tools/demo.onnx"} <= set(names)
    assert any(n.endswith("licenses/LICENSE") for n in names)


@pytest.mark.slow
def test_the_wheel_works_elsewhere(wheel: Path, tmp_path: Path) -> None:
    """In a fresh environment, which sees what graphopt requires, but neither its source nor its rules."""
    home = tmp_path / "venv"
    venv.create(home)
    python = home / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", "--no-warn-script-location", str(wheel)]
    environment = {n: v for n, v in os.environ.items() if n != "PYTHONPATH"}
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install], check=True, env=environment)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "requirements.pth").write_text(sysconfig.get_path("purelib"))
    model = tmp_path / "m.onnx"
    twice = "Transpose(Transpose(x, perm=[1, 0]), perm=[1, 0])"
    onnx_io.save(parse(f"x: float32[2, 3]\ny = Relu({twice})\nreturn y"), model)

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = run(str(python), "-c", "import graphopt; print(graphopt.__file__, len(graphopt.standard().rules))")
    place, rules = where.split()
    assert Path(place).is_relative_to(packages)
    assert int(rules) > 100
    run(str(home / "bin" / "graphopt"), "optimize", "m.onnx", "-o", "out.onnx", "--target", "openvino")
    assert [n.op for n in onnx_io.load(tmp_path / "out.onnx").nodes()] == ["Input", "Relu"]


def test_the_small_installation_takes_what_graphopt_depends_on() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    commands = page.partition("## Size")[2].partition("## Folders")[0]
    assert set(re.findall(r"'([\w-]+>=[^']*)'", commands)) == set(project["dependencies"])


def test_hooks_of_pre_commit_fail_where_they_should(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    hooks = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    onnx_io.save(parse("x: float32[2, 3]\ny = Relu(Transpose(Transpose(x)))\nreturn y"), tmp_path / "slow.onnx")
    onnx_io.save(parse("x: float32[2, 3]\ny = Relu(x)\nreturn y"), tmp_path / "fast.onnx")
    rule = "# a second one is needless  [A22] exact\ntwice:  Relu(Relu(x))  =>  Relu(x)\n"
    (tmp_path / "good.rules").write_text(rule)
    (tmp_path / "wrong.rules").write_text(rule.replace("=>  Relu(x)", "=>  x"))
    for id, good, bad in (
        ("graphopt-optimized", "fast.onnx", "slow.onnx"),
        ("graphopt-rules", "good.rules", "wrong.rules"),
        ("graphopt-rules-fmt", "good.rules", None),
    ):
        command, *arguments = shlex.split(hooks[id]["entry"])
        assert command == "graphopt"
        assert run([*arguments, str(tmp_path / good)]) == 0
        assert re.search(hooks[id]["files"], good)
        assert bad is None or run([*arguments, str(tmp_path / bad)]) != 0
