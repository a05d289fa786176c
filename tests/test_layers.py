"""Who may import whom: this table is the architecture diagram. Imports go down only."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import graphopt

ROOT = Path(graphopt.__file__).parent

# What each part may import, from the bottom up. A part is the longest prefix that a module's name has here.
# Every part may import itself and those that ``ANYWHERE`` names.
ANYWHERE = {"errors", "nearest", "saving"}
PARTS = {
    **{part: set() for part in ANYWHERE},
    "display": set(),
    "progress": set(),
    "target": set(),
    "minimal_filtering": set(),
    "ir": {"display", "minimal_filtering"},
    "tolerance": {"ir"},
    "rewrite": {"display", "ir", "progress", "target", "tolerance"},
    "proof": {"ir", "rewrite"},
    "documentation": {"proof", "rewrite"},
    "ops": {"rewrite"},
    "runtime": {"display"},
    "kernels": {"minimal_filtering", "runtime", "target"},
    "lowering": {"display", "ir", "kernels", "minimal_filtering", "progress", "runtime", "target", "tolerance"},
    "nn": {"ir", "lowering"},
    "engines": {"ir"},
    "arrays": set(),
    "inputs": {"arrays", "ir"},
    "calibration": {"engines", "inputs", "ir", "rewrite", "target"},
    "weights": {"ir"},
    "compare": {"engines", "inputs", "ir", "tolerance", "weights"},
    "verify": {"inputs"},
    "measure": {"engines", "inputs", "ir", "report", "rewrite", "steps", "target"},
    "derivation": {"ir", "rewrite"},
    "report": {"derivation", "display", "ir", "rewrite", "verify"},
    "steps": {"ir", "progress", "report"},
    "watch": {"rewrite", "steps"},
    "delivery": {"inputs", "ir", "runtime", "steps", "verify"},
    "optimize": {
        "calibration",
        "measure",
        "delivery",
        "derivation",
        "inputs",
        "ir",
        "lowering",
        "progress",
        "report",
        "rewrite",
        "rule_uses",
        "steps",
        "target",
        "verify",
    },
    "tuning.tables": {"calibration"},
    "compilation": {"lowering", "progress", "report", "target", "tuning.tables"},
    "platforms": {"calibration", "compilation", "ir", "kernels", "lowering", "runtime", "target"},
    "tuning": {
        "calibration",
        "compilation",
        "ir",
        "kernels",
        "lowering",
        "platforms",
        "progress",
        "runtime",
        "target",
        "tolerance",
        "tuning.tables",
    },
    "tuned_prices": {"calibration", "ir", "lowering", "rewrite", "runtime", "target", "tuning"},
    "pipeline": {
        "calibration",
        "compilation",
        "derivation",
        "ir",
        "lowering",
        "optimize",
        "platforms",
        "report",
        "rewrite",
        "runtime",
        "steps",
        "tuned_prices",
        "tuning",
        "tuning.tables",
    },
    "digests": {"kernels", "runtime"},
    "stored": {"calibration", "compilation", "digests", "kernels", "platforms", "runtime", "tuning.tables"},
    "pipelines": {"calibration", "ir", "lowering", "optimize", "rewrite", "target"},
    "device_code": {"compilation", "kernels", "lowering", "pipeline", "runtime"},
    "dispatch": {"ir", "lowering", "rewrite"},
    "compile": {
        "compilation",
        "display",
        "ir",
        "lowering",
        "pipeline",
        "pipelines",
        "progress",
        "report",
        "runtime",
        "steps",
        "stored",
        "target",
    },
    "backend": {"compile", "ir"},
    "frontends": {"compile", "ir", "lowering"},
    "bench": {"ceilings", "compile", "derivation", "engines", "inputs", "ir", "progress", "runtime", "tolerance"},
    "program_profiler": {"compile", "engines"},
    "ceilings": {"kernels", "lowering", "runtime"},
    "roofline": {"ceilings", "runtime"},
    "calibrate": {"calibration", "program_profiler", "engines", "ir", "optimize", "rewrite", "target"},
    "web": {
        "bench",
        "ceilings",
        "compile",
        "ir",
        "lowering",
        "pipeline",
        "report",
        "rewrite",
        "runtime",
        "steps",
        "verify",
    },
    "serving": {"explanation", "ir", "optimize", "report", "rewrite", "target", "web"},
    "batch": {"report"},
    "rule_uses": {"report", "rewrite"},
    "convert": {"delivery", "engines", "inputs", "ir", "progress", "rewrite", "steps", "target"},
    "coverage": {"convert", "ir", "optimize", "rewrite", "target"},
    "drop_in": {
        "arrays",
        "convert",
        "inputs",
        "interop",
        "ir",
        "optimize",
        "rewrite",
        "spellings",
        "steps",
        "submodel",
        "verify",
    },
    "spellings": {"ir", "rewrite", "submodel"},
    "choices": {"calibration", "ir", "lowering", "optimize", "platforms", "rewrite", "target", "watch"},
    "inspection": {"ir", "rewrite", "steps"},
    "interop": {"ir", "optimize", "rewrite", "target"},
    "submodel": {"delivery", "ir"},
    "diff": {"ir", "steps"},
    "judge": {"ir"},
    "reduce": {"ir", "judge", "progress", "steps"},
    "explanation": {
        "delivery",
        "derivation",
        "ir",
        "judge",
        "optimize",
        "progress",
        "rewrite",
        "steps",
        "target",
        "verify",
    },
    "questions": {
        "calibration",
        "compilation",
        "ir",
        "pipeline",
        "rewrite",
        "target",
        "tuned_prices",
        "tuning",
        "tuning.tables",
        "watch",
    },
    "doctor": {"calibration", "compile", "kernels", "lowering", "platforms", "runtime", "tuning.tables"},
    "tune": {"bench", "compile", "inputs", "ir", "lowering", "runtime", "tuning", "tuning.tables", "target"},
    "cli": {
        "arrays",
        "batch",
        "bench",
        "calibrate",
        "calibration",
        "ceilings",
        "choices",
        "compilation",
        "compile",
        "convert",
        "coverage",
        "documentation",
        "derivation",
        "device_code",
        "diff",
        "doctor",
        "drop_in",
        "explanation",
        "inputs",
        "inspection",
        "interop",
        "ir",
        "lowering",
        "optimize",
        "web",
        "pipeline",
        "progress",
        "proof",
        "questions",
        "reduce",
        "report",
        "rewrite",
        "roofline",
        "runtime",
        "serving",
        "submodel",
        "target",
        "tune",
        "tuning",
        "tuning.tables",
        "verify",
    },
    "__main__": {"cli"},
}

# The modules (or packages) through which each third-party package comes in.
DOORS = {
    "distributed": {"tuning.executors"},
    "egglog": {"rewrite.egraph"},
    "fast_sugiyama": {"web.layered"},
    "google": {"ir.onnx_io"},
    "cuda": {"kernels.cuda.driver", "kernels.cuda.machine"},
    "cudnn": {"kernels.cuda.cudnn", "kernels.cuda.machine"},
    "cupy": {"kernels.cuda.driver"},
    "cupy_backends": {"kernels.cuda.driver"},
    "lightgbm": {"tuning.learned"},
    "lark": {"ir.text", "rewrite.parse"},
    "llvmlite": {"kernels"},
    "ml_dtypes": {"convert", "inputs", "ir", "lowering", "rewrite", "tuning.operands"},
    "networkx": {"ir.graph"},
    "nvmath": {"kernels.cuda.cublas_lt"},
    "numba": {"kernels"},
    "numpy": {
        "arrays",
        "runtime",
        "proof",
        "bench",
        "calibration",
        "cli.program_tables",
        "cli.programs",
        "compare",
        "compile",
        "convert",
        "engines",
        "frontends",
        "inputs",
        "interop.constants",
        "ir",
        "kernels",
        "doctor",
        "lowering",
        "nn",
        "pipeline",
        "platforms",
        "reduce",
        "rewrite",
        "tolerance",
        "tuned_prices",
        "tuning",
        "verify",
        "weights",
    },
    "matplotlib": {"roofline"},
    "onnx": {"ir.evaluate", "ir.infer", "ir.onnx_io", "ir.ops", "ir.rounds", "ir.suite"},
    "onnx_ir": {"interop.passes", "ir.onnx_io"},
    "onnxscript": {"interop.onnxscript_rules"},
    "onnxruntime": {"engines"},
    "openvino": {"engines"},
    "platformdirs": {"kernels.cache", "rewrite.parsed", "calibration.measured_file", "rewrite.verdicts"},
    "rich": {"cli"},
    "safetensors": {"nn.state"},
    # integer programs; least squares and rank correlation
    "starlette": {"serving.app", "serving.guard"},
    "uvicorn": {"cli.serve"},
    "scipy": {"rewrite.extract", "calibration.fit", "measure"},
    "torch": {"frontends.torch"},
    "typer": {"cli"},
    "z3": {"proof.solver"},
}


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package, by its name without ``graphopt.``."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, inside functions too, with the line; not other people's for types alone."""
    tree = ast.parse(path.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            if node.module == "graphopt":
                yield from ((f"graphopt.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield str(node.module), node.lineno


def inside(module: str, places: set[str]) -> str | None:
    """The longest of the places that the module is in."""
    return max((p for p in places if module == p or module.startswith(p + ".")), key=len, default=None)


MODULES = dict(modules())


@pytest.mark.parametrize("module", [m for m in MODULES if m])
def test_imports_go_down_only(module: str) -> None:
    part = inside(module, set(PARTS))
    assert part is not None, f"{module} is in no part: add it to the table"
    for imported, line in imports(MODULES[module]):
        package, _, inner = imported.partition(".")
        where = f"{MODULES[module].relative_to(ROOT.parent)}:{line}"
        if package == "graphopt":
            found = inside(inner, set(PARTS)) if inner else None
            assert not inner or found is None or found in PARTS[part] | {part} | ANYWHERE, (
                f"{where}: {part} imports {found}"
            )
        elif package not in sys.stdlib_module_names:
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


def test_the_table_has_no_part_that_is_gone() -> None:
    assert all(any(inside(m, {part}) for m in MODULES) for part in PARTS)
