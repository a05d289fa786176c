"""Executors of measurements: processes of this machine, workers of a dask cluster, or any executor that a user brings.

A worker may be lost at any moment. Another one then measures its candidate, and results of finished ones stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ThreadPoolExecutor
from time import monotonic
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, TypeAlias, TypeVar

from graphopt.errors import ExecutionError, GraphoptError, MissingDependencyError, UsageError
from graphopt.runtime import cpu
from graphopt.tuning.measuring import LIMIT, measure
from graphopt.tuning.processes import kill_all, one_line
from graphopt.tuning.record import Candidate, Outcome

P = ParamSpec("P")
R = TypeVar("R")
G = TypeVar("G")

Measure: TypeAlias = Callable[[Candidate, float], Outcome]

SCHEME: Final = "dask://"
TRIES: Final = 3
"""How often a candidate is given to workers that are lost: it may be what they die of."""
_PATIENCE: Final = "5s"
"""How long a cluster has to answer."""

_SOON: Final = 0.05
"""Seconds in which what is interrupted ends."""


def executor_named(text: str | None = None) -> Executor:
    """What measures: this machine where nothing is said, or a cluster, as in ``dask://HOST:PORT``.

    Raises UsageError for anything else and where no cluster answers there, MissingDependencyError where dask is not
    installed. To be shut down; a context manager does.

    >>> with tuning.executor_named() as executor:
    ...     print(executor.workers)
    1
    """
    if text is None:
        return Here()
    address = text.removeprefix(SCHEME)
    host, _, port = address.rpartition(":")
    if not (text.startswith(SCHEME) and host and port.isdigit()):
        raise UsageError(f"executor {text!r}: expected {SCHEME}HOST:PORT, the address of a cluster's scheduler")
    return Cluster(f"tcp://{address}")


class Here(ThreadPoolExecutor):
    """Builds in several processes of this machine at once, and measures in one."""

    workers: Final = 1
    """How many measure at once."""

    def __init__(self, jobs: int | None = None) -> None:
        """``jobs`` candidates are built at once (None: one for each core)."""
        super().__init__(jobs or cpu.cores(), "measure")
        self._futures: set[Future[Any]] = set()

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Have the function called."""
        future = super().submit(fn, *args, **kwargs)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.shutdown(cancel_futures=kind is not None)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for what is under way; where what waits is cancelled, end that too."""
        super().shutdown(False, cancel_futures=cancel_futures)
        while cancel_futures and futures.wait(tuple(self._futures), _SOON).not_done:
            kill_all()  # what is under way may go on to start another process
        super().shutdown(wait)


class Cluster(Executor):
    """The workers of a dask cluster."""

    def __init__(self, address: str) -> None:
        """``address`` is the scheduler's. Raises as ``executor_named``."""
        try:
            import distributed
        except ImportError:
            raise MissingDependencyError(
                "distributed is not installed, and speaks to dask clusters: pip install 'graphopt[dask]'"
            ) from None
        try:
            logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # what goes wrong is raised
            client: Callable[..., Any] = distributed.Client
            self._client = client(address, timeout=_PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UsageError(f"no scheduler of a dask cluster answers at {address}: {one_line(error)}") from None
        self._address = address
        self._executor = self._client.get_executor(retries=0)

    @property
    def workers(self) -> int:
        """How many measure at once now; those of one machine take turns."""
        return len(self._client.scheduler_info(n_workers=-1)["workers"])

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Have a worker call the function. Raises BrokenExecutor where the scheduler is gone."""
        if self._client.status != "running":
            raise BrokenExecutor(f"the scheduler at {self._address} is gone")
        submitted: Future[R] = self._executor.submit(fn, *args, **kwargs)
        return submitted

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for what is under way, or have all of it cancelled; the cluster itself stays."""
        self._executor.shutdown(wait and not cancel_futures)
        self._client.close()


def workers(executor: Executor) -> int:
    """How many candidates an executor measures at once, where it tells."""
    return executor.workers if isinstance(executor, Here | Cluster) else 1


def outcomes(
    executor: Executor,
    candidates: Iterable[Candidate],
    limit: float = LIMIT,
    measuring: Measure = measure,
    until: float | None = None,
) -> Iterator[tuple[Candidate, Outcome]]:
    """The candidates with what came of them, as they are done; of those that are done by the time ``until``, as
    ``time.monotonic`` has it, if there is one.

    One whose worker is lost is handed over anew, a few times, and has the problem ``lost`` then. Where the executor
    takes nothing any more, ExecutionError is raised once all that was done is told; and so are errors that no candidate
    causes, such as a cache that cannot be written. When KeyboardInterrupt comes, what waits is cancelled, what is done
    is told, and it is raised again.
    """
    return results(executor, candidates, measuring, (limit,), _lost, until)


def results(
    executor: Executor,
    given: Iterable[G],
    call: Callable[..., R],
    arguments: tuple[Any, ...],
    lost: Callable[[str], R],
    until: float | None = None,
) -> Iterator[tuple[G, R]]:
    """What a call gives for each of several things and further arguments, with the thing: ``outcomes`` of anything.
    ``lost`` makes a result of the reason why there is none."""
    handed: _Handed[G, R] = _Handed(executor, call, arguments, lost)
    try:
        for one in given:
            handed.hand(one)
        while handed.waiting:
            left = None if until is None else max(until - monotonic(), 0)
            done = futures.wait(handed.waiting, left, FIRST_COMPLETED).done
            yield from handed.told(done, again=left != 0)
            if left == 0:
                break
    except KeyboardInterrupt:
        yield from handed.told({future for future in handed.waiting if future.done()}, again=False)
        raise
    finally:
        handed.cancel()
    if handed.error is not None:
        raise handed.error


def _lost(reason: str) -> Outcome:
    return Outcome(problem=f"lost: {reason}")


class _Handed(Generic[G, R]):
    """Things in the hands of an executor."""

    def __init__(
        self, executor: Executor, call: Callable[..., R], arguments: tuple[Any, ...], lost: Callable[[str], R]
    ) -> None:
        self._executor, self._arguments, self._call, self._lost = executor, arguments, call, lost
        self.waiting: dict[Future[R], tuple[G, int]] = {}
        self.error: GraphoptError | None = None
        """What is wrong with those who do it."""

    def hand(self, given: G, count: int = 1) -> None:
        """Hand one over, for the first time or once more."""
        try:
            future = self._executor.submit(self._call, given, *self._arguments)
        except Exception as error:  # executors have exceptions of their own
            reason = f"{type(error).__name__}: {one_line(error)}"
            self.error = self.error or ExecutionError(f"no more candidates can be measured: {reason}")
        else:
            self.waiting[future] = given, count

    def told(self, done: Iterable[Future[R]], again: bool = True) -> Iterator[tuple[G, R]]:
        """What came of those that are done; those whose worker was lost are handed over ``again``."""
        for future in done:
            given, count = self.waiting.pop(future)
            try:
                result = future.result()
            except GraphoptError as error:
                self.error = self.error or error
            except Exception as error:  # each kind of executor has its own for a worker that is lost
                if count == TRIES:
                    yield given, self._lost(f"{type(error).__name__}: {one_line(error)}")
                elif again:
                    self.hand(given, count + 1)
            else:
                yield given, result

    def cancel(self) -> None:
        """Nobody wants what waits any more."""
        for future in self.waiting:
            future.cancel()
