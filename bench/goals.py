"""The goals of copying, moving groups, cutovers and proofs, as numbers of one run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from watershed.bench.results import BenchGoal

_Row = dict[str, Any]

_OURS, _TUNED, _LIMIT = "watershed", "mm2 tuned", "limit"
_COMPRESSING = "watershed zstd"
_SAVED, _MB_A_CPU_SECOND, _FORECAST_OFF = 0.6, 100.0, 0.1  # issue 19
_FASTER = {100: 10.0, 1_000: 3.0}  # records/s over tuned MirrorMaker 2, uncompressed, by record size
_CHEAPER = {100: 20.0, 1_000: 6.0}  # CPU per record under tuned MirrorMaker 2
_FASTER_COMPRESSED = 5.0
_FASTER_TINY = {1: 1.2, 10: 2.0}  # the same of records of 100 bytes, by records in a batch (issue 19)
_LARGE, _SMALL = 16 << 10, (512, 4 << 10)  # bytes of a batch
_MOST_MIB = 256.0
_AS_FAST, _AS_SMALL = 0.95, 1.05  # shares of records/s and of memory; medians of three copies differ by less than that
_BY_NAME = 0.95
_TRANSFORMED = 3.0  # records/s over MirrorMaker 2 with single-message transforms (design 13)
_ARCHIVED_MB_A_CPU_SECOND, _RESTORED = 200.0, 0.8  # the same; of full batches, and of a worker's MB/s
_FULL_BATCH = "1000b-none-1000"
_LOADED_P99_MS = 20.0
_WIRE_SHARE, _FAR_P99_MS, _STALL_MS = 0.9, 120.0, 5_000.0  # of a wire with 100 ms of round trip
_IN_AIRFLOW = 1.5  # issue 18, part 6


def build_throughput_goals(rows: Sequence[_Row]) -> list[BenchGoal]:
    """Goals of the cases that were run."""
    goals: list[BenchGoal] = []
    by_case: dict[str, dict[str, _Row]] = {}
    for row in rows:
        by_case.setdefault(row["case"], {})[row["contender"]] = row
    for name, found in by_case.items():
        ours, tuned, limit = found[_OURS], found[_TUNED], found[_LIMIT]
        faster = round(ours["krecords_s"] / tuned["krecords_s"], 2)
        cheaper = round(tuned["cpu_s_per_m"] / max(ours["cpu_s_per_m"], 0.001), 2)
        of_limit = round(ours["krecords_s"] / limit["krecords_s"], 3)
        if ours["batch"] >= 1_000 and ours["codec"] == "none" and ours["size"] in _FASTER:
            goals.append(BenchGoal(f"{name}: records/s over tuned MM2", faster, _FASTER[ours["size"]], "higher"))
            goals.append(
                BenchGoal(f"{name}: CPU per record under tuned MM2", cheaper, _CHEAPER[ours["size"]], "higher")
            )
        elif ours["size"] == 100 and ours["codec"] == "none" and ours["batch"] in _FASTER_TINY:
            goals.append(BenchGoal(f"{name}: records/s over tuned MM2", faster, _FASTER_TINY[ours["batch"]], "higher"))
        elif ours["batch"] >= 100 and ours["codec"] != "none":
            goals.append(BenchGoal(f"{name}: records/s over tuned MM2", faster, _FASTER_COMPRESSED, "higher"))
        if ours["batch_bytes"] >= _LARGE:
            goals.append(BenchGoal(f"{name}: share of the limit", of_limit, 0.9, "higher"))
        elif _SMALL[0] <= ours["batch_bytes"] < _SMALL[1]:
            goals.append(BenchGoal(f"{name}: share of the limit", of_limit, 0.5, "higher"))
        if packed := found.get(_COMPRESSING):
            goals += _build_compression_goals(name, packed)
        if before := found.get("before"):
            as_fast = round(ours["krecords_s"] / before["krecords_s"], 3)
            goals.append(BenchGoal(f"{name}: records/s over those before", as_fast, _AS_FAST, "higher"))
            as_small = round(ours["peak_mib"] / before["peak_mib"], 3)
            goals.append(BenchGoal(f"{name}: memory over that before", as_small, _AS_SMALL, "lower"))
    peak = max(row["peak_mib"] for row in rows if row["contender"].startswith(_OURS))
    goals.append(BenchGoal("MiB of memory a process, at most", peak, _MOST_MIB, "lower"))
    return goals


def build_wire_goals(rows: Sequence[_Row]) -> list[BenchGoal]:
    """Goals for a side that is 100 ms away (issue 19): throughput, latency, and what losses may cost."""
    return [
        goal
        for row in rows
        for goal in (
            BenchGoal(f"{row['away']} away: share of the wire", row["wire_share"], _WIRE_SHARE, "higher"),
            BenchGoal(f"{row['away']} away: added latency p99_ms", row["p99_ms"], _FAR_P99_MS, "lower"),
            BenchGoal(f"{row['away']} away, with losses: longest_ms", row["lossy_longest_ms"], _STALL_MS, "lower"),
            BenchGoal(f"{row['away']} away: records lost", row["lost"] + row["lossy_lost"], 0, "lower"),
        )
    ]


def _compute_mb_a_cpu_second(row: _Row) -> float:
    """Megabytes of the source a second of a contender's own processor time."""
    megabytes, seconds = float(row["mb_s"]), max(float(row["cpu_s_per_m"]), 0.001)
    return round(megabytes / float(row["krecords_s"]) * 1e3 / seconds, 1)


def _build_compression_goals(case: str, row: _Row) -> list[BenchGoal]:
    """Of a worker that compresses JSON on its way."""
    a_cpu_second = _compute_mb_a_cpu_second(row)
    off = round(abs(row["forecast"] / row["saved"] - 1), 3) if row["saved"] else 1.0
    return [
        BenchGoal(f"{case}, {row['contender']}: share of bytes saved", row["saved"], _SAVED, "higher"),
        BenchGoal(f"{case}, {row['contender']}: MB a CPU second", a_cpu_second, _MB_A_CPU_SECOND, "higher"),
        BenchGoal(f"{case}, {row['contender']}: forecast off by", off, _FORECAST_OFF, "lower"),
    ]


def build_release_goals(rows: Sequence[_Row], newest: str) -> list[BenchGoal]:
    """Each release's rate as a share of that from `newest`, case by case."""
    by_id = {row["case"]: row["krecords_s"] for row in rows if row["source"] == newest}
    return [
        BenchGoal(
            f"{row['case']}: records/s from {row['source']} over those from {newest}",
            round(row["krecords_s"] / by_id[row["case"]], 3),
            _BY_NAME,
            "higher",
        )
        for row in rows
        if row["source"] != newest
    ]


def build_latency_goals(rows: Sequence[_Row]) -> list[BenchGoal]:
    """Against the better of the two MirrorMakers in each figure."""
    goals: list[BenchGoal] = []
    for load in dict.fromkeys(row["load"] for row in rows):
        ours = next(row for row in rows if row["load"] == load and row["contender"] == _OURS)
        theirs = [row for row in rows if row["load"] == load and row["contender"] not in (_OURS, _LIMIT)]
        for figure, factor in (("p50_ms", 1.0), ("p99_ms", 1.0), ("p999_ms", 0.5)):
            best = min(row[figure] for row in theirs)
            goals.append(BenchGoal(f"added latency {figure}, {load}", ours[figure], round(best * factor, 2), "lower"))
        if load != "idle":
            goals.append(BenchGoal(f"added latency p99_ms, {load}", ours["p99_ms"], _LOADED_P99_MS, "lower"))
        goals.append(BenchGoal(f"records lost, {load}", ours["lost"], 0, "lower"))
    return goals


def build_scale_goals(rows: Sequence[_Row]) -> list[BenchGoal]:
    """Of design 12, at each number of partitions; latency and idle processor time also against MirrorMaker 2."""
    goals: list[BenchGoal] = []
    for row in rows:
        if row["contender"] != _OURS:
            continue
        at = f"{row['partitions']} partitions"
        goals.append(BenchGoal(f"idle CPU, % of a core, {at}", row["idle_cpu_percent"], 5.0, "lower"))
        goals.append(
            BenchGoal(f"added latency p50_ms, {at}", row["p50_ms"], 5.0 if row["partitions"] < 2_000 else 20.0, "lower")
        )
        if row["partitions"] >= 10_000:
            goals.append(BenchGoal(f"added latency p99_ms, {at}", row["p99_ms"], 50.0, "lower"))
        for theirs in rows:
            if theirs["partitions"] == row["partitions"] and theirs["contender"].startswith("mm2"):
                goals.append(BenchGoal(f"added latency p99_ms, {at}", row["p99_ms"], theirs["p99_ms"], "lower"))
        goals.append(BenchGoal(f"MiB of memory, {at}", row["peak_mib"], _MOST_MIB, "lower"))
        goals.append(BenchGoal(f"seconds of status, {at}", row["status_s"], 2.0, "lower"))
        goals.append(BenchGoal(f"partitions that status calls otherwise, {at}", row["status_wrong"], 0, "lower"))
        goals.append(BenchGoal(f"records lost, {at}", row["lost"], 0, "lower"))
        goals.append(BenchGoal(f"seconds to a worker's first records, {at}", row["first_record_s"], 10.0, "lower"))
    return goals


def build_estate_goals(rows: Sequence[_Row]) -> list[BenchGoal]:
    """The recommended fleet of each size stays below every limit."""
    return [
        BenchGoal(f"{row['partitions']} partitions: share of the limit that is nearest", row["nearest"], 1.0, "lower")
        for row in rows
        if row["recommended"]
    ]


def build_group_goals(rows: Sequence[_Row]) -> list[BenchGoal]:
    """Nothing is re-read, nothing is lost, whatever the topic and the lag."""
    goals: list[BenchGoal] = []
    for case in dict.fromkeys(row["case"] for row in rows):
        ours = [row for row in rows if row["case"] == case and row["contender"] == _OURS]
        for figure, name in (
            ("reread", "records re-read"),
            ("lost", "records lost"),
            ("never_committed", "records seen that were rolled back"),
            ("unmoved_partitions", "partitions without a place"),
        ):
            goals.append(BenchGoal(f"{case}: {name}, all lags", sum(row[figure] for row in ours), 0, "lower"))
    return goals


_WITHOUT_WRITES_S = 5.0  # for `fenced` with 100 partitions when clients follow at once


def build_cutover_goals(rows: Sequence[_Row]) -> list[BenchGoal]:
    """Of our own strategies; what is done by hand is there to compare."""
    goals: list[BenchGoal] = []
    for row in rows:
        if row["case"] == "by hand":
            continue
        if row["case"] == "fenced":
            name = f"fenced, {row['partitions']} partitions: seconds without writes"
            goals.append(BenchGoal(name, row["without_writes_s"], _WITHOUT_WRITES_S, "lower"))
        for figure, name in (("lost", "lost"), ("reread", "read again"), ("out_of_order", "out of order by key")):
            goals.append(BenchGoal(f"{row['case']}: records {name}", row[figure], 0, "lower"))
    by_way = {
        way: [row["without_writes_s"] for row in rows if row["case"] == way] for way in ("by command", "in Airflow")
    }
    if all(by_way.values()):
        command, airflow = (statistics.mean(each) for each in by_way.values())
        name = "in Airflow: times the seconds without writes of the command, means of the same run"
        goals.append(BenchGoal(name, round(airflow / command, 2), _IN_AIRFLOW, "lower"))
    return goals


def build_proof_goals(rows: Sequence[_Row]) -> list[BenchGoal]:
    """Of reading for a proof, for the cases that were read: of each case, the slower side."""

    def slowest(case: str, reader: str, column: str) -> float:
        return float(min(row[column] for row in rows if (row["case"], row["reader"]) == (case, reader)))

    def against_plain(case: str, column: str) -> float:
        plain = max(row[column] for row in rows if (row["case"], row["reader"]) == (case, "plain"))
        return round(slowest(case, "digests", column) / float(plain), 1)

    large, hundred, kilobyte = "1000b-none-64", "100b-none-1000", "1000b-none-1000"
    there = {row["case"] for row in rows}
    goals: list[BenchGoal] = []
    if large in there:
        speed, cpu = against_plain(large, "krecords_s"), against_plain(large, "krecords_s_core")
        core = slowest(large, "digests", "gb_s_core")
        goals += [
            BenchGoal("digests of 64 KiB batches, GB/s a core and side", core, 1.0, "higher"),
            BenchGoal("the same over a plain consumer's records/s", speed, 5.0, "higher"),
            BenchGoal("the same over a plain consumer's records a CPU s", cpu, 5.0, "higher"),
        ]
    if hundred in there:
        cpu = against_plain(hundred, "krecords_s_core")
        goals.append(BenchGoal("digests at 100 B under a plain consumer's CPU", cpu, 20.0, "higher"))
    for case in (hundred, kilobyte, "100b-lz4-1000", "1000b-zstd-1000"):
        if case in there:
            speed = slowest(case, "fingerprints", "krecords_s_core")
            goals.append(BenchGoal(f"fingerprints of {case}, k/s a core", speed, 150, "higher"))
    return goals


def build_transform_goals(rows: Sequence[_Row]) -> list[BenchGoal]:
    """Of each case that MirrorMaker 2 was measured with."""
    goals = []
    for case in dict.fromkeys(row["case"] for row in rows):
        found = {row["contender"]: row for row in rows if row["case"] == case}
        if "mm2 transforms" in found:
            faster = round(found["watershed bytes"]["krecords_s"] / found["mm2 transforms"]["krecords_s"], 2)
            goals.append(BenchGoal(f"{case}: records/s over MM2 with transforms", faster, _TRANSFORMED, "higher"))
    return goals


def build_archive_goals(rows: Sequence[_Row]) -> list[BenchGoal]:
    """Of topics that go through a folder, each case beside a worker's copy of the same run."""
    goals = []
    for case in dict.fromkeys(row["case"] for row in rows):
        found = {row["contender"]: row for row in rows if row["case"] == case}
        if case == _FULL_BATCH:
            rate = _compute_mb_a_cpu_second(found["archive"])
            goals.append(BenchGoal(f"{case}: archived MB a CPU second", rate, _ARCHIVED_MB_A_CPU_SECOND, "higher"))
        share = round(found["restore"]["mb_s"] / found[_OURS]["mb_s"], 2)
        goals.append(BenchGoal(f"{case}: restored MB/s over a worker's copy", share, _RESTORED, "higher"))
    return goals
