import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_wheel_holds_the_rules(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("graphopt-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {Path(n).name for n in names if n.startswith("graphopt/_rules/")}
    assert shipped == {p.name for p in (ROOT / "rules").iterdir()}
    assert "graphopt/py.typed" in names
    assert any(n.endswith("licenses/LICENSE") for n in names)
