"""Where positions land, one way and both ways, against a model that knows every record."""

from __future__ import annotations

import random

import pytest

from watershed.clusters.group_offsets import LogOffsets
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.explicit_runs import ExplicitRunMap, join_explicit_runs
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap, OffsetRun
from watershed.replicator.ledger.offset_translation import CopiedPartition
from watershed.replicator.sync.group_translation import ForwardCopy, ReverseCopy, translate_position

HERE, THERE, ORIGIN = TopicPartition("orders", 0), TopicPartition("a.orders", 0), TopicPartition("orders", 0)


def log(start: int, end: int, stable: int | None = None) -> LogOffsets:
    return LogOffsets("id", start, end if stable is None else stable, end)


def test_forward_through_holes_and_beyond_the_copy():
    held = CopiedPartition(OffsetMap((OffsetRun(0, 0), OffsetRun(3, 5))), 7)  # source 0..2, then 5..8
    forward = ForwardCopy(THERE, held, log(0, 12), log(0, 7))
    assert [translate_position(HERE, at, forward, None).offset for at in (0, 2, 3, 4, 5, 9)] == [0, 2, 3, 3, 3, 7]
    beyond = translate_position(HERE, 11, forward, None)
    assert (beyond.offset, beyond.reached, str(beyond.ahead)) == (
        7,
        9,
        "orders-0 committed 11, copied through 9 (2 to go)",
    )


def test_nothing_copied_yet_waits_unless_there_was_nothing_to_read():
    forward = ForwardCopy(THERE, None, log(5, 9), log(0, 0))
    assert translate_position(HERE, 7, forward, None).offset is None
    assert translate_position(HERE, 5, forward, None).offset == 0


def test_an_aligned_copy_that_has_not_begun_gets_no_position():
    """Offset 0 would lie in front of the log that begins where the source's begins."""
    found = translate_position(HERE, 5, ForwardCopy(THERE, None, log(5, 5), log(0, 0), aligned=True), None)
    assert (found.offset, found.why) == (None, "nothing of it is copied yet")
    begun = CopiedPartition(OffsetMap((OffsetRun(5, 5),)), 5)
    assert translate_position(HERE, 5, ForwardCopy(THERE, begun, log(5, 5), log(5, 5), aligned=True), None).offset == 5


@pytest.mark.parametrize(
    ("forward", "why"),
    [
        (ForwardCopy(THERE, None, None, log(0, 1)), "no leader tells of the source's log now"),
        (ForwardCopy(THERE, None, log(0, 1), None), "a.orders-0 is not at the target yet, or has no leader now"),
        (ForwardCopy(THERE, None, log(0, 1), log(0, 1), "it was deleted and created again"), "created again"),
    ],
)
def test_what_cannot_be_known_is_said(forward, why):
    found = translate_position(HERE, 1, forward, None)
    assert found.offset is None
    assert why in found.why


def test_a_topic_that_came_from_the_target_goes_back_to_the_very_record():
    """Prefix naming, active-active: a group at A that reads B's records there moves to B's own topic."""
    held = CopiedPartition(OffsetMap((OffsetRun(0, 10), OffsetRun(4, 20))), 8)  # b's 10..13, then 20..23
    back = ReverseCopy(ORIGIN, held)
    found = {at: translate_position(TopicPartition("b.orders", 0), at, None, back).offset for at in (0, 3, 4, 7, 8)}
    assert found == {0: 10, 3: 13, 4: 20, 7: 23, 8: 24}
    assert translate_position(HERE, 3, None, None) is None
    assert "copied nothing" in translate_position(HERE, 3, None, ReverseCopy(ORIGIN, None)).why


@pytest.mark.parametrize("seed", range(300))
def test_records_of_both_clusters_in_one_log_are_never_left_out(seed):
    """Two logs that both sides write and that are copied both ways, as far as each flow came. Whatever offset a group
    committed: at the other side it skips nothing that it has not read, and what it reads again is told."""
    chance = random.Random(seed)
    world = _World(chance)
    for _ in range(chance.randrange(1, 60)):
        world.step()
    for at in range(world.a_end() + 1):
        found = translate_position(
            HERE,
            at,
            ForwardCopy(HERE, world.copied("ab"), log(0, world.a_end()), log(0, len(world.b))),
            ReverseCopy(HERE, world.copied("ba")),
        )
        assert found is not None
        assert not found.why
        if found.offset is None:
            assert found.ahead is not None
            continue
        if not world.stretches["ba"] and world.at["ba"] == 0:
            continue  # nothing came back yet: the flow there alone says where the group's own records go on
        read = {world.a[offset] for offset in range(at) if world.a[offset] is not None}
        skipped = [record for record in world.b[: found.offset] if record is not None and record not in read]
        assert not skipped, (at, found)
        again = [record for record in world.b[found.offset :] if record is not None and record in read]
        assert len(again) <= max(found.again, 0), (at, found, world.a, world.b)


class _World:
    """Logs of A and B by offset: a record's name, or None for a marker."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.a: list[str | None] = []
        self.b: list[str | None] = []
        self.at = {"ab": 0, "ba": 0}
        self.stretches: dict[str, list[ExplicitRun]] = {"ab": [], "ba": []}

    def a_end(self) -> int:
        return len(self.a)

    def step(self) -> None:
        kind = self.chance.choice(("a", "b", "ab", "ba", "marker"))
        if kind == "a":
            self.a.append(f"a{len(self.a)}")
        elif kind == "b":
            self.b.append(f"b{len(self.b)}")
        elif kind == "marker":
            self.chance.choice((self.a, self.b)).append(None)
        else:
            self._copy(kind)

    def _copy(self, way: str) -> None:
        source, target, born = (self.a, self.b, "a") if way == "ab" else (self.b, self.a, "b")
        for offset in range(self.at[way], len(source)):
            record = source[offset]
            if record is not None and record.startswith(born):  # the guard leaves out what came back
                self.stretches[way].append(ExplicitRun(len(target), offset, 1))
                target.append(record)
        target.append(None)  # the transaction's marker
        self.at[way] = len(source)

    def copied(self, way: str) -> CopiedPartition | None:
        if not self.stretches[way] and self.at[way] == 0:
            return None
        end = len(self.b) if way == "ab" else len(self.a)
        return CopiedPartition(
            ExplicitRunMap.over(join_explicit_runs(self.stretches[way]), OffsetRun(0, 0), self.at[way]), end
        )
