import pytest

from graphopt.lowering.cuda.barriers import BARRIER, synchronized
from graphopt.lowering.loops.nest import For, Stmt, inner
from graphopt.lowering.loops.script import read

HEAD = """
@program
def phases(x: Buffer[(9, 16), "float32"], y: Buffer[(8, 16), "float32"]):
    s = alloc((16,), "float32", scope="shared")
    t = alloc((16,), "float32", scope="shared")
    slots = alloc((2, 16), "float32", scope="shared")
    r = alloc((16,), "float32", scope="local")
    for b in bind("blockIdx.x", 8):
"""


def shape(stmt: Stmt) -> str:
    """The statement's phases and barriers, in order: ``p`` and ``|``, loops around them in brackets."""
    if stmt == BARRIER:
        return "|"
    if isinstance(stmt, For) and (stmt.thread or "").startswith("threadIdx"):
        return "p"
    inside = "".join(map(shape, inner(stmt)))
    return f"[{inside}]" if isinstance(stmt, For) and stmt.thread is None else inside


CASES = {
    "what_another_thread_wrote_is_waited_for": (
        "p|p",
        """
        for i in bind("threadIdx.x", 16):
            s[i] = x[b, i]
        for j in bind("threadIdx.x", 16):
            y[b, j] = s[15 - j]
""",
    ),
    "phases_that_share_nothing_do_not_wait": (
        "pppp",
        """
        for i in bind("threadIdx.x", 16):
            s[i] = x[b, i]
        for j in bind("threadIdx.x", 16):
            t[j] = x[b, j]
        for k in bind("threadIdx.x", 16):
            r[k] = x[b, k]
        for m in bind("threadIdx.x", 16):
            y[b, m] = r[m]
""",
    ),
    "one_barrier_serves_for_several": (
        "pp|p",
        """
        for i in bind("threadIdx.x", 16):
            s[i] = x[b, i]
        for j in bind("threadIdx.x", 16):
            t[j] = x[b, j]
        for k in bind("threadIdx.x", 16):
            y[b, k] = s[15 - k] + t[k]
""",
    ),
    "a_loop_waits_before_it_writes_over_what_its_last_round_read": (
        "[|p|p]",
        """
        for n in serial(4):
            for i in bind("threadIdx.x", 16):
                s[i] = x[b, i]
            for j in bind("threadIdx.x", 16):
                y[b, j] = s[15 - j]
""",
    ),
    "a_loop_that_hands_nothing_on_does_not_wait": (
        "p[p]",
        """
        for i in bind("threadIdx.x", 16):
            r[i] = 0.0
        for n in serial(4):
            for j in bind("threadIdx.x", 16):
                r[j] = r[j] + x[b, j]
""",
    ),
    "branches_are_waited_for_on_both_sides": (
        "pp|p|p",
        """
        for i in bind("threadIdx.x", 16):
            s[i] = x[b, i]
        if b < 4:
            for j in bind("threadIdx.x", 16):
                t[j] = x[b, j]
        else:
            for k in bind("threadIdx.x", 16):
                y[b, k] = s[15 - k]
        for m in bind("threadIdx.x", 16):
            t[m] = 1.0
""",
    ),
    "slots_that_rounds_take_in_turn_are_not_waited_for_twice": (
        "[p|p]",
        """
        for n in serial(4):
            for i in bind("threadIdx.x", 16):
                slots[n % 2, i] = x[b, i]
            for j in bind("threadIdx.x", 16):
                y[b, j] = slots[n % 2, 15 - j]
""",
    ),
    "slots_that_a_round_takes_from_the_one_before_are_waited_for": (
        "[|pp]",
        """
        for n in serial(4):
            for i in bind("threadIdx.x", 16):
                slots[n % 2, i] = x[b, i]
            for j in bind("threadIdx.x", 16):
                y[b, j] = slots[(n + 1) % 2, 15 - j]
""",
    ),
    "a_slot_that_is_filled_ahead_is_waited_for_once_a_round": (
        "p[|pp]",
        """
        for i in bind("threadIdx.x", 16):
            slots[0, i] = x[0, i]
        for n in serial(8):
            for j in bind("threadIdx.x", 16):
                slots[(n + 1) % 2, j] = x[n + 1, j]
            for k in bind("threadIdx.x", 16):
                y[n, k] = slots[n % 2, 15 - k]
""",
    ),
    "slots_that_come_round_again_are_waited_for_where_no_round_waits": (
        "[|p|p]",
        """
        for n in serial(8):
            for j in bind("threadIdx.x", 16):
                slots[n % 2, j] = x[n, j]
            if n % 2 == 1:
                for k in bind("threadIdx.x", 16):
                    y[n, k] = slots[n % 2, 15 - k]
""",
    ),
}
"""Where the threads of a block wait: what the statements of a block come to be, as ``shape`` shows them."""


@pytest.mark.parametrize("case", CASES)
def test_threads_wait_for_what_others_do_and_for_nothing_else(case: str) -> None:
    expected, body = CASES[case]
    assert shape(synchronized(read(HEAD + body.lstrip("\n")).body)) == expected
