"""Writes records into topics that MirrorMaker 2 would have, and creates these as it does.

Source: apache/kafka connect/mirror, MirrorUtils.createCompactedTopic (one partition, compacted); three replicas by
`*.topic.replication.factor`, here at most as many as there are brokers.
"""

from __future__ import annotations

from collections.abc import Iterable

from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.settings import ConnectionSettings

_CONFIGS = {"cleanup.policy": "compact"}
_REPLICAS = 3
MirrorRecord = tuple[bytes, bytes | None, int]  # key, value, timestamp (ms since 1970; 0: now)


class MirrorTopicWriter:
    """For one cluster. Not thread-safe. Connects at the first use."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._writer: ControlWriter | None = None
        self._there: set[str] = set()

    def write(self, topic: str, records: Iterable[MirrorRecord]) -> None:
        """Write them to partition 0 and wait until all in-sync replicas have them; the topic is there then, also
        without records. Raises ClusterError; some may be there then."""
        if topic not in self._there:
            with Admin(self._settings) as admin:
                if admin.topic(topic) is None:
                    admin.create_topic(topic, 1, min(_REPLICAS, admin.brokers()), _CONFIGS)
            self._there.add(topic)
        for key, value, timestamp_ms in records:
            if self._writer is None:
                self._writer = ControlWriter(self._settings, "watershed-mirror")
            self._writer.put_bytes_nowait(topic, key, value, 0, timestamp_ms=timestamp_ms)
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """What is not acknowledged is given up: the next round writes anew."""
        self._there.clear()
        self._writer = None
