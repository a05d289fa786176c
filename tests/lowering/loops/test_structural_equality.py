"""Programs are equal whatever their names are, and what differs is said."""

import re
import subprocess
import sys
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.lowering.loops.nest import Nest, blocks
from graphopt.lowering.loops.script import read, show
from graphopt.lowering.loops.structural_equality import difference, equal, structural_hash
from tests.lowering.loops.test_script import EVERYTHING, MM_RELU
from tests.lowering.random_nests import random_nest


def renamed(text: str, names: set[str]) -> str:
    """The script with other names."""
    return re.sub(r"[A-Za-z_]\w*", lambda m: f"z_{m[0]}" if m[0] in names else m[0], text)


def names_of(nest: Nest) -> set[str]:
    """All names that a script binds, and those of its blocks."""
    bound = set(re.findall(r"^ *(?:for )?([\w, ]+?)(?: in |  *= (?:axis|alloc))", show(nest), re.MULTILINE))
    names = {n for part in bound for n in part.split(", ")}
    return names | {p.name for p in nest.params} | {b.name for b in blocks(nest.body)}


@pytest.mark.parametrize("text", [MM_RELU, re.sub(r"check.*", "pass", EVERYTHING)])
def test_names_do_not_count(text: str) -> None:
    nest = read(text)
    other = read(renamed(text, names_of(nest)))
    assert nest != other
    assert difference(nest, other) is None
    assert structural_hash(nest) == structural_hash(other)


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.randoms(use_true_random=False))
def test_random_programs_are_equal_to_themselves_and_to_few_others(random: Random, another: Random) -> None:
    nest, other = random_nest(random), random_nest(another)
    again = read(show(nest))
    assert equal(nest, again)
    assert structural_hash(nest) == structural_hash(again)
    assert equal(nest, other) == equal(other, nest) == (structural_hash(nest) == structural_hash(other))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("max(Y", "min(Y", "block C: `C[vi_1, vj_1] = max(Y[vi_1, vj_1], 0.0)` against"),
        ("= 0.0", "= 1.0", "block Y: `Y[vi, vj] = 0.0` against `Y[vi, vj] = 1.0`: 0.0 against 1.0"),
        ("(128, 128, 128)", "(128, 128, 64)", "`for k in serial(128)` against `for k in serial(64)`: 128 against 64"),
        ("B[vk, vj]", "B[vj, vk]", "`Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vj, vk]`: vk against vj"),
        ("A[vi, vk] *", "B[vi, vk] *", "A[vi, vk] against B[vi, vk]"),
        (
            'alloc((128, 128), "float32")',
            'alloc((128, 128), "float32", scope="local")',
            "the buffer Y as float32[128, 128] in global memory against the buffer Y as float32[128, 128] in local",
        ),
        ("SSR", "SSO", "block Y: axes (spatial, spatial, reduce) against axes (spatial, spatial, ordered)"),
        (
            "B: Buffer[(128, 128)",
            "B: Buffer[(128, 129)",
            "128] in global memory against the buffer B as float32[128, 129",
        ),
        (
            "for i_1, j_1 in grid(128, 128)",
            "for i_1 in serial(128):\n        for j_1 in parallel(128)",
            "serial against",
        ),
        (
            "            with init",
            '            notes({"a": 1})\n            with init',
            "no notes against the note a: 1",
        ),
        ("            with init():\n                Y[vi, vj] = 0.0\n", "", "an init against no init"),
    ],
)
def test_the_first_difference_is_one_line(old: str, new: str, words: str) -> None:
    changed = MM_RELU.replace(old, new, 1)
    assert changed != MM_RELU
    if "parallel" in new:
        head, body = changed.split(new + ":\n")
        changed = f"{head}{new}:\n" + "".join(f"    {line}\n" for line in body.splitlines())
    told = difference(read(MM_RELU), read(changed))
    assert told is not None
    assert words in told
    assert "\n" not in told
    assert structural_hash(read(MM_RELU)) != structural_hash(read(changed))


def test_the_order_of_notes_says_nothing() -> None:
    one, other = (f"@program\ndef f():\n    notes({{{n}}})\n    pass\n" for n in ('"a": 1, "b": 2', '"b": 2, "a": 1'))
    assert equal(read(one), read(other))


def test_a_buffer_that_nothing_uses_counts() -> None:
    text = '@program\ndef f(A: Buffer[(4,), "float32"]):\n    A[0] = 1.0\n'
    assert not equal(read(text), read(text.replace("    A[0]", '    t = alloc((2,), "float32")\n    A[0]')))


def test_the_hash_is_that_of_every_process() -> None:
    program = (
        "from graphopt.lowering.loops.script import read\n"
        "from graphopt.lowering.loops.structural_equality import structural_hash\n"
        f"print(structural_hash(read({MM_RELU!r})).hex())"
    )
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == structural_hash(read(MM_RELU)).hex()
