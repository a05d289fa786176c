"""What every test may rely on."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="session")
def nobodys_prices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Times that whoever runs the tests has measured do not decide what comes out."""
    folder = tmp_path_factory.mktemp("data")
    before = os.environ.get("XDG_DATA_HOME")
    os.environ["XDG_DATA_HOME"] = str(folder)
    yield folder
    if before is None:
        del os.environ["XDG_DATA_HOME"]
    else:
        os.environ["XDG_DATA_HOME"] = before


@pytest.fixture(autouse=True, scope="session")
def kernels_are_compiled_here() -> Iterator[None]:
    """As long as no workers are asked for: tests keep all cores busy as it is, and each would start a compiler anew."""
    from graphopt.kernels import compile

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile, "_FEW", sys.maxsize)
        patch.setattr(compile, "_SHORT", sys.maxsize)
        yield


@pytest.fixture(autouse=True)
def nobodys_ops() -> Iterator[None]:
    """Ops that a test adds are gone after it."""
    from graphopt.ir import added
    from graphopt.lowering.operators import table

    before = [dict(known) for known in (added._added, table._added)]
    yield
    for known, was in zip((added._added, table._added), before, strict=True):
        known.clear()
        known.update(was)
