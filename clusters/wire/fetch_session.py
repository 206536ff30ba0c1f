"""A fetch session (KIP-227): the broker remembers for which partitions it is asked. A question names those that have
changed since the question before, and an answer those that have records, an error, or another high watermark or start
of the log. So a round costs what has changed, however many partitions are quiet.

A broker keeps 1,000 sessions by default (`max.incremental.fetch.session.cache.slots`) and forgets the one that was not
used longest. It then says so, and is asked for everything again. Where it has no room for a session it answers with
session 0, and every question names every partition.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from clusters.wire.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
)
from clusters.wire.messages import FetchPartition

SESSION_LOST_CODES: Final = frozenset(
    {FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR}
)
_NO_ID: Final = 0
_FULL: Final = 0  # the epoch of a question that names everything and asks for a session
_WITHOUT: Final = -1  # the epoch of a question that asks for none
_LAST: Final = (1 << 31) - 1  # behind it comes 1 again


@dataclass(frozen=True, slots=True)
class SessionQuestion:
    """What one Fetch says of its session: session id and epoch, the partitions that it names, and those (topic id,
    number) that the broker is to forget."""

    id: int
    epoch: int
    partitions: tuple[FetchPartition, ...]
    forgotten: tuple[tuple[uuid.UUID, int], ...] = ()


def build_lone_question(partitions: Sequence[FetchPartition]) -> SessionQuestion:
    """A question of no session."""
    return SessionQuestion(_NO_ID, _WITHOUT, tuple(partitions))


class FetchSession:
    """One reader's session with one broker. Each question is answered, or given up by `begin_anew`, before the next."""

    def __init__(self) -> None:
        self._id = _NO_ID
        self._epoch = _FULL
        self._known: dict[tuple[uuid.UUID, int], FetchPartition] = {}  # by the broker, once it has answered

    @property
    def is_incremental(self) -> bool:
        """Whether the next answer leaves out what has not changed."""
        return self._epoch != _FULL

    def build_question(self, partitions: Sequence[FetchPartition]) -> SessionQuestion:
        """The question for all of these partitions and no others."""
        wanted = {(each.topic_id, each.partition): each for each in partitions}
        if not self.is_incremental:
            self._known = wanted
            return SessionQuestion(self._id, _FULL, tuple(wanted.values()))
        known, self._known = self._known, wanted
        changed = tuple(
            each
            for place, each in wanted.items()
            if (before := known.get(place)) is not each and before != each  # most are the very object
        )
        forgotten = tuple(place for place in known if place not in wanted)
        return SessionQuestion(self._id, self._epoch, changed, forgotten)

    def take_answer(self, session_id: int) -> None:
        """An answer without an error has come. session_id: what it says; 0: there is no session any more."""
        if session_id == _NO_ID:
            self._id, self._epoch = _NO_ID, _FULL
        elif self._epoch == _FULL or self._epoch == _LAST:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch += 1

    def begin_anew(self, *, forgotten: bool = False) -> None:
        """The broker may know something else than we believe: the next question names everything. forgotten: the
        broker has said that it does not know the session; otherwise that question also ends it there."""
        if forgotten:
            self._id = _NO_ID
        self._epoch = _FULL
