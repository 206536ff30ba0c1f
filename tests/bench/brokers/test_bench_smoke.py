"""Every benchmark still runs: with sizes that take seconds (BENCH_SMOKE), on one pair of clusters for all of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from watershed.lab import clusters

ROOT = Path(__file__).resolve().parents[3]
TARGETS = dict(re.findall(r"^bench-([a-z]+):.*\n\t\$\(BIN\)/python -m (\S+)", (ROOT / "Makefile").read_text(), re.M))
WITHOUT_CLUSTERS = ("cli", "dags", "estate", "lint")


@pytest.fixture(scope="module")
def bench_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("bench-lab")
    try:
        clusters.start_clusters(directory, ["source", "target"])
        yield directory
    finally:
        clusters.end_clusters(directory)


def run_benchmark(name: str, environ: dict[str, str]) -> str:
    """One benchmark as `make bench-NAME BENCH_SMOKE=1` runs it, without the settings of the tests; what it printed."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("WATERSHED_ALLOW_")}
    own.pop("WATERSHED_HOOK_HOSTS", None)
    there = {path: path.stat().st_mtime_ns for path in (ROOT / "bench" / "results").glob("*")}
    own |= {"BENCH_SMOKE": "1"} | environ
    done = subprocess.run(
        [sys.executable, "-m", TARGETS[name]], cwd=ROOT, env=own, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path: path.stat().st_mtime_ns for path in (ROOT / "bench" / "results").glob("*")} == there
    return done.stdout


def test_every_target_names_a_module_that_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    [phony] = re.findall(r"^\.PHONY: (.*)$", makefile, re.M)
    [together] = re.findall(r"^bench: (.*?) ##", makefile, re.M)
    assert {f"bench-{name}" for name in TARGETS} == set(together.split())
    assert set(together.split()) <= set(phony.split())
    assert {name for name in TARGETS.values() if find_spec(name) is None} == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_CLUSTERS)
def test_a_benchmark_without_clusters_runs(name: str) -> None:
    assert "smoke run: no figure counts" in run_benchmark(name, {})


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.parametrize("name", sorted(set(TARGETS) - set(WITHOUT_CLUSTERS)))
def test_a_benchmark_on_real_clusters_runs(name: str, bench_lab: Path) -> None:
    assert "smoke run: no figure counts" in run_benchmark(name, {"BENCH_LAB": str(bench_lab)})


def test_a_benchmark_that_crashes_fails_its_smoke_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "lint", "bench.no_such_benchmark")
    with pytest.raises(AssertionError, match=r"No module named bench\.no_such_benchmark"):
        run_benchmark("lint", {})
