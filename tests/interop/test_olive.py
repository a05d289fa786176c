"""The pass of Olive runs in a stand-in for what it uses of Olive, and in Olive itself where that is installed."""

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from graphopt.cli import run
from graphopt.errors import UsageError
from graphopt.ir import onnx_io
from graphopt.ir.text import parse

HOME = "graphopt.interop.olive"


class Handler:
    """What Olive hands from pass to pass."""

    def __init__(self, model_path: str, onnx_file_name: str | None = None) -> None:
        self.model_path = str(Path(model_path) / onnx_file_name) if onnx_file_name else model_path


class StandIn:
    """Olive's base of passes, as far as this one needs it."""

    def __init__(self, accelerator_spec: Any, config: Any) -> None:
        self.config = config

    def run(self, model: Any, output_model_path: str) -> Any:
        return self._run_for_config(model, self.config, output_model_path)  # type: ignore[attr-defined]


class Config:
    """Olive's package configuration."""

    @staticmethod
    def load_default_config() -> Any:
        return SimpleNamespace(model_dump=lambda mode: {"passes": {"other": {}}, "extra_dependencies": {}})


def in_folder(path: str, name: str) -> str:
    return path if path.endswith(".onnx") else f"{path}/{name}"


@pytest.fixture
def olive(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the pass, which imports a stand-in."""
    names = {
        "olive": {},
        "olive.model": {"ONNXModelHandler": Handler},
        "olive.model.utils": {"resolve_onnx_path": in_folder},
        "olive.package_config": {"OlivePackageConfig": Config},
        "olive.passes": {"Pass": StandIn},
        "olive.passes.pass_config": {"PassConfigParam": SimpleNamespace},
    }
    for name, members in names.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, HOME, raising=False)
    yield import_module(HOME)
    sys.modules.pop(HOME, None)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx_io.save(
        parse("x: float32[2, 3]\nt = Transpose(x)\nu = Transpose(t)\ny = Relu(u)\nreturn y"), tmp_path / "m.onnx"
    )
    return tmp_path / "m.onnx"


def config(olive: ModuleType, **options: Any) -> SimpleNamespace:
    defaults = olive.GraphoptOptimize._default_config(None)
    return SimpleNamespace(**{name: said.default_value for name, said in defaults.items()} | options)


def test_a_pass_optimizes_and_hands_on(olive: ModuleType, model: Path, tmp_path: Path) -> None:
    result = olive.GraphoptOptimize(None, config(olive)).run(Handler(str(model)), str(tmp_path / "cache"))
    assert Path(result.model_path) == tmp_path / "cache" / "m.onnx"
    assert len(onnx_io.load(result.model_path)) < len(onnx_io.load(model))
    certificate = str(tmp_path / "cache" / "m.certificate.json")
    assert run(["certify", str(model), result.model_path, certificate]) == 0
    assert (tmp_path / "cache" / "m.journal.json").is_file()


def test_options_are_those_of_optimize(olive: ModuleType, model: Path, tmp_path: Path) -> None:
    kept = config(olive, only=["H8"], verify="off", target="portable")
    result = olive.GraphoptOptimize(None, kept).run(Handler(str(model)), str(tmp_path / "cache"))
    assert len(onnx_io.load(result.model_path)) == len(onnx_io.load(model))
    with pytest.raises(UsageError, match="no policy is called 'nearly'"):
        olive.GraphoptOptimize(None, config(olive, policy="nearly")).run(Handler(str(model)), str(tmp_path / "o"))
    with pytest.raises(UsageError, match="takes ONNX models, not object"):
        olive.GraphoptOptimize(None, config(olive)).run(object(), str(tmp_path / "o"))


def test_the_configuration_of_packages_holds_the_pass(olive: ModuleType) -> None:
    told = json.loads(json.dumps(olive.package_config()))
    assert set(told["passes"]) == {"other", "graphoptoptimize"}
    place, _, name = told["passes"]["graphoptoptimize"]["module_path"].rpartition(".")
    assert getattr(import_module(place), name) is olive.GraphoptOptimize


@pytest.mark.skipif(find_spec("olive") is None, reason="Olive is not installed")
def test_a_workflow_of_olive_runs_the_pass(model: Path, tmp_path: Path) -> None:
    from olive.workflows import run as run_workflow  # type: ignore[import-not-found,unused-ignore]

    from graphopt.interop.olive import package_config

    workflow = {
        "input_model": {"type": "ONNXModel", "model_path": str(model)},
        "passes": {"faster": {"type": "GraphoptOptimize", "target": "ort"}},
        "output_dir": str(tmp_path / "out"),
        "cache_dir": str(tmp_path / "cache"),
    }
    run_workflow(workflow, package_config=package_config())
    (result,) = (tmp_path / "out").rglob("*.onnx")
    assert len(onnx_io.load(result)) < len(onnx_io.load(model))
