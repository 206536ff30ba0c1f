"""The wheel: what `pip install` gets, without tests and measurements.

`python -m watershed.lab.wheel DIR` builds it from this checkout (`make wheel`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from watershed import IMPORT_ROOT
from watershed.lab.errors import LabError
from watershed.product_version import BUILD_FILE, find_commit

_BESIDE_THE_ROOMS = ("pyproject.toml", "README.md", "watershed")


def build_wheel(directory: Path, root: Path = IMPORT_ROOT) -> Path:
    """Build the wheel of the checkout `root` into `directory`. Raises LabError with what the builder said.

    It is built from a copy. setuptools leaves folders where it builds: of modules that are gone by now, which the next
    wheel would have, and with entry points, which Airflow would find a second time.
    """
    if not (root / "pyproject.toml").exists():
        raise LabError(f"{root} is no checkout of Watershed, so no wheel can be built from it")
    with tempfile.TemporaryDirectory() as made:
        copy = Path(made, "source")
        rooms = [each.name for each in (root / "watershed").iterdir() if each.is_symlink()]
        for name in (*_BESIDE_THE_ROOMS, *rooms):
            if (root / name).is_dir():
                shutil.copytree(root / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                copy.mkdir(exist_ok=True)
                shutil.copy2(root / name, copy / name)
        write_build_record(copy, find_commit(root))
        command = [sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "--no-build-isolation"]
        words = ["--python", sys.executable, "--out-dir", str(directory.resolve()), str(copy)]
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"the wheel of {root} was not built: {done.stderr.strip()}")
    return max(directory.glob("watershed-*.whl"), key=lambda path: path.stat().st_mtime_ns)


def write_build_record(root: Path, commit: str) -> None:
    """Leave the commit in what is built below `root`, which will have no git any more. commit: "" where it is not
    known; then nothing is written."""
    if commit:
        (root / BUILD_FILE).write_text(json.dumps({"commit": commit}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        click.echo(build_wheel(Path(sys.argv[1])))
    except LabError as error:
        sys.exit(f"error: {error}")
