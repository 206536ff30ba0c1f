"""Heartbeats as MirrorMaker 2 writes them (`compatibility.mirrormaker.heartbeats`), for `MirrorClient` and dashboards.

A heartbeat is written to `heartbeats` at the source, read there again, and mirrored to the target under the source's
alias. So it shows that a worker reaches both clusters, and for how long records of this one topic are on their way. It
does not show that each partition is copied: `topology status` and the metrics do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from confluent_kafka import Message

from watershed.clusters.admin import Admin
from watershed.clusters.log_tail import LogTail
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.sync_reports import SyncReport
from watershed.replicator.mirrormaker_records import Heartbeat, encode_heartbeat
from watershed.replicator.sync.flow_resources import FlowResources
from watershed.replicator.sync.mirror_topic_writer import MirrorRecord, MirrorTopicWriter
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology.mirror_compatibility import HEARTBEATS_TOPIC, MirrorCompatibility
from watershed.topology.plan import PlanFlow
from watershed.topology.sync_settings import SyncMode

_DISCOVERY_S = 60.0  # how often heartbeats of clusters further away are looked for at the source


class HeartbeatKind:
    """Heartbeats of flows that want them."""

    def __init__(self) -> None:
        self._relays = FlowResources(_HeartbeatRelay.of, _has_heartbeats)

    @property
    def name(self) -> str:
        """See `SyncKind.name`."""
        return "heartbeats"

    def mode(self, flow: PlanFlow) -> SyncMode:
        """`continuous` where the file asks for heartbeats."""
        return "continuous" if _has_heartbeats(flow) else "never"

    def every_ms(self, flow: PlanFlow) -> int:
        """`compatibility.mirrormaker.heartbeat_interval`."""
        assert flow.compatibility is not None, "asked of flows with heartbeats only"
        return flow.compatibility.heartbeat_interval_ms

    def keep(self, flow: PlanFlow, sides: SyncClusters) -> list[SyncReport]:
        """One heartbeat, and what stands at the source since the last round. An application's topic `heartbeats` is
        left alone, and the report says so. Raises ClusterError."""
        with self._relays.use(flow, sides) as relay:
            mirrors = relay.beat()
            if relay.refusal:
                return [SyncReport(flow.id, self.name, HEARTBEATS_TOPIC, "refused", relay.refusal)]
            return [SyncReport(flow.id, self.name, topic, "equal") for topic in mirrors]

    def forget(self) -> None:
        """See `RememberingSyncKind`: what other workers mirrored is not mirrored again."""
        self._relays.close()


def _has_heartbeats(flow: PlanFlow) -> bool:
    return flow.compatibility is not None and flow.compatibility.heartbeats


@dataclass(slots=True)
class _HeartbeatRelay:
    """Of one flow. Begins at the logs' ends: an old heartbeat says nothing any more. refusal: why no heartbeats are
    written, empty if they are."""

    names: MirrorCompatibility
    source: ConnectionSettings
    here: MirrorTopicWriter
    there: MirrorTopicWriter
    refusal: str = ""
    _tails: dict[str, list[tuple[LogTail, int]]] = field(default_factory=dict)  # by topic, with the next offset
    _discovered: float | None = None

    @staticmethod
    def of(flow: PlanFlow, sides: SyncClusters) -> _HeartbeatRelay:
        assert flow.compatibility is not None, "made for flows with heartbeats only"
        return _HeartbeatRelay(
            flow.compatibility, sides.source, MirrorTopicWriter(sides.source), MirrorTopicWriter(sides.target)
        )

    def beat(self) -> list[str]:
        """The target topics that mirror heartbeats, sorted; none where `refusal` says why. Raises ClusterError."""
        self.here.write(HEARTBEATS_TOPIC, ())
        self._discover()
        if self.refusal:
            return []
        names, now = self.names, time.time_ns() // 1_000_000
        key, value = encode_heartbeat(Heartbeat(names.source_alias, names.target_alias, now))
        self.here.write(HEARTBEATS_TOPIC, [(key, value, now)])
        for topic in self._tails:
            self.there.write(names.name_mirror(topic), list(self._read_new(topic)))
        return sorted(map(names.name_mirror, self._tails))

    def close(self) -> None:
        for tails in self._tails.values():
            for tail, _ in tails:
                tail.close()
        self._tails.clear()
        self.here.close()
        self.there.close()

    def _discover(self) -> None:
        now = time.monotonic()
        if self._discovered is not None and now - self._discovered < _DISCOVERY_S:
            return
        with Admin(self.source) as admin:
            found = admin.topics()
            policy = admin.effective_configs([HEARTBEATS_TOPIC])[HEARTBEATS_TOPIC].get("cleanup.policy", "")
        self._discovered = now
        self.refusal = explain_foreign_heartbeats(self.source.alias, policy)
        if self.refusal:
            return
        for name, topic in found.items():
            if self.names.is_heartbeats_topic(name) and name not in self._tails:
                tails = [LogTail(self.source, name, number) for number in range(topic.partitions)]
                self._tails[name] = [(tail, _find_end(tail)) for tail in tails]

    def _read_new(self, topic: str) -> Iterator[MirrorRecord]:
        following = []
        for tail, start in self._tails[topic]:
            found = tail.read_stored(start)
            # A topic that was created again begins before the place that we remember.
            following.append((tail, tail.ends))
            yield from map(_mirror, found)
        self._tails[topic] = following


def explain_foreign_heartbeats(alias: str, policy: str) -> str:
    """Why a topic `heartbeats` with this `cleanup.policy` gets none of ours; empty if it may. MirrorMaker makes its own
    compacted (MirrorUtils.createCompactedTopic); any other may be an application's, whose readers know no heartbeats.
    alias: of the cluster."""
    if "compact" in policy.split(","):
        return ""
    return (
        f"topic {HEARTBEATS_TOPIC} on {alias} has cleanup.policy={policy or 'unknown'}, so it may be an application's "
        "and gets no heartbeats. If it is MirrorMaker's, set its cleanup.policy to compact; if not, set "
        "compatibility.mirrormaker.heartbeats to false"
    )


def _find_end(tail: LogTail) -> int:
    """The log's end. Raises ClusterError."""
    tail.read_stored(1 << 62)  # nothing stands there, so it only looks
    return tail.ends


def _mirror(message: Message) -> MirrorRecord:
    key, value = message.key(), message.value()
    return _encode(key) or b"", _encode(value), message.timestamp()[1]


def _encode(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
