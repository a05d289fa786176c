"""Parser of scripts: Python's syntax with a meaning of our own. The text is only parsed, never executed.

A name that is bound twice in a script gets a number the second time, since names are unique within a nest.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Final, cast, get_args

from graphopt.errors import ScriptError, nearest_or_some
from graphopt.lowering.loops.expressions import (
    Const,
    Expr,
    ScalarNumber,
    Var,
    variables,
)
from graphopt.lowering.loops.nest import (
    ROOT_BLOCK,
    THREADS,
    TRUE,
    Axis,
    AxisKind,
    Block,
    Buffer,
    BufferRegion,
    Check,
    For,
    If,
    Invoke,
    LoopKind,
    MemoryScope,
    Nest,
    Note,
    Notes,
    Seq,
    Stmt,
    Store,
    accesses,
    seq,
)
from graphopt.lowering.loops.script_expressions import DTYPES, INSTEAD, NAMED, ScriptNames, string
from graphopt.lowering.loops.script_print import KINDS

AXES: Final[Mapping[str, AxisKind]] = {letter: cast(AxisKind, kind) for kind, letter in KINDS.items()}
WORDS: Final = (
    *("Buffer", "size", "alloc", "block", "axis", "init", "where", "reads", "writes", "notes", "check", "invoke"),
    *("value", "grid", "serial", "parallel", "vectorized", "unrolled", "bind"),
)
"""The words of scripts beside the functions of expressions and the dtypes."""
QUALIFIED: Final = frozenset({*WORDS, *NAMED, *DTYPES, *INSTEAD, "program"})
LOOPS: Final[Mapping[str, LoopKind]] = {
    "bind": "bound",
    **{kind: kind for kind in get_args(LoopKind) if kind != "bound"},
}


def parse(text: str, name: str, constants: Mapping[str, ScalarNumber], first_line: int) -> Nest:
    """Parses a script, in which ``constants`` are known names; raises ScriptError."""
    reader = _ScriptReader(name, constants, first_line - 1, text)
    try:
        return reader.module(_Unqualified().visit(ast.parse(text)))
    except SyntaxError as e:
        is_module = (e.text or "").startswith(("graph ", "external ", "function "))
        why = "this is the text of a module, which graphopt.Module.read takes" if is_module else str(e.msg)
        raise ScriptError(why, name, (e.lineno or 1) + first_line - 1, e.offset or 1) from None
    except ValueError as e:
        raise ScriptError(f"this is no text of a program: {e}", name, first_line) from None
    except (RecursionError, MemoryError):  # Python's parser reports its own depth as memory
        raise ScriptError("this is nested too deeply to be read", name, first_line) from None


def _is_local_name(stmt: ast.stmt) -> bool:
    """Whether a statement only names a value."""
    return isinstance(stmt, ast.AnnAssign) or (isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name))


class _Unqualified(ast.NodeTransformer):
    """Words of scripts without the module that they are taken from: ``T.grid`` is ``grid``."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.attr in QUALIFIED:
            return ast.copy_location(ast.Name(node.attr, node.ctx), node)
        return node


class _ScriptReader(ScriptNames):
    """Reads statements."""

    # -- the function

    def module(self, tree: ast.Module) -> Nest:
        if len(tree.body) != 1 or not isinstance(function := tree.body[0], ast.FunctionDef):
            extra = tree.body[len(tree.body) > 1] if tree.body else tree
            raise self.error(extra, "a script is one function, @program def name(...)")
        self.mentioned = frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name))
        for decorator in function.decorator_list:
            word = decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", None)
            if word != "program":
                raise self.error(decorator, "the one decorator of a program is @program")
        params = self.params(function)
        body = list(function.body)
        if isinstance(body[0], ast.Expr) and string(body[0].value) is not None:
            del body[0]
        notes, rest = self.header(body)
        *named, last = rest or [ast.Pass()]
        match last:
            case ast.With([ast.withitem(ast.Call(ast.Name("block"), [ast.Constant(str(name))], []), None)], inside) if (
                name == ROOT_BLOCK and all(map(_is_local_name, named))
            ):
                rooted, rest = self.header(inside, is_root=True)
                notes, rest = tuple({**dict(notes), **dict(rooted)}.items()), [*named, *rest]
        return Nest(function.name, params, self.statements(rest), tuple(self.allocs), notes)

    def params(self, function: ast.FunctionDef) -> tuple[Buffer | Var, ...]:
        a = function.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs or a.defaults:
            raise self.error(function, 'the parameters of a program are plain: A: Buffer[(4, 4), "float32"], n: size')
        params: dict[str, Buffer | Var] = {}
        for arg in a.args:  # sizes first: the shapes before them name them
            if isinstance(arg.annotation, ast.Name) and arg.annotation.id == "size":
                params[arg.arg] = self.bound[arg.arg] = Var(self.unique(arg.arg))
        for arg in a.args:
            if arg.arg not in params:
                params[arg.arg] = self.parameter(arg)
        return tuple(params[arg.arg] for arg in a.args)

    def parameter(self, arg: ast.arg) -> Buffer:
        match arg.annotation:
            case ast.Subscript(ast.Name("Buffer"), ast.Tuple([shape, dtype])):
                return self.buffer(arg, arg.arg, [shape, dtype], [])
            case ast.Call(ast.Name("Buffer"), args, keywords):
                return self.buffer(arg, arg.arg, args, keywords)
        raise self.error(arg, f'{arg.arg} is a Buffer[shape, "dtype"] or a size')

    def header(self, body: Sequence[ast.stmt], is_root: bool = False) -> tuple[Notes, list[ast.stmt]]:
        """The notes of a program, its allocations (kept), and the statements that remain."""
        notes: Notes | None = None
        rest = []
        for stmt in body:
            match stmt:
                case ast.Assign([ast.Name(name)], ast.Call(ast.Name("alloc"), args, keywords)):
                    self.allocs.append(self.buffer(stmt, name, args, keywords))
                case ast.Expr(ast.Call(ast.Name("notes"), _, []) as call):
                    if notes is not None:
                        raise self.error(stmt, "notes is said twice of one program")
                    notes = self.notes(self.only(call))
                case ast.Expr(ast.Call(ast.Name("reads" | "writes"), _, [])) if is_root:
                    pass  # they follow from the blocks in it
                case (
                    ast.Expr(ast.Call(ast.Name("where")))
                    | ast.Assign(_, ast.Call(ast.Attribute(ast.Name("axis"))))
                    | ast.With([ast.withitem(ast.Call(ast.Name("init")), _)])
                ) if is_root:
                    raise self.error(
                        stmt, "the block root is the whole program: beside statements, it has notes and buffers"
                    )
                case _:
                    rest.append(stmt)
        return notes or (), rest

    def buffer(self, node: ast.AST, name: str, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> Buffer:
        """A buffer by shape and dtype, and perhaps scope and strides."""
        if len(args) != 2:
            raise self.error(node, f'{name} wants a shape and a dtype: (128, 128), "float32"')
        shape, dtype = self.sizes(args[0]), self.dtype(args[1])
        scope, strides = "global", None
        for keyword in keywords:
            if keyword.arg == "scope" and (scope := string(keyword.value) or "") in get_args(MemoryScope):
                continue
            if keyword.arg != "strides":
                raise self.error(keyword, f"a buffer has scope= ({', '.join(get_args(MemoryScope))}) and strides=")
            strides = self.sizes(keyword.value)
            if len(strides) != len(shape):
                raise self.error(keyword, f"{name} has {len(shape)} axes and {len(strides)} strides")
        own = self.unique(name, None if self.inside else node)
        self.buffers[name] = Buffer(own, shape, dtype, cast(MemoryScope, scope), strides)
        return self.buffers[name]

    def local(self, node: ast.stmt, name: str, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> None:
        """A buffer that is allocated within a loop or block: one of the program, whose name ends there."""
        self.free(name, node)
        buffer = self.buffer(node, name, args, keywords)
        if inner := sorted(v.name for e in buffer.shape for v in variables(e) if v in self.extents):
            raise self.error(
                node, f"{name} has a size of its own for each {inner[0]}: give it the largest that there is"
            )
        if buffer.scope == "global" and "parallel" in self.inside:
            raise self.error(
                node, f'{name} would be shared by the rounds of a parallel loop: alloc(..., scope="local")'
            )
        self.allocs.append(buffer)

    def sizes(self, node: ast.expr) -> tuple[Expr, ...]:
        if not isinstance(node, ast.Tuple):
            raise self.error(node, "a tuple of sizes is expected, such as (128, 128) or (n,)")
        return tuple(self.size(e) for e in node.elts)

    def size(self, node: ast.expr) -> Expr:
        if (text := string(node)) is None:
            return self.index(node)
        try:
            inner = ast.parse(text.strip(), mode="eval").body
        except SyntaxError:
            raise self.error(node, f"{text!r} is no size") from None
        for part in ast.walk(inner):
            ast.copy_location(part, node)
        return self.index(inner)

    # -- statements

    def statements(self, body: Sequence[ast.stmt]) -> Stmt:
        with self.scope():
            statements = [made for s in body if (made := self.statement(s)) is not None]
        return seq(*statements) if statements else Seq(())

    def statement(self, node: ast.stmt) -> Stmt | None:
        """A statement; None for one that only names something."""
        stmt = self.stated(node)
        match stmt:
            case Store(buffer):
                self.written([buffer])
            case Invoke(_, args):
                self.written(a.buffer for a in args if isinstance(a, BufferRegion))
        return stmt

    def stated(self, node: ast.stmt) -> Stmt | None:
        match node:
            case ast.Pass():
                return None
            case ast.For(target, ast.Call() as loop, body, []):
                return self.loop(node, target, loop, body)
            case ast.With([ast.withitem(ast.Call(ast.Name("block"), [name], []), None)], body):
                if (label := string(name)) is None:
                    raise self.error(name, 'a block has a name: with block("C"):')
                return self.block(node, label, body)
            case ast.Assign([ast.Subscript() as target], value):
                element = self.element(target)
                return Store(element.buffer, element.indices, self.expr(value, element.dtype))
            case ast.AugAssign(ast.Subscript() as target, op, value):
                element = self.element(target)
                combined = self.operation(node, type(op), [element, self.expr(value, element.dtype)], element.dtype)
                return Store(element.buffer, element.indices, combined)
            case ast.If(condition, then, otherwise):
                test = self.expr(condition, "bool")
                return If(test, self.statements(then), self.statements(otherwise) if otherwise else None)
            case ast.Expr(ast.Call(ast.Name("check"), [condition, message], [])):
                if (text := string(message)) is None:
                    raise self.error(message, 'a check says what is wrong: check(i < 4, "i is out of range")')
                return Check(self.expr(condition, "bool"), text)
            case ast.Expr(ast.Call(ast.Name("invoke"), [intrinsic, *args], [])):
                if (text := string(intrinsic)) is None:
                    raise self.error(intrinsic, "an intrinsic is invoked by its name, a string")
                return Invoke(text, tuple(self.argument(a) for a in args))
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("alloc"), args, keywords)):
                self.local(node, name, args, keywords)
                return None
            case ast.Assign([ast.Name(name)], value):
                self.let(node, name, value, None)
                return None
            case ast.AnnAssign(ast.Name(name), kind, ast.expr() as value):
                named = ast.copy_location(ast.Constant(kind.id), kind) if isinstance(kind, ast.Name) else kind
                self.let(node, name, value, self.dtype(named))
                return None
            case ast.AugAssign(ast.Name(name)):
                raise self.error(node, f'{name} keeps its value: alloc((), "float32", scope="local") may change')
            case ast.With():
                raise self.error(node, 'with is of one block("name") or init(), without as')
            case ast.Expr(ast.Call(ast.Name(word))) if word in INSTEAD:
                raise self.error(node, f"{word} is no word of programs; write {INSTEAD[word]}")
            case ast.While():
                raise self.error(node, "a loop has a number of rounds: for i in serial(n), with if for what ends early")
        wanted = "for, with block, if, check, invoke, t = ... and A[i] = ..."
        raise self.error(node, f"a program has {wanted} as its statements")

    def loop(self, node: ast.For, target: ast.expr, call: ast.Call, body: Sequence[ast.stmt]) -> Stmt:
        names = self.targets(target)
        word = call.func.id if isinstance(call.func, ast.Name) else ""
        args, thread = list(call.args), None
        notes: Notes = ()
        if word == "bind":
            thread = string(args.pop(0)) if args else None
            if thread not in THREADS:
                raise self.error(call, f"a loop is bound to one of {', '.join(THREADS)}")
        if word != "grid" and word not in LOOPS:
            hint = "; write serial(n)" if word == "range" else nearest_or_some(word, ["grid", *LOOPS])
            raise self.error(call, f"a loop is over one of grid, {', '.join(LOOPS)}{hint if word else ''}")
        for keyword in call.keywords:
            if keyword.arg != "notes" or word == "grid":
                raise self.error(keyword, f"{word} takes {'no keywords' if word == 'grid' else 'notes= alone'}")
            notes = self.notes(keyword.value)
        if len(names) != len(args) or not names or (word != "grid" and len(names) > 1):
            raise self.error(call, f"{word} has {len(args)} sizes for {len(names)} variables")
        return self.nested(node, names, args, LOOPS.get(word, "serial"), thread, notes, body)

    def nested(
        self,
        node: ast.For,
        names: Sequence[str],
        extents: Sequence[ast.expr],
        kind: LoopKind,
        thread: str | None,
        notes: Notes,
        body: Sequence[ast.stmt],
    ) -> Stmt:
        """The loops one in another, and the body in the last."""
        if not names:
            return self.statements(body)
        extent = self.index(extents[0])
        var = Var(self.unique(names[0]))
        self.extents[var] = extent
        self.inside.append("parallel" if kind in ("parallel", "vectorized", "bound") else kind)
        with self.within({names[0]: var}, node), self.repeated():
            inside = self.nested(node, names[1:], extents[1:], kind, thread, notes, body)
        self.inside.pop()
        return For(var, extent, inside, kind, thread, notes)

    def targets(self, node: ast.expr) -> list[str]:
        several = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
        names = [n.id for n in several if isinstance(n, ast.Name)]
        if len(names) != len(several) or len(set(names)) != len(names):
            raise self.error(node, "plain names are expected, each once")
        return names

    def block(self, node: ast.With, name: str, body: Sequence[ast.stmt]) -> Block:
        # Two passes: axes and clauses are collected first, for they bind the names in the statements that are parsed
        # then.
        axes: dict[str, tuple[Axis, Expr]] = {}
        clauses: dict[str, ast.Call] = {}
        rest: list[ast.stmt] = []
        init: list[ast.stmt] | None = None
        for stmt in body:
            match stmt:
                case ast.Assign([target], ast.Call(ast.Attribute(ast.Name("axis"), kind)) as call):
                    for bound, pair in zip(self.targets(target), self.axes(target, kind, call), strict=True):
                        if bound in axes:
                            raise self.error(stmt, f"{bound} is two axes of one block")
                        axes[bound] = pair
                case ast.Expr(ast.Call(ast.Name("where" | "reads" | "writes" | "notes" as word), _, []) as call):
                    if word in clauses:
                        raise self.error(stmt, f"{word} is said twice of one block")
                    clauses[word] = call
                case ast.With([ast.withitem(ast.Call(ast.Name("init"), [], []), None)], first):
                    if init is not None:
                        raise self.error(stmt, "a block has one init")
                    init = first
                case _:
                    rest.append(stmt)
        self.inside.append("block")
        with self.within({bound: axis.var for bound, (axis, _) in axes.items()}, node):
            block = Block(
                name,
                tuple(axis for axis, _ in axes.values()),
                tuple(value for _, value in axes.values()),
                self.statements(rest),
                None if init is None else self.statements(init),
                self.expr(self.only(clauses["where"]), "bool") if "where" in clauses else TRUE,
                notes=self.notes(self.only(clauses["notes"])) if "notes" in clauses else (),
            )
            reads, writes = accesses(block)
            if "reads" in clauses:
                reads = tuple(self.region(a) for a in clauses["reads"].args)
            if "writes" in clauses:
                writes = tuple(self.region(a) for a in clauses["writes"].args)
        self.inside.pop()
        return Block(
            block.name, block.axes, block.values, block.body, block.init, block.predicate, reads, writes, block.notes
        )

    def only(self, call: ast.Call) -> ast.expr:
        if len(call.args) != 1:
            raise self.error(call, "one argument is expected here")
        return call.args[0]

    def axes(self, target: ast.expr, kind: str, call: ast.Call) -> list[tuple[Axis, Expr]]:
        """The axes that one line makes, with their values."""
        names = self.targets(target)
        if kind == "remap":
            return self.remapped(names, call)
        if kind not in KINDS:
            raise self.error(call, f"axis.{kind} is none of axis.remap, {', '.join(f'axis.{k}' for k in KINDS)}")
        if len(call.args) != 2 or call.keywords or len(names) != 1:
            raise self.error(call, f"axis.{kind}(extent, value) makes one axis")
        extent, value = self.index(call.args[0]), self.index(call.args[1])
        return [(self.axis(names[0], extent, cast(AxisKind, kind)), value)]

    def remapped(self, names: Sequence[str], call: ast.Call) -> list[tuple[Axis, Expr]]:
        match call:
            case ast.Call(_, [ast.Constant(str(kinds)), ast.List(values)], []) if len(names) == len(kinds) == len(
                values
            ) and set(kinds) <= set(AXES):
                return [
                    self.on_loop(name, AXES[letter], value)
                    for name, letter, value in zip(names, kinds, values, strict=True)
                ]
        raise self.error(call, 'axis.remap("SSR", [i, j, k]) takes a letter (S, R, O) and a loop for each axis')

    def on_loop(self, name: str, kind: AxisKind, node: ast.expr) -> tuple[Axis, Expr]:
        """An axis that is a loop, or an axis of a block around this one."""
        loop = self.index(node)
        if not isinstance(loop, Var) or loop not in self.extents:
            raise self.error(node, "axis.remap takes loops alone: axis.spatial(extent, value) takes any value")
        return self.axis(name, self.extents[loop], kind), loop

    def axis(self, name: str, extent: Expr, kind: AxisKind) -> Axis:
        var = Var(self.unique(name))
        self.extents[var] = extent
        return Axis(var, extent, kind)

    def notes(self, node: ast.expr) -> Notes:
        if not isinstance(node, ast.Dict):
            raise self.error(node, 'notes are a dict: {"unroll": 4}')
        keys = [string(k) if k is not None else None for k in node.keys]
        if any(k is None for k in keys):
            raise self.error(node, "the keys of notes are strings")
        return tuple((k or "", self.note(v)) for k, v in zip(keys, node.values, strict=True))

    def note(self, node: ast.expr) -> Note:
        if (text := string(node)) is not None:
            return text
        if isinstance(node, ast.Tuple):
            return tuple(cast("ScalarNumber | str", self.note(e)) for e in node.elts if not isinstance(e, ast.Tuple))
        value = self.value(node, None)
        if isinstance(value, Const) and value.dtype == "bool":
            return value.value
        if isinstance(value, Expr):
            raise self.error(node, "a note is a number, a string or a tuple of them")
        return value
