"""How fast records are copied from older brokers, which are asked by name, against a source that is asked by topic id.

One run: a source of each release, the same records in each, one target of the newest. Copies in turns; medians count.

Environment: BENCH_SOURCES names releases with commas (default 2.4.1,2.8.2), BENCH_SECONDS what a copy takes about
(default 1.5), BENCH_ROUNDS copies of each (default 5).
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from watershed.bench.bench_clusters import BenchClusters, run_bench_lab
from watershed.bench.copy_contenders import CopyRun, WatershedContender
from watershed.bench.goals import build_release_goals
from watershed.bench.results import choose_size, publish_results, report_progress
from watershed.bench.workload import COPY_CASES, CopyCase, LoadedTopic, delete_bench_topic, load_topic
from watershed.clusters.settings import ConnectionSettings
from watershed.lab.releases import DEFAULT_RELEASE

_CASES: Final = choose_size(("100b-none-1000", "1000b-zstd-1000"), ("100b-none-1000",))
_LONGEST_S: Final = 60.0


def main() -> int:
    """Measures the chosen cases from each release. Returns the exit code."""
    asked = os.environ.get("BENCH_SOURCES", choose_size("2.4.1,2.8.2", ""))
    older = [each.strip() for each in asked.split(",") if each.strip()]
    seconds = float(os.environ.get("BENCH_SECONDS", choose_size("1.5", "0.01")))
    rounds = int(os.environ.get("BENCH_ROUNDS", choose_size("5", "1")))
    aliases = {"source": DEFAULT_RELEASE} | {f"source{at}": release for at, release in enumerate(older)}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="watershed-bench-")))
        lab = stack.enter_context(run_bench_lab(scratch / "lab", [*aliases, "target"], kafka=aliases))
        pids = tuple(broker.pid for cluster in lab.clusters.values() for broker in cluster.brokers if broker.pid)
        ends = {alias: ConnectionSettings(alias, (cluster.bootstrap,)) for alias, cluster in lab.clusters.items()}
        places = {
            release: BenchClusters(scratch, ends[alias], ends["target"], pids) for alias, release in aliases.items()
        }
        cases = [case for case in COPY_CASES if case.name in _CASES]
        rows = [row for case in cases for row in _measure(places, case, seconds, rounds)]
    return publish_results("releases", rows, build_release_goals(rows, DEFAULT_RELEASE))


def _measure(places: dict[str, BenchClusters], case: CopyCase, seconds: float, rounds: int) -> list[dict[str, Any]]:
    """A row for each release."""
    loaded: dict[str, LoadedTopic] = {
        release: load_topic(case, place.source, case.name, seconds) for release, place in places.items()
    }
    runs: dict[str, list[CopyRun]] = {release: [] for release in places}
    for number in range(rounds):
        for release in list(places) if number % 2 == 0 else reversed(places):  # none always comes first
            runs[release].append(WatershedContender(places[release]).copy(loaded[release], _LONGEST_S))
    rows = []
    for release, found in runs.items():
        delete_bench_topic(places[release].source, case.name)
        rate = statistics.median(run.progress.records / run.progress.seconds for run in found)
        cpu = statistics.median(run.progress.cpu_s / run.progress.records for run in found)
        rows.append(
            {
                "case": case.name,
                "source": release,
                "krecords_s": round(rate / 1e3, 1),
                "cpu_s_per_m": round(cpu * 1e6, 3),
                "rounds": len(found),
            }
        )
        report_progress(f"{case.name:17} from {release:8} {rows[-1]['krecords_s']:9} krec/s")
    return rows


if __name__ == "__main__":
    sys.exit(main())
