"""What a shell does with text that somebody pastes into it: run in a folder of its own, with stubs for the tools."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Stands for every tool that our texts name: it tells its arguments, and does nothing.
_STUB = f"""#!{sys.executable}
import json, os, sys
with open("called", "a") as told:
    told.write(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]) + "\\n")
"""
_TOOLS = (
    "kafka-acls",
    "kafka-configs",
    "kafka-topics",
    "kafka-consumer-groups",
    "kafka-delete-records",
    "kafka-cluster-links",
    "topology",
)


@dataclass(frozen=True, slots=True)
class _PastedScript:
    """code, out and err: bash's. calls: the tools that were called, each with its arguments. files: what else is in the
    folder afterwards."""

    code: int
    out: bytes
    err: bytes
    calls: tuple[tuple[str, ...], ...]
    files: tuple[str, ...]


def run_pasted_script(script: str, folder: Path, tools: Sequence[str] = _TOOLS) -> _PastedScript:
    """Give bash the script in an empty folder below `folder`, which must hold none of these names yet."""
    stubs, here = folder / "tools", folder / "here"
    for each in (stubs, here):
        each.mkdir(parents=True)
    for name in tools:
        (stubs / name).write_text(_STUB)
        (stubs / name).chmod(0o755)
    path = f"{stubs}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash"], input=script.encode(), cwd=here, env={"PATH": path}, capture_output=True, check=False, timeout=60
    )
    called = here / "called"
    calls = called.read_text().splitlines() if called.exists() else []
    return _PastedScript(
        done.returncode,
        done.stdout,
        done.stderr,
        tuple(tuple(json.loads(line)) for line in calls),
        tuple(sorted(each.name for each in here.iterdir() if each != called)),
    )
