"""After a fence nothing is written at the source. These checks find what was, after the comparison.

Records that were written since the window was fixed are stragglers, a transaction that is still open holds records that
nobody can copy yet. Both forbid the word proven, and are told by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from watershed.clusters.cluster_protocol import LogRange, ReadIsolation
from watershed.clusters.errors import ClusterError
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import ProducerState
from watershed.spark.judging.proof_inputs import ProofPartition
from watershed.spark.judging.proof_window import ObservedPartition
from watershed.spark.judging.verdict import Counts, ProofJudgement
from watershed.spark.reading.offset_range import OffsetRange
from watershed.topology.shell_command import render_shell_command

_COUNTED = 200_000  # offsets of stragglers that are counted record by record; beyond, by offsets
_NAMED = 5

_Ends = Callable[[Sequence[TopicPartition], ReadIsolation], dict[TopicPartition, LogRange]]
_Count = Callable[[ProofPartition, OffsetRange], int]


def add_fence_findings(
    judgement: ProofJudgement,
    partitions: Sequence[ProofPartition],
    observed: Sequence[ObservedPartition],
    ends: _Ends,
    count: _Count,
    holders: Callable[[TopicPartition], str],
) -> ProofJudgement:
    """Adds records written behind the fence and open transactions of one source cluster to a judgement. ends: log ends
    by isolation level. count: records of a range; holders: the producers that hold a partition's last stable offset.
    """
    keys = {TopicPartition(s.window.place.topic, s.window.place.partition): s for s in partitions}
    if not keys:
        return judgement
    began = {TopicPartition(o.place.topic, o.place.partition): o.barrier for o in observed}
    counts, blocks = dict(judgement.partitions), list(judgement.blocks)
    whole = ends(list(keys), "read_uncommitted")
    for key, log in ends(list(keys), "read_committed").items():
        s, where = keys[key], f"{key.topic}-{key.partition}"
        if whole[key].end > log.end:
            held = f"offsets {log.end} to {whole[key].end - 1}"
            blocks.append(f"{where}: an open transaction holds {held} ({holders(key)})")
        late = max(0, log.end - max(began[key], log.start))
        if late and (records := count(s, OffsetRange(log.end - late, log.end)) if late <= _COUNTED else late):
            unit = "records were" if late <= _COUNTED else "offsets were"
            blocks.append(f"{where}: {records} {unit} written after the window was fixed, from offset {began[key]} on")
        behind = OffsetRange(max(s.window.tail.end, log.start), log.end)
        if behind.end > behind.start:  # nobody has looked whether these were copied
            size = behind.end - behind.start
            more = count(s, behind) if size <= _COUNTED else size
            counts[s.window.place] = counts.get(s.window.place, Counts()) + Counts(pending=more)
    return replace(judgement, partitions=counts, blocks=tuple(blocks))


def describe_open_transactions(settings: ConnectionSettings, key: TopicPartition) -> str:
    """Producers with an open transaction in a partition, and the command that ends it, from the partition's leader."""
    try:
        found = _producers(settings, key.topic, key.partition)
    except ClusterError as error:
        return f"who, the cluster does not say: {error}"
    open_ones = sorted((each for each in found if each.transaction_start >= 0), key=lambda e: e.transaction_start)
    if not open_ones:
        return "it has ended by now"
    named = ", ".join(
        f"producer id {each.producer_id} epoch {each.epoch} since offset {each.transaction_start}"
        for each in open_ones[:_NAMED]
    )
    more = f" and {len(open_ones) - _NAMED} more" if len(open_ones) > _NAMED else ""
    first = open_ones[0]
    return (
        f"{named}{more}; it ends when its application does so or its timeout has passed; one that hangs is ended by "
        + render_shell_command(
            *("kafka-transactions.sh", "--bootstrap-server", settings.bootstrap[0], "abort", "--topic", key.topic),
            *("--partition", key.partition, "--start-offset", first.transaction_start),
        )
    )


def _producers(settings: ConnectionSettings, topic: str, partition: int) -> list[ProducerState]:
    link = open_connection(settings)
    try:
        answer = link.metadata((topic,))
    finally:
        link.close()
    for each in (p for t in answer.topics for p in t.partitions if p.partition == partition):
        if each.node in answer.brokers:
            leader = open_connection(settings, answer.brokers[each.node])
            try:
                error, states = leader.describe_producers(topic, partition)
            finally:
                leader.close()
            if error:
                raise ClusterError(
                    f"DescribeProducers of {topic}-{partition} was refused: {error_codes.describe_error_code(error)}"
                )
            return states
    raise ClusterError(f"{topic}-{partition} has no leader just now")
