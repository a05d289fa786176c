"""numba front end: a Python function becomes LLVM code by the passes that kernels need.

Kernels are loops, branches and calls over numbers, pointers and vectors, and each of their variables has one type. So
nothing is inlined, rewritten or brought to single assignment before types are inferred, and nothing is given back when
it is not needed any more; and how a call is typed is found out once for equal arguments, since a tile written out in
full makes the same call many times.
"""
# mypy: allow-untyped-calls, disable-error-code="misc, no-untyped-def"

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import binding, ir
from numba.core import compiler, registry, transforms, types
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.core.cpu_options import FastMathOptions
from numba.core.interpreter import Interpreter, peep_hole_delete_with_exit
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering, NoPythonBackend, NopythonTypeInference
from numba.core.typing.context import Context
from numba.core.untyped_passes import FixupArgs


class _Interpreter(Interpreter):
    """Reads bytecode, which has no ``with`` to be mended."""

    def post_process(self, peepholes: Any, func_ir: Any) -> Any:
        return super().post_process([p for p in peepholes if p is not peep_hole_delete_with_exit], func_ir)


@register_pass(mutates_CFG=True, analysis_only=False)
class Translate(FunctionPass):
    """From bytecode to numba's own language, whose loops begin and end as those of Python's source do."""

    _name = "graphopt_translate"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Always True: the state has changed."""
        translated = _Interpreter(state.func_id).interpret(state.bc)
        translated.blocks = transforms.canonicalize_cfg(translated.blocks)
        state.func_ir = translated
        return True


class _Attributes(ir.values.FunctionAttributes):
    """Attributes of a function, among them one of LLVM's that llvmlite does not know."""

    LOOPS = '"no-builtin-memcpy"'
    """A loop that copies stays a loop: where LLVM knows that operands are apart it would else call C's function, which
    for rows of some hundred elements takes longer than vectors in line."""
    _known = ir.values.FunctionAttributes._known | {LOOPS}


class _Lower(Lower):
    """Writes the instructions of one function."""

    def setup_function(self, fndesc: Any) -> None:
        """Declare the function."""
        super().setup_function(fndesc)
        if fndesc.noalias:
            self.function.attributes = _Attributes([*self.function.attributes, _Attributes.LOOPS])

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        """The result of an operator, by the signature that types were inferred by."""
        signature = self.fndesc.calltypes[expr]
        operands = [
            self.context.cast(self.builder, self.loadvar(v.name), self.typeof(v.name), wanted)
            for v, wanted in zip((expr.lhs, expr.rhs), signature.args, strict=True)
        ]
        kind = self.context.typing_context.resolve_value_type(op)
        operator_signature = context_of_types().resolve_function_type(
            kind, signature.args, {}
        )  # types know it as `+=`, say, not `+`
        function = self.context.get_function(kind, operator_signature)
        return self.context.cast(self.builder, function(self.builder, operands), signature.return_type, resty)


@register_pass(mutates_CFG=True, analysis_only=False)
class NumbaLowering(NativeLowering):
    """From numba's own language to LLVM's."""

    _name = "graphopt_lower"

    @property
    def lowering_class(self) -> Any:
        """The class that generates a function's code."""
        return _Lower


PASSES = (
    (Translate, "translate bytecode"),
    (FixupArgs, "fix up arguments"),
    (NopythonTypeInference, "infer types"),
    (NumbaLowering, "lower"),
    (NoPythonBackend, "finish"),
)


class NumbaLibrary(CPUCodeLibrary):
    """Modules as they were lowered, linked and neither optimized nor compiled."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


class _Compiler(compiler.CompilerBase):
    def define_pipelines(self) -> list[Any]:
        manager = PassManager("kernel")
        for each, name in PASSES:
            manager.add_pass(each, name)
        manager.finalize()
        return [manager]


class _Typing(Context):
    """numba's own context of types, which remembers how calls were typed."""

    def __init__(self) -> None:
        self.__dict__ = registry.cpu_target.typing_context.__dict__
        self.resolved: dict[Any, Any] = {}

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """The signature of a call; nothing where there is none."""
        call = func, tuple(args)
        if kws:
            return super().resolve_function_type(func, args, kws)
        if call not in self.resolved:
            signature = super().resolve_function_type(func, args, kws)
            if signature is None:
                return None
            self.resolved[call] = signature
        return self.resolved[call]


@cache
def context_of_types() -> _Typing:
    """The typing context of this process."""
    return _Typing()


def lowered(
    function: Any, args: tuple[Any, ...], noalias: bool = False, contract: bool = True
) -> tuple[NumbaLibrary, Any, Any]:
    """The library that holds a function of such arguments and all that it calls, its description, and the context.

    The function returns an int32; ``noalias`` is what LLVM is told of its pointers, and ``contract`` whether it may
    contract its products and sums. Raises whatever numba raises.
    """
    target = registry.cpu_target.target_context
    target.refresh()
    flags: Any = compiler.Flags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"
    flags.noalias = noalias
    flags.fastmath = FastMathOptions({"contract"} if contract else False)
    library = NumbaLibrary(target.codegen(), "kernel")
    result = compiler.compile_extra(
        context_of_types(), target, function, args, types.int32, flags, {}, library=library, pipeline_class=_Compiler
    )
    if not library._finalized:
        library.finalize()
    return library, result.fndesc, target


def exported(name: str, source: str, args: tuple[Any, ...]) -> Any:
    """The module of LLVM that has the function ``kernel`` of a source under a name that other modules call it by, of
    such arguments and with no result. Raises whatever numba raises."""
    names: dict[str, Any] = {"__name__": name}
    exec(compile(source, name, "exec", dont_inherit=True), names)
    library, described, context = lowered(names["kernel"], args)
    module = context.codegen()._create_empty_module(name)
    kinds = [context.get_value_type(kind) for kind in args]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    builder = ir.IRBuilder(function.append_basic_block())
    callee = context.declare_function(module, described)
    context.call_conv.call_function(builder, callee, described.restype, described.argtypes, function.args)
    builder.ret_void()
    library._final_module.link_in(binding.parse_assembly(str(module)))
    return library._final_module
