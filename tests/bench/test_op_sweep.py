"""The sweep over ops draws the same instances each time, of every op, and makes its page of results."""

from __future__ import annotations

import numpy as np

from tests.bench import op_sweep
from tests.recipes import instances


def test_instances_are_the_same_each_time() -> None:
    for op in ("Conv", "Softmax", "com.microsoft::QLinearAdd"):
        (first, fed), (again, fed_again) = (instances.instance(op, 3, 1) or ({}, {}) for _ in range(2))
        assert first == again
        assert all(np.array_equal(fed[name], fed_again[name]) for name in fed)
        assert first != (instances.instance(op, 4, 1) or ({}, {}))[0]


def test_every_op_is_drawn_or_is_of_sequences_and_strings() -> None:
    missing = set(instances.schemas()) - set(instances.INSTANCES)
    assert missing == {
        "CausalConvWithState", "ConcatFromSequence", "ImageDecoder", "LinearAttention", "Optional",
        "OptionalGetElement", "OptionalHasElement", "RegexFullMatch", "SequenceAt", "SequenceConstruct",
        "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap", "SplitToSequence",
        "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer",
    }  # fmt: skip


def test_a_case_is_compared_and_timed() -> None:
    row = op_sweep.case("Relu", 0, 0)
    assert row["status"] == "right"
    assert row["ratio"] > 0


def test_the_page_names_what_is_slow_and_what_left_the_kernels() -> None:
    rows = [
        {"op": "Relu", "seed": 0, "case": 0, "status": "right", "what": "Relu(x)", "us": 9.0, "ratio": 2.0, "left": []},
        {"op": "Relu", "seed": 0, "case": 1, "status": "wrong", "what": "Relu(y)", "us": 9.0, "ratio": 0.3, "left": []},
        {"op": "Det", "seed": 0, "case": 0, "status": "right", "what": "", "left": [["Det", "", "ONNX Runtime"]]},
    ]
    page = op_sweep.page(rows)
    assert "| Relu | 2 | 1.15x | 0.30x | 2.00x | 1 wrong; 0.30x: 9 µs: `Relu(y)` |" in page
    assert "1 ran in ONNX Runtime" in page
