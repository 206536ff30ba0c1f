"""The parts of `bench.replicate` that need no brokers."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from watershed.bench import plot
from watershed.bench.copy_contenders import TUNED_CONNECTOR
from watershed.bench.goals import build_latency_goals, build_throughput_goals
from watershed.bench.process_usage import is_running, list_descendants, read_cpu_seconds, read_peak_mib
from watershed.bench.replicate import QUICK_CASES, check_out_commit
from watershed.bench.workload import COPY_CASES, CopyCase, generate_values
from watershed.lab.mirrormaker import build_source_connector


def row(contender: str, krecords: float, cpu: float, **more: Any) -> dict[str, Any]:
    case = {"case": "100b-none-1000", "size": 100, "codec": "none", "batch": 1_000, "batch_bytes": 110_000}
    figures = {"contender": contender, "krecords_s": krecords, "cpu_s_per_m": cpu, "peak_mib": 130}
    return case | figures | more


def test_every_batch_is_one_that_a_broker_takes() -> None:
    assert all(case.size * case.records < 1 << 20 for case in COPY_CASES)
    assert {case.codec for case in COPY_CASES} == {"none", "lz4", "zstd"}
    assert len({case.name for case in COPY_CASES}) == len(COPY_CASES)
    assert set(QUICK_CASES) <= {case.name for case in COPY_CASES}


def test_values_have_the_size_and_compress_like_text() -> None:
    found = list(generate_values(CopyCase(1_000, "zstd", 1_000), 100))
    assert {len(value) for value in found} == {1_000}
    assert len(set(found)) == 100
    assert 2 < 100_000 / len(zlib.compress(b"".join(found))) < 10


def test_goals_of_a_case() -> None:
    rows = [row("limit", 2_000, 0.05), row("watershed", 1_900, 0.1), row("mm2 tuned", 100, 4.0)]
    goals = {goal.name: goal for goal in build_throughput_goals(rows)}
    assert all(goal.holds for goal in goals.values())
    assert goals["100b-none-1000: records/s over tuned MM2"].value == 19
    assert goals["100b-none-1000: CPU per record under tuned MM2"].value == 40
    assert goals["100b-none-1000: share of the limit"].value == 0.95
    slow = [row("limit", 2_000, 0.05), row("watershed", 900, 0.5), row("mm2 tuned", 100, 4.0)]
    assert [goal.holds for goal in build_throughput_goals(slow)] == [False, False, False, True]


def test_goals_of_compression() -> None:
    """2,000 thousand records of 100 B a second are 200 MB; a million of them (100 MB) take so many CPU seconds."""
    rows = [row("limit", 2_000, 0.05), row("watershed", 1_900, 0.1), row("mm2 tuned", 100, 4.0)]
    packed = row("watershed zstd", 2_000, 0.8, mb_s=200.0, saved=0.75, forecast=0.70)
    found = {goal.name.partition(", ")[2]: goal for goal in build_throughput_goals([*rows, packed])}
    seen = {name: (goal.value, goal.holds) for name, goal in found.items() if name.startswith("watershed zstd")}
    assert seen == {
        "watershed zstd: share of bytes saved": (0.75, True),
        "watershed zstd: MB a CPU second": (125.0, True),
        "watershed zstd: forecast off by": (0.067, True),
    }
    nothing = build_throughput_goals([*rows, packed | {"saved": 0.0, "forecast": 0.0, "cpu_s_per_m": 2.0}])
    assert [goal.holds for goal in nothing if "zstd" in goal.name] == [False, False, False]


def test_goals_against_an_earlier_commit() -> None:
    rows = [row("limit", 2_000, 0.05), row("watershed", 1_900, 0.1), row("mm2 tuned", 100, 4.0)]
    as_good = [goal for goal in build_throughput_goals([*rows, row("before", 1_950, 0.1)]) if "before" in goal.name]
    assert [(goal.name, goal.holds) for goal in as_good] == [
        ("100b-none-1000: records/s over those before", True),
        ("100b-none-1000: memory over that before", True),
    ]
    worse = build_throughput_goals([*rows, row("before", 2_100, 0.1, peak_mib=100)])
    assert [goal.holds for goal in worse if "before" in goal.name] == [False, False]


def test_a_commit_that_is_not_here_is_refused(tmp_path: Path) -> None:
    assert check_out_commit("", tmp_path / "none") is None
    with pytest.raises(SystemExit, match="BENCH_BEFORE: no-such-commit is no commit here"):
        check_out_commit("no-such-commit", tmp_path / "before")


@pytest.mark.parametrize(
    ("batch_bytes", "codec", "batch", "names"),
    [
        (1_100, "none", 10, ["records/s over tuned MM2", "share of the limit"]),
        (20_000, "zstd", 1_000, ["records/s over tuned MM2", "share of the limit"]),
        (160, "none", 1, ["records/s over tuned MM2"]),
        (400, "lz4", 10, []),
    ],
)
def test_goals_that_a_case_has(batch_bytes: int, codec: str, batch: int, names: list[str]) -> None:
    more = {"batch_bytes": batch_bytes, "codec": codec, "batch": batch}
    rows = [row(name, 10, 1.0, **more) for name in ("limit", "watershed", "mm2 tuned")]
    found = [goal.name.partition(": ")[2] for goal in build_throughput_goals(rows)]
    assert found == [*names, ""]  # the last is the memory of all


def test_latency_is_held_against_the_better_mirror_and_not_against_the_limit() -> None:
    rows = [
        {"load": "idle", "contender": name, "p50_ms": p50, "p99_ms": p99, "p999_ms": p999, "lost": 0}
        for name, p50, p99, p999 in (
            ("watershed", 1.0, 9.0, 30.0),
            ("limit", 0.5, 2.0, 3.0),
            ("mm2 default", 4.0, 12.0, 80.0),
            ("mm2 tuned", 20.0, 8.0, 50.0),
        )
    ]
    assert [(goal.goal, goal.holds) for goal in build_latency_goals(rows)] == [
        (4.0, True), (8.0, False), (25.0, False), (0, True),
    ]  # fmt: skip


def test_plots_are_written_and_repeatable(tmp_path) -> None:
    rows = [row("limit", 2_000, 0.05), row("watershed", 1_900, 0.1), row("mm2 tuned", 100, 4.0)]
    late = [
        {"load": load, "contender": "watershed", "p50_ms": 1.0, "p99_ms": 2.0, "p999_ms": 3.0}
        for load in ("idle", "beside a saturating copy")
    ]
    written = []
    for directory in (tmp_path / "one", tmp_path / "two"):
        plot.plot_throughput(rows, directory)
        plot.plot_latencies(late, directory)
        written.append({path.name: path.read_bytes() for path in directory.iterdir()})
    assert sorted(written[0]) == [
        "replicate-latency.png", "replicate-latency.svg", "replicate.png", "replicate.svg",
    ]  # fmt: skip
    assert written[0] == written[1]


def test_usage_of_this_process() -> None:
    own = os.getpid()
    assert own in list_descendants(own)
    assert is_running(own)
    assert read_cpu_seconds([own]) > 0
    assert read_peak_mib([own]) > 1
    assert not is_running(2**22 + 1)


def test_tuned_mirror_is_configured_as_said() -> None:
    config = build_source_connector("s:1", "t:1", "m1", "orders", TUNED_CONNECTOR)
    assert config["tasks.max"] == "4"
    assert config["topics"] == "orders"
    assert config["producer.override.acks"] == "all"
