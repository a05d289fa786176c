"""Bytecode of the native driver: the numbers of its instructions, and of the words of a team of threads.

The driver's source has the same numbers under the same names; a test holds the two together.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from typing import Final

WIDTH: Final = 5
"""Words of an instruction: an operation and four operands."""

CALL: Final = 0
"""Address of a kernel, number of its first argument, number of the argument that is the extent, and of that which says
how many iterations there are (0: it is not parallel)."""
JUMP: Final = 1
"""Number of the next instruction."""
UNLESS: Final = 2
"""Number of the next instruction where a bool is false, number of the argument that is its address."""
NOT_BELOW: Final = 3
"""Number of the next instruction where a counter has reached a size: arguments of the address and of the size."""
NOT_BELOW_STORED: Final = 4
"""The same, but the second argument is the address of the size."""
SET: Final = 5
"""Argument of a word's address, the word's new value."""
ADD: Final = 6
"""Argument of a word's address, what is added to the word."""

# what several threads of a team write lies in cache lines of its own
GENERATION: Final = 0
"""Counts the pieces of work handed out; the members wait for it."""
SLEEPING: Final = 1
"""How many members sleep."""
REMAINING: Final = 8
"""How many ranges of the piece of work are not finished."""
WAITING: Final = 9
"""Whether the caller sleeps until they have."""
STATUS: Final = 16
"""The largest status of the piece of work."""
FUNCTION: Final = 24
ARGUMENTS: Final = 25
EXTENT: Final = 26
MEMBERS: Final = 27
"""How many threads there are, the caller among them."""
SPINS: Final = 28
"""How often a thread looks before it sleeps."""
ACTIVE: Final = 29
"""Whether a program is running, so that looking out for work is worth while."""
STOPPED: Final = 30
BEGUN: Final = 64
"""How many of its ranges of the piece of work are begun, for each thread in a cache line of its own."""
LINE: Final = 8
"""Words of a cache line."""
RANGES: Final = 4
"""Ranges that a piece of work has for each thread."""

STAMP_WIDTH: Final = 3
"""Words of an instruction's profile: when it began first, its nanoseconds in all, how often it ran."""

WALK: Final = 0
"""The driver runs instructions."""
SERVE: Final = 1
"""The driver is a member of a team, ``lo`` its number, until the team ends."""
DONE: Final = 0
FAILED: Final = 1
"""A kernel's status is not 0; the report is the number of its instruction, and the status."""
PAUSED: Final = 2
"""A stretch is over, and the report begins with the instruction to go on with: a loop may never end, and signals such
as an interrupt come only where Python runs."""
LOOK: Final = 8
"""Instructions between two looks at the clock; a look takes about 30 ns, and a program of fewer takes none."""
STRETCH: Final = 100_000_000
"""Nanoseconds that a driver runs, about, before it pauses: only a kernel makes an interrupt wait longer."""
PLACE_WIDTH: Final = 3
"""Words of a place: number of an argument, number of the array that it is in, how many bytes from its start."""
DRIVER_PARAMS: Final = ("int64", "int64", "size", "size", "int64", "size", "size", "int64", "size", "int64", "size")
"""Instructions, arguments twice, address of the team (0: none), report, address of the profile (0: none), role; places
of arguments in arrays of the caller's, how many, the addresses of numpy's objects, and of the word in such an object,
from its start, that says where the elements are."""


@cache
def digest() -> str:
    """What changes when any of the numbers do."""
    numbers = sorted((name, value) for name, value in globals().items() if name.isupper())
    return sha256(repr(numbers).encode()).hexdigest()
