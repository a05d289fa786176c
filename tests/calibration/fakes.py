"""A runtime whose kernels take what a test says, whatever the clock says."""

from collections.abc import Callable
from dataclasses import dataclass, field

import onnx

from graphopt.verify.runtimes import EngineError, Feeds, ProfiledKernel

Price = Callable[[onnx.NodeProto], float]


@dataclass
class FakeProfiler:
    """Runs nothing; each node of a model takes what ``price`` says, and ``noise`` in the first of four runs more."""

    price: Price
    runtime: str = "Fake 1.0"
    threads: int = 1
    noise: float = 0.0
    refused: frozenset[str] = frozenset()
    seen: list[onnx.ModelProto] = field(default_factory=list)

    def profile(
        self, model: bytes, feeds: Feeds, seconds: float, runs: tuple[int, int], warm: int
    ) -> list[list[ProfiledKernel]]:
        proto = onnx.load_model_from_string(model)
        self.seen.append(proto)
        if self.refused & {node.op_type for node in proto.graph.node}:
            raise EngineError("cannot")
        assert set(feeds) == {x.name for x in proto.graph.input}
        return [
            [
                ProfiledKernel(n.name, n.op_type, self.price(n) + (self.noise if i % 4 == 0 else 0.0))
                for n in proto.graph.node
            ]
            for i in range(8)
        ]
