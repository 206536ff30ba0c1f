"""Where the copy of a topic begins (`delivery.start`) and ends (`delivery.end`), as the file says it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

PartitionOffsets = tuple[tuple[int, int], ...]  # (partition, offset), sorted


@dataclass(frozen=True, slots=True)
class CopyBound:
    """A place in the source's logs; exactly one field says which.

    timestamp_ms: the first record whose timestamp is at least this (milliseconds since 1970). offsets: (topic, its
    partitions' offsets), sorted by topic. group: where this consumer group stands at the source; only of a start.
    """

    timestamp_ms: int | None = None
    offsets: tuple[tuple[str, PartitionOffsets], ...] = ()
    group: str | None = None

    def find_offset(self, topic: str, partition: int) -> int | None:
        """The offset that is said for a partition; None where none is."""
        for name, partitions in self.offsets:
            if name == topic:
                return dict(partitions).get(partition)
        return None

    def to_json(self) -> dict[str, Any]:
        """As it stands in the plan: an object with one key."""
        if self.timestamp_ms is not None:
            return {"timestamp_ms": self.timestamp_ms}
        if self.group is not None:
            return {"group": self.group}
        return {"offsets": {topic: {str(at): offset for at, offset in each} for topic, each in self.offsets}}

    def __str__(self) -> str:
        if self.timestamp_ms is not None:
            return f"timestamp {render_instant(self.timestamp_ms)}"
        if self.group is not None:
            return f"group {self.group}"
        return "offsets " + ", ".join(
            f"{topic} {{{', '.join(f'{at}: {offset}' for at, offset in each)}}}" for topic, each in self.offsets
        )


CopyStart = Literal["earliest", "latest"] | CopyBound
CopyEnd = Literal["latest"] | CopyBound


def build_offsets_bound(offsets: dict[str, dict[int, int]]) -> CopyBound:
    """The bound that names offsets by topic and partition."""
    return CopyBound(offsets=tuple((topic, tuple(sorted(each.items()))) for topic, each in sorted(offsets.items())))


def encode_bound(bound: CopyStart | CopyEnd) -> str | dict[str, Any]:
    """As it stands in the plan: a word, or an object."""
    return bound.to_json() if isinstance(bound, CopyBound) else bound


def decode_bound(value: Any) -> Any:
    """What `encode_bound` gave; a word stays what it is. Raises ValueError, TypeError or AttributeError for anything
    else."""
    if not isinstance(value, dict):
        return value
    (key,) = value
    if key == "offsets":
        return build_offsets_bound(
            {topic: {int(at): offset for at, offset in each.items()} for topic, each in value[key].items()}
        )
    return CopyBound(**value)


def parse_instant(text: str) -> int:
    """An instant with its zone (ISO 8601, seconds may be left out), in milliseconds since 1970. Raises ValueError,
    which says what is wrong."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("there is no such day or time of day") from None
    if moment.tzinfo is None:
        raise ValueError('it has no zone; end it with `Z` for UTC, such as "2026-03-02T02:00:00Z"')
    return round(moment.timestamp() * 1000)


def render_instant(at_ms: int) -> str:
    """The instant in UTC, as the file would say it."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds" if at_ms % 1000 else "seconds").replace("+00:00", "Z")
