"""Weights are read from files, and what is no such file is named."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from graphopt.errors import MissingDependencyError, ReadError, UsageError
from graphopt.lowering.module.state import read_state
from tests.nn.test_layers import floats


def test_arrays_of_numpy(tmp_path: Path) -> None:
    arrays = {"a.weight": floats(2, 3), "b": np.array(3)}
    np.savez(tmp_path / "w.npz", **arrays)
    found = read_state(str(tmp_path / "w.npz"))
    assert all(np.array_equal(found[n], a) for n, a in arrays.items())


def test_safetensors(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    arrays = {"a.weight": floats(2, 3), "b": np.array(3)}
    numpy.save_file(arrays, tmp_path / "w.safetensors")
    found = read_state(tmp_path / "w.safetensors")
    assert all(np.array_equal(found[n], a) for n, a in arrays.items())
    (tmp_path / "bad.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}garbage")
    with pytest.raises(ReadError, match=r"bad.safetensors: not a safetensors file"):
        read_state(tmp_path / "bad.safetensors")


def test_without_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(MissingDependencyError, match="pip install safetensors"):
        read_state(tmp_path / "w.safetensors")


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"w.pt: weights are read from .npz, .npy, .safetensors, .onnx files"):
        read_state(tmp_path / "w.pt")
    with pytest.raises(ReadError, match=r"w.npz: cannot read: No such file"):
        read_state(tmp_path / "w.npz")
    (tmp_path / "w.npz").write_bytes(b"PK\3\4garbage")
    with pytest.raises(ReadError, match=r"w.npz: no arrays by name"):
        read_state(tmp_path / "w.npz")
    np.save(tmp_path / "one.npy", floats(2))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with pytest.raises(ReadError, match=r"one.npz: no arrays by name"):
        read_state(tmp_path / "one.npz")
    np.savez(tmp_path / "code.npz", a=np.array([print], object))
    with pytest.raises(ReadError, match=r"code.npz: no arrays by name"):
        read_state(tmp_path / "code.npz")
