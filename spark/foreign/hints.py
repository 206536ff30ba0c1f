"""What MirrorMaker 2 noted of its copy, as hints where to look: its offset syncs, on whichever cluster they are.

They are sparse, may be years old and of another copy of the same name. So they are tried, never believed, and that they
cannot be read is no hindrance.
"""

from __future__ import annotations

import re

from clusters.admin import Admin
from clusters.errors import ClusterError
from clusters.names import TopicPartition
from clusters.records import messages
from clusters.settings import ConnectionSettings
from replicator.adoption.mirrormaker import Unreadable, offset_sync
from spark.foreign.inferred import Hint, Hints
from spark.judging.observe import FlowFacts

_SYNCS = re.compile(r"mm2-offset-syncs\..+\.internal")
_READ_S = 10.0
_MOST = 200_000  # offsets of such a topic that are read, the newest


def noted_syncs(source: ConnectionSettings, facts: FlowFacts) -> Hints:
    """Hints by source topic and partition, in the order in which they were written."""

    def hints(_facts: FlowFacts) -> dict[tuple[str, int], list[Hint]]:
        found: dict[tuple[str, int], list[Hint]] = {}
        for settings, admin in ((source, facts.source), (facts.target_settings, facts.target)):
            try:
                _read(settings, admin, found)
            except (ClusterError, Unreadable):
                continue
        return found

    return hints


def _read(settings: ConnectionSettings, admin: Admin, found: dict[tuple[str, int], list[Hint]]) -> None:
    for topic in sorted(name for name in admin.shapes() if _SYNCS.fullmatch(name)):
        ranges = admin.offsets([TopicPartition(topic, 0)])
        todo = {key.partition: (max(span.start, span.end - _MOST), span.end) for key, span in ranges.items()}
        for message in messages(settings, topic, {k: v for k, v in todo.items() if v[0] < v[1]}, _READ_S):
            if message.value() is not None:
                sync = offset_sync(message.key(), message.value())
                hint = Hint(sync.upstream, sync.downstream)
                found.setdefault((sync.topic, sync.partition), []).append(hint)
