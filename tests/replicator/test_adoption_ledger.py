"""What another tool copied, in the ledger: it counts when an order is obeyed, and every offset translates both ways."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace

import pytest

from clusters.control import ControlRecord
from clusters.errors import ProtocolError
from replicator.adoption import foreign as stored
from replicator.adoption.foreign import Foreign, JoinedMap, PartOf, entries, foreign_in
from replicator.consolidation import whole
from replicator.errors import ReplicatorError
from replicator.ledger import Block, Generation, assembled
from replicator.offsetmap import BrokenMap, OffsetMap, Run, Stretch
from replicator.orders import Order, adopting
from replicator.partition import Identity, PartitionKey
from replicator.resume import Remembered, Resume, Seen, resume
from replicator.states import LookAgain, Loud, Span
from tests.replicator.test_resume import NOW, OTHER, SEEN, SOURCE, TARGET, known, tail

KEY = PartitionKey("f", "orders", "onprem.orders", 0)
# 0 to 99 copied, 50 to 99 again after a crash, markers at source 100, 101, then 102 to 111.
MM2 = Foreign("MirrorMaker 2", 160, 112, (Stretch(0, 0, 100), Stretch(150, 102, 10)), (Span(100, 150),))
CLAIM = Block(
    KEY, Generation(1, "w"), 0, 160, Identity(7, 1, 160), SOURCE, TARGET, (Run(160, 112),), at=5,
    since=1, order="mm2", note="adopted", adopted="mm2",
)  # fmt: skip
ORDER = Order(
    "adopt", "f", "orders", 0, "target_foreign_write", 0, "ann", id="mm2", at_ms=NOW, source_id=SOURCE,
    target_id=TARGET, base=160, position=112, tool="MirrorMaker 2",
)  # fmt: skip
FILLED = Seen(
    **SEEN | {"target_start": 0, "target_end": 160, "tail": tail(150, 160, producer=-1), "producer": None,
              "source_end": 500, "settled": True}
)  # fmt: skip


def records(foreign: Foreign, order: str = "mm2") -> list[ControlRecord]:
    return [ControlRecord(0, at, 0, key, value) for at, (key, value) in enumerate(entries(KEY, order, foreign))]


def test_both_sides_of_the_boundary() -> None:
    ((remembered, generation),) = assembled([CLAIM], foreign_in(records(MM2))).values()
    offsets = remembered.map
    assert generation == 1
    assert isinstance(offsets, JoinedMap)
    assert [offsets.to_target(at, 200) for at in (0, 99, 100, 101, 102, 111, 112, 120)] == [
        0, 99, 150, 150, 150, 159, 160, 168,
    ]  # fmt: skip
    # A reader inside the duplicates has read everything below source offset 102.
    assert [offsets.to_source(at) for at in (0, 99, 100, 149, 150, 159, 160, 170)] == [
        0, 99, 102, 102, 102, 111, 112, 122,
    ]  # fmt: skip
    assert offsets.source_position(160) == 112
    assert list(offsets.stretches(170)) == [*MM2.stretches, Stretch(160, 112, 10)]
    assert list(offsets.own) == [Run(160, 112)]
    assert (offsets.tool, offsets.extra) == ("MirrorMaker 2", (Span(100, 150),))
    assert offsets.extended(Run(170, 130)).to_target(130, 200) == 170


def test_parts_count_only_when_a_claim_names_their_order() -> None:
    plain = replace(CLAIM, adopted="", runs=(Run(0, 0),))
    ((remembered, _),) = assembled([plain], foreign_in(records(MM2))).values()
    assert remembered.map == OffsetMap((Run(0, 0),))
    assert assembled([], foreign_in(records(MM2))) == {}


def test_a_part_that_is_not_there_in_whole_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_BLOCK_STRETCHES", 1)
    both = records(MM2)
    assert len(both) == 2
    assert foreign_in(both) == {PartOf(KEY, "mm2"): MM2}
    assert foreign_in(reversed(both)) == {PartOf(KEY, "mm2"): MM2}
    ((remembered, _),) = assembled([CLAIM], foreign_in(both[:1])).values()
    assert isinstance(remembered.map, BrokenMap)
    with pytest.raises(ReplicatorError, match="lacks the part that order mm2 adopted"):
        remembered.map.to_target(5, 200)


def test_what_contradicts_itself_is_broken() -> None:
    for wrong in (
        replace(MM2, base=155),
        replace(MM2, base=165),
        replace(MM2, position=113),
        replace(MM2, stretches=(Stretch(0, 0, 100), Stretch(90, 102, 10))),
    ):
        assert isinstance(JoinedMap.over(wrong, OffsetMap((Run(160, 112),))), BrokenMap)
    with pytest.raises(ProtocolError, match="cannot read"):
        foreign_in([ControlRecord(0, 0, 0, "k", {"schema": 1, "kind": "foreign"})])


def test_a_partition_of_which_nothing_could_be_compared() -> None:
    offsets = JoinedMap.over(Foreign("MirrorMaker 2", 50, 80), OffsetMap((Run(50, 80),)))
    assert offsets.to_target(3, 60) == 50
    assert offsets.to_source(55) == 85
    with pytest.raises(ReplicatorError, match="before the first copied record"):
        offsets.to_source(49)


def test_a_consolidated_ledger_says_the_same() -> None:
    ((before, _),) = assembled([CLAIM], foreign_in(records(MM2))).values()
    blocks = whole(KEY, Generation(9, "w"), 170, before)
    assert [run for block in blocks for run in block.runs] == [Run(160, 112)]
    ((after, _),) = assembled(blocks, foreign_in(records(MM2))).values()
    assert replace(after, without_newest=None) == replace(before, without_newest=None)


@pytest.mark.parametrize("seed", range(20))
def test_every_offset_equals_an_oracle(seed: int) -> None:
    draw = random.Random(seed)
    target, source, stretches = 0, draw.randrange(5), []
    on_target: dict[int, int] = {}
    for _ in range(draw.randrange(1, 8)):
        target, source = target + draw.choice((0, 0, 1, 7)), source + draw.choice((0, 0, 2, 5))
        count = draw.randrange(1, 6)
        stretches.append(Stretch(target, source, count))
        on_target |= {target + n: source + n for n in range(count)}
        target, source = target + count, source + count
    base = target + draw.choice((0, 4))
    on_target |= {base + n: source + n for n in range(10)}
    offsets = JoinedMap.over(Foreign("x", base, source, tuple(stretches)), OffsetMap((Run(base, source),)))
    for at in range(stretches[0].source, source + 10):
        assert offsets.to_target(at, base + 10) == min(there for there, here in on_target.items() if here >= at)
    for at in range(stretches[0].target, base + 10):
        assert offsets.to_source(at) == min(here for there, here in on_target.items() if there >= at)


def decide(order: Order = ORDER, seen: Seen = FILLED, remembered: Remembered | None = None):
    return adopting(order, resume(remembered, seen, 7, "earliest"), remembered, 0, seen, 7)


def test_the_worker_goes_on_behind_it() -> None:
    found = decide()
    assert isinstance(found, Resume)
    assert (found.position, found.target_end, found.identity) == (112, 160, Identity(7, 1, 160))
    assert (found.claims, found.order, found.adopted, found.since) == (True, "mm2", "mm2", 1)
    assert found.note.startswith("target offsets below 160 were copied by MirrorMaker 2; adopted on ")
    # The claim is in the ledger: the same order changes nothing more, and the foreign tail is the one that was proven.
    ((remembered, _),) = assembled([CLAIM], foreign_in(records(MM2))).values()
    again = decide(remembered=remembered)
    assert isinstance(again, Resume)
    assert (again.position, again.claims, again.adopted) == (112, False, "mm2")


def test_it_begins_although_the_flow_starts_at_the_latest_record() -> None:
    empty = replace(FILLED, target_end=0, tail=None)
    found = adopting(replace(ORDER, base=0, position=3), resume(None, empty, 7, "latest"), None, 0, empty, 7)
    assert isinstance(found, Resume)
    assert found.position == 3


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (replace(FILLED, target_end=161), "proved the target up to offset 160, now the log ends at 161"),
        (replace(FILLED, source_id=OTHER), "give it again"),
        (replace(FILLED, target_id=OTHER), "give it again"),
        (replace(FILLED, source_start=120), "source offsets 112 to 119, where copying was to go on, have expired"),
    ],
    ids=["somebody writes", "source recreated", "target recreated", "expired"],
)
def test_what_moved_since_is_refused_and_said(seen: Seen, says: str) -> None:
    found = decide(seen=seen)
    assert isinstance(found, Loud)
    assert found.state == "target_foreign_write"
    assert "adopt mm2 of ann is refused: " in found.error
    assert says in found.error


def test_nothing_begins_while_something_may_be_under_way() -> None:
    assert isinstance(decide(seen=replace(FILLED, settled=False)), LookAgain)


def test_a_flow_that_copied_is_not_adopted() -> None:
    lost = replace(FILLED, target_id=OTHER)
    found = decide(seen=lost, remembered=known())
    assert isinstance(found, Loud)
    assert "adopt mm2 of ann is refused: this flow has copied into the partition itself" in found.error


def test_a_writer_behind_the_boundary_is_found() -> None:
    ((remembered, _),) = assembled([CLAIM], foreign_in(records(MM2))).values()
    found = resume(remembered, replace(FILLED, target_end=165, tail=tail(160, 165, producer=-1)), 7, "earliest")
    assert isinstance(found, Loud)
    assert found.state == "target_foreign_write"


def test_the_order_is_read_as_it_was_written() -> None:
    assert Order.from_json(ORDER.to_json()) == ORDER
    assert uuid.UUID(ORDER.to_json()["source_id"]) == SOURCE
