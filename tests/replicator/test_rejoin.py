"""A flow that goes on where applications came back: every offset against an oracle, and how workers obey."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.replicator.test_resume import NOW, OTHER, SEEN, SOURCE, TARGET, known, tail
from watershed.clusters.control_records import ControlRecord
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger.foreign_part import (
    ForeignPart,
    JoinedOffsetMap,
    build_foreign_records,
    decode_foreign_parts,
)
from watershed.replicator.ledger.ledger import Ledger, assemble_partitions
from watershed.replicator.ledger.ledger_block import Generation, LedgerBlock
from watershed.replicator.ledger.ledger_state import LedgerState
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap, OffsetRun
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect
from watershed.replicator.recovery.operator_decisions import OperatorDecision, apply_adoption
from watershed.replicator.recovery.producer_epochs import MAX_PRODUCER_EPOCH
from watershed.replicator.recovery.recovery_point import LogInspection, RecoveryPoint, find_recovery_point
from watershed.replicator.recovery.rejoin import RejoinPoint, build_rejoin_part, plan_rejoin

KEY = PartitionKey("f", "orders", "dc.orders", 0)
BACK = "cloud-to-onprem"
# The flow copied 10 records to 0; applications wrote 5 and a marker at the target; 3 markers and they stand at home.
CAME = RejoinPoint(cut=10, copied=110, base=16, position=118)
CARRIED = [ExplicitRun(110, 10, 5)]
MOVED = ForeignPart("applications", 16, 118, (ExplicitRun(0, 100, 10), ExplicitRun(10, 110, 5)))
REMEMBERED = replace(known(), identity=ProducerIdentity(7, 3, 0), map=OffsetMap((OffsetRun(0, 100),)), last_epoch=3)
ORDER = OperatorDecision(
    "rejoin", "f", "orders", 0, "target_foreign_write", 7, "topology rollback", id="rejoin-there", at_ms=NOW,
    source_id=SOURCE, target_id=TARGET, base=16, position=118, tool=BACK,
)  # fmt: skip
AWAY = LogInspection(
    **SEEN | {"target_start": 0, "target_end": 16, "tail": tail(15, 16, producer=44), "producer": (3, 9, NOW),
              "source_end": 130, "settled": True}
)  # fmt: skip


def decide(
    order: OperatorDecision = ORDER,
    seen: LogInspection = AWAY,
    remembered: LedgerState | None = REMEMBERED,
    generation: int = 7,
):
    return apply_adoption(order, find_recovery_point(remembered, seen, 7, "earliest"), remembered, generation, seen, 7)


@pytest.mark.parametrize("seed", range(30))
def test_any_number_of_ways_there_and_back_equals_an_oracle(seed: int) -> None:
    draw = random.Random(seed)
    home = away = 0  # log ends
    pairs: dict[int, int] = {}  # target offset → source offset, of every record that is on both sides
    runs, front = [OffsetRun(0, 0)], None
    back: list[ExplicitRun] = []

    def offsets() -> OffsetMap:
        own = OffsetMap(tuple(runs))
        return own if front is None else JoinedOffsetMap.over(front, own)

    for _ in range(draw.randrange(1, 5)):
        for _ in range(draw.randrange(4)):  # applications write at home, the flow copies
            home += draw.choice((0, 0, 1, 3))  # markers, and what is compacted away
            runs.append(OffsetRun(away, home))
            for _ in range(draw.randrange(4)):
                pairs[away] = home
                home, away = home + 1, away + 1
        copied = home
        away, home = away + draw.randrange(2), home + draw.randrange(2)  # a fence in the log, a straggler's record
        cut = away
        for _ in range(draw.randrange(4)):  # applications write away, the flow back carries
            away, home = away + draw.choice((0, 1, 2)), home + draw.choice((0, 1))
            count = draw.randrange(4)
            if count:
                back.append(ExplicitRun(home, away, count))
            for _ in range(count):
                pairs[away] = home
                home, away = home + 1, away + 1
        away, home = away + draw.randrange(2), home + draw.randrange(2)
        front = build_rejoin_part(offsets(), back, RejoinPoint(cut, copied, away, home), BACK, guarded=True)
        runs = [OffsetRun(away, home)]
    found = offsets()
    assert isinstance(found, JoinedOffsetMap), found
    assert {at + n: from_ + n for at, from_, count in found.stretches(away) for n in range(count)} == pairs
    for at in range(away + 1):
        assert found.to_source(at) == min((here for there, here in pairs.items() if there >= at), default=home)
    first = min(pairs.values(), default=home)
    for at in range(first, home + 1):
        there, behind = found.to_target(at, away), min((t for t, here in pairs.items() if here >= at), default=away)
        assert there <= behind
        assert not any(there <= t < behind for t in pairs)  # markers at most: the next record is the right one
    assert found.source_position(away) == home
    assert found.to_target(home + 5, away + 5) == away + 5


def test_the_worker_goes_on_behind_what_came_back() -> None:
    assert isinstance(find_recovery_point(REMEMBERED, AWAY, 7, "earliest"), Halt)  # without the order: a foreign writer
    found = decide()
    assert isinstance(found, RecoveryPoint)
    assert (found.position, found.target_end, found.identity) == (118, 16, ProducerIdentity(7, 4, 16))
    assert (found.claims, found.order, found.adopted, found.since) == (True, "rejoin-there", "rejoin-there", 4)
    assert found.note.startswith(f"goes on at target offset 16, behind what flow {BACK} carried back, since ")


def test_its_claim_is_what_counts_from_then_on() -> None:
    front = build_rejoin_part(REMEMBERED.map, CARRIED, CAME, BACK, guarded=True)
    stored = [
        ControlRecord(0, n, 0, key, value) for n, (key, value) in enumerate(build_foreign_records(KEY, ORDER.id, front))
    ]
    older = LedgerBlock(
        KEY, Generation(7, "w"), 1, 0, ProducerIdentity(7, 3, 0), SOURCE, TARGET, (OffsetRun(0, 100),), at=1
    )
    claim = LedgerBlock(
        KEY,
        Generation(8, "w"),
        0,
        16,
        ProducerIdentity(7, 4, 16),
        SOURCE,
        TARGET,
        (OffsetRun(16, 118),),
        at=9,
        since=4,
        order=ORDER.id,
        adopted=ORDER.id,
    )
    ((remembered, generation),) = assemble_partitions([older, claim], decode_foreign_parts(stored)).values()
    assert (generation, remembered.identity) == (8, ProducerIdentity(7, 4, 16))
    assert list(remembered.map.stretches(18)) == [ExplicitRun(0, 100, 15), ExplicitRun(16, 118, 2)]
    again = decide(remembered=remembered, generation=8)
    assert isinstance(again, RecoveryPoint)
    assert (again.position, again.claims) == (118, False)


def test_one_name_stands_for_orders_of_several_partitions() -> None:
    keys = [KEY._replace(partition=number) for number in range(3)]
    fronts = {key: replace(MOVED, base=16 + number, position=118 + number) for number, key in enumerate(keys)}
    stored = [
        ControlRecord(0, 0, 0, *each)
        for key, front in fronts.items()
        for each in build_foreign_records(key, ORDER.id, front)
    ]
    claims = [
        LedgerBlock(key, Generation(8, "w"), 0, front.base, ProducerIdentity(7, 4, front.base), SOURCE, TARGET,
              (OffsetRun(front.base, front.position),), at=9, since=4, order=ORDER.id, adopted=ORDER.id)
        for key, front in fronts.items()
    ]  # fmt: skip
    for key, (remembered, _) in assemble_partitions(claims, decode_foreign_parts(stored)).items():
        assert isinstance(remembered.map, JoinedOffsetMap)
        assert remembered.map.base == fronts[key].base
        assert remembered.map.to_source(16 + key.partition) == 118 + key.partition


def test_a_fence_in_the_log_is_passed_by_a_newer_epoch() -> None:
    found = decide(seen=replace(AWAY, producer=(5, -1, NOW)))
    assert isinstance(found, RecoveryPoint)
    assert found.identity.epoch == 6
    used_up = decide(seen=replace(AWAY, producer=(MAX_PRODUCER_EPOCH, -1, NOW)))
    assert isinstance(used_up, Halt)
    assert "there are none left" in used_up.error


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"seen": replace(AWAY, target_end=17)}, "proved the target up to offset 16, now the log ends at 17"),
        ({"seen": replace(AWAY, target_id=OTHER)}, "give it again"),
        ({"seen": replace(AWAY, source_start=119, source_end=140)}, "source offsets 118 to 118, where copying"),
        ({"generation": 8}, "it answers generation 7 of the ledger, the newest is 8"),
        ({"remembered": None}, "this flow has copied nothing into the partition"),
    ],
    ids=["somebody writes", "created again", "expired", "copied since", "never copied"],
)
def test_what_is_not_as_it_was_left_is_refused(given: dict, says: str) -> None:
    found = decide(**given)
    assert isinstance(found, Halt)
    assert "rejoin rejoin-there of topology rollback is refused: " in found.error
    assert says in found.error


def test_nothing_begins_while_something_may_be_under_way() -> None:
    assert isinstance(decide(seen=replace(AWAY, settled=False)), Reinspect)


def test_what_was_carried_back_is_left_out_of_a_proof_where_the_guard_leaves_it_out() -> None:
    assert build_rejoin_part(REMEMBERED.map, CARRIED, CAME, BACK, guarded=True).extra == (OffsetSpan(10, 16),)
    assert build_rejoin_part(REMEMBERED.map, CARRIED, CAME, BACK, guarded=False).extra == ()
    nothing = RejoinPoint(cut=10, copied=110, base=10, position=112)
    assert build_rejoin_part(REMEMBERED.map, [], nothing, BACK, guarded=True).extra == ()


def test_maps_that_contradict_each_other() -> None:
    with pytest.raises(ReplicatorError, match=r"cloud-to-onprem has carried back more than"):
        build_rejoin_part(REMEMBERED.map, [ExplicitRun(110, 10, 7)], CAME, BACK, guarded=True)


def test_orders_are_for_partitions_that_can_go_on() -> None:
    place = TopicPartition("orders", 0)
    own = Ledger({KEY: (REMEMBERED, 7)})
    sequence = Ledger({PartitionKey(BACK, "dc.orders", "orders", 0): (REMEMBERED, 1)})
    found = plan_rejoin("f", {place: CAME}, (own, Ledger({})), BACK, "rejoin-there", guarded=True)
    ((given,), left) = found.decisions, found.left
    assert replace(given.decision, at_ms=NOW) == ORDER
    assert (left, given.foreign.base, given.details) == ({}, 16, {"cut": 10, "carried": 0})
    aligned = plan_rejoin("f", {place: CAME}, (own, Ledger({})), BACK, "x", guarded=True, aligned=frozenset({"orders"}))
    assert (aligned.decisions, list(aligned.left)) == ([], ["orders"])
    other = plan_rejoin("f", {place: CAME}, (own, sequence), BACK, "x", guarded=True)
    assert other.left == {"orders": f"flow {BACK} does not copy in transactions"}
    unknown = plan_rejoin("f", {TopicPartition("new", 0): CAME}, (own, Ledger({})), BACK, "x", guarded=True)
    assert "copied nothing into it" in unknown.left["new"]
