"""Whose records count in a proof: the producer ids that a flow leaves out at its source, and its own at the target.

A batch carries the id of its producer for ever. The registry of a cluster (`clusters.producer_registry`) says which ids
are Watershed's, for which flow, and which clusters their records were in. An id is registered before its first batch.
So a registry that is read after a log's end names every id of ours below that end. Any other id is an application's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from watershed.clusters.claim_rules import ClaimedPartition, PartitionClaims
from watershed.clusters.flow_records import read_flows
from watershed.clusters.producer_registry import read_producers
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.ledger.claims import read_claims
from watershed.topology.plan import PlanFlow

if TYPE_CHECKING:
    from watershed.spark.judging.proof_inputs import ProofPartition, ProofReaders

NO_KNOWN_PRODUCER = -2  # an id that no producer has (batches without a producer id have -1)


def is_target_shared(flow: PlanFlow) -> bool:
    """Whether the plan lets others write into the flow's target partitions. The flow then copies in transactions."""
    return flow.merge or flow.delivery == "transactions"


def read_producers_to_skip(flow: PlanFlow, source: ConnectionSettings, target_id: str) -> tuple[int, ...]:
    """Producer ids that the loop guard drops at the source (`replicator.copy.loop_guard`).

    With `forward: local`: every producer of any flow. Otherwise: producers whose records have already been in the
    target cluster.
    """
    if flow.guard == "none" and flow.forward != "local":
        return ()
    paths = _read_producer_paths(source)
    return tuple(sorted(id_ for id_, path in paths.items() if flow.forward == "local" or target_id in path))


def read_feeding_producers(source: ConnectionSettings) -> tuple[int, ...]:
    """Producer ids of all flows into a cluster, sorted. Raises ClusterError."""
    return tuple(sorted(_read_producer_paths(source)))


def _read_producer_paths(source: ConnectionSettings) -> dict[int, tuple[str | None, ...]]:
    paths: dict[int, tuple[str | None, ...]] = {
        record.producer_id: (record.source_cluster_id,)
        for record in read_flows(source).values()
        if record.producer_id is not None
    }
    return paths | {id_: producer.path for id_, producer in read_producers(source).items()}


def read_source_claims(source: ConnectionSettings) -> dict[ClaimedPartition, PartitionClaims]:
    """Offsets that the flows into a cluster have written there, as their ledgers claim. A batch under a flow's producer
    id at any other offset is somebody else's. Covers all that was written before the call. Raises ClusterError."""
    mapped = {id_ for id_, record in read_flows(source).items() if record.flow.offsets != "aligned"}
    return read_claims(source, mapped)


@dataclass(frozen=True, slots=True)
class TargetWriters:
    """Producer ids at a flow's target, sorted. ours: the ids with which the flow writes now or wrote earlier; never
    empty. known: the ids of all flows."""

    ours: tuple[int, ...]
    known: tuple[int, ...]


def read_target_writers(flow: PlanFlow, target: ConnectionSettings) -> TargetWriters:
    """Raises ClusterError."""
    flows = read_flows(target)
    by_id = {record.producer_id: id_ for id_, record in flows.items() if record.producer_id is not None}
    by_id |= {id_: producer.flow for id_, producer in read_producers(target).items()}
    ours = tuple(sorted(id_ for id_, written in by_id.items() if written == flow.id))
    return TargetWriters(ours or (NO_KNOWN_PRODUCER,), tuple(sorted(by_id)))


def read_own_producer_ids(flow: PlanFlow, target: ConnectionSettings) -> tuple[int, ...]:
    """Only the ids of the flow itself. Raises ClusterError."""
    return read_target_writers(flow, target).ours


def describe_application_records(
    partitions: Sequence[ProofPartition], known: Sequence[int], readers: ProofReaders
) -> Iterator[str]:
    """One text for each shared target partition in whose window applications wrote. Batch headers tell them apart."""
    requests = [
        replace(partition.build_request(1, partition.window.target, number, "batches"), only=(), skip=tuple(known))
        for number, partition in enumerate(partitions)
        if partition.window.target.end > partition.window.target.start
    ]
    for number, read in sorted(readers.sums(requests).items() if requests else ()):
        place, alias = partitions[number].window.place, partitions[number].clusters[1]
        if read.sums.n:
            yield (
                f"{place.target_topic}-{place.partition} on {alias}: {read.sums.n} records of applications stand among "
                f"those of flow {place.flow}; the plan says that others write there, so they are not the flow's records"
            )
