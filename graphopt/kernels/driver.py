"""Native driver: runs a table of instructions, and shares large kernels out to a team of threads.

Work is handed over through words in memory (see ``runtime.bytecode``). A member that waits for work looks
for a moment and then sleeps in the kernel of the system until it is woken, so that a program that does not run costs
nothing. A kernel's work items are cut into ranges, always in the same way, and each thread has its own, which are the
same in all kernels, so that it finds in its cache what it made; a thread that is done takes what others have not begun.
"""
# mypy: allow-untyped-calls, disable-error-code="call-arg, misc, untyped-decorator, var-annotated"

from __future__ import annotations

from numba import njit

from graphopt.kernels.atomics import add, call, clock, flag, load, pause, raise_to, store, wait, wake

WIDTH = 5
CALL, JUMP, UNLESS, NOT_BELOW, NOT_BELOW_STORED, SET, ADD = range(7)
GENERATION, SLEEPING, REMAINING, WAITING, STATUS = 0, 8, 64, 72, 128
FUNCTION, ARGUMENTS, EXTENT, MEMBERS, SPINS, ACTIVE, STOPPED = 192, 200, 208, 216, 224, 232, 240
BEGUN, LINE = 512, 64
RANGES = 4
STAMP_WIDTH = 3
PLACE_WIDTH = 3
SERVE = 1
DONE, FAILED, PAUSED = range(3)
SHARED = 1 << 14
LOOK, STRETCH = 8, 100_000_000


@njit(error_model="numpy")
def _run_ranges(team: int, member: int) -> None:
    """Do a member's ranges of the work, then those that others have not begun, and keep their status."""
    members = load(team + MEMBERS)
    for turn in range(members):
        owner = (member + turn) % members
        begun = team + BEGUN + LINE * owner
        while load(begun) < RANGES:
            number = add(begun, 1)
            if number >= RANGES:
                break
            extent, number = load(team + EXTENT), owner * RANGES + number
            lo, hi = extent * number // (members * RANGES), extent * (number + 1) // (members * RANGES)
            if lo < hi:
                status = call(load(team + FUNCTION), load(team + ARGUMENTS), lo, hi)
                if status != 0:
                    raise_to(team + STATUS, status & 0xFFFFFFFF)
            if add(team + REMAINING, -1) == 1 and load(team + WAITING) != 0:
                wake(team + REMAINING)


@njit(error_model="numpy")
def _serve(team: int, member: int) -> None:
    """Do a member's part of all work until the team ends."""
    seen = 0
    spins = 0
    while True:
        generation = load(team + GENERATION)
        if generation == seen:
            if spins < load(team + SPINS) and load(team + ACTIVE) != 0:
                spins += 1
                pause()
            else:
                add(team + SLEEPING, 1)
                wait(team + GENERATION, seen)
                add(team + SLEEPING, -1)
                spins = 0
            continue
        seen = generation
        spins = 0
        if load(team + STOPPED) != 0:
            return
        _run_ranges(team, member)


@njit(error_model="numpy")
def _share_out(team: int, function: int, args: int, extent: int) -> int:
    """Run a kernel with the whole team; the largest status of its parts."""
    store(team + FUNCTION, function)
    store(team + ARGUMENTS, args)
    store(team + EXTENT, extent)
    store(team + STATUS, 0)
    members = load(team + MEMBERS)
    store(team + REMAINING, members * RANGES)
    for member in range(members):  # from here on it may be begun, by members too that are late
        store(team + BEGUN + LINE * member, 0)
    add(team + GENERATION, 1)
    if load(team + SLEEPING) > 0:
        wake(team + GENERATION)
    _run_ranges(team, 0)
    spins = load(team + SPINS)
    while spins > 0 and load(team + REMAINING) > 0:
        spins -= 1
        pause()
    if load(team + REMAINING) > 0:
        store(team + WAITING, 1)
        remaining = load(team + REMAINING)
        while remaining > 0:
            wait(team + REMAINING, remaining)
            remaining = load(team + REMAINING)
        store(team + WAITING, 0)
    return load(team + STATUS)


def kernel(  # type: ignore[no-untyped-def]
    code, args, first, team, report, stamps, role, places, count, arrays, data, lo, hi
):
    """Run the instructions from ``lo`` up to ``hi``; where one fails, ``report`` is its number and its status.

    Where they take longer than a stretch, ``report`` begins with the number of that to go on with.
    """
    # A bytecode interpreter in one loop: fetch an instruction, dispatch by comparisons, add up its time (Ertl and
    # Gregg, The Structure and Performance of Efficient Interpreters, 2003). Parallel loops are the helpers above.
    if role == SERVE:
        _serve(team, lo)
        return 0
    for slot in range(0, count * PLACE_WIDTH, PLACE_WIDTH):
        args[places[slot]] = load(arrays[places[slot + 1]] + data) + places[slot + 2]
    at = lo
    outcome = int(DONE)
    looks = 0
    until = 0
    if team != 0:
        store(team + ACTIVE, 1)
    while at < hi:
        looks += 1
        if looks % LOOK == 0:
            now = clock()
            if until == 0:
                until = now + STRETCH
            elif now >= until:
                report[0] = at
                outcome = int(PAUSED)
                break
        here = at * WIDTH
        operation, a, b, c = code[here], code[here + 1], code[here + 2], code[here + 3]
        following = at + 1
        begin = clock() if stamps != 0 else 0
        if operation == CALL:
            extent = args[c]
            work = code[here + 4]
            if extent > 1 and team != 0 and work != 0 and args[work] >= SHARED:
                status = _share_out(team, a, first + 8 * b, extent)
            elif extent > 0:
                status = call(a, first + 8 * b, 0, extent)
            else:
                status = 0
            if status != 0:
                report[0], report[1] = at, status
                outcome = int(FAILED)
                break
        elif operation == JUMP:
            following = a
        elif operation == UNLESS:
            if not flag(args[b]):
                following = a
        elif operation == NOT_BELOW:
            if load(args[b]) >= args[c]:
                following = a
        elif operation == NOT_BELOW_STORED:
            if load(args[b]) >= load(args[c]):
                following = a
        elif operation == SET:
            store(args[a], b)
        elif operation == ADD:
            add(args[a], b)
        if stamps != 0:
            record = stamps + 8 * STAMP_WIDTH * at
            if load(record + 16) == 0:
                store(record, begin)
            add(record + 8, clock() - begin)
            add(record + 16, 1)
        at = following
    if team != 0:
        store(team + ACTIVE, 0)
    return outcome
