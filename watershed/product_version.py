"""Which Watershed this is: release and commit, the same text wherever it is told (decision 0133).

The release stands in `pyproject.toml`. The commit comes from the file that a build leaves beside this one, and in a
checkout from git. Neither is read before somebody asks, and git is asked once a process. The module belongs to no room,
because each of them tells the version.
"""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from watershed import IMPORT_ROOT

BUILD_FILE: Final = "watershed/build.json"  # of a wheel and an image: {"commit": "…"}
_GIT_S: Final = 5.0  # git answers in some 20 ms; on a disc that hangs nobody waits for it
_DIGITS: Final = 12


@cache
def describe_product_version() -> str:
    """Such as `0.1.0+50d2608a6b3c`: release and commit, as PEP 440 writes a local version. `.dirty` at the end: some
    file is not as committed. Only the release where the commit is not known."""
    return build_version_text(find_release(IMPORT_ROOT), find_commit(IMPORT_ROOT))


def build_version_text(release: str, commit: str) -> str:
    """commit: "" where it is not known."""
    return f"{release}+{commit.replace('-', '.')}" if commit else release


def find_release(root: Path) -> str:
    """Of a checkout, from its pyproject.toml; else of the installed package. "0" where nobody installed it."""
    try:
        return str(tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
    except (OSError, ValueError, KeyError, TypeError):  # none there, or another project's
        pass
    try:
        return version("watershed")
    except PackageNotFoundError:
        return "0"


def find_commit(root: Path) -> str:
    """The commit that the package below `root` is made of, its first twelve digits, with `-dirty` behind them where a
    file is not as committed. "" where it is not known: no build wrote it down, and this is no checkout, or git does not
    answer."""
    try:
        return str(json.loads((root / BUILD_FILE).read_text(encoding="utf-8"))["commit"])
    except (OSError, ValueError, KeyError, TypeError):  # none there, or damaged: no reason to fail
        return _ask_git(root) if (root / ".git").exists() else ""


def _ask_git(root: Path) -> str:
    """Of the checkout itself: in a hook, git's own variables name another repository."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*", f"--abbrev={_DIGITS}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_GIT_S,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
