"""Which streams wait for which: stand-ins for streams and events note what they are asked for."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cupy")
import cupy

from graphopt.kernels.cuda import callers
from graphopt.kernels.cuda.callers import Callers, stream_of

NOTES: list[str] = []


class Stream:
    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    def wait_event(self, event: Any) -> None:
        NOTES.append(f"{self.ptr} waits for {event.recorded}")

    def synchronize(self) -> None:
        NOTES.append(f"the host waits for {self.ptr}")


class Event:
    def __init__(self, disable_timing: bool) -> None:
        assert disable_timing

    def record(self, stream: Stream) -> None:
        self.recorded = stream.ptr


OWN, CURRENT = Stream(3), Stream(0)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callers:
    cuda = SimpleNamespace(Event=Event, ExternalStream=Stream, get_current_stream=lambda: CURRENT)
    monkeypatch.setattr(callers, "cupy", SimpleNamespace(cuda=cuda, ndarray=cupy.ndarray))
    return Callers(OWN)


def order(made: Callers, *arrays: Any) -> list[str]:
    """What is noted of a call with these arrays."""
    NOTES.clear()
    made.begin()
    for array in arrays:
        made.add(array)
    made.follow()
    NOTES.append("call")
    made.end()
    return list(NOTES)


def torch_on(stream: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A tensor of torch's, whose current stream is this one."""
    torch: Any = ModuleType("torch")
    torch.Tensor = type("Tensor", (), {"device": "cuda:0"})
    torch.cuda = SimpleNamespace(current_stream={"cuda:0": SimpleNamespace(cuda_stream=stream)}.__getitem__)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch.Tensor()


def test_a_call_comes_between_what_its_caller_asks_for_before_and_after(made: Callers) -> None:
    assert order(made) == ["3 waits for 0", "call", "0 waits for 3"]


def test_torchs_side_stream_waits_and_is_waited_for(made: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch_on(7, monkeypatch)
    both = ["3 waits for 0", "3 waits for 7", "call", "0 waits for 3", "7 waits for 3"]
    assert order(made, tensor, tensor) == both
    assert order(made) == ["3 waits for 0", "call", "0 waits for 3"]  # nothing is left of the call before
    assert order(made, torch_on(0, monkeypatch)) == ["3 waits for 0", "call", "0 waits for 3"]


def test_the_stream_that_an_array_names(made: Callers) -> None:
    array = SimpleNamespace(__cuda_array_interface__={"version": 3, "stream": 2})
    assert order(made, array)[1] == "3 waits for 2"
    assert order(made, array)[-1] == "2 waits for 3"


def test_where_nobody_names_a_stream_the_call_is_waited_for(made: Callers) -> None:
    for array in (SimpleNamespace(), SimpleNamespace(__cuda_array_interface__={"version": 3, "stream": None})):
        assert stream_of(array) is None
        assert order(made, array) == ["3 waits for 0", "call", "0 waits for 3", "the host waits for 3"]
