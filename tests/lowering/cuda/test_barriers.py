from graphopt.lowering.cuda.barriers import BARRIER, synchronized
from graphopt.lowering.loops import For, Nest, Stmt, inner, statements
from graphopt.lowering.script import read

HEAD = """
@program
def phases(x: Buffer[(8, 16), "float32"], y: Buffer[(8, 16), "float32"]):
    s = alloc((16,), "float32", scope="shared")
    t = alloc((16,), "float32", scope="shared")
    r = alloc((16,), "float32", scope="local")
"""


def nest(body: str) -> Nest:
    return read(HEAD + body)


def shape(stmt: Stmt) -> str:
    """The statement's phases and barriers, in order: ``p`` and ``|``, loops around them in brackets."""
    if stmt == BARRIER:
        return "|"
    if isinstance(stmt, For) and (stmt.thread or "").startswith("threadIdx"):
        return "p"
    inside = "".join(map(shape, inner(stmt)))
    return f"[{inside}]" if isinstance(stmt, For) and stmt.thread is None else inside


def test_what_another_thread_wrote_is_waited_for() -> None:
    found = nest("""
    for b in bind("blockIdx.x", 8):
        for i in bind("threadIdx.x", 16):
            s[i] = x[b, i]
        for j in bind("threadIdx.x", 16):
            y[b, j] = s[15 - j]
""")
    assert shape(synchronized(found.body)) == "p|p"


def test_phases_that_share_nothing_do_not_wait() -> None:
    found = nest("""
    for b in bind("blockIdx.x", 8):
        for i in bind("threadIdx.x", 16):
            s[i] = x[b, i]
        for j in bind("threadIdx.x", 16):
            t[j] = x[b, j]
        for k in bind("threadIdx.x", 16):
            r[k] = x[b, k]
        for m in bind("threadIdx.x", 16):
            y[b, m] = r[m]
""")
    assert shape(synchronized(found.body)) == "pppp"


def test_one_barrier_serves_for_several() -> None:
    found = nest("""
    for b in bind("blockIdx.x", 8):
        for i in bind("threadIdx.x", 16):
            s[i] = x[b, i]
        for j in bind("threadIdx.x", 16):
            t[j] = x[b, j]
        for k in bind("threadIdx.x", 16):
            y[b, k] = s[15 - k] + t[k]
""")
    assert shape(synchronized(found.body)) == "pp|p"


def test_a_loop_waits_before_it_writes_over_what_its_last_round_read() -> None:
    found = nest("""
    for b in bind("blockIdx.x", 8):
        for n in serial(4):
            for i in bind("threadIdx.x", 16):
                s[i] = x[b, i]
            for j in bind("threadIdx.x", 16):
                y[b, j] = s[15 - j]
""")
    assert shape(synchronized(found.body)) == "[|p|p]"


def test_a_loop_that_hands_nothing_on_does_not_wait() -> None:
    found = nest("""
    for b in bind("blockIdx.x", 8):
        for i in bind("threadIdx.x", 16):
            r[i] = 0.0
        for n in serial(4):
            for j in bind("threadIdx.x", 16):
                r[j] = r[j] + x[b, j]
""")
    assert not any(s == BARRIER for s in statements(synchronized(found.body)))


def test_branches_are_waited_for_on_both_sides() -> None:
    found = nest("""
    for b in bind("blockIdx.x", 8):
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
""")
    assert shape(synchronized(found.body)) == "pp|p|p"


def test_slots_that_rounds_take_in_turn_are_not_waited_for_twice() -> None:
    found = read("""
@program
def slots(x: Buffer[(8, 16), "float32"], y: Buffer[(8, 16), "float32"]):
    s = alloc((2, 16), "float32", scope="shared")
    for b in bind("blockIdx.x", 8):
        for n in serial(4):
            for i in bind("threadIdx.x", 16):
                s[n % 2, i] = x[b, i]
            for j in bind("threadIdx.x", 16):
                y[b, j] = s[n % 2, 15 - j]
""")
    assert shape(synchronized(found.body)) == "[p|p]"


def test_slots_that_a_round_takes_from_the_one_before_are_waited_for() -> None:
    found = read("""
@program
def slots(x: Buffer[(8, 16), "float32"], y: Buffer[(8, 16), "float32"]):
    s = alloc((2, 16), "float32", scope="shared")
    for b in bind("blockIdx.x", 8):
        for n in serial(4):
            for i in bind("threadIdx.x", 16):
                s[n % 2, i] = x[b, i]
            for j in bind("threadIdx.x", 16):
                y[b, j] = s[(n + 1) % 2, 15 - j]
""")
    assert shape(synchronized(found.body)) == "[|pp]"


def test_a_slot_that_is_filled_ahead_is_waited_for_once_a_round() -> None:
    found = read("""
@program
def slots(x: Buffer[(9, 16), "float32"], y: Buffer[(8, 16), "float32"]):
    s = alloc((2, 16), "float32", scope="shared")
    for b in bind("blockIdx.x", 8):
        for i in bind("threadIdx.x", 16):
            s[0, i] = x[0, i]
        for n in serial(8):
            for j in bind("threadIdx.x", 16):
                s[(n + 1) % 2, j] = x[n + 1, j]
            for k in bind("threadIdx.x", 16):
                y[n, k] = s[n % 2, 15 - k]
""")
    assert shape(synchronized(found.body)) == "p[|pp]"


def test_slots_that_come_round_again_are_waited_for_where_no_round_waits() -> None:
    found = read("""
@program
def slots(x: Buffer[(9, 16), "float32"], y: Buffer[(8, 16), "float32"]):
    s = alloc((2, 16), "float32", scope="shared")
    for b in bind("blockIdx.x", 8):
        for n in serial(8):
            for j in bind("threadIdx.x", 16):
                s[n % 2, j] = x[n, j]
            if n % 2 == 1:
                for k in bind("threadIdx.x", 16):
                    y[n, k] = s[n % 2, 15 - k]
""")
    assert shape(synchronized(found.body)) == "[|p|p]"
