import itertools
from inspect import getdoc

import numpy as np
import pytest

from graphopt.ir.types import symbol
from graphopt.rewrite.guards.comparison import Unknown
from graphopt.rewrite.guards.functions import FUNCTIONS, arity

n, m = symbol("n"), symbol("m")
END = 2**63 - 1


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("sqrt(4.0)", 2.0),
        ("float(3)", 3.0),
        ("int(3.0)", 3),
        ("abs(-2)", 2),
        ("floor(1.5)", 1),
        ("ceil(1.5)", 2),
        ("finite((1.0, (2.0, 3.0)))", True),
        ("finite(float('inf'))", False),
        ("near(1.414214, 1.4142135)", True),
        ("near(1.41, 1.4142)", False),
        ("near(1.41, 1.4142, 0.01)", True),
        ("is_integer((1.0, 2.0))", True),
        ("len((1, 2))", 2),
        ("sum((1, n))", n + 1),
        ("product((2, n))", 2 * n),
        ("product(())", 1),
        ("min(1, 2)", 1),
        ("max((1, 2))", 2),
        ("max(n, n + 1)", n + 1),
        ("all((True, False))", False),
        ("any((True, False))", True),
        ("same((n, n))", True),
        ("same((1, 2))", False),
        ("range(3)", (0, 1, 2)),
        ("range(1, 6, 2)", (1, 3, 5)),
        ("sorted((2, 1))", (1, 2)),
        ("reversed((2, 1))", (1, 2)),
        ("unique((2, 1, 2))", (2, 1)),
        ("index((5, 7), 7)", 1),
        ("count((1, 2, 1), 1)", 2),
        ("pick((5, 6, 7), (2, 0))", (7, 5)),
        ("drop((5, 6, 7), (-1,))", (5, 6)),
        ("put((5, 6), -1, 9)", (5, 9)),
        ("fill(2, 0)", (0, 0)),
        ("flat(((1, 2), (3,)))", (1, 2, 3)),
        ("flat(1)", (1,)),
        ("offsets((2, n, 3))", (0, 2, n + 2)),
        ("offsets(())", ()),
        ("consecutive((2, 3, 4))", True),
        ("consecutive((2, 4))", False),
        ("plus((1, 2), (3, n))", (4, n + 2)),
        ("minus((1, 2), 1)", (0, 1)),
        ("times(2, (1, n))", (2, 2 * n)),
        ("over((4, 6), 2)", (2, 3)),
        ("axis(-1, 3)", 2),
        ("axes((-1, 0), 3)", (2, 0)),
        ("other_axes((-1,), 3)", (0, 1)),
        ("is_identity((0, 1))", True),
        ("is_identity((1, 0))", False),
        ("moves_only_ones((1, n, 5), (1, 0, 2))", True),
        ("moves_only_ones((1, 4, n), (0, 2, 1))", False),
        ("broadcast((3, 1), (n,))", (3, n)),
        ("fits((1,), (2, n))", True),
        ("fits((n,), (2, n))", True),
        ("fits((3,), (2, 4))", False),
        ("fits((2, n), (n,))", False),
        ("known((1, n))", False),
        ("is_known(3)", True),
        ("squeeze((1, n, 1), (0, -1))", (n,)),
        ("unsqueeze((n,), (0, -1))", (1, n, 1)),
        ("ones((1, n, 1))", (0, 2)),
        ("target((2, n))", (2, -1)),
        ("target_from(((6, n), (2, 3, n)))", (2, 3, -1)),
        ("target_from(((n, m, 6), (n, m, 2, 3)))", (0, 0, 2, 3)),
        ("flatten((2, n, 3), 1)", (2, 3 * n)),
        ("flatten((2, n, 3), 3)", (6 * n, 1)),
        ("divides(2, 4 * n)", True),
        ("divides(3, 4)", False),
        ("slice_size(1, END, 2, 6)", 3),
        ("slice_size(-1, -END, -1, 6)", 6),
        ("slice_size(0, END, 1, n)", n),
        ("is_full_slice((n, 4), (0, -4), (END, 4), (0, 1), (1, 1))", True),
        ("is_full_slice((n, 4), (0, 1), (END, 4), (0, 1), (1, 1))", False),
        ("full_pads((1, 2), (-1,), 3)", (0, 0, 1, 0, 0, 2)),
        ("permute_pads((0, 1, 2, 3, 4, 5), (0, 2, 1))", (0, 2, 1, 3, 5, 4)),
        ("spatial_pads((0, 0, 1, 2, 0, 0, 3, 4))", (1, 2, 3, 4)),
        ("pads_space_only((0, 0, 1, 0, 0, 2))", True),
        ("pads_space_only((0, 1, 1, 0, 0, 2))", False),
        ("pads_space_only((0, 0, -1, 0, 0, 2))", False),
        ("same_pads('SAME_UPPER', (1, 3, 5, 6), (2, 3), (1, 2), (1, 1))", (0, 0, 1, 1)),
        ("same_pads('SAME_LOWER', (1, 3, n), (2,), (1,), (1,))", (1, 0)),
        ("same_pads('VALID', (1, 3, n), (2,), (1,), (1,))", (0, 0)),
    ],
)
def test_functions(call: str, result: object) -> None:
    assert eval(call, {}, {**FUNCTIONS, "n": n, "m": m, "END": END}) == result


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("int(1.5)", ValueError),
        ("power(2, 10 ** 9)", ValueError),
        ("fill(10 ** 9, 0)", ValueError),
        ("range(10 ** 9)", ValueError),
        ("flat(fill(60000, fill(60000, 0)))", ValueError),
        ("multiply((0,), 10 ** 9)", ValueError),
        ("power(-1.0, 0.5)", ValueError),
        ("min(())", ValueError),
        ("index((1, 2), 3)", ValueError),
        ("axis(3, 3)", ValueError),
        ("compose((0, 1), (0, 1, 2))", ValueError),
        ("compose((0, 0), (0, 1))", ValueError),
        ("unsqueeze((n,), (0, 0))", ValueError),
        ("target((n, m))", Unknown),
        ("target((n, 0))", Unknown),
        ("target_from(((m, n), (n, m)))", Unknown),
        ("target_from(((n, 6 * m, 2), (n, m, 12)))", Unknown),
        ("target_from(((n, m, 0), (n, m, 0)))", Unknown),
        ("max(n, m)", Unknown),
        ("fits((n,), (m,))", Unknown),
        ("slice_size(0, 3, 1, n)", Unknown),
        ("same_pads('SAME_UPPER', (1, 3, n), (2,), (2,), (1,))", Unknown),
        ("same_pads('SAME', (1, 3, n), (2,), (2,), (1,))", ValueError),
        ("compose_slices((8,), (1,), (5,), (0,), (-1,), (0,), (2,), (0,), (1,))", ValueError),
        ("compose_slices((n,), (-3,), (5,), (0,), (1,), (0,), (2,), (0,), (1,))", Unknown),
    ],
)
def test_what_has_no_answer_raises(call: str, error: type[Exception]) -> None:
    names = {**FUNCTIONS, "n": n, "m": m, "power": FUNCTIONS["**"], "multiply": FUNCTIONS["*"]}
    with pytest.raises(error):
        eval(call, {}, names)


def test_permutations_are_those_of_transpose() -> None:
    x = np.zeros((2, 3, 4))
    f = FUNCTIONS
    for p, q in itertools.product(itertools.permutations(range(3)), repeat=2):
        assert x.transpose(p).transpose(q).shape == x.transpose(f["compose"](p, q)).shape
        assert f["permute"](x.shape, p) == x.transpose(p).shape
        assert f["unpermute"](f["permute"](x.shape, p), p) == x.shape
        assert f["compose"](p, f["invert"](p)) == (0, 1, 2)
        narrow = np.zeros((2, 1, 4)).transpose(p)
        squeezed = f["squeeze_perm"](p, (1,))
        assert narrow.squeeze(p.index(1)).shape == np.zeros((2, 4)).transpose(squeezed).shape
        wide = np.expand_dims(x.transpose(p), 1)
        assert wide.shape == np.expand_dims(x, 1).transpose(f["unsqueeze_perm"](p, (1,))).shape


def test_composed_slices_take_what_two_slices_take() -> None:
    x = np.arange(12)
    starts, ends, steps = (0, 2, -5), (5, 20, -2), (1, 2)
    for s1, e1, t1, s2, e2, t2 in itertools.product(starts, ends, steps, starts, ends, steps):
        made = FUNCTIONS["compose_slices"]((12,), (s1,), (e1,), (0,), (t1,), (s2,), (e2,), (0,), (t2,))
        (start,), (end,), (axis,), (step,) = made
        assert axis == 0
        assert list(x[start:end:step]) == list(x[s1:e1:t1][s2:e2:t2])


def test_slices_of_symbolic_axes_compose_where_they_count_from_the_front() -> None:
    compose = FUNCTIONS["compose_slices"]
    assert compose((n, m), (1,), (END,), (0,), (1,), (2,), (4,), (0,), (1,)) == ((3,), (5,), (0,), (1,))
    assert compose((n, m), (1,), (END,), (0,), (1,), (2,), (4,), (1,), (3,)) == ((1, 2), (END, 4), (0, 1), (1, 3))


def test_each_function_says_in_one_line_what_it_is() -> None:
    for name, function in FUNCTIONS.items():
        assert getdoc(function).splitlines()[0].endswith("."), name


def test_arity() -> None:
    assert arity("compose") == (2, 2)
    assert arity("near") == (2, 3)
    assert arity("min") == (1, 100)
