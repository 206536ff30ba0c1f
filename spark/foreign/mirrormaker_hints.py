"""What MirrorMaker 2 noted of its copy, as hints where to look: its offset syncs, on whichever cluster they are.

They are sparse, may be years old and of another copy of the same name. So they are tried, never believed, and that they
cannot be read is no hindrance.
"""

from __future__ import annotations

import re

from watershed.clusters.admin import Admin
from watershed.clusters.control_records import read_messages
from watershed.clusters.errors import ClusterError
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.mirrormaker_records import UnreadableNote, decode_offset_sync
from watershed.spark.foreign.inferred_alignment import OffsetHint
from watershed.spark.judging.flow_observation import FlowFacts

_SYNCS = re.compile(r"mm2-offset-syncs\..+\.internal")
_READ_S = 10.0
_MOST = 200_000  # offsets of such a topic that are read, the newest


def read_mirrormaker_hints(source: ConnectionSettings, facts: FlowFacts) -> dict[tuple[str, int], list[OffsetHint]]:
    """Offset syncs of both clusters by source topic and partition, in the order in which they were written.

    A cluster that does not show them gives none.
    """
    found: dict[tuple[str, int], list[OffsetHint]] = {}
    for settings, admin in ((source, facts.source), (facts.target_settings, facts.target)):
        try:
            _read(settings, admin, found)
        except (ClusterError, UnreadableNote):
            continue
    return found


def _read(settings: ConnectionSettings, admin: Admin, found: dict[tuple[str, int], list[OffsetHint]]) -> None:
    for topic in sorted(name for name in admin.shapes() if _SYNCS.fullmatch(name)):
        ranges = admin.offsets([TopicPartition(topic, 0)])
        todo = {key.partition: (max(span.start, span.end - _MOST), span.end) for key, span in ranges.items()}
        for message in read_messages(settings, topic, {k: v for k, v in todo.items() if v[0] < v[1]}, _READ_S):
            if message.value() is not None:
                sync = decode_offset_sync(message.key(), message.value())
                hint = OffsetHint(sync.upstream, sync.downstream)
                found.setdefault((sync.topic, sync.partition), []).append(hint)
