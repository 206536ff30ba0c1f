"""Flows that change records, against MirrorMaker 2 with single-message transforms; and topics through a folder.

Both flows leave out records without a value and set a header. MirrorMaker 2 hands its transforms the bytes of a value,
so that none of them can mask a field; `watershed text`, which does by a regular expression, is ours alone. `watershed
transactions` copies as they do and changes nothing: it shows what the machine allows beside the changing. An archive is
measured by its processor time, a restore beside a worker that copies the same topic. Environment:

    BENCH_SECONDS     how long a copy lasts, about (default 20)
    BENCH_ROUNDS      how often each contender copies a topic; the median counts (default 3)
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from watershed.bench.archive_contenders import ArchiveContender, RestoreContender
from watershed.bench.bench_clusters import BenchClusters, run_bench_clusters
from watershed.bench.copy_contenders import (
    CopyRun,
    MirrorMakerContender,
    TransactionContender,
    TransformingContender,
    WatershedContender,
)
from watershed.bench.goals import build_archive_goals, build_transform_goals
from watershed.bench.results import choose_size, is_smoke_run, publish_results, report_progress
from watershed.bench.workload import CopyCase, LoadedTopic, delete_bench_topic, load_topic
from watershed.lab import mirrormaker
from watershed.lab.errors import LabError

_SMALL: Final = CopyCase(100, "none", 1_000)
_LARGE: Final = CopyCase(1_000, "none", 1_000)
_CASES: Final = choose_size((_SMALL, _LARGE), (_SMALL,))
_BYTES: Final = """{where: "value is not null", set: {headers.origin: "'prod'"}}"""
_TEXT: Final = (
    """{format: {value: string}, where: "value like '%EUR%'", """
    """set: {value: "regexp_replace(value, 'c-[0-9]{6}', 'c-000000')", headers.origin: "'prod'"}}"""
)
_TRANSFORMS: Final = {
    "transforms": "filled,origin",
    "transforms.filled.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.filled.predicate": "tombstone",
    "predicates": "tombstone",
    "predicates.tombstone.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    "transforms.origin.type": "org.apache.kafka.connect.transforms.InsertHeader",
    "transforms.origin.header": "origin",
    "transforms.origin.value.literal": "prod",
}
_BYTES_A_SECOND: Final = 40e6  # what is loaded for a second of copying
_Contender = WatershedContender | MirrorMakerContender | ArchiveContender | RestoreContender


def main() -> int:
    """Measures all contenders. Returns the exit code."""
    seconds = float(os.environ.get("BENCH_SECONDS", choose_size("20", "0.05")))
    rounds = int(os.environ.get("BENCH_ROUNDS", choose_size("3", "1")))
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="watershed-bench-")))
        place = stack.enter_context(run_bench_clusters(scratch))
        process = mirrormaker.start_connect_mirrormaker(scratch / "mm2", place.target.bootstrap[0])
        stack.callback(process.stop)
        contenders: list[_Contender] = [
            TransformingContender(place, "watershed bytes", _BYTES),
            MirrorMakerContender(place, "mm2 transforms", process, tuned=True, more=_TRANSFORMS),
            TransactionContender(place),
            WatershedContender(place),
            ArchiveContender(place),
            RestoreContender(place),
        ]
        if not is_smoke_run():  # a session more would take as long as all else
            contenders.append(TransformingContender(place, "watershed text", _TEXT))
        rows = [row for case in _CASES for row in _measure(place, contenders, case, seconds, rounds)]
    return publish_results("spark", rows, [*build_transform_goals(rows), *build_archive_goals(rows)])


def _measure(
    place: BenchClusters,
    contenders: list[_Contender],
    case: CopyCase,
    seconds: float,
    rounds: int,
) -> list[dict[str, Any]]:
    """One row a contender; they take turns, in the other order each time."""
    loaded = load_topic(case, place.source, f"spark-{case.name}", 60.0, _BYTES_A_SECOND * seconds)
    runs: dict[str, list[CopyRun]] = {contender.name: [] for contender in contenders}
    for number in range(rounds):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            run = contender.copy(loaded, 3 * seconds)
            runs[contender.name].append(run)
            rate = run.progress.records / run.progress.seconds
            report_progress(f"{case.name} {contender.name}: {rate / 1e3:.0f} krec/s")
    delete_bench_topic(place.source, loaded.topic)
    return [_build_row(case, loaded, name, some) for name, some in runs.items()]


def _build_row(case: CopyCase, loaded: LoadedTopic, name: str, runs: list[CopyRun]) -> dict[str, Any]:
    rate = statistics.median(run.progress.records / run.progress.seconds for run in runs)
    return {
        "case": case.name,
        "contender": name,
        "krecords_s": round(rate / 1e3, 1),
        "mb_s": round(rate * loaded.bytes / loaded.records / 1e6, 1),
        "cpu_s_per_m": round(statistics.median(run.progress.cpu_s / run.progress.records * 1e6 for run in runs), 2),
        "start_s": round(statistics.median(run.progress.start_s for run in runs), 1),
        "peak_mib": round(max(run.peak_mib for run in runs)),
    }


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that brokers and workers are ended, too
    try:
        sys.exit(main())
    except LabError as error:
        sys.exit(f"bench: {error}")
