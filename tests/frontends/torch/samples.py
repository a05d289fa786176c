"""Samples of torch's operators, by torch's own generator, and what graphs make of them by each door."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pytest

import graphopt
from graphopt.errors import GraphoptError, TranslationError, UsageError
from graphopt.ir.evaluate import run
from graphopt.ir.onnx_io import to_proto
from tests.frontends.torch.layouts import LAYOUTS, compare

torch: Any = pytest.importorskip("torch")

from graphopt.frontends.torch.tensors import array_of  # noqa: E402

SAMPLES = {"float32": 6, "int64": 3, "bool": 2}
"""How many samples there are of a dtype."""
MOST = 1 << 17
"""How many elements the inputs of a sample may have: ONNX's reference computes some operators one by one."""
SEED = 0
PLACES_OF_EQUALS = {"kthvalue", "median", "nanmedian", "mode", "masked.median", "msort", "sort", "topk"}
"""Operators that say where an element is, which torch leaves open where several are equal: not compared."""


@dataclass(frozen=True)
class Operator:
    """An operator of torch, a variant of its arguments, and a dtype of its samples."""

    name: str
    variant: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.of_all}-{self.dtype}"

    @property
    def of_all(self) -> str:
        """Its name, whatever the dtype is."""
        return "-".join(part for part in (self.name, self.variant) if part)

    @property
    def info(self) -> Any:
        """What torch's tests know of it."""
        return _infos()[self.name, self.variant]

    def samples(self) -> list[Sample]:
        """Some samples, by a seed, that torch takes, computes alike each time, and gives tensors for."""
        if "empty" in self.name:  # whatever is in memory
            return []
        for seed in (torch.manual_seed, random.seed, np.random.seed):
            seed(SEED)
        found = list(self.info.sample_inputs("cpu", getattr(torch, self.dtype), requires_grad=False))
        random.Random(f"{SEED} {self}").shuffle(found)
        samples: list[Sample] = []
        for given in found:
            if len(samples) == SAMPLES[self.dtype]:
                break
            sample = Sample(self, (given.input, *given.args), dict(given.kwargs), len(samples) % 2 == 1)
            if sample.is_function():
                samples.append(sample)
        if len(samples) == 1:
            samples += [s for s in [Sample(self, samples[0].args, samples[0].kwargs, True)] if s.is_function()]
        return samples


class Sample:
    """One call of an operator. ``is_transposed`` is whether the tensors lie transposed in memory."""

    def __init__(self, operator: Operator, args: Any, kwargs: Any, is_transposed: bool) -> None:
        self.operator, self.args, self.kwargs = operator, args, kwargs
        self._flat, self._tree = torch.utils._pytree.tree_flatten((args, kwargs))
        self._places = [k for k, x in enumerate(self._flat) if isinstance(x, torch.Tensor)]
        lay = LAYOUTS["transposed"] if is_transposed else lambda x: x
        self.inputs = tuple(lay(self._flat[k].detach().clone()) for k in self._places)

    def __str__(self) -> str:
        shapes = ", ".join(f"{x.dtype}{tuple(x.shape)}{x.stride()}".removeprefix("torch.") for x in self.inputs)
        others = [x for x in self._flat if not isinstance(x, torch.Tensor) and x is not None]
        return f"{self.operator}({shapes}; {others} {list(self.kwargs)})"

    def __call__(self, *tensors: Any) -> list[Any]:
        """The tensors among the results for these inputs."""
        flat = list(self._flat)
        for k, x in zip(self._places, tensors, strict=True):
            flat[k] = x
        args, kwargs = torch.utils._pytree.tree_unflatten(flat, self._tree)
        results = torch.utils._pytree.tree_leaves(self.operator.info.op(*args, **kwargs))
        tensors = [r for r in results if isinstance(r, torch.Tensor)]
        return tensors[:1] if self.operator.name in PLACES_OF_EQUALS else tensors

    def is_function(self) -> bool:
        """Whether the results are dense tensors that depend on inputs of bounded size alone, which stay as they are."""
        if not all(_is_plain(x) for x in self.inputs) or sum(x.numel() for x in self.inputs) > MOST:
            return False
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                given = [x.clone() for x in self.inputs]
                torch.manual_seed(1)
                first = self(*given)
                if not all(torch.equal(_bits(a), _bits(b)) for a, b in zip(given, self.inputs, strict=True)):
                    return False
                torch.manual_seed(2)
                second = self(*self.inputs)
            except (RuntimeError, ValueError, IndexError, TypeError, AssertionError):  # one kind for each device
                return False
        same = all(torch.equal(_bits(a), _bits(b)) for a, b in zip(first, second, strict=True) if _is_plain(a))
        return bool(first) and all(map(_is_plain, first)) and same


def _is_plain(x: Any) -> bool:
    return x.layout is torch.strided and not x.is_complex() and not x.is_quantized


def _bits(x: Any) -> Any:
    return x.nan_to_num(nan=1.25) if x.is_floating_point() else x


class Calls(torch.nn.Module):  # type: ignore[misc]
    """A module that makes the calls of samples, one after the other."""

    def __init__(self, samples: list[Sample]) -> None:
        super().__init__()
        self.samples = samples

    @property
    def inputs(self) -> tuple[Any, ...]:
        return tuple(x for sample in self.samples for x in sample.inputs)

    def forward(self, *tensors: Any) -> Any:
        rest = iter(tensors)
        return [r for s in self.samples for r in s(*(next(rest) for _ in s.inputs))]


@cache
def _infos() -> dict[tuple[str, str], Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {(info.name, info.variant_test_name): info for info in reversed(op_db)}


def operators() -> list[Operator]:
    """Each operator that torch's generator knows, for each dtype that it takes."""
    return [
        Operator(name, variant, dtype)
        for (name, variant), info in sorted(_infos().items())
        for dtype in SAMPLES
        if getattr(torch, dtype) in info.dtypes
    ]


def verdicts(operator: Operator) -> Iterator[tuple[Sample, str, str]]:
    """Of each sample: "right", "refused" or "left out" (no function of its inputs that torch exports), and why.

    AssertionError and others where it is none of these.
    """
    samples = operator.samples()
    try:
        check(samples)
    except (GraphoptError, AssertionError):
        for sample in samples:
            yield sample, *verdict(sample)
    else:
        yield from ((sample, "right", "") for sample in samples)


def verdict(sample: Sample) -> tuple[str, str]:
    """What becomes of one call, and why."""
    try:
        check([sample])
    except TranslationError as error:  # a UsageError, too
        target = getattr(error.node, "target", None)
        is_random = torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
        is_no_function = is_random or "the module changes its" in str(error)
        return "left out" if is_no_function else "refused", str(error)
    except UsageError as error:
        return "left out" if "torch.export cannot export" in str(error) else "refused", str(error)
    return "right", ""


def check(samples: list[Sample]) -> None:
    """Hold calls in one graph to torch: the graph itself, and optimized."""
    if not samples:
        return
    graph, feeds, wanted = _exported(samples)
    compare("from_torch", run(graph, feeds).values(), wanted)
    optimized = graphopt.optimize(graph, verify=False)
    if _by_runtime(optimized, feeds, wanted):
        compare("optimize", run(optimized, feeds).values(), wanted)
        assert _by_runtime(graph, feeds, wanted), "optimize: the runtime computes the graph as it was"


def check_compiled(sample: Sample) -> None:
    """Hold a call to torch, as a program."""
    graph, feeds, wanted = _exported([sample])
    compare("compile", graphopt.compile(graph, verify=False)(feeds).values(), wanted)


def _exported(samples: list[Sample]) -> tuple[graphopt.Graph, dict[str, Any], list[Any]]:
    """The graph of calls, the arrays that it takes, and what torch gives."""
    module = Calls(samples)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        graph = graphopt.from_torch(module, module.inputs)
        wanted = [array_of(r) for r in module(*module.inputs)]
    names = [graph.names[v] for v in graph.inputs]
    return graph, {n: array_of(x.contiguous()) for n, x in zip(names, module.inputs, strict=True)}, wanted


def _by_runtime(graph: graphopt.Graph, feeds: dict[str, Any], wanted: list[Any]) -> str:
    """Why ONNX Runtime does not give what is wanted; "" where it does."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(to_proto(graph).SerializeToString(), options)
        compare("the runtime", session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()}), wanted)
    except Exception as error:  # the runtime has kinds of its own
        return str(error) or type(error).__name__
    return ""
