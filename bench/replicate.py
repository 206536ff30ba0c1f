"""How fast records are copied, at what price, and how late: Watershed, MirrorMaker 2 (default and tuned), the limit.

One run, the same loaded topics, one contender after the other with nothing else running. Environment:

    BENCH_CASES       names of bench.workload.COPY_CASES with commas, `all` (default), `quick`, or `none`
    BENCH_SECONDS     what a fast copy of a case takes about (default 1.5)
    BENCH_ROUNDS      copies of a case with goals by Watershed and at the limit, in turns; medians count (default 3)
    BENCH_LATENCY     seconds that each latency is measured (default 8; 0: not at all)
    BENCH_BEFORE      a commit: its code copies, too, in turns with this checkout's, and is held against it
"""

from __future__ import annotations

import io
import os
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from watershed.bench import latency, plot
from watershed.bench.bench_clusters import BenchClusters, choose_broker_jvm, run_bench_clusters
from watershed.bench.copy_contenders import (
    BareCopyContender,
    BareProduceContender,
    CompressingContender,
    CopyRun,
    MirrorMakerContender,
    SettledWorkersContender,
    WatershedContender,
)
from watershed.bench.goals import build_latency_goals, build_throughput_goals
from watershed.bench.process_usage import list_descendants, read_cpu_seconds
from watershed.bench.results import RESULTS_FOLDER, choose_size, is_smoke_run, publish_results, report_progress
from watershed.bench.workload import (
    COPY_BENCH_PARTITIONS,
    COPY_CASES,
    CopyCase,
    LoadedTopic,
    delete_bench_topic,
    load_topic,
)
from watershed.clusters.admin import Admin
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab import mirrormaker
from watershed.lab.errors import LabError

QUICK_CASES = ("100b-none-1000", "100b-none-10", "1000b-none-1000", "1000b-zstd-1000")
_COMPRESSED_CASE = "1000b-none-1000"  # a worker with `compression: zstd` copies it, too
_MIRROR_S = choose_size(5.0, 1.0)  # MirrorMaker 2 is watched so long at most; its rate needs no whole topic
_MIRRORS = choose_size(("mm2 default", "mm2 tuned"), ("mm2 tuned",))
_LOADS = choose_size(("idle", "beside a saturating copy"), ("idle",))
_TURNS = choose_size(3, 1)  # of each latency; medians count
_HEAP = "1g"  # what Kafka's own start script gives a broker
_BULK = CopyCase(100, "none", 1_000)
_BULK_BYTES = 2.4e9
_LatencyContender = WatershedContender | BareCopyContender | MirrorMakerContender
_REPOSITORY = Path(__file__).resolve().parent.parent


def main() -> int:
    """Measures throughput of the chosen cases, then added latency. Returns the exit code."""
    chosen = _cases(os.environ.get("BENCH_CASES", choose_size("all", "100b-none-10")))
    seconds = float(os.environ.get("BENCH_SECONDS", choose_size("1.5", "0.01")))
    rounds = int(os.environ.get("BENCH_ROUNDS", choose_size("3", "1")))
    lasting = float(os.environ.get("BENCH_LATENCY", choose_size("8", "1.5")))
    code = 0
    choose_broker_jvm(_HEAP)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="watershed-bench-")))
        before = check_out_commit(os.environ.get("BENCH_BEFORE", ""), scratch / "before")
        here = stack.enter_context(run_bench_clusters(scratch))
        mirrors = [stack.enter_context(run_mirrormaker(here, name)) for name in _MIRRORS]
        if not is_smoke_run():
            _warm_up(here, mirrors)
        if chosen:
            rows = [row for case in chosen for row in _measured(here, mirrors, before, case, seconds, rounds)]
            code |= publish_results("replicate", rows, build_throughput_goals(rows))
            _plot(plot.plot_throughput, rows)
        if lasting:
            rows = _latencies(here, mirrors, lasting)
            code |= publish_results("replicate-latency", rows, build_latency_goals(rows))
            _plot(plot.plot_latencies, rows)
    return code


def _plot(draw: Callable[[list[dict[str, Any]], Path], None], rows: list[dict[str, Any]]) -> None:
    if is_smoke_run():  # drawn all the same: it may fail, too
        with tempfile.TemporaryDirectory() as folder:
            draw(rows, Path(folder))
    else:
        draw(rows, RESULTS_FOLDER)


def _measured(
    place: BenchClusters,
    mirrors: list[MirrorMakerContender],
    before: Path | None,
    case: CopyCase,
    seconds: float,
    rounds: int,
) -> Iterator[dict[str, Any]]:
    """The rows of one case."""
    full = case.records >= 100
    has_goal = full or (case.size == 100 and case.codec == "none")
    loaded = load_topic(case, place.source, case.name, seconds)
    contenders: list[BareProduceContender | WatershedContender] = [
        BareProduceContender(place),
        WatershedContender(place),
    ]
    if before is not None:
        contenders.append(WatershedContender(place, checkout=before))
    if full and case.codec == "none":
        contenders.append(SettledWorkersContender(place))
    if case.name == _COMPRESSED_CASE:
        contenders.append(CompressingContender(place))
    runs: list[CopyRun] = []
    for number in range(rounds if has_goal or before else 1):
        for contender in contenders if number % 2 == 0 else reversed(contenders):  # nobody always comes first
            runs.append(contender.copy(loaded, _MIRROR_S))
    runs += [mirror.copy(loaded, _MIRROR_S) for mirror in mirrors]
    delete_bench_topic(place.source, loaded.topic)
    for name in dict.fromkeys(run.contender for run in runs):
        row = _row(loaded, [run for run in runs if run.contender == name])
        report_progress(
            f"{case.name:17} {name:13} {row['krecords_s']:9} krec/s {row['mb_s']:7} MB/s  {row['cpu_s_per_m']} s/M"
        )
        yield row


def _row(loaded: LoadedTopic, runs: list[CopyRun]) -> dict[str, Any]:
    def median(value: Callable[[CopyRun], float]) -> float:
        return statistics.median(map(value, runs))

    a_record = loaded.bytes / loaded.records
    rate = median(lambda run: run.progress.records / run.progress.seconds)
    return {
        "case": loaded.case.name,
        "size": loaded.case.size,
        "codec": loaded.case.codec,
        "batch": loaded.case.records,
        "batch_bytes": len(loaded.template),
        "contender": runs[0].contender,
        "krecords_s": round(rate / 1e3, 1),
        "mb_s": round(rate * a_record / 1e6, 1),
        "cpu_s_per_m": round(median(lambda run: run.progress.cpu_s / run.progress.records) * 1e6, 3),
        "brokers_cpu_s_per_m": round(median(lambda run: run.progress.brokers_cpu_s / run.progress.records) * 1e6, 3),
        "peak_mib": round(max(run.peak_mib for run in runs)),
        "start_s": round(median(lambda run: run.progress.start_s), 2),
        "copied": "all" if all(run.progress.whole for run in runs) else f"{_MIRROR_S:g} s of it",
        "rounds": len(runs),
        **_compression(runs),
    }


def _compression(runs: list[CopyRun]) -> dict[str, Any]:
    saved = [run.saved for run in runs if run.saved is not None]
    forecast = [run.forecast for run in runs if run.forecast is not None]
    if not saved or not forecast:
        return {}
    return {"saved": round(statistics.median(saved), 4), "forecast": round(statistics.median(forecast), 4)}


def _latencies(place: BenchClusters, mirrors: list[MirrorMakerContender], seconds: float) -> list[dict[str, Any]]:
    rows = []
    with Admin(place.source) as admin:
        admin.create_topic("paced", COPY_BENCH_PARTITIONS)
    contenders: list[_LatencyContender] = [WatershedContender(place), BareCopyContender(place), *mirrors]
    if not is_smoke_run():  # small requests in other numbers are hot code, too
        for contender in contenders:
            _latency(place, contender, None, seconds)
    for load_name in _LOADS:
        bulk = load_topic(_BULK, place.source, "bulk", 60.0, _BULK_BYTES) if load_name != "idle" else None
        found: dict[str, list[latency.AddedLatency]] = {contender.name: [] for contender in contenders}
        for turn in range(_TURNS):  # nobody always comes first, when brokers are coldest
            for contender in contenders if turn % 2 == 0 else reversed(contenders):
                found[contender.name].append(_latency(place, contender, bulk, seconds))
        for name, turns in found.items():
            row = _build_latency_row(load_name, name, turns)
            figures = f"p50 {row['p50_ms']} ms, p99 {row['p99_ms']}, p99.9 {row['p999_ms']}"
            report_progress(f"added latency, {load_name}: {name} {figures}")
            rows.append(row)
    return rows


def _build_latency_row(load_name: str, name: str, turns: list[latency.AddedLatency]) -> dict[str, Any]:
    """Medians of the turns; records of all."""

    def median(value: Callable[[latency.AddedLatency], float]) -> float:
        return round(statistics.median(map(value, turns)), 2)

    return {
        "load": load_name,
        "contender": name,
        "p50_ms": median(lambda turn: turn.p50),
        "p99_ms": median(lambda turn: turn.p99),
        "p999_ms": median(lambda turn: turn.p999),
        "records": sum(turn.records for turn in turns),
        "lost": sum(turn.lost for turn in turns),
        "cpu_s_per_m": median(lambda turn: turn.cpu_s_per_million),
    }


@contextmanager
def _run_beside(
    place: BenchClusters, contender: _LatencyContender, bulk: LoadedTopic | None
) -> Iterator[tuple[int, str, str]]:
    """Yields the pid of the contender, the target's name of `paced`, and that of the topic that loads the machine. The
    copy without a worker has only `paced`: a worker beside it makes the load."""
    with ExitStack() as stack:
        if isinstance(contender, BareCopyContender) and bulk is not None:
            _, loading = stack.enter_context(WatershedContender(place).running(bulk.topic))
            pid, prefix = stack.enter_context(contender.running("paced"))
        else:
            pid, prefix = stack.enter_context(contender.running("paced", *([bulk.topic] if bulk else [])))
            loading = prefix
        yield pid, f"{prefix}.paced", f"{loading}.{bulk.topic}" if bulk else ""


def _latency(
    place: BenchClusters, contender: _LatencyContender, bulk: LoadedTopic | None, seconds: float
) -> latency.AddedLatency:
    with Admin(place.target) as admin, _run_beside(place, contender, bulk) as (pid, paced, loading):
        topics = [paced, loading] if loading else [paced]
        for topic in topics:
            latency.wait_for_topic(place.target, topic)

        def busy() -> bool:
            if bulk is None:
                return True
            parts = [TopicPartition(loading, number) for number in range(COPY_BENCH_PARTITIONS)]
            return sum(span.end for span in admin.offsets(parts).values()) < bulk.records

        found = latency.measure_added_latency(
            place, "paced", paced, seconds, lambda: read_cpu_seconds(list_descendants(pid)), busy
        )
    delete_bench_topic(place.target, *topics)
    return found


def _warm_up(place: BenchClusters, mirrors: list[MirrorMakerContender]) -> None:
    """Brokers and MirrorMaker's JVMs have compiled their hot code before anything counts."""
    loaded = load_topic(_BULK, place.source, "warm-up", 2.0)
    contenders: list[BareProduceContender | WatershedContender | MirrorMakerContender] = [
        BareProduceContender(place), WatershedContender(place), *mirrors,
    ]  # fmt: skip
    for contender in contenders:
        contender.copy(loaded, 2 * _MIRROR_S)
    delete_bench_topic(place.source, loaded.topic)


@contextmanager
def run_mirrormaker(place: BenchClusters, name: str) -> Iterator[MirrorMakerContender]:
    """MirrorMaker 2 while this lasts. name: `mm2 default` or `mm2 tuned`."""
    process = mirrormaker.start_connect_mirrormaker(place.directory / name.replace(" ", "-"), place.target.bootstrap[0])
    try:
        yield MirrorMakerContender(place, name, process, tuned=name == "mm2 tuned")
    finally:
        process.stop()


def check_out_commit(commit: str, folder: Path) -> Path | None:
    """The code of a commit of this repository, in a folder; None where none is asked for."""
    if not commit:
        return None
    found = subprocess.run(["git", "archive", commit], cwd=_REPOSITORY, capture_output=True, check=False)
    if found.returncode != 0:
        raise SystemExit(f"BENCH_BEFORE: {commit} is no commit here: {found.stderr.decode(errors='replace').strip()}")
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _cases(names: str) -> list[CopyCase]:
    chosen = {"all": [case.name for case in COPY_CASES], "quick": QUICK_CASES, "none": ()}.get(names, names.split(","))
    unknown = set(chosen) - {case.name for case in COPY_CASES}
    if unknown:
        raise SystemExit(
            f"BENCH_CASES: there is no {', '.join(sorted(unknown))}; there are {', '.join(c.name for c in COPY_CASES)}"
        )
    return [case for case in COPY_CASES if case.name in chosen]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that brokers and workers are ended, too
    try:
        sys.exit(main())
    except LabError as error:
        sys.exit(f"bench: {error}")
