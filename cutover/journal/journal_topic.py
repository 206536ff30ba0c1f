"""The journal's log on a real cluster: the topic `watershed.journal`, one partition, kept for ever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import JOURNAL_TOPIC, ControlWriter, ensure_control_topics
from watershed.clusters.errors import TopicMissing
from watershed.clusters.log_tail import LogTail
from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.errors import BrokenChain


class JournalTopicLog:
    """The `JournalLog` of `hash_chain`. Creates the control topics at the first append when they are missing."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self._writer: ControlWriter | None = None
        self._tail = LogTail(settings, JOURNAL_TOPIC)  # every entry is read back, some of them while nobody can write

    def append(self, key: str, value: dict[str, Any]) -> None:
        """Writes to the only partition of the journal topic, which is created at the first entry. Raises
        ClusterError."""
        if self._writer is None:
            with Admin(self.settings) as admin:
                ensure_control_topics(admin)
            self._writer = ControlWriter(self.settings, "watershed-journal")
        self._writer.put(JOURNAL_TOPIC, key, value, 0)

    def read(self, from_offset: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Raises BrokenChain where retention, or somebody, has taken entries away: an empty journal would let a second
        run begin."""
        try:
            records = self._tail.read(from_offset)
        except TopicMissing:
            return
        if self._tail.begins > from_offset:
            raise BrokenChain(
                f"the entries of {JOURNAL_TOPIC} at {self.settings.alias} before offset {self._tail.begins} were "
                f"removed, "
                "and with them what runs have done and who holds the lock. Keep it for ever (retention.ms=-1, "
                "retention.bytes=-1, cleanup.policy=delete); where no run is unfinished, delete the topic to begin "
                "anew",
                self._tail.begins,
            )
        for record in records:
            yield record.offset, record.value or {}
