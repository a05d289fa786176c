import json
from pathlib import Path

from graphopt.runtime.profile import ProfileRow, write_trace


def test_a_trace_is_chromes(tmp_path: Path) -> None:
    rows = [
        ProfileRow("conv", ("Conv_1", "Relu_2"), 0.002, 100, 10, 0.001),
        ProfileRow("f", (), 0.5, 0, 0, 0.25, 2, False),
    ]
    write_trace(rows, tmp_path / "t.json")
    first, second = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert (first["name"], first["cat"], first["ph"], first["ts"], first["dur"]) == ("conv", "kernel", "X", 1000, 2000)
    assert first["args"] == {"nodes": ["Conv_1", "Relu_2"], "flops": 100, "bytes": 10, "runs": 1}
    assert (second["cat"], second["ts"], second["args"]["runs"]) == ("host", 250000, 2)
