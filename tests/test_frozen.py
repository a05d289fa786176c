"""What ours make is what ``dataclasses`` makes."""

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pytest

from graphopt import frozen

T = TypeVar("T")


@frozen.dataclass(frozen=True, slots=True)
class Point:
    """Slots, defaults, and a factory."""

    x: int
    y: int = 2
    tags: tuple[str, ...] = ()
    seen: list[int] = dataclasses.field(default_factory=list, compare=False, repr=False)


def classes(dataclass: Callable[..., Any]) -> dict[str, Any]:
    """The same classes, made by either."""

    @dataclass(frozen=True, slots=True)
    class Slotted:
        a: int
        b: str = "b"
        c: list[int] = dataclasses.field(default_factory=list, hash=False)
        d: int = dataclasses.field(default=1, compare=False, repr=False)

    @dataclass(frozen=True)
    class Plain(Generic[T]):
        """Without slots."""

        a: T
        b: int = 3

        def __repr__(self) -> str:
            return "its own"

    @dataclass(frozen=True)
    class Inner(Plain[int]):
        c: int = 4
        d: int = dataclasses.field(default=5, init=False)

    @dataclass(frozen=True, eq=False)
    class Same:
        a: int

    @dataclass(frozen=True, kw_only=True)
    class Named:
        a: int
        b: int = 2

        def __hash__(self) -> int:
            return 7

    @dataclass(frozen=True)
    class Counted:
        a: int
        total: int = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.a + 1)

    @dataclass(frozen=True, order=True)
    class Ordered:
        a: int

    @dataclass
    class Open:
        a: int

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    return dict(locals())


OURS, THEIRS = classes(frozen.dataclass), classes(dataclasses.dataclass)
GIVEN = {
    "Slotted": [(1,), (1, "c"), (1, "b", [3], 9)],
    "Plain": [(1,), ("x", 4)],
    "Inner": [(1,), (1, 2, 3)],
    "Same": [(1,)],
    "Named": [()],
    "Counted": [(1,), (2,)],
    "Ordered": [(1,), (2,)],
    "Open": [(1,)],
    "Empty": [()],
}
CASES = [(name, arguments) for name, several in GIVEN.items() for arguments in several]


def made(classes: dict[str, Any], name: str, arguments: tuple[object, ...]) -> Any:
    return classes[name](*arguments, **({"a": 1} if name == "Named" else {}))


def hashed(value: object) -> object:
    try:
        return hash(value)
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_instances_are_those_of_dataclasses(name: str, arguments: tuple[object, ...]) -> None:
    ours, theirs = made(OURS, name, arguments), made(THEIRS, name, arguments)
    assert repr(ours) == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    if name != "Same":
        assert hashed(ours) == hashed(theirs)
    assert ours != theirs
    twin = made(OURS, name, arguments)
    assert (ours == twin) == (theirs == made(THEIRS, name, arguments))
    assert copy.copy(ours) == ours or name == "Same"
    assert hasattr(ours, "__dict__") == hasattr(theirs, "__dict__")
    others = [made(OURS, n, a) for n, a in CASES if n == name]
    expected = [made(THEIRS, n, a) == theirs for n, a in CASES if n == name]
    assert [o == ours for o in others] == expected


@pytest.mark.parametrize("name", GIVEN)
def test_classes_are_those_of_dataclasses(name: str) -> None:
    ours, theirs = OURS[name], THEIRS[name]
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__init__.__module__ == theirs.__init__.__module__
    assert ours.__init__.__qualname__.endswith(f"{name}.__init__")
    assert [(f.name, f.default, f.init, f.compare) for f in dataclasses.fields(ours)] == [
        (f.name, f.default, f.init, f.compare) for f in dataclasses.fields(theirs)
    ]
    assert getattr(ours, "__slots__", None) == getattr(theirs, "__slots__", None)


@pytest.mark.parametrize("name", sorted({*GIVEN} - {"Open", "Empty"}))
def test_nothing_is_assigned(name: str) -> None:
    for classes_ in (OURS, THEIRS):
        value = made(classes_, name, GIVEN[name][0])
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
            value.a = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'a'"):
            del value.a


@pytest.mark.parametrize("wrong", [(), (1, 2, 3, 4, 5)])
def test_wrong_arguments_are_refused(wrong: tuple[int, ...]) -> None:
    with pytest.raises(TypeError, match="argument"):
        Point(*wrong)


def test_copies_and_pickles() -> None:
    point = Point(1, tags=("a",), seen=[1])
    for twin in (pickle.loads(pickle.dumps(point)), copy.deepcopy(point), dataclasses.replace(point)):
        assert twin == point
        assert twin.seen == [1]
    assert dataclasses.replace(point, y=5) == Point(1, 5, ("a",))
    assert Point(1).seen is not Point(1).seen


@pytest.mark.parametrize("first", [frozen.dataclass, dataclasses.dataclass])
@pytest.mark.parametrize("second", [frozen.dataclass, dataclasses.dataclass])
def test_classes_inherit_from_each_other(first: Callable[..., Any], second: Callable[..., Any]) -> None:
    @first(frozen=True)
    class Above:
        a: int

    @second(frozen=True)
    class Below(Above):
        b: int = 2

    assert (Below(1), hash(Below(1))) == (Below(1, 2), hash((1, 2)))
    with pytest.raises(dataclasses.FrozenInstanceError, match="'b'"):
        Below(1).b = 3

    @dataclasses.dataclass
    class Open:
        a: int

    with pytest.raises(TypeError, match="non-frozen"):
        second(frozen=True)(type("Wrong", (Open,), {"__annotations__": {"b": int}}))


def test_patterns_take_fields_by_place() -> None:
    match Point(1, 3):
        case Point(x, y):
            assert (x, y) == (1, 3)


def test_what_sets_compares_and_hashes_fields_is_all_that_is_compiled_and_when_it_is_called() -> None:
    """As the interpreter's own audit counts it, in a process of its own."""
    program = """
import dataclasses, sys
from graphopt import frozen

compiled = []
sys.addaudithook(lambda event, arguments: compiled.append(event) if event == "exec" else None)

def count(dataclass):
    namespace = {"__annotations__": dict.fromkeys("ab", int), "__doc__": "", "__module__": __name__}
    made = dataclass(frozen=True, slots=True)(type("Made", (), namespace))
    counts = [len(compiled)]
    for use in (lambda x: x, lambda x: x == made(1, 2), hash):
        for k in range(2):
            use(made(k, 2))
            counts.append(len(compiled))
    compiled.clear()
    return counts

print(count(frozen.dataclass), min(count(dataclasses.dataclass)) > 1)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[0, 1, 1, 2, 2, 3, 3] True\n"
