"""When the positions of groups came to stand at the target: the same look for whoever puts them there."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition

POSITIONS_POLL_S = 0.25


class GroupPositionsWatch:
    """Looks at the committed offsets of `groups` in `places`, and at the places' log ends, on a thread of its own.

    since: time.monotonic() that counts as 0. `last` is when anything changed the last time. What stands there at the
    first look counts as there since then.
    """

    def __init__(
        self, target: ConnectionSettings, groups: Sequence[str], places: Sequence[TopicPartition], since: float
    ) -> None:
        self.last = since
        self._target, self._places, self._since = target, frozenset(places), since
        self._changed = dict.fromkeys(groups, since)
        self._offsets: dict[str, dict[TopicPartition, int]] = {}
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def seconds(self) -> dict[str, float]:
        """By group, once the watch is over. Raises what the watch met."""
        if self._failure is not None:
            raise self._failure
        return {group: at - self._since for group, at in self._changed.items()}

    def _watch(self) -> None:
        try:
            with Admin(self._target) as admin:
                ends = self._look(admin)
                while not self._stop.wait(POSITIONS_POLL_S):
                    found = self._look(admin)
                    if found != ends:
                        ends, self.last = found, time.monotonic()
                self._look(admin)
        except Exception as error:  # noqa: BLE001  raised again where it is read
            self._failure = error

    def _look(self, admin: Admin) -> dict[TopicPartition, int]:
        for group in self._changed:
            found = {place: at for place, at in admin.group(group).offsets.items() if place in self._places}
            if found != self._offsets.setdefault(group, found):
                self._offsets[group] = found
                self._changed[group] = self.last = time.monotonic()
        return {place: span.end for place, span in admin.offsets(self._places).items()}
