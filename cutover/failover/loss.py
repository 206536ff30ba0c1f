"""What a failover loses, as far as the target knows: pure, from what workers last saw and what was copied.

Offsets are an upper bound of the records among them: markers and aborted records take offsets, too. What was written
after the source was last seen is in no number here; only its time is known. Both are said wherever the loss is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import JsonObject
from watershed.cutover.observations import LastSeenPartition
from watershed.cutover.utc_instant import render_utc_instant
from watershed.replicator.ledger.offset_translation import CopiedPartition


@dataclass(frozen=True, slots=True)
class PartitionLoss:
    """One source partition. copied: everything below this offset is on the target. sight None: no worker ever reported
    the source's end, so nothing is known of what is missing."""

    place: TopicPartition
    copied: int
    sight: LastSeenPartition | None

    @property
    def offsets(self) -> int:
        """Known to be missing: not copied, and seen at the source."""
        return 0 if self.sight is None else max(0, self.sight.end - self.copied)

    @property
    def complete_ms(self) -> int | None:
        """Everything written until then is on the target (ms since 1970)."""
        if self.sight is None:
            return None
        return self.sight.seen_ms if not self.offsets and not self.sight.open_records else self.sight.complete_ms

    def to_json(self) -> JsonObject:
        """The numbers of one partition, as evidence and approvals show them."""
        sight = self.sight
        return {
            "copied_through": self.copied,
            "source_end": None if sight is None else sight.end,
            "offsets": None if sight is None else self.offsets,
            "open_records": 0 if sight is None else sight.open_records,
            "source_seen_ms": None if sight is None else sight.seen_ms,
            "complete_ms": self.complete_ms,
        }


@dataclass(frozen=True, slots=True)
class FailoverLoss:
    """wall_ms: when it was declared, ms since 1970."""

    wall_ms: int
    partitions: tuple[PartitionLoss, ...]

    @property
    def offsets(self) -> int:
        """Offsets known to be missing; partitions that no worker ever saw add nothing."""
        return sum(each.offsets for each in self.partitions)

    @property
    def open_records(self) -> int:
        """Behind the last stable offsets: of transactions that were open, so never committed as far as anybody saw."""
        return sum(each.sight.open_records for each in self.partitions if each.sight is not None)

    @property
    def unseen(self) -> tuple[TopicPartition, ...]:
        """Partitions of whose source end nothing is known: their loss has no bound."""
        return tuple(each.place for each in self.partitions if each.sight is None)

    @property
    def last_seen_ms(self) -> int | None:
        """When the source was last seen to live, on any partition."""
        return max((each.sight.seen_ms for each in self.partitions if each.sight is not None), default=None)

    @property
    def complete_ms(self) -> int | None:
        """Everything written until then is on the target, in every partition; None where one was never seen."""
        times = [each.complete_ms for each in self.partitions]
        return min((at for at in times if at is not None), default=None) if None not in times else None

    @property
    def rpo_ms(self) -> int | None:
        """From there to when the source was last seen: what is lost if it ended then."""
        if self.complete_ms is None or self.last_seen_ms is None:
            return None
        return max(0, self.last_seen_ms - self.complete_ms)

    @property
    def at_most_ms(self) -> int | None:
        """From there to now: what is lost if producers wrote to the source until now."""
        return None if self.complete_ms is None else max(0, self.wall_ms - self.complete_ms)

    def to_json(self) -> JsonObject:
        """The loss as journal, evidence and `--show-loss --format json` hold it."""
        by_topic: JsonObject = {}
        for each in self.partitions:
            by_topic.setdefault(each.place.topic, {})[str(each.place.partition)] = each.to_json()
        return {
            "offsets": self.offsets,
            "open_records": self.open_records,
            "unseen": [str(place) for place in self.unseen],
            "last_seen_ms": self.last_seen_ms,
            "complete_ms": self.complete_ms,
            "rpo_ms": self.rpo_ms,
            "at_most_ms": self.at_most_ms,
            "declared_ms": self.wall_ms,
            "partitions": by_topic,
        }

    def describe(self) -> str:
        """For people, in a few sentences."""
        lost = [each for each in self.partitions if each.offsets]
        named = ", ".join(
            f"{each.place} {each.copied} to {each.sight.end - 1}" for each in lost[:5] if each.sight is not None
        )
        named += f" and {len(lost) - 5} more partitions" if len(lost) > 5 else ""
        parts = [f"at most {self.offsets} records that the source was seen to hold are not copied"]
        parts[0] += f" (source offsets {named})" if named else ""
        if self.open_records:
            parts.append(f"{self.open_records} offsets stood in transactions that were open")
        if self.unseen:
            parts.append(f"nothing is known of {', '.join(map(str, self.unseen))}: no worker ever saw their end")
        if self.last_seen_ms is not None and self.rpo_ms is not None and self.at_most_ms is not None:
            parts.append(
                f"the source was last seen at {render_utc_instant(self.last_seen_ms)}, and everything written up to "
                f"{self.rpo_ms / 1000:.1f} s before that is here; what was written later than that sight is not known "
                f"(if producers reached the source until now, {self.at_most_ms / 1000:.0f} s of their records are lost)"
            )
        return "; ".join(parts)


def build_failover_loss(
    wall_ms: int,
    places: Iterable[TopicPartition],
    copies: Mapping[TopicPartition, CopiedPartition],
    sights: Mapping[TopicPartition, LastSeenPartition],
) -> FailoverLoss:
    """places, copies and sights: of the source. A partition without a map is one of which nothing was copied."""
    found = []
    for place in sorted(places):
        held = copies.get(place)
        copied = held.position if held is not None and held.map.runs else 0
        found.append(PartitionLoss(place, copied, sights.get(place)))
    return FailoverLoss(wall_ms, tuple(found))
