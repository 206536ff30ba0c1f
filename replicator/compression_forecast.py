"""What `compression` of a flow would save, measured on a few batches of its topics, before anything is copied.

What was read goes through the very code that a worker sends with, so the forecast is wrong only where the sample does
not stand for the log. Of each topic the fullest partition is looked at, in its middle and near its end: both what is
there, and what producers write now. Topics count by the bytes that they hold, as far as the sample can tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from watershed.clusters.admin import Admin
from watershed.clusters.errors import ClusterError
from watershed.clusters.settings import ConnectionSettings, SettingsLookup
from watershed.clusters.wire.broker_pool import BrokerPool
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import READ_COMMITTED
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.recovery.log_inspection import LeaderLog, read_leader_logs
from watershed.replicator.recovery.source_comparison import read_batches_at
from watershed.topology.egress_compression import EgressCompression
from watershed.topology.plan import Plan, PlanFlow
from watershed.topology.rounded_amounts import render_counted_noun, render_rounded_size

MOST_TOPICS: Final = 200  # of a flow; those that hold the most offsets
_NEAR_THE_END: Final = 1_000  # offsets in front of it
_LITTLE: Final = 0.05  # a share that is not worth the processor time of packing


class SampledBytes(NamedTuple):
    """Bytes of batches as a worker would send them without compression, how many of these it would save, and the
    offsets that they cover."""

    plain: int = 0
    saved: int = 0
    offsets: int = 0

    def plus(self, other: SampledBytes) -> SampledBytes:
        """Both together."""
        return SampledBytes(self.plain + other.plain, self.saved + other.saved, self.offsets + other.offsets)


@dataclass(frozen=True, slots=True)
class CompressionForecast:
    """saved: the expected share of bytes (0 to 1) that workers send less; None where no batch was found. topics:
    selected ones; sampled: those that a batch was read of, sampled_bytes in all. unread: why a topic could not be read,
    the first such reason."""

    flow: str
    compression: EgressCompression
    topics: int
    sampled: int
    sampled_bytes: int
    saved: float | None
    unread: str = ""

    def __str__(self) -> str:
        where = f"{self.flow} compresses ({self.compression})"
        if self.saved is None:
            found = f"{where}: nothing to forecast from, no batch was found in {_topics(self.topics)}"
        else:
            of = f"by {render_rounded_size(self.sampled_bytes)} of {self.sampled:,} of {_topics(self.topics)}"
            little = "; is most of it compressed at the source already?" if self.saved < _LITTLE else ""
            found = f"{where}: about {self.saved:.0%} fewer bytes, {of}{little}"
        return f"{found} (not read: {self.unread})" if self.unread else found

    def to_json(self) -> dict[str, Any]:
        """The forecast of one flow as `plan --format json` shows it."""
        return {
            "flow": self.flow,
            **self.compression.to_json(),
            "topics": self.topics,
            "sampled_topics": self.sampled,
            "sampled_bytes": self.sampled_bytes,
            "saved_share": None if self.saved is None else round(self.saved, 4),
            "unread": self.unread or None,
        }


def forecast_compression(plan: Plan, connect: SettingsLookup) -> list[CompressionForecast]:
    """Of all flows that compress. Reads a few batches of the source; no topic that this account may not read keeps the
    others from being forecast. Raises ClusterError where a source does not list its topics."""
    return [
        _forecast_flow(flow, flow.compression, connect(flow.source))
        for flow in plan.flows
        if flow.compression is not None
    ]


def measure_batches(batches: Sequence[RawBatch], compression: EgressCompression) -> SampledBytes:
    """What workers would save of these batches, which follow one another in a log."""
    if not batches:
        return SampledBytes()
    fetched = memoryview(b"".join(bytes(batch.data) for batch in batches))
    first = batches[0].base
    selected = select_batches(fetched, first, terms=RepackTerms(compression=compression))
    saved = sum(batch.saved for batch in selected.batches)
    sent = sum(len(batch.data) for batch in selected.batches)
    return SampledBytes(sent + saved, saved, selected.position - first)


def weigh_samples(samples: Mapping[str, SampledBytes], offsets: Mapping[str, int]) -> float | None:
    """The expected share of bytes that are saved of all topics. offsets: how many a topic holds, by topic. None where
    no sample has a byte."""
    plain = saved = 0.0
    for topic, sample in samples.items():
        if sample.plain and sample.offsets:
            held = sample.plain / sample.offsets * offsets[topic]
            plain += held
            saved += held * sample.saved / sample.plain
    return saved / plain if plain else None


def _forecast_flow(flow: PlanFlow, compression: EgressCompression, source: ConnectionSettings) -> CompressionForecast:
    with Admin(source) as admin:
        shapes = {topic: shape.partitions for topic, shape in admin.shapes().items() if flow.selects(topic)}
    partitions = [(topic, number) for topic, count in sorted(shapes.items()) for number in range(count)]
    logs: dict[str, dict[int, LeaderLog]] = defaultdict(dict)
    refusals: list[ClusterError] = []
    if partitions:
        for (topic, number), log in read_leader_logs(source, partitions, READ_COMMITTED).items():
            if isinstance(log, ClusterError):
                refusals.append(log)
            else:
                logs[topic][number] = log
    offsets = {topic: sum(log.end - log.start for log in each.values()) for topic, each in logs.items()}
    fullest = sorted((topic for topic in offsets if offsets[topic]), key=lambda topic: -offsets[topic])[:MOST_TOPICS]
    samples: dict[str, SampledBytes] = {}
    for topic, found in _read_samples(source, {topic: logs[topic] for topic in fullest}):
        if isinstance(found, ClusterError):
            refusals.append(found)
        else:
            samples[topic] = samples.get(topic, SampledBytes()).plus(measure_batches(found, compression))
    seen = {topic: each for topic, each in samples.items() if each.plain}
    return CompressionForecast(
        flow.id,
        compression,
        len(shapes),
        len(seen),
        sum(each.plain for each in seen.values()),
        weigh_samples(seen, offsets),
        str(refusals[0]) if refusals else "",
    )


def _read_samples(
    source: ConnectionSettings, logs: Mapping[str, Mapping[int, LeaderLog]]
) -> Iterator[tuple[str, list[RawBatch] | ClusterError]]:
    """Batches of each topic's fullest partition, in its middle and near its end."""
    chosen = {topic: max(each.items(), key=lambda entry: entry[1].end - entry[1].start) for topic, each in logs.items()}
    keys = {PartitionKey("", topic, topic, number): log for topic, (number, log) in chosen.items()}
    with BrokerPool(partial(open_connection, source)) as pool:
        for find_place in (_find_middle, _find_place_near_end):
            wanted = {key: (log, key.topic, find_place(log)) for key, log in keys.items()}
            try:
                read = read_batches_at(pool, wanted)
            except ClusterError as error:  # of a leader: it is told, and keeps nobody from the rest of the plan
                read = dict.fromkeys(wanted, error)
            yield from ((key.topic, found) for key, found in read.items())


def _find_middle(log: LeaderLog) -> int:
    return (log.start + log.end) // 2


def _find_place_near_end(log: LeaderLog) -> int:
    return max(log.start, log.end - _NEAR_THE_END)


def _topics(count: int) -> str:
    return render_counted_noun(count, "topic")
