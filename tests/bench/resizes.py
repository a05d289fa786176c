"""Times cubic Resizes in ONNX Runtime beside the products that they are written as for it, in turns.

    python tests/bench/resizes.py [--target ort]

A row is an image [n, channels, height, width], the size that it takes, microseconds of the Resize, nanoseconds for each
element of its result, microseconds of what ``graphopt optimize`` makes of it, and how many times faster that is.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from turns import burst, least

import graphopt
from graphopt.benchmark.bench import ENGINES

SECONDS, ROUNDS = 0.1, 10
CASES = (
    ((1, 3, 37, 45), (42, 49)),
    ((1, 64, 37, 37), (24, 32)),
    ((1, 384, 37, 37), (24, 32)),
    ((1, 64, 32, 32), (64, 64)),
    ((1, 3, 64, 64), (256, 256)),
    ((1, 1, 256, 256), (224, 224)),
    ((1, 3, 512, 512), (224, 224)),
)


def resized(shape: tuple[int, ...], size: tuple[int, int]) -> onnx.ModelProto:
    """A cubic Resize to a size."""
    whole = (*shape[:2], *size)
    node = helper.make_node("Resize", ["x", "", "", "size"], ["y"], mode="cubic")
    graph = helper.make_graph(
        [node],
        "resized",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, whole)],
        [numpy_helper.from_array(np.array(whole), "size")],
    )
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", default="ort")
    target = parser.parse_args().target
    random = np.random.default_rng(0)
    print(f"{'image':20} {'size':12} {'Resize':>10} {'each':>9} {target:>10} {'faster':>7}")
    with TemporaryDirectory() as folder:
        for shape, size in CASES:
            before, after = Path(folder, "before.onnx"), Path(folder, "after.onnx")
            onnx.save(resized(shape, size), before)
            graphopt.optimize(before, output=after, target=target)
            feeds = {"x": random.standard_normal(shape, np.float32)}
            calls = [partial(ENGINES["ort"](str(path), 1), feeds) for path in (before, after)]
            first, second = least(*(partial(burst, call, SECONDS) for call in calls), rounds=ROUNDS)
            each = first / (shape[0] * shape[1] * size[0] * size[1])
            print(
                f"{shape!s:20} {size!s:12} {first * 1e6:7.0f} us {each * 1e9:6.0f} ns {second * 1e6:7.0f} us"
                f" {first / second:6.1f}x",
                flush=True,
            )


if __name__ == "__main__":
    main()
