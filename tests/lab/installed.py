"""Watershed as a package: an environment with the wheel and pinned packages, and an empty folder to work in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Installed:
    """An environment of its own with the wheel, and an empty folder."""

    def __init__(self, base: Path, wheel: Path, requirements: str) -> None:
        self.bin, self.folder = base / "env" / "bin", base / "empty"
        self.folder.mkdir()
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, base / "env"], check=True)
        pip, into = [*uv, "pip"], ["--quiet", "--python", self.bin / "python"]
        pinned = ROOT / "requirements" / requirements
        subprocess.run([*pip, "sync", *into, "--require-hashes", pinned], check=True)
        subprocess.run([*pip, "install", *into, "--no-deps", wheel], check=True)

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Nothing of this checkout is on its path; compiled modules are kept in the environment."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AIRFLOW", "VIRTUAL"))
        }
        environ = kept | {"PATH": f"{self.bin}:{os.environ['PATH']}", "PYTHONSAFEPATH": "1"}
        return subprocess.run(
            [*map(str, words)], cwd=self.folder, env=environ, capture_output=True, text=True, check=False
        )
