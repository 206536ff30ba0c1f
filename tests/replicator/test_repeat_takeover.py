"""Taking a partition over that is copied with repeats: what both logs hold, what the ledger says, what was ordered."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.replicator.build import damaged, data
from watershed.clusters.control_records import ControlRecord
from watershed.clusters.errors import ClusterError, Unauthorised, Unreachable
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.record_batch import assign_batch_offset
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.messages import FetchedPartition
from watershed.clusters.wire.topic_names import build_stand_in_id
from watershed.replicator.batch.record_batch import decode_batches
from watershed.replicator.ledger.ledger import Ledger
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetRun
from watershed.replicator.ledger.transaction_positions import (
    LogKnowledge,
    PositionAndRuns,
    TransactionPosition,
    decode_positions,
)
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect
from watershed.replicator.recovery import repeat_takeover
from watershed.replicator.recovery.log_inspection import BrokerAddress, LeaderLog
from watershed.replicator.recovery.operator_decisions import OperatorDecision
from watershed.replicator.recovery.position_takeover import InspectedPartition
from watershed.replicator.recovery.repeat_takeover import RepeatTakeover, TakenRepeatablePartition
from watershed.replicator.recovery.transaction_recovery_point import InspectedRanges
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("literal", "orders"),)))
KEY = PartitionKey("a-to-b", "orders", "orders", 0)
SOURCE, TARGET = uuid.UUID(int=1), uuid.UUID(int=2)


@dataclass
class Log:
    """A partition of one cluster, and a connection to its leader."""

    alias: str
    topic_id: uuid.UUID
    start: int = 0
    batches: list[bytes] = field(default_factory=list)
    emptied_at: int = 0
    throttle_ms: int = 0

    @property
    def end(self) -> int:
        return max((_decode(each).end for each in self.batches), default=self.emptied_at)

    @property
    def leader(self) -> LeaderLog:
        return LeaderLog(self.topic_id, BrokerAddress(self.alias, 9092), self.start, self.end)

    def empty(self) -> None:
        """As DeleteRecords does."""
        self.start = self.emptied_at = self.end
        self.batches.clear()

    def fetch(self, asked: Iterable[Any], **_more: Any) -> list[FetchedPartition]:
        (one,) = asked
        error = error_codes.NONE if self.start <= one.offset <= self.end else error_codes.OFFSET_OUT_OF_RANGE
        found = b"".join(each for each in self.batches if _decode(each).end > one.offset and not error)
        return [FetchedPartition(self.topic_id, 0, error, self.end, self.end, self.start, memoryview(found))]

    def close(self) -> None:
        """Nothing is open."""


def _decode(batch: bytes) -> Any:
    return next(iter(decode_batches(memoryview(batch))))


@dataclass
class World:
    """Source offsets 0 to 199 in batches of 10. The target holds what a test says."""

    source: Log = field(default_factory=lambda: Log("a", SOURCE, 0, [data(at, 10) for at in range(0, 200, 10)]))
    target: Log = field(default_factory=lambda: Log("b", TARGET))
    ledger: dict[str, Any] = field(default_factory=dict)
    orders: dict[PartitionKey, OperatorDecision] = field(default_factory=dict)
    flow: PlanFlow = FLOW
    still: bool = True
    journaled: list[str] = field(default_factory=list)

    def put(self, topic: str, key: str, value: Any, _slot: int = 0) -> None:
        if topic != "watershed.ledger":
            self.journaled.append(key)
        elif value is None:
            del self.ledger[key]
        else:
            self.ledger[key] = value

    def land(self, first: int, end: int, at: int | None = None) -> None:
        """The target stores the source's batches of these offsets."""
        for base in range(first, end, 10):
            self.target.batches.append(assign_batch_offset(data(base, 10), self.target.end if at is None else at, 0))

    def remember(self, position: int, **more: Any) -> None:
        """The ledger says: copied through `position`, offset by offset."""
        runs = (ExplicitRun(0, 0, position),) if position else ()
        at = TransactionPosition(
            KEY, SOURCE, TARGET, OffsetRun(0, 0), position, stretches=runs, log=LogKnowledge(position)
        )
        at = replace(at, **more)
        self.put("watershed.ledger", at.record_key, at.to_json())

    def known(self) -> PositionAndRuns:
        return decode_positions([ControlRecord(0, at, 0, *each) for at, each in enumerate(self.ledger.items())])[KEY]

    def order(self, kind: Any, state: str, **more: Any) -> None:
        at = self.known().position
        self.orders[KEY] = OperatorDecision(kind, "a-to-b", "orders", 0, state, at.generation, "ann", id="one", **more)

    def take_over(self) -> Any:
        taking = RepeatTakeover(
            FlowRecord(self.flow, "sha256:0", "shop"),
            SimpleNamespace(alias="a"),
            SimpleNamespace(alias="b"),
            SimpleNamespace(settled=lambda *_: self.still),
            self,
            lambda _where: lambda _batch: False,
            SimpleNamespace(read=None),  # the position is told below
            decisions=self.orders,
        )
        here, there = self.source.leader, self.target.leader
        seen = InspectedPartition(here, there, InspectedRanges.of(here, there, settled=True))
        return taking._take_one(KEY, Ledger({}, {KEY: self.known()}), seen)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr(
        repeat_takeover,
        "open_connection",
        lambda settings, _leader: found.source if settings.alias == "a" else found.target,
    )
    return found


def test_what_landed_behind_the_ledgers_position_is_copied(world: World) -> None:
    world.remember(50)
    world.land(0, 80)
    taken = world.take_over()
    assert isinstance(taken, TakenRepeatablePartition)
    assert taken.track.position == world.known().position
    assert world.known().position.position == 80
    assert world.known().position.log == LogKnowledge(80)
    assert list(world.known().map.stretches(99)) == [ExplicitRun(0, 0, 80)]


def test_a_target_that_got_an_id_is_the_same_topic(world: World) -> None:
    """Brokers before 2.8 give topics no ids; the ledger has one that stands in for it."""
    world.remember(50, target_id=build_stand_in_id("b-id", "orders"), source_id=build_stand_in_id("b-id", "orders"))
    world.land(0, 80)
    assert isinstance(world.take_over(), TakenRepeatablePartition)
    at = world.known().position
    assert (at.source_id, at.target_id, at.position, at.generation) == (SOURCE, TARGET, 80, 1)


def test_a_halt_that_the_tail_shows_is_answered_by_a_reseed(world: World) -> None:
    world.remember(50)
    world.land(0, 50)
    world.target.batches.append(assign_batch_offset(data(777, 3), 50, 0))
    halted = world.take_over()
    assert isinstance(halted, Halt)
    assert (halted.state, halted.target) == ("target_foreign_write", OffsetSpan(50, 53))
    world.order("reseed", "target_foreign_write", target_id=TARGET)
    refused = world.take_over()
    assert isinstance(refused, Halt)
    assert "reseed one of ann is refused: the target still holds offsets 0 to 52; empty it first" in refused.error
    world.target.empty()
    assert isinstance(world.take_over(), TakenRepeatablePartition)
    at = world.known().position
    assert (at.position, at.begin, at.order, at.generation) == (0, OffsetRun(53, 0), "one", 2)
    assert at.log == LogKnowledge(53)
    world.land(0, 20)
    world.target.empty()
    assert isinstance(world.take_over(), TakenRepeatablePartition), "it is obeyed once"
    assert (world.known().position.generation, world.known().position.log) == (2, LogKnowledge(73))


def test_a_halt_that_the_tail_shows_is_told_while_batches_may_be_under_way(world: World) -> None:
    world.remember(50)
    world.land(0, 50)
    world.target.batches.append(assign_batch_offset(data(777, 3), 50, 0))
    world.still = False
    waiting = world.take_over()
    assert isinstance(waiting, Reinspect)
    assert waiting.halts_as is None
    world.still = True
    assert waiting.pending == world.take_over()


def test_an_order_waits_until_nothing_is_under_way(world: World) -> None:
    world.remember(50)
    world.land(0, 50)
    world.source.start = 60
    world.source.batches = world.source.batches[6:]
    world.order("accept-gap", "source_expired", lost=OffsetSpan(50, 60))
    world.still = False
    assert isinstance(world.take_over(), Reinspect)
    world.remember(50, log=LogKnowledge(50, settled=True))
    assert isinstance(world.take_over(), TakenRepeatablePartition), "its worker has ended in good order"
    assert world.known().position.position == 60


def test_a_topic_without_an_id_that_was_made_anew_halts_and_is_copied_again(world: World) -> None:
    stand_in = build_stand_in_id("b-id", "orders")
    world.target.topic_id = stand_in
    world.remember(50, target_id=stand_in)
    world.still = False
    assert isinstance(world.take_over(), Reinspect)
    world.still = True
    halted = world.take_over()
    assert isinstance(halted, Halt)
    assert (halted.state, halted.target) == ("target_gone", OffsetSpan(0, 50))
    world.order("reseed", "target_gone", target_id=stand_in)
    assert isinstance(world.take_over(), TakenRepeatablePartition)
    assert (world.known().position.position, world.known().position.order) == (0, "one")


@pytest.mark.parametrize("start", [60, 65])
def test_what_the_target_has_deleted_unread_is_passed_where_the_rest_is_found(world: World, start: int) -> None:
    world.remember(50)
    world.land(0, 90)
    world.target.start = start
    assert isinstance(world.take_over(), TakenRepeatablePartition)
    known = world.known()
    assert (known.position.position, known.position.log) == (90, LogKnowledge(90))
    assert list(known.map.stretches(99)) == [ExplicitRun(0, 0, 50), ExplicitRun(start, start, 90 - start)]


def test_a_target_that_has_deleted_everything_goes_on_where_the_ledger_is(world: World) -> None:
    world.remember(50)
    world.land(0, 90)
    world.target.empty()
    assert isinstance(world.take_over(), TakenRepeatablePartition)
    assert (world.known().position.position, world.known().position.log) == (50, LogKnowledge(90))


def test_what_stands_behind_deleted_records_may_not_be_further_than_they_reach(world: World) -> None:
    world.remember(50)
    world.land(0, 60)
    world.land(150, 160)
    world.target.start = 60
    halted = world.take_over()
    assert isinstance(halted, Halt)
    assert (halted.state, halted.target) == ("target_foreign_write", OffsetSpan(60, 70))


@pytest.mark.parametrize("by_policy", [False, True])
@pytest.mark.parametrize("start", [150, 155])
def test_behind_a_gap_the_tail_is_read_and_no_position_skips_what_nobody_could_compare(
    world: World, start: int, by_policy: bool
) -> None:
    """The ledger is at 100, the target holds 100 to 199, and the source has deleted what is below its log start."""
    world.remember(100)
    world.land(0, 180)
    world.source.start = start
    world.source.batches = world.source.batches[15:]
    lost = OffsetSpan(100, start)
    if by_policy:
        world.flow = replace(FLOW, on_gap="continue")
    else:
        halted = world.take_over()
        assert isinstance(halted, Halt)
        assert (halted.state, halted.source) == ("source_expired", lost)
        world.order("accept-gap", "source_expired", lost=lost)
    assert isinstance(world.take_over(), TakenRepeatablePartition)
    known = world.known()
    assert (known.position.position, known.position.generation, known.repeated) == (180, 2, ())
    assert list(known.map.stretches(999)) == [ExplicitRun(0, 0, 100), ExplicitRun(start, start, 180 - start)]
    assert bool(world.journaled) is by_policy
    for offset in range(100, start):
        assert known.map.to_target(offset, 180) == 100, "they stand from there on"
    assert known.map.to_target(start, 180) == start


def test_more_than_was_given_up_is_somebody_elses(world: World) -> None:
    world.remember(100)
    world.land(0, 100)
    world.source.start = 110
    world.source.batches = world.source.batches[11:]
    world.target.batches.append(assign_batch_offset(data(500, 11), 100, 0))
    world.order("accept-gap", "source_expired", lost=OffsetSpan(100, 110))
    halted = world.take_over()
    assert isinstance(halted, Halt)
    assert (halted.state, halted.target) == ("target_foreign_write", OffsetSpan(100, 111))
    assert world.known().position.generation == 1


def test_a_batch_that_cannot_be_copied_does_not_keep_what_landed_before_it(world: World) -> None:
    """It was read ahead; no worker has sent it."""
    world.remember(50)
    world.land(0, 60)
    world.source.batches[8] = damaged(world.source.batches[8])
    assert isinstance(world.take_over(), TakenRepeatablePartition)
    assert world.known().position.position == 60
    world.target.batches.append(assign_batch_offset(data(500, 1), 60, 0))
    assert isinstance(world.take_over(), Halt)


class Configs:
    """An administration client, of which one cluster answers with an error."""

    def __init__(self, settings: Any, refused: dict[str, ClusterError | None]) -> None:
        self.error = refused[settings.alias]

    def __enter__(self) -> Configs:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def effective_configs(self, names: list[str]) -> dict[str, dict[str, str]]:
        if self.error is not None:
            raise self.error
        return {name: {"cleanup.policy": "delete"} for name in names}


@pytest.mark.parametrize("alias", ["a", "b"])
def test_where_configs_are_not_told_nothing_is_copied(monkeypatch: pytest.MonkeyPatch, alias: str) -> None:
    refused: dict[str, ClusterError | None] = {"a": None, "b": None}
    monkeypatch.setattr(repeat_takeover, "Admin", lambda settings: Configs(settings, refused))
    sides = SimpleNamespace(alias="a"), SimpleNamespace(alias="b")
    assert repeat_takeover._find_compacted([KEY], *sides) == {}
    refused[alias] = Unreachable("gone for a moment", alias=alias)
    with pytest.raises(Unreachable):
        repeat_takeover._find_compacted([KEY], *sides)
    refused[alias] = Unauthorised("no", alias=alias)
    [halted] = repeat_takeover._find_compacted([KEY], *sides).values()
    assert halted.state == "unauthorised"
    assert f"Grant DESCRIBE_CONFIGS on the flow's topics at {alias}" in halted.error
