import pytest

from graphopt.runtime import bytecode
from graphopt.runtime.layout import HostBranch, HostLoop, Native, Pause, lay_out
from graphopt.runtime.program import Bind, Branch, BufferRef, HostStep, LoopStep, ProgramBuffer
from graphopt.runtime.steps import Launch, LibraryStep
from tests.runtime.programs import code, floats, scale

BUFFERS = [
    floats("input", "n"),
    floats("arena", "n"),
    floats("host", "k"),
    ProgramBuffer("int64", (), "arena"),
    ProgramBuffer("bool", (), "arena"),
    ProgramBuffer("float32", (1,), "view", of=1, offset=("*", 4, "n")),
]
NO_K = [*BUFFERS[:2], ProgramBuffer("float32", None, "host"), *BUFFERS[3:]]
A, B = scale(0, 1, 1, 1), scale(1, 0, 2, 1)


def test_native_steps_are_one_stretch_of_instructions() -> None:
    loop = LoopStep((A, Branch(4, (B,), (A,))), counter=3, count="n", condition=4)
    layout = lay_out(code(NO_K, [A, loop, B], {"x": 0}, {}))
    assert layout.stages == (Native(0, len(layout.instructions)),)
    names = [row[0] for row in layout.instructions]
    call, jump, unless = bytecode.CALL, bytecode.JUMP, bytecode.UNLESS
    assert names == [
        *(call, bytecode.SET, bytecode.NOT_BELOW, unless),
        *(call, unless, call, jump, call),
        *(bytecode.ADD, jump, call),
    ]
    targets = {at: row[1] for at, row in enumerate(layout.instructions) if row[0] in (jump, unless, bytecode.NOT_BELOW)}
    assert targets == {2: 11, 3: 11, 5: 8, 7: 9, 10: 2}
    assert list(layout.calls) == [0, 4, 6, 8, 11]


def test_python_splits_stretches_and_opens_levels() -> None:
    host = HostStep("f", (0,), (2,), binds=(("k", 0, 0),))
    bind = Bind(("m",), 3)
    steps = [
        A,
        host,
        scale(2, 1, 1, 1, "k"),
        Branch(4, (bind, scale(0, 1, 1, 1, "m"))),
        LoopStep((A, host_again := HostStep("f", (0,), (1,))), 3),
    ]
    layout = lay_out(code(BUFFERS, steps, {"x": 0}, {}))
    assert layout.levels == (("n",), ("k",), ("m",))
    assert layout.stages == (
        Native(0, 1),
        Pause(host, 1),
        Native(1, 2),
        HostBranch(steps[3], (Pause(bind, 2), Native(2, 3)), ()),  # type: ignore[arg-type]
        HostLoop(steps[4], (Native(3, 4), Pause(host_again, None))),  # type: ignore[arg-type]
    )
    levels = [[w.level for w in layout.words[row[2] : row[3] + 1]] for row in layout.instructions]
    assert levels == [[0] * 6, [1, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 2], [0] * 6]


def test_views_are_addresses_in_what_they_view() -> None:
    layout = lay_out(code(NO_K, [scale(5, 1, 1, 1)], {"x": 0}, {}))
    assert (layout.words[0].root, layout.words[0].offset) == (1, ("*", 4, "n"))
    assert layout.roots == (0, 1, 2, 3, 4, 1)


def test_programs_of_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing binds the symbol 'k'"):
        lay_out(code(BUFFERS, [], {"x": 0}, {}))
    bind = Bind(("k",), 3)
    with pytest.raises(ValueError, match="the symbol 'k' is bound twice"):
        lay_out(code(NO_K, [bind, bind], {"x": 0}, {}))
    for of in (None, 0):
        with pytest.raises(ValueError, match="buffer 0 is a view of nothing"):
            lay_out(code([ProgramBuffer("float32", (), "view", of=of)], [], {}, {}))


def test_branches_that_find_the_same_sizes_out_share_a_level() -> None:
    bind, use = Bind(("m",), 3), scale(0, 1, 1, 1, "m")
    layout = lay_out(code(NO_K, [Branch(4, (bind, use), (bind, use)), bind, use], {"x": 0}, {}))
    assert layout.levels == (("n",), ("m",))
    both, again, _ = layout.stages
    assert isinstance(both, HostBranch)
    assert both.then[0] == both.otherwise[0] == again == Pause(bind, 1)
    with pytest.raises(ValueError, match="'m' is used where it is not yet bound"):
        lay_out(code(NO_K, [Branch(4, (bind,), (use,))], {"x": 0}, {}))


def test_symbols_are_not_used_before_they_are_bound() -> None:
    host, bind, use = HostStep("f", (0,), (2,), binds=(("k", 0, 0),)), Bind(("m",), 3), scale(0, 1, 1, 1, "m")
    wrong = [[use, bind, host], [Branch(4, (bind,)), use, host], [HostStep("f", (2,), (0,)), host, bind]]
    for steps, symbol in zip(wrong, "mmk", strict=True):
        with pytest.raises(ValueError, match=f"the symbol '{symbol}' is used where it is not yet bound"):
            lay_out(code(BUFFERS, steps, {"x": 0}, {}))  # type: ignore[arg-type]
    lay_out(code(BUFFERS, [host, bind, use], {"x": 0}, {}))


def test_a_device_has_its_arguments_and_grid_in_words_and_leaves_control_to_python() -> None:
    launch = Launch(7, (BufferRef(0), BufferRef(1, 8), "n"), ("n", 2, 1), (32, 1, 1))
    product = LibraryStep("gemm", (BufferRef(0), 3))
    loop = LoopStep((launch,), 3, 2)
    layout = lay_out(code(NO_K, [launch, product, loop, Branch(4, ())], {"x": 0}, {}), is_driven=False)
    assert layout.stages == (Native(0, 2), HostLoop(loop, (Native(2, 3),)), HostBranch(Branch(4, ()), (), ()))
    assert layout.launches == {0: launch, 1: product, 2: launch}
    assert [row[1:3] for row in layout.instructions] == [(7, 0), (0, 6), (7, 8)]
    words = [(w.root, w.offset) for w in layout.words[:8]]
    assert words == [(0, 0), (1, 8), (None, "n"), (None, "n"), (None, 2), (None, 1), (0, 0), (None, 3)]


def test_each_runs_its_own_steps_only() -> None:
    launch = Launch(0, (BufferRef(0),), (1, 1, 1), (1, 1, 1))
    with pytest.raises(ValueError, match="no driver runs this step: Launch"):
        lay_out(code(NO_K, [Branch(4, (launch,))], {"x": 0}, {}))
    with pytest.raises(ValueError, match="no device runs this step: KernelStep"):
        lay_out(code(NO_K, [A], {"x": 0}, {}), is_driven=False)
