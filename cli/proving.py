"""Running the Spark proof as a process of its own, for a migration that waits for its verdict."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutover.actions import Prove
    from cutover.observations import ProofSeen

LIMIT = 3 * 3600.0  # seconds; a proof that takes longer has failed


def prove_in(folder: Path, topology: Path, plan_hash: str, wanted: Prove) -> ProofSeen:
    """Run `python -m spark.verify` into `folder` and read its summary. Its log is `verify.log` there."""
    from cutover.proofs import failed_proof, read_summary

    folder.mkdir(parents=True, exist_ok=True)
    summary = folder / "summary.json"
    summary.unlink(missing_ok=True)  # an older proof must never stand for this one
    command = [sys.executable, "-m", "spark.verify", "--topology", str(topology), "--out", str(folder)]
    command += ["--flow", wanted.flow, "--topics", ",".join(wanted.topics), "--level", wanted.level]
    command += ["--final"] if wanted.final else []
    command += ["--since", wanted.since] if wanted.since else []
    code = _run(command, folder / "verify.log")
    if not summary.exists():
        return failed_proof(f"the proof ended with {code}: {_last_line(folder / 'verify.log')}")
    return read_summary(summary, plan_hash)


def _run(command: list[str], log: Path) -> int | str:
    """In a process group of its own, which ends with us: Spark starts a Java process beside."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            return process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            return f"no verdict after {LIMIT / 3600:g} h"
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"{lines[-1].strip()} (all of it in {log})" if lines else f"nothing in {log}"
