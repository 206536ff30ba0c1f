"""How far a flow has copied, told in Kafka's own ways: positions of a group at the source, and offset syncs.

A position at the source (`compatibility.source_group`) is where a reader would stand that has read what is copied. It
follows from the target's log end, below which records are durable, and from the ledger. The log is asked first: what is
announced later cannot be taken for copied. So the position is never ahead of the target, also when a worker is killed.

An offset sync (`compatibility.mirrormaker.offset_syncs`) names a record by its offsets on both sides: here the last one
that is copied. MirrorMaker writes one for at least each `offset.lag.max` records; here it is one a partition and round.
A reader of syncs never takes a group further than our exact translation does: behind the named record everything
follows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.control_topics import SLOT_COUNT
from watershed.clusters.group_offsets import CommittedPosition, GroupOffsets, LogOffsets
from watershed.clusters.sync_reports import SyncReport
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger.ledger import Ledger
from watershed.replicator.ledger.ledger_follower import LedgerFollower
from watershed.replicator.ledger.offset_translation import CopiedPartition
from watershed.replicator.mirrormaker_records import OffsetSync, encode_offset_sync
from watershed.replicator.sync.flow_resources import FlowResources, WrittenValues
from watershed.replicator.sync.group_translation import CopiedLogs, collect_offset_maps
from watershed.replicator.sync.mirror_topic_writer import MirrorTopicWriter
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology.mirror_compatibility import MirrorCompatibility
from watershed.topology.plan import PlanFlow
from watershed.topology.sync_settings import SyncMode

_EVERY_MS: Final = 5_000  # auto.commit.interval.ms of Kafka's consumers
# A round of 2,000 partitions takes 0.15 s of processor time. So it stays near 3 % of a core, whatever the flow has.
_MS_A_PARTITION: Final = 2.5


class CopiedPositionKind:
    """Of flows with a `source_group` or offset syncs."""

    def __init__(self) -> None:
        self._tellers = FlowResources(_PositionTeller.of, _tells_positions)
        self._partitions: dict[str, int] = {}  # by flow, as its last round saw them

    @property
    def name(self) -> str:
        """See `SyncKind.name`."""
        return "positions"

    def mode(self, flow: PlanFlow) -> SyncMode:
        """`continuous` where the file asks for either."""
        return "continuous" if _tells_positions(flow) else "never"

    def every_ms(self, flow: PlanFlow) -> int:
        """As often as Kafka's consumers commit by themselves, and less often where a flow has many partitions."""
        return compute_round_interval(self._partitions.get(flow.id, 0))

    def keep(self, flow: PlanFlow, sides: SyncClusters) -> list[SyncReport]:
        """Tell what has changed since the last round. Raises ClusterError, ReplicatorError."""
        with self._tellers.use(flow, sides) as teller:
            reports = teller.tell(time.monotonic())
            self._partitions[flow.id] = teller.partitions
            return reports

    def forget(self) -> None:
        """See `RememberingSyncKind`."""
        self._tellers.close()


def _tells_positions(flow: PlanFlow) -> bool:
    said = flow.compatibility
    return said is not None and (said.source_group is not None or said.offset_syncs is not None)


def compute_round_interval(partitions: int) -> int:
    """After how many ms a flow with so many partitions is looked at again."""
    return max(_EVERY_MS, round(partitions * _MS_A_PARTITION))


def find_copied_positions(
    flow: str, copies: CopiedLogs, targets: Mapping[TopicPartition, TopicPartition]
) -> dict[TopicPartition, int]:
    """By source partition: everything below this source offset is durable at the target. targets: by source partition,
    the one that it is copied to. Without partitions of which nothing is known, or nothing copied yet; one whose log
    begins behind the position has nothing to read there, and is left out, too."""
    found: dict[TopicPartition, int] = {}
    for place, there in targets.items():
        held = find_durable_copy(flow, copies, place, there)
        here = copies.here.get(place)
        if held is None or here is None:
            continue
        try:
            position = held.position
        except ReplicatorError:  # the partition's own task tells it (`BrokenOffsetMap`)
            continue
        if here.start <= position:
            found[place] = position
    return found


def find_offset_syncs(
    flow: str, copies: CopiedLogs, targets: Mapping[TopicPartition, TopicPartition]
) -> dict[TopicPartition, OffsetSync]:
    """By source partition: the last record that is durable at the target."""
    found: dict[TopicPartition, OffsetSync] = {}
    for place, there in targets.items():
        held = find_durable_copy(flow, copies, place, there)
        last = None if held is None else held.map.find_last_record(held.target_end)
        if last is not None:
            found[place] = OffsetSync(place.topic, place.partition, last.source, last.target)
    return found


def find_durable_copy(
    flow: str, copies: CopiedLogs, place: TopicPartition, there: TopicPartition
) -> CopiedPartition | None:
    """The flow's copy up to the target's last stable offset: what lies behind it may yet be rolled back. None where
    nothing is copied, or the topics are others by now."""
    at_target = copies.there.get(there)
    held, _ = copies.find_copy(flow, place, copies.here.get(place), at_target)
    if held is None or at_target is None or not held.map.runs:
        return None
    return CopiedPartition(held.map, at_target.stable)


@dataclass(slots=True)
class _PositionTeller:
    """Of one flow."""

    flow: PlanFlow
    names: MirrorCompatibility
    sides: SyncClusters
    ledger: LedgerFollower
    syncs: MirrorTopicWriter
    _targets: dict[TopicPartition, TopicPartition] = field(default_factory=dict)  # as the last round saw them
    _committed: WrittenValues[TopicPartition, int] = field(default_factory=WrittenValues)
    _synced: WrittenValues[TopicPartition, OffsetSync] = field(default_factory=WrittenValues)

    @staticmethod
    def of(flow: PlanFlow, sides: SyncClusters) -> _PositionTeller:
        assert flow.compatibility is not None, "made for flows that tell positions only"
        at = sides.target if flow.compatibility.offset_syncs == "target" else sides.source
        ledger = LedgerFollower(sides.target, flow.id, range(SLOT_COUNT))
        return _PositionTeller(flow, flow.compatibility, sides, ledger, MirrorTopicWriter(at))

    @property
    def partitions(self) -> int:
        """How many partitions the flow has copied something of."""
        return len(self._targets)

    def tell(self, now: float) -> list[SyncReport]:
        with GroupOffsets(self.sides.source) as source, GroupOffsets(self.sides.target) as target:
            targets, copies = self._look(source, target)
            reports = self._commit(source, copies, targets, now) if self.names.source_group is not None else []
        if self.names.offset_syncs is not None:
            reports.append(self._write_syncs(copies, targets, now))
        return reports

    def close(self) -> None:
        self.syncs.close()

    def _look(
        self, source: GroupOffsets, target: GroupOffsets
    ) -> tuple[dict[TopicPartition, TopicPartition], CopiedLogs]:
        targets = self._targets or self._list_targets(self.ledger.read())
        here: Mapping[TopicPartition, LogOffsets] = source.logs(targets)
        there = target.logs(targets.values())
        ledger = self.ledger.read()
        self._targets = self._list_targets(ledger)
        return targets, CopiedLogs({}, here, there, collect_offset_maps([ledger]))

    def _list_targets(self, ledger: Ledger) -> dict[TopicPartition, TopicPartition]:
        """By source partition that the flow copies, the one at the target."""
        return {
            TopicPartition(key.topic, key.partition): TopicPartition(key.target_topic, key.partition)
            for key in ledger.copies()
            if key.flow == self.flow.id
        }

    def _commit(
        self,
        source: GroupOffsets,
        copies: CopiedLogs,
        targets: Mapping[TopicPartition, TopicPartition],
        now: float,
    ) -> list[SyncReport]:
        group = self.names.source_group
        assert group is not None, "asked of flows with a source group only"
        changed = self._committed.select_changed(find_copied_positions(self.flow.id, copies, targets), now)
        errors: Mapping[TopicPartition, str] = {}
        if changed:
            errors = source.commit(group, {place: CommittedPosition(at) for place, at in changed.items()})
        self._committed.note({place: at for place, at in changed.items() if place not in errors})
        if not errors:
            return [SyncReport(self.flow.id, "positions", group, "equal")]
        place = min(errors)
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        return [SyncReport(self.flow.id, "positions", group, "refused", f"{place}: {errors[place]}{more}")]

    def _write_syncs(
        self, copies: CopiedLogs, targets: Mapping[TopicPartition, TopicPartition], now: float
    ) -> SyncReport:
        changed = self._synced.select_changed(find_offset_syncs(self.flow.id, copies, targets), now)
        self.syncs.write(self.names.offset_syncs_topic, ((*encode_offset_sync(each), 0) for each in changed.values()))
        self._synced.note(changed)
        return SyncReport(self.flow.id, "positions", self.names.offset_syncs_topic, "equal")
