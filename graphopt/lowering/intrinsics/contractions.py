"""Contractions: programs such as matrix products, in which each element of the result is a sum of terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read


def contraction(
    name: str,
    operands: Mapping[str, tuple[str, str]],
    sizes: Sequence[str],
    axes: Mapping[str, str],
    steps: Mapping[str, str],
    term: str,
    zero: str = "0.0",
    block: str = "product",
) -> Nest:
    """A contraction: each element of ``C`` is the sum of ``term`` over the ``steps``, from ``zero`` on.

    ``operands`` has the shape and the dtype of each, ``C`` first; ``sizes`` are the parameters behind them. ``axes``,
    which are those of ``C``, and ``steps`` have the extent of each loop; in the term the loop ``i`` is ``vi``.
    """
    points, loops, kinds = [f"v{n}" for n in axes], [*axes, *steps], "S" * len(axes) + "R" * len(steps)
    element = f"C[{', '.join(points)}]"
    buffers = ", ".join(f'{n}: Buffer[{shape}, "{dtype}"]' for n, (shape, dtype) in operands.items())
    return read(f"""\
@program
def {name}({buffers}, {", ".join(f"{n}: size" for n in sizes)}):
    for {", ".join(axes)} in grid({", ".join(axes.values())}):
        with block("start"):
            {", ".join(points)} = axis.remap("{"S" * len(axes)}", [{", ".join(axes)}])
            {element} = {zero}
    for {", ".join(loops)} in grid({", ".join([*axes.values(), *steps.values()])}):
        with block("{block}"):
            {", ".join(f"v{n}" for n in loops)} = axis.remap("{kinds}", [{", ".join(loops)}])
            {element} = {element} + {term}
""")
