"""The layers of the package: which part may import which. Imports go down only."""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import graphopt

ROOT = Path(graphopt.__file__).parent

# The parts of the package, from the ground up. A part is the longest prefix of a module's name that stands here. A
# module imports its own part and those of the lines above its own, and no other: not within functions either, and not
# for types alone. This table is the architecture, and the picture in docs/how-it-works.md is drawn from it.
LAYERS = """
errors display frozen
progress saving rewrite.rule
ir runtime
target
rewrite.guards kernels lowering.loops verify
rewrite.match lowering.index lowering.intrinsics te
rewrite.egraph rewrite.reading lowering.analysis lowering.emit
rewrite.extract ops lowering.cpu
rewrite.passes lowering.operators calibration
rewrite.ruleset lowering.cuda lowering.lower tensor
rewrite.derivations rewrite.checking lowering.fuse lowering.schedule
proof lowering.link
lowering.module
run nn
optimize platforms
tuning
program
compile
tools
benchmark interop frontends
web
serving
cli
__main__
"""
LEVELS = {part: level for level, line in enumerate(LAYERS.split("\n")) for part in line.split()}

# The modules (or packages) through which each third-party package comes in; numpy may be used anywhere.
DOORS = {
    "cuda": {"kernels.cuda.driver", "kernels.cuda.machine"},
    "cudnn": {"kernels.cuda.cudnn", "kernels.cuda.machine"},
    "cupy": {"kernels.cuda.driver"},
    "cupy_backends": {"kernels.cuda.driver"},
    "distributed": {"tuning.executors"},
    "egglog": {"rewrite.egraph.egglog"},
    "fast_sugiyama": {"web.layered"},
    "google": {"ir.onnx_io"},
    "lark": {"ir.text", "rewrite.reading.parse"},
    "lightgbm": {"tuning.learned"},
    "llvmlite": {"kernels"},
    "matplotlib": {"benchmark.roofline"},
    "ml_dtypes": {"ir", "lowering", "rewrite", "tools.convert", "tuning.operands", "verify.inputs"},
    "networkx": {"ir.graph"},
    "numba": {"kernels"},
    "nvmath": {"kernels.cuda.cublas_lt"},
    "olive": {"interop.olive"},
    "onnx": {"ir"},
    "onnx_ir": {"interop.passes", "ir.onnx_io"},
    "onnxruntime": {"runtime.onnxruntime"},
    "onnxscript": {"interop.onnxscript_rules"},
    "openvino": {"verify.runtimes"},
    "platformdirs": {
        "calibration.measured_file",
        "runtime.disk_cache",
    },
    "rich": {"cli", "display"},
    "safetensors": {"lowering.module.state"},
    "scipy": {"calibration.fit", "rewrite.extract", "run.measure"},
    "starlette": {"serving.app"},
    "torch": {"frontends.torch"},
    "typer": {"cli"},
    "uvicorn": {"cli.serve"},
    "z3": {"proof.solver"},
}


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package, by its name without ``graphopt.``."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(modules())


@cache
def imports(path: Path) -> tuple[tuple[str, int, bool], ...]:
    """Every module that a file imports, in functions, too, with the line, and whether it is for types alone."""
    found = []
    nodes = list(ast.walk(ast.parse(path.read_text())))
    typed = [
        n for n in nodes if isinstance(n, ast.If) and isinstance(n.test, ast.Name) and n.test.id == "TYPE_CHECKING"
    ]
    lines = {line for n in typed for line in range(n.lineno, (n.end_lineno or n.lineno) + 1)}
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno, node.lineno in lines) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            package, _, inner = str(node.module).partition(".")
            for alias in node.names:
                name = f"{inner}.{alias.name}".removeprefix(".")
                is_module = package == "graphopt" and name in MODULES
                module = f"graphopt.{name}" if is_module else str(node.module)
                found.append((module, node.lineno, node.lineno in lines))
    return tuple(found)


def inside(module: str, places: Iterable[str]) -> str | None:
    """The longest of the places that the module is in."""
    return max((p for p in places if module == p or module.startswith(p + ".")), key=len, default=None)


@cache
def arrows() -> Mapping[tuple[str, str], str]:
    """Which part imports which, and a line that does."""
    found: dict[tuple[str, str], str] = {}
    for module, path in MODULES.items():
        part = inside(module, LEVELS)
        for imported, line, _ in imports(path):
            below = inside(imported.removeprefix("graphopt."), LEVELS) if imported.startswith("graphopt.") else None
            if part is not None and below not in (None, part):
                found.setdefault((part, str(below)), f"{path.relative_to(ROOT.parent)}:{line}")
    return found


def test_imports_go_down_only() -> None:
    up = [f"{where}: {a} imports {b}" for (a, b), where in arrows().items() if LEVELS[a] <= LEVELS[b]]
    assert not up, "\n".join(up)


def test_every_module_is_in_a_part() -> None:
    packages = {"", "rewrite", "lowering"}  # which only hold others
    packages |= {"passes", "schedule", "script"}  # which only name what others define, for users
    lost = [m for m in MODULES if m not in packages and inside(m, LEVELS) is None]
    assert not lost, f"add to the table: {', '.join(lost)}"
    assert all(any(inside(m, [part]) for m in MODULES) for part in LEVELS), "a part of the table is gone"
    assert len(LEVELS) <= 53, "more parts than a newcomer can hold"


@pytest.mark.parametrize("module", [m for m in MODULES if m])
def test_libraries_come_in_by_their_doors(module: str) -> None:
    for imported, line, is_for_types in imports(MODULES[module]):
        package = imported.partition(".")[0]
        if is_for_types or package in ("graphopt", "numpy") or package in sys.stdlib_module_names:
            continue
        where = f"{MODULES[module].relative_to(ROOT.parent)}:{line}"
        assert inside(module, DOORS.get(package, set())), f"{where}: {package} does not come in here"


def test_the_public_names_are_where_the_package_says() -> None:
    for name, home in graphopt._HOMES.items():
        path = MODULES[home.removeprefix("graphopt.")]
        defined = {n.name for n in ast.parse(path.read_text()).body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        imported = {
            a.asname or a.name
            for n in ast.parse(path.read_text()).body
            if isinstance(n, ast.ImportFrom)
            for a in n.names
        }
        assert name in defined | imported, f"{home} does not define {name}"
