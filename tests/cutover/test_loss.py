"""What a failover declares as lost, from what workers last saw: never less than is missing of what was seen."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.failover.loss import build_failover_loss
from watershed.cutover.observations import LastSeenPartition
from watershed.replicator.ledger.offset_map import OffsetMap, OffsetRun
from watershed.replicator.ledger.offset_translation import CopiedPartition

NOW = 1_900_000_000_000


@dataclass(frozen=True)
class History:
    """A source partition: when each offset was written, up to which it was copied, and when it was last seen."""

    written: tuple[int, ...]
    copied: int
    seen_ms: int

    @property
    def end_seen(self) -> int:
        return sum(at <= self.seen_ms for at in self.written)

    @property
    def sight(self) -> LastSeenPartition:
        waiting = self.written[self.copied : self.end_seen]
        return LastSeenPartition(self.end_seen, 0, self.seen_ms, min((*waiting, self.seen_ms)))


@st.composite
def histories(draw: st.DrawFn) -> History:
    gaps = draw(st.lists(st.integers(1, 5_000), max_size=30))
    written = tuple(NOW - 100_000 + sum(gaps[: at + 1]) for at in range(len(gaps)))
    seen_ms = NOW - draw(st.integers(0, 100_000))
    copied = draw(st.integers(0, sum(at <= seen_ms for at in written)))
    return History(written, copied, seen_ms)


@given(st.lists(histories(), min_size=1, max_size=4))
def test_the_declared_loss_covers_what_is_missing(found: list[History]) -> None:
    places = [TopicPartition("orders", at) for at in range(len(found))]
    copies = {
        place: CopiedPartition(OffsetMap((OffsetRun(0, 0),)), each.copied)
        for place, each in zip(places, found, strict=True)
    }
    loss = build_failover_loss(
        NOW, places, copies, {place: each.sight for place, each in zip(places, found, strict=True)}
    )
    assert loss.offsets == sum(each.end_seen - each.copied for each in found)
    assert loss.complete_ms is not None
    assert loss.rpo_ms is not None
    assert loss.at_most_ms is not None
    for each in found:
        assert all(at >= loss.complete_ms for at in each.written[each.copied :])
    last = max(each.seen_ms for each in found)
    assert loss.last_seen_ms == last
    assert loss.rpo_ms == last - loss.complete_ms
    assert loss.at_most_ms >= loss.rpo_ms
    assert loss.to_json()["offsets"] == loss.offsets


def test_what_was_never_seen_is_told_and_bounds_nothing() -> None:
    places = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    sight = LastSeenPartition(12, 3, NOW - 5_000, NOW - 9_000)
    loss = build_failover_loss(NOW, places, {}, {places[0]: sight})
    assert (loss.offsets, loss.open_records, loss.unseen) == (12, 3, (places[1],))
    assert (loss.complete_ms, loss.rpo_ms, loss.at_most_ms) == (None, None, None)
    told = loss.describe()
    assert "at most 12 records" in told
    assert "3 offsets stood in transactions that were open" in told
    assert "nothing is known of orders-1" in told


def test_a_loss_is_told_in_offsets_and_seconds() -> None:
    place = TopicPartition("orders", 0)
    copies = {place: CopiedPartition(OffsetMap((OffsetRun(0, 0),)), 7)}
    told = build_failover_loss(
        NOW, [place], copies, {place: LastSeenPartition(12, 0, NOW - 5_000, NOW - 9_000)}
    ).describe()
    assert "at most 5 records that the source was seen to hold are not copied (source offsets orders-0 7 to 11)" in told
    assert "everything written up to 4.0 s before that is here" in told
    assert "9 s of their records are lost" in told
