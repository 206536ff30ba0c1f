"""What another tool copied, in the ledger: it counts when an order is obeyed, and every offset translates both ways."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace

import pytest

from tests.replicator.test_resume import NOW, OTHER, SEEN, SOURCE, TARGET, known, tail
from watershed.clusters.control_records import ControlRecord
from watershed.clusters.errors import ProtocolError
from watershed.clusters.wire.topic_names import build_stand_in_id
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger import foreign_part as stored
from watershed.replicator.ledger.consolidation import build_map_blocks
from watershed.replicator.ledger.foreign_part import (
    ForeignPart,
    ForeignPartKey,
    JoinedOffsetMap,
    build_foreign_records,
    decode_foreign_parts,
)
from watershed.replicator.ledger.ledger import assemble_partitions
from watershed.replicator.ledger.ledger_block import Generation, LedgerBlock
from watershed.replicator.ledger.ledger_state import LedgerState
from watershed.replicator.ledger.offset_map import BrokenOffsetMap, ExplicitRun, OffsetMap, OffsetRun
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect
from watershed.replicator.recovery.operator_decisions import OperatorDecision, apply_adoption
from watershed.replicator.recovery.recovery_point import LogInspection, RecoveryPoint, find_recovery_point

KEY = PartitionKey("f", "orders", "onprem.orders", 0)
# 0 to 99 copied, 50 to 99 again after a crash, markers at source 100, 101, then 102 to 111.
MM2 = ForeignPart(
    "MirrorMaker 2", 160, 112, (ExplicitRun(0, 0, 100), ExplicitRun(150, 102, 10)), (OffsetSpan(100, 150),)
)
CLAIM = LedgerBlock(
    KEY, Generation(1, "w"), 0, 160, ProducerIdentity(7, 1, 160), SOURCE, TARGET, (OffsetRun(160, 112),), at=5,
    since=1, order="mm2", note="adopted", adopted="mm2",
)  # fmt: skip
ORDER = OperatorDecision(
    "adopt", "f", "orders", 0, "target_foreign_write", 0, "ann", id="mm2", at_ms=NOW, source_id=SOURCE,
    target_id=TARGET, base=160, position=112, tool="MirrorMaker 2",
)  # fmt: skip
FILLED = LogInspection(
    **SEEN | {"target_start": 0, "target_end": 160, "tail": tail(150, 160, producer=-1), "producer": None,
              "source_end": 500, "settled": True}
)  # fmt: skip


def records(foreign: ForeignPart, order: str = "mm2") -> list[ControlRecord]:
    return [
        ControlRecord(0, at, 0, key, value)
        for at, (key, value) in enumerate(build_foreign_records(KEY, order, foreign))
    ]


def test_both_sides_of_the_boundary() -> None:
    ((remembered, generation),) = assemble_partitions([CLAIM], decode_foreign_parts(records(MM2))).values()
    offsets = remembered.map
    assert generation == 1
    assert isinstance(offsets, JoinedOffsetMap)
    assert [offsets.to_target(at, 200) for at in (0, 99, 100, 101, 102, 111, 112, 120)] == [
        0, 99, 150, 150, 150, 159, 160, 168,
    ]  # fmt: skip
    # A reader inside the duplicates has read everything below source offset 102.
    assert [offsets.to_source(at) for at in (0, 99, 100, 149, 150, 159, 160, 170)] == [
        0, 99, 102, 102, 102, 111, 112, 122,
    ]  # fmt: skip
    assert offsets.source_position(160) == 112
    assert list(offsets.stretches(170)) == [*MM2.stretches, ExplicitRun(160, 112, 10)]
    assert list(offsets.own) == [OffsetRun(160, 112)]
    assert (offsets.tool, offsets.extra) == ("MirrorMaker 2", (OffsetSpan(100, 150),))
    assert offsets.extended(OffsetRun(170, 130)).to_target(130, 200) == 170


def test_an_adopted_topic_without_an_id_that_was_made_anew_is_found() -> None:
    """Others filled the new one below what was adopted, so its last batch tells nothing."""
    ((remembered, _),) = assemble_partitions([CLAIM], decode_foreign_parts(records(MM2))).values()
    went_on = replace(remembered, stood_at=170)
    nameless = replace(went_on, target_id=build_stand_in_id("zk-cluster", "onprem.orders"))
    anew = replace(FILLED, target_id=nameless.target_id, target_end=100, tail=tail(90, 100, producer=-1))
    for seen in (
        anew,
        replace(anew, target_end=160, tail=tail(150, 160, producer=-1)),
        replace(anew, target_id=TARGET),
    ):
        found = find_recovery_point(nameless, seen, 7, "earliest")
        assert isinstance(found, Halt), found
        assert (found.state, found.expected_id) == ("target_gone", nameless.target_id)
        assert f"the target's log ends at {seen.target_end}, and it ended at 170 once" in found.error
    for known_, seen in (
        (went_on, replace(anew, target_id=TARGET)),  # an id tells
        (replace(nameless, stood_at=160), replace(anew, target_end=160, tail=tail(150, 160, producer=-1))),
        (nameless, replace(anew, target_end=170, tail=tail(160, 170, epoch=1, sequence=0))),
    ):
        assert isinstance(find_recovery_point(known_, seen, 7, "earliest"), RecoveryPoint)


def test_parts_count_only_when_a_claim_names_their_order() -> None:
    plain = replace(CLAIM, adopted="", runs=(OffsetRun(0, 0),))
    ((remembered, _),) = assemble_partitions([plain], decode_foreign_parts(records(MM2))).values()
    assert remembered.map == OffsetMap((OffsetRun(0, 0),))
    assert assemble_partitions([], decode_foreign_parts(records(MM2))) == {}


def test_a_part_that_is_not_there_in_whole_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_BLOCK_STRETCHES", 1)
    both = records(MM2)
    assert len(both) == 2
    assert decode_foreign_parts(both) == {ForeignPartKey(KEY, "mm2"): MM2}
    assert decode_foreign_parts(reversed(both)) == {ForeignPartKey(KEY, "mm2"): MM2}
    ((remembered, _),) = assemble_partitions([CLAIM], decode_foreign_parts(both[:1])).values()
    assert isinstance(remembered.map, BrokenOffsetMap)
    with pytest.raises(ReplicatorError, match="lacks the part that order mm2 adopted"):
        remembered.map.to_target(5, 200)


def test_what_contradicts_itself_is_broken() -> None:
    for wrong in (
        replace(MM2, base=155),
        replace(MM2, base=165),
        replace(MM2, position=113),
        replace(MM2, stretches=(ExplicitRun(0, 0, 100), ExplicitRun(90, 102, 10))),
    ):
        assert isinstance(JoinedOffsetMap.over(wrong, OffsetMap((OffsetRun(160, 112),))), BrokenOffsetMap)
    with pytest.raises(ProtocolError, match="cannot read"):
        decode_foreign_parts([ControlRecord(0, 0, 0, "k", {"schema": 1, "kind": "foreign"})])


def test_a_partition_of_which_nothing_could_be_compared() -> None:
    offsets = JoinedOffsetMap.over(ForeignPart("MirrorMaker 2", 50, 80), OffsetMap((OffsetRun(50, 80),)))
    assert offsets.to_target(3, 60) == 50
    assert offsets.to_source(55) == 85
    with pytest.raises(ReplicatorError, match="before the first copied record"):
        offsets.to_source(49)


def test_a_consolidated_ledger_says_the_same() -> None:
    ((before, _),) = assemble_partitions([CLAIM], decode_foreign_parts(records(MM2))).values()
    blocks = build_map_blocks(KEY, Generation(9, "w"), 170, before)
    assert [run for block in blocks for run in block.runs] == [OffsetRun(160, 112)]
    ((after, _),) = assemble_partitions(blocks, decode_foreign_parts(records(MM2))).values()
    assert replace(after, without_newest=None) == replace(before, without_newest=None)


@pytest.mark.parametrize("seed", range(20))
def test_every_offset_equals_an_oracle(seed: int) -> None:
    draw = random.Random(seed)
    target, source, stretches = 0, draw.randrange(5), []
    on_target: dict[int, int] = {}
    for _ in range(draw.randrange(1, 8)):
        target, source = target + draw.choice((0, 0, 1, 7)), source + draw.choice((0, 0, 2, 5))
        count = draw.randrange(1, 6)
        stretches.append(ExplicitRun(target, source, count))
        on_target |= {target + n: source + n for n in range(count)}
        target, source = target + count, source + count
    base = target + draw.choice((0, 4))
    on_target |= {base + n: source + n for n in range(10)}
    offsets = JoinedOffsetMap.over(
        ForeignPart("x", base, source, tuple(stretches)), OffsetMap((OffsetRun(base, source),))
    )
    for at in range(stretches[0].source, source + 10):
        assert offsets.to_target(at, base + 10) == min(there for there, here in on_target.items() if here >= at)
    for at in range(stretches[0].target, base + 10):
        assert offsets.to_source(at) == min(here for there, here in on_target.items() if there >= at)


def decide(order: OperatorDecision = ORDER, seen: LogInspection = FILLED, remembered: LedgerState | None = None):
    return apply_adoption(order, find_recovery_point(remembered, seen, 7, "earliest"), remembered, 0, seen, 7)


def test_the_worker_goes_on_behind_it() -> None:
    found = decide()
    assert isinstance(found, RecoveryPoint)
    assert (found.position, found.target_end, found.identity) == (112, 160, ProducerIdentity(7, 1, 160))
    assert (found.claims, found.order, found.adopted, found.since) == (True, "mm2", "mm2", 1)
    assert found.note.startswith("target offsets below 160 were copied by MirrorMaker 2; adopted on ")
    # The claim is in the ledger: the same order changes nothing more, and the foreign tail is the one that was proven.
    ((remembered, _),) = assemble_partitions([CLAIM], decode_foreign_parts(records(MM2))).values()
    again = decide(remembered=remembered)
    assert isinstance(again, RecoveryPoint)
    assert (again.position, again.claims, again.adopted) == (112, False, "mm2")


def test_it_begins_although_the_flow_starts_at_the_latest_record() -> None:
    empty = replace(FILLED, target_end=0, tail=None)
    found = apply_adoption(
        replace(ORDER, base=0, position=3), find_recovery_point(None, empty, 7, "latest"), None, 0, empty, 7
    )
    assert isinstance(found, RecoveryPoint)
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
def test_what_moved_since_is_refused_and_said(seen: LogInspection, says: str) -> None:
    found = decide(seen=seen)
    assert isinstance(found, Halt)
    assert found.state == "target_foreign_write"
    assert "adopt mm2 of ann is refused: " in found.error
    assert says in found.error


def test_nothing_begins_while_something_may_be_under_way() -> None:
    assert isinstance(decide(seen=replace(FILLED, settled=False)), Reinspect)


def test_a_flow_that_copied_is_not_adopted() -> None:
    lost = replace(FILLED, target_id=OTHER)
    found = decide(seen=lost, remembered=known())
    assert isinstance(found, Halt)
    assert "adopt mm2 of ann is refused: this flow has copied into the partition itself" in found.error


def test_a_writer_behind_the_boundary_is_found() -> None:
    ((remembered, _),) = assemble_partitions([CLAIM], decode_foreign_parts(records(MM2))).values()
    found = find_recovery_point(
        remembered, replace(FILLED, target_end=165, tail=tail(160, 165, producer=-1)), 7, "earliest"
    )
    assert isinstance(found, Halt)
    assert found.state == "target_foreign_write"


def test_the_order_is_read_as_it_was_written() -> None:
    assert OperatorDecision.from_json(ORDER.to_json()) == ORDER
    assert uuid.UUID(ORDER.to_json()["source_id"]) == SOURCE
