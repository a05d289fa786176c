"""Text form of graphs: one assignment a line in call notation, and back again.

    graph main (ir 10, opset 21)
    x: float32[n, 3]
    w = float32[3, 4]{#0}
    %0 = MatMul(x, w)
    y: float32[n, 4] = Clip(%0, 0.0, 6.0)
    return y

A value has its name, or a number with ``%`` where it has none; a name that is not plain stands in
backquotes. Inputs are declared with their types; other types are shown where they are known. Small
constants are written out: a bare ``1.0`` is a float32 and ``1`` an int64 of rank 0, ``[1, 2]`` is of
rank 1, and any other is ``dtype[shape]{elements}``, where ``{0.0, ...}`` repeats one element. Larger
ones are numbered (``{#0}``) and kept beside the text. What is read may be shorter than what is
printed: calls may be nested, and the first line left out. Names of nodes, documentation and other metadata
are not part of the text.

``primitive`` in the first line says that a function is to become one tensor program. ``dataflow { ... }`` is a dataflow
region. A call in destination passing style is read as its value:

    t: float32[n, 4] = alloc()
    none = my::linear(x, w, t)

is ``t: float32[n, 4] = my::linear(x, w)``.
"""

from graphopt.ir.text.read import parse
from graphopt.ir.text.show import show

__all__ = ["parse", "show"]
