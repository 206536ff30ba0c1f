"""What a proof compares of one flow: a window for every partition, and the partitions that have no window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from watershed.clusters.admin import Admin
from watershed.clusters.flow_records import StartPosition, choose_start
from watershed.clusters.provenance_header import ProvenanceHeader, build_provenance_header
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.copy.quarantine import QuarantinedRecord
from watershed.replicator.ledger.foreign_part import JoinedOffsetMap
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.spark.foreign.inferred_alignment import choose_window_start
from watershed.spark.judging.earlier_proof import EarlierProof, merge_neighbour_chunks, select_rechecked_chunks
from watershed.spark.judging.flow_observation import FlowFacts
from watershed.spark.judging.partition_sizes import read_partition_bytes
from watershed.spark.judging.proof_inputs import ProofPartition
from watershed.spark.judging.proof_window import ObservedPartition, PartitionPair, choose_chunk_offsets, fix_window
from watershed.spark.judging.quarantine_side import build_quarantined_offsets
from watershed.spark.judging.verdict import Counts
from watershed.spark.proof_request import ProofRequest
from watershed.spark.reading.schema_id_pairs import NO_ID_REWRITE, KeyValueIdPairs
from watershed.topology.plan import PlanFlow


def fix_partitions(
    facts: FlowFacts,
    observed: Sequence[ObservedPartition],
    request: ProofRequest,
    earlier: EarlierProof,
    source: ConnectionSettings,
    ids: Mapping[str, KeyValueIdPairs],
    quarantine: Mapping[tuple[str, int], Sequence[QuarantinedRecord]],
) -> list[ProofPartition]:
    """The partitions to compare, each with its fixed window and the chunk size.

    ids: rewritten schema ids by source topic; quarantine: records in quarantine by source topic and partition.
    Raises ClusterError.
    """
    pairs = {pair.source.name: pair for pair in facts.pairs}
    sizes = read_partition_bytes(source, pairs) if request.chunk is None else {}
    share = _choose_recheck_share(facts, request)
    found = []
    for o in observed:
        topic, number = o.place.topic, o.place.partition
        before, proven = earlier.of(o)
        final = request.final and facts.flow.end is None  # behind an end others may write
        window = fix_window(o, start=_choose_start(facts, o), final=final, earlier=before)
        window = replace(window, unverifiable=window.unverifiable + facts.lost.get(o.place, 0))
        chunk = request.chunk or choose_chunk_offsets(
            sizes.get(TopicPartition(topic, number)), o.source.end - o.source.start
        )
        aligned = facts.flow.offsets == "aligned" and not facts.foreign
        in_place = aligned and all(run.source == run.target for run in o.map.runs)
        proven = merge_neighbour_chunks(proven, chunk, in_place=in_place)
        pair, topic_ids = pairs[topic], ids.get(topic, NO_ID_REWRITE)
        header = None if facts.foreign else build_header_of_copy(facts.flow, facts.source, o.place, o.map)
        found.append(
            ProofPartition(
                window,
                o.map,
                (facts.flow.source, facts.flow.target),
                compacted=pair.compacted,
                only_copy_compacts=pair.only_copy_compacts,
                transform=None if facts.foreign else facts.flow.transform,
                marks=facts.marks_of(topic),
                timestamps=pair.timestamps,
                skip=facts.skip,
                only=facts.only,
                claims=facts.claims_of(topic, o.ids[0], number),
                ids=topic_ids,
                header=header,
                in_place=in_place,
                chunk=chunk,
                earlier=proven,
                again=select_rechecked_chunks(proven, earlier.run, share),
                kept=build_quarantined_offsets(
                    quarantine.get((topic, number), ()), timestamps=pair.timestamps, ids=topic_ids, header=header
                ),
            )
        )
    return found


def build_header_of_copy(
    flow: PlanFlow, source: Admin, place: PartitionPair, copied: OffsetMap
) -> ProvenanceHeader | None:
    """What the flow has added to the records of a partition; to none of those that another tool had copied before it
    was adopted. Raises ClusterError."""
    if flow.header is None:
        return None
    begin = copied.front.position if isinstance(copied, JoinedOffsetMap) else 0
    return build_provenance_header(flow, source.cluster_id(), place.topic, place.partition, begin)


def count_without_copy(facts: FlowFacts) -> dict[PartitionPair, Counts]:
    """Source partitions that have no partition on the target: all their records are pending (counted by offsets).

    Raises ClusterError.
    """
    flow, pairs = facts.flow, {pair.source.name: pair for pair in facts.pairs}
    lonely = [
        TopicPartition(topic.name, number)
        for topic in facts.selected
        for number in range(pairs[topic.name].target.partitions if topic.name in pairs else 0, topic.partitions)
    ]
    logs = facts.source.offsets(lonely) if lonely else {}
    return {
        PartitionPair(flow.id, key.topic, flow.target_topic(key.topic), key.partition): Counts(
            pending=log.end - log.start
        )
        for key, log in logs.items()
    }


def find_partitions_not_begun(facts: FlowFacts, observed: Sequence[ObservedPartition]) -> list[str]:
    """Findings: partitions of a flow that begins in the middle, and that no worker has begun. They have no window,
    which is not the same as an empty window."""
    if facts.flow.start == "earliest" or facts.foreign:
        return []
    return [
        f"{o.place.name}: no worker has begun this partition"
        for o in observed
        if not o.map.runs and o.source.end > 0 and (o.place.topic, o.place.partition) not in facts.complete
    ]


def _choose_start(facts: FlowFacts, o: ObservedPartition) -> StartPosition:
    if facts.foreign:
        return choose_window_start(o)
    begin = facts.begins.get(o.place.topic, {}).get(o.place.partition)
    return choose_start(facts.flow, o.place.topic, o.place.partition) if begin is None else begin


def _choose_recheck_share(facts: FlowFacts, request: ProofRequest) -> float:
    """The share of earlier proven chunks that is read again."""
    if request.recheck is not None:
        return request.recheck
    if request.final and request.since is not None:
        return 0.0  # producers are fenced and wait: rereading a large history takes longer than the rest
    return facts.flow.verify.recheck
