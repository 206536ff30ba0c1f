"""A group as a listing shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupListing:
    """state in Kafka's spelling; type `classic`, `consumer`, `share` or `streams`; members None: not shown."""

    id: str
    state: str
    type: str
    members: int | None = None
