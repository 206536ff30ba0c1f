"""The loop guard: reads the producer id in a batch's header. The id tells if the flow must leave the batch out, and
through which clusters the batch came.

A batch that a Watershed flow wrote carries the producer id of that flow for ever. The registry of its cluster
(`clusters.producer_registry`) says in which clusters the records with this id were before. A record that was in this
flow's target must not go back there. With `forward: local`, the flow leaves out every record that another flow brought.

What another tool brought carries no id of ours. Where the file says how its records are told apart
(`replicator.copy.external_records`), they have the path that the file gives them.

Everybody who may write to a topic may also write under a flow's producer id. So the guard believes the id only if the
ledger of that flow claims the batch (decision 0052). A batch that no ledger claims halts its partition. An operator
decision can have it copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.claim_rules import ClaimedPartition
from watershed.clusters.control_topics import FLOWS_TOPIC
from watershed.clusters.errors import ClusterError, ProtocolError
from watershed.clusters.producer_registry import PRODUCER_PREFIX
from watershed.replicator.batch.codecs import ZSTD
from watershed.replicator.batch.filler_batch import FILLER_TIMESTAMP, is_filler_batch
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.copy.external_records import ExternalRecords, find_external_records
from watershed.replicator.errors import ForeignWrite, PartlyMarked
from watershed.replicator.partition_states import OffsetSpan
from watershed.topology.external_flows import ExternalFlow

ClusterPath = tuple[str, ...]  # cluster ids; the cluster where the record was produced is the first
UNKNOWN_PATH: Final[ClusterPath] = ("?",)  # for an id whose registry record cannot be read; no cluster id is `?`
_NOBODY: Final = -1  # the producer id of a batch without one
MAX_KNOWN_PRODUCER_IDS: Final = 10_000  # bound of the cache: each new producer of an application has a new id


@dataclass(slots=True)
class LoopGuard:
    """source, target: cluster ids, because another topology file may know the same cluster by another alias.
    registry: reads, for all flows into the source, producer id → path from the first cluster to that flow's source.
    claims: whether one of these flows' ledgers says that it wrote a batch (`replicator.ledger.claims_follower`).
    guarded: False for `guard: none`. Then batches may return to the target, and their paths are not kept.
    paths: whether the flow writes with one producer id per path, and so has to know the path of each batch.
    tools: what other tools copy into the source, with the clusters through which it came.

    A flow registers its id before it writes its first batch. So an id that is still unknown after the registry is read
    again belongs to an application, and always will. Thread-safe as far as `registry` and `claims` are.
    """

    source: str
    target: str
    forward: str
    registry: Callable[[], Mapping[int, ClusterPath]]
    claims: Callable[[ClaimedPartition, RawBatch], bool]
    guarded: bool = True
    paths: bool = False
    tools: tuple[tuple[ExternalFlow, ClusterPath], ...] = ()
    _known: dict[int, ClusterPath] = field(default_factory=dict)  # () for an application

    def at(self, where: ClaimedPartition, passed: OffsetSpan | None = None) -> PartitionLoopGuard:
        """The guard for one source partition. passed: offsets where no id is believed, by an operator decision."""
        return PartitionLoopGuard(self, where, passed, find_external_records(self.tools, where.topic))

    def path(self, producer_id: int) -> ClusterPath:
        """The clusters through which this producer's batches came; () for an application. Raises ClusterError."""
        if producer_id == _NOBODY:
            return ()
        known = self._known.get(producer_id)
        if known is None:
            registered = self.registry()
            if len(self._known) >= MAX_KNOWN_PRODUCER_IDS:
                self._known.clear()
            self._known.update(registered)
            known = self._known.setdefault(producer_id, ())
        if known == UNKNOWN_PATH:
            del self._known[producer_id]  # the next call reads the registry again: the record may be repaired by then
            raise ProtocolError(
                f"the record about producer id {producer_id} in {FLOWS_TOPIC} cannot be read, so the loop guard "
                f"cannot tell "
                f"through which clusters its batches came. Write it again with `topology apply` for the flow that has "
                f"the id. If no flow has it, write a tombstone under key {PRODUCER_PREFIX}{producer_id}",
                topic=FLOWS_TOPIC,
            )
        return known


@dataclass(frozen=True, slots=True)
class PartitionLoopGuard:
    """Says of a batch whether it is left out. Raises ForeignWrite if it names a flow and no ledger claims it. external:
    what tells the records of other tools apart in this partition."""

    guard: LoopGuard
    where: ClaimedPartition
    passed: OffsetSpan | None = None
    external: tuple[ExternalRecords, ...] = ()

    def __call__(self, batch: RawBatch) -> bool:
        """Whether the batch is left out. Filler of another flow always is: it holds nobody's data."""
        is_of_1970 = batch.max_timestamp == FILLER_TIMESTAMP
        if is_of_1970 and batch.codec == ZSTD and not batch.control and is_filler_batch(batch):
            return True
        flow = self.guard
        local = flow.forward == "local"
        if not local and not flow.guarded:
            return False
        path = self._path(batch)
        left_out = bool(path) if local else flow.target in path
        if path and (left_out or flow.paths) and not flow.claims(self.where, batch):
            raise ForeignWrite(batch.base, batch.end, batch.producer_id)
        if path or not (self.external and self._asks_for_marks):
            return left_out
        path = self._external_path(batch)
        return bool(path) if local else flow.target in path

    def takes_all_of(self, producer_id: int) -> bool:
        """Whether every batch of this producer that is not filler is taken without asking a ledger, and all came the
        same way: those of an application, and where no id counts those of everybody."""
        flow = self.guard
        local = flow.forward == "local"
        if not local and not flow.guarded:
            return True
        if self._asks_for_marks:
            return False
        try:
            path = flow.path(producer_id)
        except ClusterError:
            return False  # each of its batches is judged by itself, which raises the error at the first one
        return not path or (not local and flow.target not in path and not flow.paths)

    def path_of(self, batch: RawBatch) -> ClusterPath:
        """The clusters that a batch was in before the target, from the one where it was produced to the source. Only
        the source if the flow does not write with one producer id per path."""
        if not (self.guard.guarded and self.guard.paths):
            return (self.guard.source,)
        return (*(self._path(batch) or self._external_path(batch)), self.guard.source)

    def _path(self, batch: RawBatch) -> ClusterPath:
        return () if self._is_passed(batch) else self.guard.path(batch.producer_id)

    def _external_path(self, batch: RawBatch) -> ClusterPath:
        """The way of what another tool brought; () for an application's batch. Raises BadBatch."""
        if self._is_passed(batch):
            return ()
        paths: list[ClusterPath] = []
        partly: PartlyMarked | None = None
        for each in self.external:
            try:
                if each.covers(batch):
                    paths.append(each.path)
            except PartlyMarked as error:
                partly = error
        if partly is not None and not paths:
            raise partly
        # One that was in the target before decides: the records must not go back there.
        return next((path for path in paths if self.guard.target in path), paths[0] if paths else ())

    @property
    def _asks_for_marks(self) -> bool:
        """Whether it matters for a batch which tool brought it."""
        flow = self.guard
        return any(flow.forward == "local" or flow.paths or flow.target in tool.path for tool in self.external)

    def _is_passed(self, batch: RawBatch) -> bool:
        return self.passed is not None and self.passed.first <= batch.base < self.passed.end
