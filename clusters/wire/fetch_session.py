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

from watershed.clusters.wire.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
)
from watershed.clusters.wire.messages import FetchPartition

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
    """One reader's session with one broker, and the partitions that it asks for.

    `ask` and `leave_out` change these, at a cost that does not grow with their number. Each question is answered, or
    given up by `begin_anew`, before the next.
    """

    def __init__(self) -> None:
        self._id = _NO_ID
        self._epoch = _FULL
        self._wanted: dict[tuple[uuid.UUID, int], FetchPartition] = {}
        self._changed: dict[tuple[uuid.UUID, int], None] = {}  # of the wanted ones: what the broker knows otherwise
        self._forgotten: dict[tuple[uuid.UUID, int], None] = {}  # what it knows and is to forget
        self._known: set[tuple[uuid.UUID, int]] = set()  # by the broker, once it has answered
        self._first = 0

    @property
    def is_incremental(self) -> bool:
        """Whether the next answer leaves out what has not changed."""
        return self._epoch != _FULL

    def ask(self, part: FetchPartition) -> None:
        """From the next question on: this partition, from this offset on."""
        place = part.topic_id, part.partition
        if self._wanted.get(place) != part:
            self._wanted[place] = part
            self._changed[place] = None
            self._forgotten.pop(place, None)

    def leave_out(self, place: tuple[uuid.UUID, int]) -> None:
        """From the next question on: not this partition (topic id, number), if it was asked for."""
        if self._wanted.pop(place, None) is not None:
            self._changed.pop(place, None)
            if place in self._known:
                self._forgotten[place] = None

    def list_wanted(self) -> tuple[FetchPartition, ...]:
        """All that is asked for. Another one comes first each time: a broker fills an answer in this order, and moves
        behind the others what it has sent only where it keeps the session."""
        parts = tuple(self._wanted.values())
        self._first = (self._first + 1) % max(len(parts), 1)
        return parts[self._first :] + parts[: self._first]

    def build_question(self) -> SessionQuestion:
        """The question for everything that is wanted, and for nothing else."""
        if self.is_incremental:
            changed = tuple(self._wanted[place] for place in self._changed)
            question = SessionQuestion(self._id, self._epoch, changed, tuple(self._forgotten))
            self._known.update(self._changed)
            self._known.difference_update(self._forgotten)
        else:
            question = SessionQuestion(self._id, _FULL, self.list_wanted())
            self._known = set(self._wanted)
        self._changed.clear()
        self._forgotten.clear()
        return question

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
