"""Programs that the lab builds or fetches once, into the user's cache, by the files that pin them."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from watershed.lab.errors import LabError, ToolMissing
from watershed.lab.jars import find_cache_folder


def find_fetched_program(name: str, pins: Sequence[Path], environ: Mapping[str, str]) -> Path:
    """Where the program is, or will be. pins: the files that decide what it is."""
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in pins)).hexdigest()[:12]
    return find_cache_folder(environ) / f"{name}-{digest}" / name


def fetch_program_once(
    name: str, pins: Sequence[Path], environ: Mapping[str, str], make: Callable[[Path, Mapping[str, str]], None]
) -> Path:
    """The program; made when it is not there yet. make: leaves it under its name in the folder that it is given. Two
    processes at once make it once (file lock); what was interrupted leaves nothing that looks complete."""
    program = find_fetched_program(name, pins, environ)
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with open(program.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=program.parent) as scratch:
                make(Path(scratch), environ)
                (Path(scratch) / name).chmod(0o755)
                (Path(scratch) / name).replace(program)
    return program


def build_go_program(
    name: str,
    folder: Path,
    what: str,
    scratch: Path,
    environ: Mapping[str, str],
    settings: Mapping[str, str],
    flags: Sequence[str] = (),
    package: str = ".",
) -> None:
    """Builds a package of the Go module of `folder` as `scratch/name`; package: its own, or one of those that its
    go.mod names. what: it is, for whoever has no Go. settings: of Go, besides those that hold it to go.mod and go.sum;
    flags: of `go build`. Raises ToolMissing (no go), LabError."""
    go = shutil.which("go", path=environ.get("PATH", ""))
    if go is None:
        raise ToolMissing("go", "no go found", f"Go 1.26 or newer builds {what}; install it")
    told = {**environ, "GOFLAGS": "-mod=readonly", "GOWORK": "off", **settings}
    command = [go, "build", *flags, "-o", str(scratch / name), package]
    run_or_complain(command, f"Go could not build {name}", told, folder)


def run_or_complain(command: Sequence[str], complaint: str, environ: Mapping[str, str], folder: Path) -> None:
    """Raises LabError with the complaint and the last lines of what the command printed."""
    done = subprocess.run(command, cwd=folder, env=dict(environ), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines()[-5:]
        raise LabError("\n".join([f"{complaint}:", *lines]))
