"""The journal's log in memory, and the death of whoever writes to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest


class Crash(BaseException):
    """The driver's process is gone."""


def list_crash_points(entries: range) -> list[Any]:
    """Parameters `at` and `stored`: a crash behind every entry, and before every third one, where the log is what the
    entry before that has left. `make soak` has those before every entry.
    """
    behind = [pytest.param(at, True, id=f"after {at}") for at in entries]
    before = [pytest.param(at, False, id=f"before {at}", marks=pytest.mark.soak if at % 3 else ()) for at in entries]
    return behind + before


@dataclass
class FakeLog:
    """The journal's log as a list. `crash_at`: the n-th append dies, before or after it was stored."""

    records: list[dict[str, Any]] = field(default_factory=list)
    crash_at: int | None = None
    stored: bool = True
    on_append: Callable[[dict[str, Any]], None] | None = None

    def append(self, _key: str, value: dict[str, Any]) -> None:
        crash = self.crash_at is not None and len(self.records) == self.crash_at
        if not crash or self.stored:
            self.records.append(value)
        if crash:
            self.crash_at = None
            raise Crash
        if self.on_append is not None:
            self.on_append(value)

    def read(self, from_offset: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
        yield from list(enumerate(self.records))[from_offset:]
