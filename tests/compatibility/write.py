"""Files that a version of graphopt writes, for tests of later ones: ``python tests/compatibility/write.py FOLDER``.

Run it in a checkout of the last release, which is installed, and with ``GRAPHOPT_CPU=x86-64``, so that the saved
program runs on each x86-64.
"""

import inspect
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import graphopt

sys.path.insert(0, "")
from docs.generators.api import MODULES


def model() -> onnx.ModelProto:
    """Two layers, with nodes that rules take out."""
    draw = np.random.default_rng(0)
    held = {"w": draw.standard_normal((24, 24)), "b": draw.standard_normal(24), "one": np.ones(())}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], "product"),
        helper.make_node("Add", ["product", "b"], ["sum"], "bias"),
        helper.make_node("Identity", ["sum"], ["same"], "same"),
        helper.make_node("Relu", ["same"], ["positive"], "relu"),
        helper.make_node("Mul", ["positive", "one"], ["scaled"], "scale"),
        helper.make_node("Softmax", ["scaled"], ["y"], "softmax", axis=-1),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 24]) for name in ("x", "y")]
    constants = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "layers", ports[:1], ports[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def parameters(thing: Any) -> list[str] | None:
    """The names of parameters; nothing where Python cannot tell."""
    try:
        return list(inspect.signature(thing).parameters)
    except (TypeError, ValueError):
        return None


def names() -> dict[str, list[str] | None]:
    """Each public function and class, and each of its public methods, with the names of its parameters."""
    found: dict[str, list[str] | None] = {}
    for space in ("graphopt", *MODULES):
        module = import_module(space)
        listed = getattr(module, "__all__", None)
        for name in vars(module) if listed is None else listed:
            thing = getattr(module, name)
            public = listed is not None or (getattr(thing, "__module__", "") == space and not name.startswith("_"))
            if not public or not (inspect.isfunction(thing) or inspect.isclass(thing)):
                continue
            found[f"{space}.{name}"] = parameters(thing)
            if inspect.isclass(thing):
                for method, function in vars(thing).items():
                    if not method.startswith("_") and inspect.isfunction(function):
                        found[f"{space}.{name}.{method}"] = parameters(function)
    return dict(sorted(found.items()))


def command(*words: object) -> None:
    """A command of graphopt."""
    subprocess.run([sys.executable, "-m", "graphopt", *map(str, words), "--quiet"], check=True)


def main(folder: Path) -> None:
    """Write everything."""
    folder.mkdir(parents=True)
    (folder / "names.json").write_text(json.dumps(names(), indent=0) + "\n")
    onnx.save(model(), folder / "model.onnx")
    command("optimize", folder / "model.onnx", "-o", folder / "optimized.onnx")
    command("tune", folder / "model.onnx", "--trials", 6, "--database", folder / "tuned.sqlite")
    command("db", "export", "-o", folder / "tuned.jsonl", "--database", folder / "tuned.sqlite")
    command("calibrate", folder / "model.onnx", "--database", folder / "measured.sqlite")
    command("compile", folder / "model.onnx", "-o", folder / "program", "--tuned", "off")
    x = np.random.default_rng(1).standard_normal((8, 24)).astype(np.float32)
    y = graphopt.compile(str(folder / "model.onnx"))(x)["y"]
    np.savez(folder / "values.npz", x=x, y=y)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
