"""Documentation page of the schedule primitives, generated from their docstrings: what each does, before and after."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any, Final

from graphopt.lowering.schedule.schedule import Schedule

HEAD = """\
# Primitives of schedules

A `Schedule` rewrites a loop nest step by step: `s = graphopt.Schedule(nest)`. A step that would change what the program
computes, or names what is not there, raises a `ScheduleError` and leaves the nest as it was. `s.nest` is the nest,
`s.show()` prints it, `s.trace` the steps; [tensor programs](tensor-programs.md) use them. An example is the program
before a step, the step, and the program after it; `...` is an end that they share. Examples are docstrings, and tests
(`python -m graphopt.lowering.schedule.primitives > docs/schedules.md`).
"""

PRESENT: Final = (
    "add_unit_loop annotate bind blockize cache_inplace cache_read cache_write compute_at compute_inline copy "
    "decompose_padding decompose_reduction fork_seed fuse fuse_reduction_epilogue get_child_blocks get_consumers "
    "get_loops get_output_blocks get_producers loop_partition merge pad_einsum parallel read_at reindex reorder "
    "reverse_compute_at reverse_compute_inline rfactor rolling_buffer sample_categorical sample_compute_location "
    "sample_partitioned_tile sample_perfect_tile set_scope show split storage_align tensorize trace "
    "transform_block_layout transform_layout unannotate unroll vectorize write_at"
)
"""The names of TVM's ``Schedule`` that ours has for the same."""
ELSEWHERE: Final = {
    "get_sblock": "`get_block`",
    "reindex_cache_read": "`cache_read`, then `transform_layout` of the copy",
    "reindex_cache_write": "`cache_write`, then `transform_layout` of the copy",
    "reorder_block_iter_var": "`transform_block_layout(block, lambda i, j: (j, i))`",
    "cache_index": "none: indices are expressions, and a buffer of them is a block of the program",
    "can_decompose_padding": "none: `decompose_padding` on `s.copy()` says why where it cannot",
    "annotate_buffer_access": "none: what a block reads and writes is found from its statements",
    "unsafe_hide_buffer_access": "none: a hidden access would make checked steps wrong",
    "unsafe_set_dtype": "none: it changes what the program computes; give the program's buffers that dtype",
    "mod, state": "`s.nest`; a schedule is one of a nest, which a module holds by its name",
    "work_on, func_working_on": "none: a schedule is one of a nest",
    "get, get_sref, remove_rv": "none: loops and blocks are named, and names are all that a reference holds",
    "seed": "`Schedule(nest, seed)`",
    "enter_postproc": "none: a trace holds steps, and decisions are replaced by `trace.with_decisions`",
}
"""Where the other names of TVM's ``Schedule`` are."""
EXAMPLE = re.compile(r"\s+Before:\n\n```python\n(.*?)\n```\n\nAfter `([^`]*)`:\n\n```python\n(.*?)\n```", re.DOTALL)
SAME = re.compile(r"(```python\n(?P<before>.*?)\n\n#[^`]*?)\n```\n\n```python\n(?P=before)\n", re.DOTALL)
"""Two examples that begin with the same program."""


def primitives() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The methods of ``Schedule`` that are primitives, in order, with their functions."""
    for name, method in vars(Schedule).items():
        function = inspect.unwrap(method) if callable(method) and hasattr(method, "__wrapped__") else None
        if function is not None:
            yield name, function


def page() -> str:
    """The page in Markdown."""
    parts, module = [HEAD], ""
    for name, function in primitives():
        if function.__module__ != module:
            module = function.__module__
            parts.append(f"## {_title(inspect.getdoc(inspect.getmodule(function)) or '')}\n")
        text = SAME.sub(r"\1\n", EXAMPLE.sub(_example, markdown(inspect.getdoc(function) or "")))
        parts.append(f"### `s.{name}{_signature(function)}`\n\n{text}\n")
    return "\n".join([*parts, _beside_tvm()])


def _beside_tvm() -> str:
    """The section on the primitives of TVM."""
    names = textwrap.fill(", ".join(f"`{name}`" for name in PRESENT.split()) + ".", 120)
    rows = "\n".join(
        f"| {', '.join(f'`{n}`' for n in name.split(', '))} | {place} |" for name, place in ELSEWHERE.items()
    )
    head = (
        "## Primitives of TVM and where they are\n\nOf `tvm.s_tir.Schedule` in TVM 0.27 these have the same name here:"
    )
    return f"{head}\n{names}\n\nThe others:\n\n| in TVM | here |\n|---|---|\n{rows}\n"


def _example(example: re.Match[str]) -> str:
    """The program before a step, the step, and the program after it, without a longer end that both share."""
    before, after = example[1].splitlines(), example[3].splitlines()
    pairs = zip(reversed(before[1:]), reversed(after[1:]), strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0].strip() == pair[1].strip(), pairs))
    if shared > 1:
        before, after = ([*lines[:-shared], re.sub(r"\S.*", "...", lines[-shared])] for lines in (before, after))
    return "\n".join(["\n", "```python", *before, "", f"# {example[2]}", *after, "```"])


def _title(doc: str) -> str:
    """The first sentence of a module's docstring, without its full stop."""
    return " ".join(doc.split("\n\n")[0].split()).split(". ")[0].rstrip(".")


def _signature(function: Callable[..., Any]) -> str:
    """The arguments, without the nest and the generator that the schedule supplies."""
    kept = [p for p in inspect.signature(function).parameters.values() if p.name not in ("nest", "random")]
    plain = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in kept
        if not (p.kind is inspect.Parameter.POSITIONAL_ONLY and p.name.startswith("_"))
    ]
    return str(inspect.Signature(plain))


def markdown(doc: str) -> str:
    """A docstring with fenced programs, and fenced examples of doctest."""
    lines, out, fence = doc.splitlines(), list[str](), ""
    for k, line in enumerate(lines):
        if fence and (line.strip() and not line.startswith("    ") if fence == "python" else not line.strip()):
            while out[-1] == "":
                out.pop()
            out += ["```", ""]
            fence = ""
        if not fence and line.startswith(">>> "):
            fence = "pycon"
            out.append("```pycon")
        elif not fence and line.startswith("    ") and any(p.endswith("::") for p in lines[max(0, k - 2) : k]):
            fence = "python"
            out.append("```python")
        if fence == "python":
            out.append(line[4:])
        elif fence:
            out.append("" if line == "<BLANKLINE>" else line)
        elif line.strip() or out[-1:] != [""]:
            out.append(re.sub(r"``([^`]*)``", r"`\1`", line).replace("::", ":"))
    return "\n".join([*out, "```"] if fence else out)


if __name__ == "__main__":
    print(page(), end="")
