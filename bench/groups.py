"""What moving a consumer group costs its application: records re-read and lost, Watershed against MirrorMaker 2.

One run, the same topics, all contenders copy at the same time. For plain, transactional (every fifth transaction
aborted) and compacted topics, groups read at the source and stay 0, 10, 1,000 and 100,000 records behind the end.
When the last record is written they stop exactly there; MirrorMaker's checkpoints are given time to settle,
`topology offsets sync` carries what Watershed's worker has not carried yet. Then each group reads on at the target,
from each contender's copy, and what it gets is compared with what it had read (`bench.moved_group`). Environment:

    BENCH_RECORDS     records a topic (default 300,000; at least 250,000, so that a group can be 100,000 behind)
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from watershed.bench.bench_clusters import BenchClusters, run_bench_clusters
from watershed.bench.goals import build_group_goals
from watershed.bench.group_movers import GroupMover, run_mirrormaker_mover, run_watershed_mover
from watershed.bench.lagging_group import LaggingGroup
from watershed.bench.moved_group import judge_moved_group, read_on_at_target
from watershed.bench.numbered_topics import (
    READ_TO_END_S,
    TOPIC_KINDS,
    NumberedRecords,
    NumberedTopic,
    read_numbered_records,
)
from watershed.bench.results import choose_size, publish_results, report_progress
from watershed.lab import mirrormaker
from watershed.lab.errors import LabError

_LAGS = choose_size((0, 10, 1_000, 100_000), (0, 10))
_LEAST = choose_size(250_000, 2_000)
_MIRRORS = choose_size(("mm2 default", "mm2 tuned"), ())  # they take 15 s to come to rest
_LIVE = 0.2  # the share of records that come while everybody copies
_STEPS, _STEP_S = choose_size(20, 2), 1.0  # a step is as long as MirrorMaker's intervals, at least
_HANDFUL = 20  # records at the very end, for which compaction's last segment is closed


def main() -> int:
    """Lets groups lag, stop, move and read on, for each contender. Returns the exit code."""
    records = int(os.environ.get("BENCH_RECORDS", choose_size("300000", "2000")))
    if records < _LEAST:
        raise SystemExit(f"BENCH_RECORDS: {records} are too few, at least {_LEAST} are needed")
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="watershed-bench-")))
        place = stack.enter_context(run_bench_clusters(scratch, {"log.cleaner.backoff.ms": "500"}))
        topics = [NumberedTopic(case, place.source) for case in TOPIC_KINDS]
        groups = {topic.topic: [LaggingGroup(topic, lag, place.source) for lag in _LAGS] for topic in topics}
        before = int(records * (1 - _LIVE))
        for topic in topics:
            topic.produce(before)
            _follow(groups[topic.topic])
            report_progress(f"{topic.topic}: {before:,} records, groups read along")
        names = [group.group for some in groups.values() for group in some]
        movers = _started(stack, place, list(groups), names)
        for _ in range(_STEPS):
            until = time.monotonic() + _STEP_S
            for topic in topics:
                topic.produce((records - before - _HANDFUL) // _STEPS)
                _follow(groups[topic.topic])
            time.sleep(max(until - time.monotonic(), 0))
        report_progress(f"{records - before:,} more in each topic while they were copied, groups read along")
        rows = list(_measured(place, movers, topics, groups))
    return publish_results("groups", rows, build_group_goals(rows))


def _started(stack: ExitStack, place: BenchClusters, topics: Sequence[str], groups: Sequence[str]) -> list[GroupMover]:
    movers: list[GroupMover] = [stack.enter_context(run_watershed_mover(place, topics, groups))]
    if not _MIRRORS:
        return movers
    flushing = {"offset.flush.interval.ms": "1000"}  # offset syncs that wait are sent then; 60 s as it comes
    mirror = mirrormaker.start_connect_mirrormaker(place.directory / "mirrormaker", place.target.bootstrap[0], flushing)
    stack.callback(mirror.stop)
    movers += [stack.enter_context(run_mirrormaker_mover(place, mirror, name, topics)) for name in _MIRRORS]
    return movers


def _follow(groups: Sequence[LaggingGroup]) -> None:
    for group in groups:
        group.follow()


def _measured(
    place: BenchClusters,
    movers: Sequence[GroupMover],
    topics: Sequence[NumberedTopic],
    groups: dict[str, list[LaggingGroup]],
) -> Iterator[dict[str, Any]]:
    """The rows of the table: everything stops, the groups are moved, and read on."""
    sources = {topic.topic: _ended(topic, place) for topic in topics}
    stands = [(topic, group.stop(sources[topic.topic])) for topic in topics for group in groups[topic.topic]]
    stopped = time.monotonic()
    report_progress("the groups have stopped at their lags")
    names = [stand.group for _, stand in stands]
    with ThreadPoolExecutor() as pool:  # all at once: none has more time than another
        moved = list(pool.map(lambda mover: mover.move(names, list(sources), stopped), movers))
    for mover, seconds in zip(movers, moved, strict=True):
        report_progress(f"reading on behind {mover.name}")
        for topic, stand in stands:
            seen = read_on_at_target(place.target, stand.group, f"{mover.prefix}.{topic.topic}")
            found = judge_moved_group(stand, sources[topic.topic], seen, topic.aborted, compacted=topic.case.keys)
            yield {
                "case": topic.case.name,
                "lag": stand.lag,
                "contender": mover.name,
                "reread": found.reread,
                "lost": found.lost,
                "never_committed": found.never_committed,
                "unmoved_partitions": found.unmoved,
                "seconds": round(seconds[stand.group], 2),
            }


def _ended(topic: NumberedTopic, place: BenchClusters) -> NumberedRecords:
    """Ends the topic and returns its log, as it stays."""
    if topic.case.configs:
        time.sleep(2.5)  # longer than segment.ms: the next record closes the segment for the cleaner
    topic.produce(_HANDFUL)
    deadline = time.monotonic() + READ_TO_END_S
    rows, same_since = read_numbered_records(place.source, topic.topic), time.monotonic()
    while topic.case.configs and time.monotonic() - same_since < 5.0 and time.monotonic() < deadline:
        time.sleep(1.0)
        found = read_numbered_records(place.source, topic.topic)
        if found != rows:
            rows, same_since = found, time.monotonic()
    topic.close()
    rows = read_numbered_records(place.source, topic.topic)
    report_progress(f"{topic.topic}: {sum(map(len, rows.values())):,} records to read of {topic.made:,} written")
    return rows


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that brokers and workers are ended, too
    try:
        sys.exit(main())
    except LabError as error:
        sys.exit(f"bench: {error}")
