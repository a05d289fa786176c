"""Code generation: a kernel's source becomes object code through numba's front end and LLVM.

numba types the function and writes LLVM's language; from there on the pipeline is ours: everything that
numba makes for Python is dropped, and the whole is optimized once, for this processor, as position independent code.
"""
# mypy: allow-untyped-calls

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import types
from numba.core.codegen import get_host_cpu_features
from numba.core.compiler_lock import global_compiler_lock

from graphopt.errors import CompilationError
from graphopt.kernels import block_quantized, convolution, product_tiles, products
from graphopt.kernels.kernel import SHARED, SIZE, STORED, Kernel
from graphopt.kernels.numba_frontend import lowered
from graphopt.runtime import cpu
from graphopt.runtime.dtypes import STORAGE
from graphopt.runtime.objects import ENTRY, undefined

_PYTHON = ("Py", "_Py", "NRT_", "numba_")
"""How functions begin that are there only within Python."""


def object_code(kernel: Kernel, path: Path) -> bytes:
    """The ELF file of a kernel, whose one exported function is ``int32 entry(int64* args, int64 lo, int64 hi)``, or of
    shared code, with the function of that name.

    ``place`` is the file that the source is in, for messages. Raises whatever numba and LLVM raise, and
    ``CompilationError`` where the code would need Python when it runs.
    """
    with global_compiler_lock:
        code: bytes = _machine().emit_object(_module(kernel, path))
    python = [name for name in undefined(code) if name.startswith(_PYTHON)]
    if python:
        raise CompilationError(
            f"it calls {', '.join(python)}, which kernels cannot: no Python objects, arrays or errors"
        )
    return code


def assembly(kernel: Kernel, path: Path) -> str:
    """The same code for people to read."""
    with global_compiler_lock:
        text: str = _machine().emit_assembly(_module(kernel, path))
    return text


def _module(kernel: Kernel, path: Path) -> Any:
    """LLVM's module of the kernel, optimized."""
    if kernel.params == (SHARED,):
        return _optimized(llvm.parse_assembly(str(shared_module(kernel.source))), kernel.source)
    return _optimized(_lowered(kernel, _function(kernel.source, path)), ENTRY)


def _function(source: str, path: Path) -> Any:
    linecache.cache[str(path)] = (len(source), None, source.splitlines(keepends=True), str(path))
    names: dict[str, Any] = {"__name__": f"graphopt_kernel_{path.stem}", "__file__": str(path)}
    exec(compile(source, str(path), "exec", dont_inherit=True), names)
    return names["kernel"]


def _lowered(kernel: Kernel, function: Any) -> Any:
    """LLVM's module of the function, of all that it calls, and of its entry."""
    params = (*(_type(p) for p in kernel.params), types.int64, types.int64)
    library, described, context = lowered(function, params, kernel.noalias, kernel.contract)
    module = library._final_module
    module.link_in(llvm.parse_assembly(str(_entry(context, described, kernel))))
    return module


def _type(param: str) -> Any:
    if param == SIZE:
        return types.int64
    return types.CPointer(getattr(types, STORED.get(param) or STORAGE[param].name))


def _entry(context: Any, described: Any, kernel: Kernel) -> ir.Module:
    """The function that takes its arguments out of memory and calls the kernel."""
    word, status = ir.IntType(64), ir.IntType(32)
    module = context.codegen()._create_empty_module(ENTRY)
    function = ir.Function(module, ir.FunctionType(status, [word.as_pointer(), word, word]), ENTRY)
    builder = ir.IRBuilder(function.append_basic_block())
    args = []
    for number, param in enumerate(kernel.params):
        value = builder.load(builder.gep(function.args[0], [word(number)]))
        args.append(value if param == SIZE else builder.inttoptr(value, context.get_value_type(_type(param))))
    callee = context.declare_function(module, described)
    end, result = context.call_conv.call_function(
        builder, callee, described.restype, described.argtypes, [*args, *function.args[1:]]
    )
    builder.ret(builder.select(end.is_error, status(-1), result))
    return module


def _optimized(module: Any, name: str) -> Any:
    """The module, optimized as a whole, of which only the function of that name is seen from outside."""
    for number, value in enumerate([*module.functions, *module.global_variables]):
        if not value.is_declaration and value.name != name:  # what is not used is dropped; names do not tell runs apart
            value.linkage = llvm.Linkage.internal
            value.name = f"v{number}"
    module.name = "kernel"
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = True
    builder = llvm.create_pass_builder(_machine(), options)
    builder.getModulePassManager().run(module, builder)
    module.verify()
    return module


def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # without it LLVM ends the process where a kernel has inline assembly
    level = cpu.level()
    # on some processors with AVX-512 LLVM keeps to 256 bits unless it is told not to
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=level or llvm.get_host_cpu_name(),
        features=f"{'' if level else get_host_cpu_features() + ','}-prefer-256-bit",
        opt=3,
        reloc="pic",
        codemodel="small",
    )


FAMILIES: Mapping[str, Callable[..., Any]] = {
    convolution.PATTERN: convolution.convolution,
    block_quantized.PATTERN: block_quantized.product,
    products.PATTERN: products.product,
    product_tiles.PATTERN: product_tiles.tiles,
}
"""What names are made up of, and what makes the module of LLVM that has the function of that name."""


def shared_module(name: str) -> Any:
    """The module with the function of that name. Raises CompilationError where there is none."""
    for pattern, family in FAMILIES.items():
        if match := re.fullmatch(pattern, name):
            return family(*(int(g) if g.isdigit() else g for g in match.groups()))
    raise CompilationError(f"no kernels share the code {name!r}")
