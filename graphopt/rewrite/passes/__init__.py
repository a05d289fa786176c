"""Native passes: clean-ups that always help and are easier said in Python than as rules. Each theme has a module of its
own, which only the list below reads; ``simplify`` runs them and rules to a fixed point.

A pass is described as a rule is (name, reason, family, soundness class), and is switched on and off
in the same way. It either looks at one node, wherever something changed, or goes over the whole graph.
"""

from __future__ import annotations

from graphopt.rewrite.passes.branches import DEMAND, HEADS, NAMED, TAILS
from graphopt.rewrite.passes.control import CAPTURES, CARRIED, DECIDED, IDLE, UNROLL
from graphopt.rewrite.passes.dead import FUNCTIONS, OUTPUTS, UNUSED
from graphopt.rewrite.passes.dims import fix_dims, freeze_defaults
from graphopt.rewrite.passes.fold import FOLD, FOLD_EXACTLY, KNOWN, fold_within
from graphopt.rewrite.passes.functions import INLINE
from graphopt.rewrite.passes.loops import BEGUN, COLLECT, HOIST, REPEATED, STATES
from graphopt.rewrite.passes.native import NativePass
from graphopt.rewrite.passes.orders import ORDERS
from graphopt.rewrite.passes.parallel import PACKED
from graphopt.rewrite.passes.scatter import SLABS
from graphopt.rewrite.passes.sequences import OPTIONALS, SEQUENCES
from graphopt.rewrite.passes.shapes import FIXED, PICKED, RANGE, SAME, SIZES, TAKEN
from graphopt.rewrite.passes.sharing import COMMON, DUPLICATES, INITIALIZERS, OWN
from graphopt.rewrite.passes.unsigned import UNSIGNED
from graphopt.rewrite.passes.views import NORMAL

__all__ = ["PASSES", "NativePass", "fix_dims", "fold_within", "freeze_defaults"]

PASSES: tuple[NativePass, ...] = (
    INLINE,
    UNUSED,
    OUTPUTS,
    *KNOWN,
    FOLD_EXACTLY,
    FOLD,
    *FIXED,
    RANGE,
    TAKEN,
    PICKED,
    *SLABS,
    *PACKED,
    NORMAL,
    DECIDED,
    IDLE,
    DEMAND,
    NAMED,
    HEADS,
    TAILS,
    SEQUENCES,
    OPTIONALS,
    REPEATED,
    COLLECT,
    UNROLL,
    CARRIED,
    BEGUN,
    STATES,
    HOIST,
    OWN,
    CAPTURES,
    DUPLICATES,
    COMMON,
    SAME,
    SIZES,
    ORDERS,
    UNSIGNED,
    FUNCTIONS,
    INITIALIZERS,
)
"""All native passes, in the order in which they are tried."""
