"""The loop guard: which batches of a source must not travel on, and which way a batch came, told by the producer id in
its header.

A batch that a Watershed flow wrote carries that flow's producer id for ever, and the registry of its cluster
(`clusters.producer_registry`) says which clusters its records were in. What was in this flow's target must not go back
there; with `forward: local` nothing that any flow brought travels on.

Whoever may write to a topic may write under a flow's id, too. So the id is believed only where that flow's ledger
claims the batch (decision 0052); one that nobody claims stops its partition, and is copied when a person says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from clusters.claim_rules import ClaimedPartition
from clusters.control_topics import FLOWS_TOPIC
from clusters.errors import ProtocolError
from clusters.producer_registry import PRODUCER_PREFIX
from replicator.batch.codecs import ZSTD
from replicator.batch.filler import is_filler_batch
from replicator.batch.record_batch import RawBatch
from replicator.errors import ForeignWrite
from replicator.states import OffsetSpan

ClusterPath = tuple[str, ...]  # cluster ids, birth place first
UNKNOWN_PATH: Final[ClusterPath] = ("?",)  # of an id whose record cannot be read; no cluster id is a question mark
_NOBODY: Final = -1  # the producer id of a batch without one
MAX_KNOWN_PRODUCER_IDS: Final = 10_000  # producer ids; applications that come and go have a new one each time


@dataclass(slots=True)
class LoopGuard:
    """`source` and `target` are cluster ids: another topology file may know the same cluster by another alias.
    `registry` reads, for all flows into the source: producer id → path, from the birth place to that flow's source.
    `claims` tells whether the ledger of one of them says that it wrote a batch (`replicator.ledger.claims_follower`).
    guarded: False for `guard: none`, which lets return what was at the target and forgets the way; paths: whether the
    flow writes with an id a path, so that the way must be told.

    An id is registered before its first batch is written. So one that is unknown after reading the registry again
    belongs to an application, for good. Thread-safe as far as `registry` and `claims` are.
    """

    source: str
    target: str
    forward: str
    registry: Callable[[], Mapping[int, ClusterPath]]
    claims: Callable[[ClaimedPartition, RawBatch], bool]
    guarded: bool = True
    paths: bool = False
    _known: dict[int, ClusterPath] = field(default_factory=dict)  # () for an application

    def at(self, where: ClaimedPartition, passed: OffsetSpan | None = None) -> PartitionLoopGuard:
        """For the batches of one source partition. passed: offsets at which no id is believed: a person looked."""
        return PartitionLoopGuard(self, where, passed)

    def path(self, producer_id: int) -> ClusterPath:
        """The way that what this producer writes came; () for an application. Raises ClusterError."""
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
            del self._known[producer_id]  # asked for again: it may have been healed
            raise ProtocolError(
                f"the record about producer id {producer_id} in {FLOWS_TOPIC} cannot be read, so the loop guard "
                f"cannot tell "
                f"which way its batches came. Write it again with `topology apply` for the flow that has the id, or, "
                f"where it is no flow's, write a tombstone under key {PRODUCER_PREFIX}{producer_id}",
                topic=FLOWS_TOPIC,
            )
        return known


@dataclass(frozen=True, slots=True)
class PartitionLoopGuard:
    """Called with a batch: whether it is left out. Raises ForeignWrite where it names a flow that did not write it."""

    guard: LoopGuard
    where: ClaimedPartition
    passed: OffsetSpan | None = None

    def __call__(self, batch: RawBatch) -> bool:
        """What another flow fills a topic with for a while is nobody's record."""
        if batch.max_timestamp == 0 and batch.codec == ZSTD and not batch.control and is_filler_batch(batch):
            return True
        flow = self.guard
        local = flow.forward == "local"
        if not local and not flow.guarded:
            return False
        path = self._path(batch)
        left_out = bool(path) if local else flow.target in path
        if (left_out or (path and flow.paths)) and not flow.claims(self.where, batch):
            raise ForeignWrite(batch.base, batch.end, batch.producer_id)
        return left_out

    def path_of(self, batch: RawBatch) -> ClusterPath:
        """The clusters that a batch was in before it comes to the target, its birth place first and the source last; as
        far as this flow has to tell them."""
        if not (self.guard.guarded and self.guard.paths):
            return (self.guard.source,)
        return (*self._path(batch), self.guard.source)

    def _path(self, batch: RawBatch) -> ClusterPath:
        if self.passed is not None and self.passed.first <= batch.base < self.passed.end:
            return ()
        return self.guard.path(batch.producer_id)
