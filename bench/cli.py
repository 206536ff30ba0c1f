"""How fast the command answers: `topology --help` and `topology lint` of a small file.

Measured as whole processes, median of ROUNDS, in the full environment and in one that holds nothing but PyYAML,
networkx and click (made afresh), both in the same run.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from watershed.bench.results import BenchGoal, choose_size, is_smoke_run, publish_results

_ROOT = Path(__file__).resolve().parent.parent
_ROUNDS = choose_size(9, 1)
_COMMANDS = {
    "topology --help": ["--help"],
    "topology lint (small file)": ["lint", "topology/examples/active_standby.yaml"],
}


def main() -> int:
    """Measures every command in both environments. Returns the exit code."""
    with tempfile.TemporaryDirectory() as directory:
        environments = {"full": Path(sys.executable)}
        if not is_smoke_run():  # it takes half a minute to make
            environments["three packages"] = _small_environment(Path(directory))
        rows, goals = [], []
        for environment, python in environments.items():
            for name, arguments in _COMMANDS.items():
                seconds = [_seconds(python, arguments) for _ in range(_ROUNDS + 1)][1:]
                median = round(statistics.median(seconds), 3)
                rows.append(
                    {
                        "environment": environment,
                        "command": name,
                        "median_s": median,
                        "min_s": round(min(seconds), 3),
                        "max_s": round(max(seconds), 3),
                    }
                )
                limit = 0.3 if arguments == ["--help"] else 1.0
                goals.append(BenchGoal(f"{name}, {environment}, seconds", median, limit, "lower"))
    return publish_results("cli", rows, goals)


def _small_environment(directory: Path) -> Path:
    venv.create(directory / "env", with_pip=True)
    python = directory / "env" / "bin" / "python"
    requirements = _ROOT / "requirements" / "base.txt"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
    return python


def _seconds(python: Path, arguments: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(
        [python, "-m", "watershed.cli.main", *arguments],
        cwd=_ROOT,
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
