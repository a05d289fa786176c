"""Verdicts on random graphs are kept by what they are of, and a process that ends costs one graph."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import many_graphs


def test_what_is_known_is_not_judged_again_and_what_raises_is_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_model(seed: int, target: str, known: str) -> many_graphs.Verdict:
        if seed == 2:
            raise ValueError("no")
        return f"key{seed}", "" if known == f"key{seed}" else "verified", ""

    monkeypatch.setattr(many_graphs, "of_model", of_model)
    lines = [line for line in many_graphs.judge("ort", 0, 4, {"1": "key1", "3": "old"}) if "at" not in line]
    assert [(line["seed"], line["verdict"]) for line in lines] == [(0, "verified"), (2, "failed"), (3, "verified")]


def test_a_process_that_ends_costs_one_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = tmp_path / "child"
    child.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        "for seed in range(int(sys.argv[-2]), int(sys.argv[-1])):\n"
        "    print(json.dumps({'at': seed}), flush=True)\n"
        "    if seed == 1: os.abort()\n"
        "    print(json.dumps({'seed': seed, 'verdict': 'verified'}), flush=True)\n"
    )
    child.chmod(0o755)
    monkeypatch.setattr(many_graphs.sys, "executable", str(child))
    lines = many_graphs.judged("ort", 0, 3, {})
    assert [(line["seed"], line["verdict"]) for line in lines] == [(0, "verified"), (1, "ended"), (2, "verified")]


@pytest.mark.parametrize(("verdict", "status"), [("verified", 0), ("untold", 1), ("excused", 1), ("wrong", 1)])
def test_the_exit_status_says_whether_all_are_right(
    verdict: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = {"target": "ort", "seed": 0, "key": "k", "verdict": verdict, "reason": "why"}
    monkeypatch.setattr(many_graphs, "judged", lambda *chunk, kept: [line] if chunk[0] == "ort" else [])
    monkeypatch.setattr(sys, "argv", ["many_graphs", "--graphs", "1", "--programs", "0", "--data", str(tmp_path / "d")])
    assert many_graphs.main() == status
    assert f"1 {verdict}" in capsys.readouterr().out
    assert json.loads((tmp_path / "d").read_text()) == line
