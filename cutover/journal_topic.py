"""The journal's log on a real cluster: the topic `watershed.journal`, one partition, kept for ever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clusters.admin import Admin
from clusters.control import JOURNAL, ControlWriter, ensure_control_topics, read_log
from clusters.errors import TopicMissing
from clusters.settings import ConnectionSettings


class TopicLog:
    """See `cutover.journal.Log`. Creates the control topics at the first append when they are missing."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self._writer: ControlWriter | None = None

    def append(self, key: str, value: dict[str, Any]) -> None:
        if self._writer is None:
            with Admin(self.settings) as admin:
                ensure_control_topics(admin)
            self._writer = ControlWriter(self.settings, "watershed-journal")
        self._writer.put(JOURNAL, key, value, 0)

    def read(self, from_offset: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
        try:
            records = list(read_log(self.settings, JOURNAL, [0], from_offset))
        except TopicMissing:
            return
        for record in records:
            yield record.offset, record.value or {}
