"""Another landed version of Watershed beside this one, to try upgrades and the way back (docs/upgrade.md).

`python -m watershed.lab.previous_version` prints the folder and the Python of the version before this one;
`python -m watershed.lab.previous_version -- ARGUMENT…` runs its `topology`.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from watershed import IMPORT_ROOT
from watershed.lab.errors import LabError
from watershed.lab.fetched_programs import run_or_complain
from watershed.lab.jars import find_cache_folder


@dataclass(frozen=True, slots=True)
class Release:
    """A landed version: its tag, and the commit that the tag names. Tags do not travel with every copy of a repository,
    so the commit is written down here, too, and nowhere else."""

    tag: str
    commit: str


PREVIOUS_RELEASE = Release("v0.1.0", "50d2608a5807993928ede5e710d42f3637478349")
_PINNED = (Path("requirements", "install.txt"), Path("requirements", "dev.txt"))


@dataclass(frozen=True, slots=True)
class InstalledRelease:
    """A version that can be run. root: a folder with its source; python: the program with the packages that it pins."""

    release: Release
    root: Path
    python: Path

    def build_command(self, *arguments: str) -> list[str]:
        """The command line of its `topology` with these arguments."""
        return [str(self.python), "-P", "-m", "watershed.cli.main", *arguments]

    def build_environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The caller's environment, in which Python finds this version and no other. Its compiled modules are kept
        beside its source."""
        kept = {name: value for name, value in environ.items() if name != "PYTHONPYCACHEPREFIX"}
        return {**kept, "PYTHONPATH": str(self.root)}


def install_previous_release(
    environ: Mapping[str, str] | None = None, checkout: Path = IMPORT_ROOT
) -> InstalledRelease:
    """The version before this one, from the history of the checkout; unpacked once into the user's cache.

    It runs with the Python of this process where this version pins all of its packages, else with one of its own, which
    its `make env` prepares (about a minute). Raises LabError: the history does not have it; git or make failed.
    """
    environ = os.environ if environ is None else environ
    commit = find_release_commit(PREVIOUS_RELEASE, checkout)
    root = find_cache_folder(environ) / "releases" / commit[:12]
    root.parent.mkdir(parents=True, exist_ok=True)
    with open(root.with_name(f"{root.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.is_dir():
            _unpack_commit(checkout, commit, root, environ)
        python = Path(sys.executable)
        if not has_packages_of(root, checkout):
            kept = {name: value for name, value in environ.items() if not name.startswith(("PYTHON", "MAKE"))}
            run_or_complain(["make", "env"], f"the environment of {PREVIOUS_RELEASE.tag} was not made", kept, root)
            python = root / ".venv" / "bin" / "python"
    return InstalledRelease(PREVIOUS_RELEASE, root, python)


def find_release_commit(release: Release, checkout: Path = IMPORT_ROOT) -> str:
    """The commit of the release in the history of the checkout, by its tag or by its own name.

    Raises LabError with what to do: without a history, in a shallow one, and where the tag names another commit."""
    if _ask_git(checkout, "rev-parse", "--git-dir") is None:
        raise LabError(
            f"{checkout} is no git checkout, so {release.tag} is not in it: clone the repository with its history and "
            "run this there"
        )
    tagged = _ask_git(checkout, "rev-parse", "--verify", "--quiet", f"refs/tags/{release.tag}^{{commit}}")
    if tagged is not None and tagged != release.commit:
        raise LabError(
            f"the tag {release.tag} names commit {tagged} in {checkout}, and {release.commit} was released under it: "
            f"fetch the tag anew (`git fetch --force origin tag {release.tag}`)"
        )
    if _ask_git(checkout, "cat-file", "-e", f"{release.commit}^{{tree}}") is None:
        raise LabError(
            f"the history of {checkout} has neither the tag {release.tag} nor commit {release.commit[:12]}: fetch it "
            "(`git fetch --tags --unshallow` in a shallow checkout, `git fetch --tags` in another)"
        )
    return release.commit


def has_packages_of(other: Path, checkout: Path) -> bool:
    """Whether the checkout pins every package that the other version pins, in the same version, so that its environment
    does for both. It may have more."""
    return all(_read_pins(other / each) <= _read_pins(checkout / each) for each in _PINNED)


def _read_pins(requirements: Path) -> set[str]:
    lines = requirements.read_text(encoding="utf-8").splitlines()
    return {line.removesuffix("\\").strip() for line in lines if line[:1].isalnum()}


def _ask_git(checkout: Path, *words: str) -> str | None:
    """What git prints; None where it says no, or is not installed."""
    try:
        done = subprocess.run(["git", "-C", str(checkout), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _unpack_commit(checkout: Path, commit: str, root: Path, environ: Mapping[str, str]) -> None:
    """Leaves nothing half unpacked where an earlier try was interrupted."""
    with tempfile.TemporaryDirectory(prefix=".unpacked-", dir=root.parent) as scratch:
        archive, made = Path(scratch, "source.tar"), Path(scratch, "source")
        made.mkdir()
        words = ["git", "-C", str(checkout), "archive", "--format=tar", f"--output={archive}", commit]
        run_or_complain(words, f"commit {commit[:12]} was not unpacked", environ, made)
        run_or_complain(["tar", "-xf", str(archive)], f"commit {commit[:12]} was not unpacked", environ, made)
        made.rename(root)


def main(arguments: Sequence[str]) -> int:
    """Runs the previous version's `topology`, or says where it is. Returns the exit code."""
    try:
        installed = install_previous_release()
    except LabError as error:
        click.echo(f"error: {error}", err=True)
        return 2
    if not arguments:
        click.echo(f"{installed.release.tag}\n{installed.root}\n{installed.python}")
        return 0
    words = arguments[1:] if arguments[0] == "--" else arguments
    command, told = installed.build_command(*words), installed.build_environ(os.environ)
    return subprocess.run(command, env=told, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
