"""Checkpoints as MirrorMaker 2 writes them (`compatibility.mirrormaker.checkpoints`), for `RemoteClusterUtils`.

A checkpoint says where a group of the source goes on at the target. Here it is the exact translation of `sync.groups`
(`group_translation`), and not the nearest earlier sync. A group that is ahead of the copy gets the place behind
everything that is copied, with the source offset that belongs to it: so no checkpoint lies beyond the target's log.

No checkpoint is ever deleted: `MirrorClient.remoteConsumerOffsets` of Kafka 4.3 does not expect a record without a
value. As in MirrorMaker, that of a group which is gone stays.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.group_offsets import CommittedPosition
from watershed.clusters.sync_reports import SyncReport
from watershed.replicator.mirrormaker_records import Checkpoint, encode_checkpoint
from watershed.replicator.sync.flow_resources import FlowResources, WrittenValues
from watershed.replicator.sync.group_decisions import GroupObservation, TranslatedPosition
from watershed.replicator.sync.group_sync import GroupSyncer
from watershed.replicator.sync.mirror_topic_writer import MirrorTopicWriter
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology.plan import PlanFlow
from watershed.topology.sync_settings import SyncMode

_Key = tuple[str, str, int]  # group, target topic, partition
_LONGEST: Final = (1 << 15) - 1  # bytes of a text in a record of MirrorMaker


class CheckpointKind:
    """Checkpoints of flows that want them. Groups are those that `sync.groups` names, whether or not it is used."""

    def __init__(self) -> None:
        self._writers = FlowResources(_CheckpointWriter.of, _has_checkpoints)

    @property
    def name(self) -> str:
        """See `SyncKind.name`."""
        return "checkpoints"

    def mode(self, flow: PlanFlow) -> SyncMode:
        """`continuous` where the file asks for checkpoints."""
        return "continuous" if _has_checkpoints(flow) else "never"

    def every_ms(self, flow: PlanFlow) -> int:
        """`compatibility.mirrormaker.checkpoint_interval`."""
        assert flow.compatibility is not None, "asked of flows with checkpoints only"
        return flow.compatibility.checkpoint_interval_ms

    def keep(self, flow: PlanFlow, sides: SyncClusters) -> list[SyncReport]:
        """Look at all groups, and write the checkpoints that have changed. Raises ClusterError."""
        with self._writers.use(flow, sides) as writer:
            return writer.write()

    def forget(self) -> None:
        """See `RememberingSyncKind`."""
        self._writers.close()


def _has_checkpoints(flow: PlanFlow) -> bool:
    return flow.compatibility is not None and flow.compatibility.checkpoints


def list_checkpoints(sight: GroupObservation) -> Iterator[Checkpoint]:
    """Of one group, for each partition that has a place at the target; none of a share group, which has no positions
    that a consumer could go on from."""
    for place, position in sorted(sight.source.positions.items()):
        landing = sight.landings.get(place)
        if landing is not None and landing.offset is not None and sight.here.type != "share":
            yield _build_checkpoint(sight.group, position, landing, landing.offset)


def _build_checkpoint(group: str, position: CommittedPosition, landing: TranslatedPosition, offset: int) -> Checkpoint:
    upstream = position.offset if landing.ahead is None else landing.reached
    metadata = position.metadata if len(position.metadata.encode()) <= _LONGEST else ""
    return Checkpoint(group, landing.place.topic, landing.place.partition, upstream, offset, metadata)


@dataclass(slots=True)
class _CheckpointWriter:
    flow: PlanFlow
    topic: str
    groups: GroupSyncer
    there: MirrorTopicWriter
    _written: WrittenValues[_Key, Checkpoint] = field(default_factory=WrittenValues)

    @staticmethod
    def of(flow: PlanFlow, sides: SyncClusters) -> _CheckpointWriter:
        assert flow.compatibility is not None, "made for flows with checkpoints only"
        topic = flow.compatibility.checkpoints_topic
        return _CheckpointWriter(flow, topic, GroupSyncer(flow, sides), MirrorTopicWriter(sides.target))

    def write(self) -> list[SyncReport]:
        sights = self.groups.observe()
        found = {(each.group, each.topic, each.partition): each for sight in sights for each in list_checkpoints(sight)}
        changed = self._written.select_changed(found, time.monotonic())
        self.there.write(self.topic, ((*encode_checkpoint(each), 0) for each in changed.values()))
        self._written.note(changed)
        return self._report(sights, len(found))

    def close(self) -> None:
        self.there.close()

    def _report(self, sights: list[GroupObservation], checkpoints: int) -> list[SyncReport]:
        """One of the topic, and one of each group that cannot be told."""
        hidden = [sight for sight in sights if sight.source.error]
        detail = {"groups": len(sights) - len(hidden), "checkpoints": checkpoints}
        reports = [SyncReport(self.flow.id, "checkpoints", self.topic, "equal", "", detail)]
        for sight in hidden:
            reports.append(SyncReport(self.flow.id, "checkpoints", sight.group, "refused", sight.source.error))
        return reports
