"""Where copying goes on: one case for every rule of docs/research/sequence-numbers.md, §4 and §6."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from watershed.clusters.errors import ClusterError, ProtocolError
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.fake_wire import FakeWire
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.record_batch import build_simple_batch
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.messages import OffsetAnswer
from watershed.clusters.wire.topic_names import build_stand_in_id
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.ledger.ledger import Ledger
from watershed.replicator.ledger.ledger_state import LedgerState
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.replicator.ledger.record_format import FlowPartition
from watershed.replicator.partition_key import MAX_BATCHES_IN_FLIGHT as DEPTH
from watershed.replicator.partition_key import PRODUCER_EXPIRY_MARGIN_MS, PartitionKey, ProducerIdentity
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery import log_inspection as look_module
from watershed.replicator.recovery import takeover
from watershed.replicator.recovery.log_inspection import BrokerAddress, LeaderLog
from watershed.replicator.recovery.recovery_point import LogInspection, RecoveryPoint, find_recovery_point
from watershed.replicator.recovery.settled_log_ends import SettledLogEnds
from watershed.topology.delivery_guarantee import LOG_SETTLE_S
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

NOW = 1_790_000_000_000
DAY = 86_400_000
SOURCE, TARGET, OTHER = uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=3)
STAND_IN = build_stand_in_id("zk-cluster", "orders")
US = ProducerIdentity(7, 0, 0)


def tail(base: int, end: int, producer: int = 7, epoch: int = 0, sequence: int | None = None) -> RawBatch:
    sequence = base if sequence is None else sequence
    return RawBatch(base, end, 0, 0, NOW, producer, epoch, sequence, end - base, memoryview(b""))


def known(*runs: tuple[int, int], identity: ProducerIdentity = US, source: uuid.UUID = SOURCE) -> LedgerState:
    return LedgerState(OffsetMap.of(runs or [(0, 0)]), identity, source, TARGET)


def at_target(target: uuid.UUID, stood_at: int = 0) -> LedgerState:
    return replace(known(), target_id=target, stood_at=stood_at)


YOUNG = (0, 99, NOW)
SEEN: dict[str, Any] = {
    "source_id": SOURCE,
    "source_start": 0,
    "source_end": 500,
    "target_id": TARGET,
    "target_start": 0,
    "target_end": 100,
    "tail": tail(90, 100),
    "producer": YOUNG,
    "now": NOW,
    "expiration": DAY,
    "settled": False,
}
EMPTY: dict[str, Any] = {"target_end": 0, "tail": None, "producer": None}


@dataclass(frozen=True)
class Case:
    """What the ledger remembers and what differs from an ordinary look → what is decided.

    expected: (position, depth, depth confirmed), a halt state, or LookAgain.
    """

    name: str
    expected: tuple[int, int, int] | str | type[Reinspect]
    remembered: LedgerState | None = field(default_factory=known)
    seen: dict[str, Any] = field(default_factory=dict)
    start: str = "earliest"
    says: str = ""


OLD = {"producer": (0, 99, NOW - DAY)}
WITHOUT_IDS: dict[str, Any] = {"target_id": STAND_IN, "producer": None}
CASES = [
    # §6 (1), nobody has copied it yet
    Case("first time", (0, 1, DEPTH), None, EMPTY),
    Case("first time, a source that begins later", (40, 1, DEPTH), None, EMPTY | {"source_start": 40}),
    Case("first time, from the end", (500, 1, DEPTH), None, EMPTY, start="latest"),
    Case("first time, into a partition whose records were deleted", (0, 1, DEPTH), None,
         EMPTY | {"target_start": 30, "target_end": 30}),
    Case("first time, but there are records", "target_foreign_write", None, {"producer": None}, says="0 to 99"),
    # §4 R1, R4: young, state present: resume at the log end, pipelined
    Case("young", (100, DEPTH, DEPTH)),
    Case("young, behind a gap", (111, DEPTH, DEPTH), known((0, 0), (90, 101))),
    Case("young, a gap announced and not reached", (100, DEPTH, DEPTH),


                         known((0, 0), (150, 170))),
    Case("young, a gap announced and reached", (120, DEPTH, DEPTH), known((0, 0), (100, 120))),
    Case("young, just", (100, DEPTH, DEPTH), seen={"producer": (0, 99, NOW - DAY + PRODUCER_EXPIRY_MARGIN_MS + 1)}),
    Case("no longer young", Reinspect, seen={"producer": (0, 99, NOW - DAY + PRODUCER_EXPIRY_MARGIN_MS)}),
    Case("young by a longer expiration", (100, DEPTH, DEPTH),

                 seen={"producer": (0, 99, NOW - 20 * DAY), "expiration": 24 * DAY}),
    Case("young with all records deleted: the state decides", (100, DEPTH, DEPTH),
         seen={"target_start": 100, "tail": None}),
    Case("young, a base", (500, DEPTH, DEPTH), known((70, 470), identity=ProducerIdentity(7, 0, 70)),
         {"tail": tail(90, 100, sequence=20), "producer": (0, 29, NOW)}),
    Case("young, sequence wrapped", (2**31 + 60, DEPTH, DEPTH), known(),
         {"target_end": 2**31 + 60, "source_end": 2**31 + 90, "tail": tail(2**31 - 10, 2**31 + 60, sequence=2**31 - 10),
          "producer": (0, 59, NOW)}),
    # §6 (1): the state is ahead of the log end: not replicated yet
    Case("state ahead", Reinspect, seen={"producer": (0, 109, NOW)}, says="10 records"),
    Case("state ahead over the wrap", Reinspect, known(),
         {"target_end": 2**31 - 5, "source_end": 2**31, "tail": tail(2**31 - 9, 2**31 - 5), "producer": (0, 4, NOW)},
         says="10 records"),
    Case("state behind the log end", "duplicated", seen={"producer": (0, 89, NOW)}, says="sequence 89"),
    # §4 R5: old or no state: wait until nothing can be under way, then depth 1
    Case("old", Reinspect, seen=OLD, says="forgotten"),
    Case("old, settled", (100, 1, 1), seen=OLD | {"settled": True}),
    Case("no state", Reinspect, seen={"producer": None}, says="forgotten"),
    Case("no state, settled", (100, 1, 1), seen={"producer": None, "settled": True}),
    Case("no state, all records deleted", Reinspect,
         seen={"producer": None, "target_start": 100, "tail": None}),
    Case("no state, all records deleted, settled", (100, 1, 1),
         seen={"producer": None, "target_start": 100, "tail": None, "settled": True}),
    Case("announced, nothing written yet", (0, 1, DEPTH), known(), EMPTY),
    Case("announced from the end, nothing written yet", (480, 1, DEPTH), known((0, 480)), EMPTY, start="latest"),
    # §0 (3): the tail's header against the formula
    Case("tail by somebody else", "target_foreign_write", seen={"tail": tail(90, 100, producer=8)}, says="producer 8"),
    Case("tail without a producer", "target_foreign_write", seen={"tail": tail(90, 100, producer=-1, epoch=-1)}),
    Case("tail of another generation of content", "target_foreign_write", seen={"tail": tail(90, 100, epoch=1)}),
    Case("tail with another sequence", "duplicated", seen={"tail": tail(95, 100, sequence=90)}, says="95 to 99"),
    Case("the silent case of §1", "duplicated", known(),
         {"target_end": 35, "tail": tail(30, 35, sequence=20), "producer": None, "settled": True}),
    # topic ids
    Case("target created again", "target_gone", seen={"target_id": OTHER}, says=str(OTHER)),
    Case("source created again", "source_recreated", seen={"source_id": OTHER}, says=str(OTHER)),
    # a source that gives topics no ids
    Case("the same records still", (100, DEPTH, DEPTH), known(source=STAND_IN),
         {"source_id": STAND_IN, "source_is_same": True}),
    Case("nothing left to compare", (100, DEPTH, DEPTH), known(source=STAND_IN), {"source_id": STAND_IN}),
    Case("other records", "source_recreated", known(source=STAND_IN),
         {"source_id": STAND_IN, "source_is_same": False}, says="other records than were copied last"),
    Case("other records behind a leader change", "source_truncated", known(source=STAND_IN),
         {"source_id": STAND_IN, "source_is_same": False, "diverges_at": 90}, says="90 to 99"),
    Case("its brokers give ids now", (100, DEPTH, DEPTH), known(source=STAND_IN), {"source_is_same": True}),
    Case("they give ids, and nothing is left to compare", (100, DEPTH, DEPTH), known(source=STAND_IN)),
    Case("they give ids, to another topic", "source_recreated", known(source=STAND_IN), {"source_is_same": False}),
    Case("an id is never taken back", Reinspect, known(),
         {"source_id": STAND_IN, "source_is_same": True}, says="gives topics no ids"),
    Case("another cluster without ids", "source_recreated", known(source=STAND_IN),
         {"source_id": build_stand_in_id("other", "orders")}, says=str(STAND_IN)),
    Case("somebody else's records are not compared first", "target_foreign_write", known(source=STAND_IN),
         {"source_id": STAND_IN, "source_is_same": False, "tail": tail(90, 100, producer=8)}, says="producer 8"),
    # a target that gives topics no ids, and does not tell what it holds of producers
    Case("a target without ids", Reinspect, at_target(STAND_IN), WITHOUT_IDS, says="may have forgotten"),
    Case("a target without ids, settled", (100, 1, 1), at_target(STAND_IN), WITHOUT_IDS | {"settled": True}),
    Case("its brokers give ids now, and tell", (100, DEPTH, DEPTH), at_target(STAND_IN)),
    Case("a target's id is never taken back", Reinspect, known(), WITHOUT_IDS, says="gives topics no ids"),
    Case("another target cluster without ids", "target_gone", at_target(STAND_IN),
         WITHOUT_IDS | {"target_id": build_stand_in_id("other", "orders")}, says=str(STAND_IN)),
    Case("somebody else's records in a topic that has an id now", "target_foreign_write", at_target(STAND_IN),
         {"tail": tail(90, 100, producer=8)}, says="producer 8"),
    Case("made anew and empty", "target_gone", at_target(STAND_IN, stood_at=50),
         EMPTY | WITHOUT_IDS | {"target_end": 0, "settled": True}, says="it ended at 50 once"),
    Case("made anew and empty, by brokers that give ids since", "target_gone", at_target(STAND_IN, stood_at=50),
         EMPTY | {"settled": True}, says="it ended at 50 once"),
    Case("empty, and an id tells that it is the same", (0, 1, DEPTH), at_target(TARGET, stood_at=50), EMPTY),
    Case("made anew, and a late batch of ours is all that it holds", "duplicated", at_target(STAND_IN, stood_at=50),
         WITHOUT_IDS | {"target_end": 10, "tail": tail(0, 10, sequence=90)}, says="carries sequence 90"),
    Case("emptied by retention", (100, 1, 1), at_target(STAND_IN, stood_at=50),
         WITHOUT_IDS | {"target_start": 100, "tail": None, "settled": True}),
    Case("nothing was there before", (0, 1, DEPTH), at_target(STAND_IN), EMPTY | WITHOUT_IDS | {"target_end": 0}),
    Case("its leader is ahead of where the copy began", Reinspect, at_target(STAND_IN),
         EMPTY | WITHOUT_IDS | {"unreplicated": 3}, says="3 records behind offset 0 are not replicated"),
    Case("its leader is ahead", Reinspect, at_target(STAND_IN), WITHOUT_IDS | {"unreplicated": 3}, says="3 records"),
    Case("its leader is ahead, and nobody has copied it yet", Reinspect, None,
         EMPTY | WITHOUT_IDS | {"unreplicated": 3}, says="3 records"),
    # the source's log
    Case("expired", "source_expired", seen={"source_start": 101}, says="100 to 100"),
    Case("not expired yet", (100, DEPTH, DEPTH), seen={"source_start": 100}),
    Case("all copied", (100, DEPTH, DEPTH), seen={"source_end": 100}),
    Case("shorter than what is copied", Reinspect, seen={"source_end": 99}),
    Case("shorter for good", "source_truncated", seen={"source_end": 99, "source_settled": True}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_resume(case: Case) -> None:
    seen = LogInspection(**(SEEN | case.seen))
    decided = find_recovery_point(case.remembered, seen, 7, case.start)
    if isinstance(case.expected, str):
        assert isinstance(decided, Halt), decided
        assert decided.state == case.expected
        assert decided.remedy
        assert case.says in decided.error
    elif isinstance(case.expected, tuple):
        assert isinstance(decided, RecoveryPoint), decided
        assert (decided.position, decided.depth, decided.depth_confirmed) == case.expected
        assert decided.depth == 1 or (seen.producer is not None and decided.newest == seen.producer[2])
        assert decided.target_end == seen.target_end
        base = seen.target_end if case.remembered is None else case.remembered.identity.base
        assert decided.identity == ProducerIdentity(7, 0, base)
    else:
        assert isinstance(decided, Reinspect), decided
        assert case.says in decided.reason


def test_the_ledger_s_producer_id_counts_not_the_flow_s() -> None:
    decided = find_recovery_point(known(), LogInspection(**SEEN), 4711, "earliest")
    assert isinstance(decided, RecoveryPoint)
    assert decided.identity.producer_id == 7


KEY = PartitionKey("onprem-to-cloud", "orders", "orders", 0)


# -- taking over -----------------------------------------------------------------------------------------------


@dataclass
class Clusters:
    """The target's log end and the ledger as they change between two questions of one takeover.

    While we look, a worker that was believed dead announces a gap and lands the ten records behind it.
    """

    asked: list[str] = field(default_factory=list)
    landed: bool = False

    def ledger(self, *_: Any, **__: Any) -> Ledger:
        self.asked.append("ledger")
        runs = [(0, 0), (100, 111)] if self.landed else [(0, 0)]
        return Ledger({KEY: (known(*runs), 1)})

    def look(
        self, keys: Iterable[PartitionKey], *_: Any
    ) -> dict[PartitionKey, tuple[LogInspection, LeaderLog, LeaderLog]]:
        self.asked.append("logs")
        self.landed = True
        seen = LogInspection(**SEEN | {"target_end": 110, "tail": tail(100, 110), "producer": (0, 109, NOW)})
        here, there = (LeaderLog(topic, BrokerAddress("127.0.0.1", 1), 0, 0) for topic in (SOURCE, TARGET))
        return dict.fromkeys(keys, (seen, here, there))


def test_a_partition_whose_ledger_cannot_be_read_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it had no record, it would be copied twice."""
    clusters = Clusters()
    invalid = Ledger(
        {}, invalid={FlowPartition(KEY.flow, KEY.topic, KEY.partition): ProtocolError("offset 7 cannot be read")}
    )
    for name, function in {"inspect_logs": clusters.look, "find_leaderless_partitions": lambda *_: set()}.items():
        monkeypatch.setattr(takeover, name, function)
    monkeypatch.setattr(takeover, "SharedLedger", lambda _target: SimpleNamespace(read=lambda *_: invalid))
    flow = PlanFlow(KEY.flow, "onprem", "cloud", TopicSelection(include=(Selector("literal", "orders"),)))
    record = FlowRecord(flow, "sha256:0", "orders-move", 1, "running", 7)
    onprem, cloud = (ConnectionSettings(alias, ("127.0.0.1:1",)) for alias in ("onprem", "cloud"))
    taken = takeover.take_over_partitions(record, {KEY: 3}, onprem, cloud, DAY, SettledLogEnds(), "w1", writer=None)
    assert taken == {KEY: Halt("ledger_invalid", "offset 7 cannot be read")}


def test_what_landed_during_a_look_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger that counts is read after the log's end: then it holds everything that stands below that end."""
    clusters = Clusters()
    replaced: dict[str, Callable[..., Any]] = {
        "SharedLedger": lambda _target: SimpleNamespace(read=clusters.ledger),
        "inspect_logs": clusters.look,
        "find_leaderless_partitions": lambda *_: set(),
    }
    for name, function in replaced.items():
        monkeypatch.setattr(takeover, name, function)
    flow = PlanFlow(
        id=KEY.flow,
        source="onprem",
        target="cloud",
        topics=TopicSelection(include=(Selector("literal", "orders"),)),
    )
    record = FlowRecord(flow, "sha256:0", "orders-move", 1, "running", 7)
    onprem, cloud = (ConnectionSettings(alias, ("127.0.0.1:1",)) for alias in ("onprem", "cloud"))
    taken = takeover.take_over_partitions(record, {KEY: 3}, onprem, cloud, DAY, SettledLogEnds(), "w1", writer=None)[
        KEY
    ]
    assert isinstance(taken, takeover.TakenPartition)
    assert (taken.resume.position, taken.resume.target_end) == (121, 110)


@pytest.mark.parametrize(("end", "alone"), [(110, True), (113, False)])
def test_an_epoch_of_its_own_begins_only_where_the_log_still_ends(
    monkeypatch: pytest.MonkeyPatch, end: int, alone: bool
) -> None:
    """All who wrote have ended, says the ledger; the last of them wrote three more records after we had looked."""
    clusters = Clusters()
    there = LeaderLog(TARGET, BrokerAddress("127.0.0.1", 1), 0, 110)

    def look(keys: Iterable[PartitionKey], *others: Any) -> dict[PartitionKey, tuple[Any, LeaderLog, LeaderLog]]:
        return {key: (seen, here, there) for key, (seen, here, _) in clusters.look(keys, *others).items()}

    closed = replace(known((0, 0), (100, 111)), needs_epoch=True, closed=True)
    replaced: dict[str, Callable[..., Any]] = {
        "SharedLedger": lambda _target: SimpleNamespace(read=lambda *_: Ledger({KEY: (closed, 1)})),
        "inspect_logs": look,
        "find_leaderless_partitions": lambda *_: set(),
        "read_leader_logs": lambda *_: {("orders", 0): replace(there, end=end)},
        "claim_partitions": lambda claimed, *_: {each.block.key: each for each in claimed},
    }
    for name, function in replaced.items():
        monkeypatch.setattr(takeover, name, function)
    flow = PlanFlow(KEY.flow, "onprem", "cloud", TopicSelection(include=(Selector("literal", "orders"),)))
    record = FlowRecord(flow, "sha256:0", "orders-move", 1, "running", 7)
    onprem, cloud = (ConnectionSettings(alias, ("127.0.0.1:1",)) for alias in ("onprem", "cloud"))
    [taken] = takeover.take_over_partitions(
        record, {KEY: 3}, onprem, cloud, DAY, SettledLogEnds(), "w1", writer=None
    ).values()
    if alone:
        assert isinstance(taken, takeover.TakenPartition)
        assert (taken.resume.alone, taken.resume.target_end) == (True, 110)
    else:
        assert taken == Reinspect("the target's log ends at 113, and ended at 110 a moment ago")


# -- looking ---------------------------------------------------------------------------------------------------


class Clock:
    """Stands in for the `time` module of `replicator.recovery.log_inspection`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return NOW / 1000


def test_a_busy_source_does_not_keep_an_old_partition_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker forgot our sequence numbers (a backfill of old data). The source never stands still."""
    clock = Clock()
    source, target = (FakeCluster(alias, clock=lambda: NOW) for alias in ("onprem", "cloud"))
    fakes = {"onprem": source, "cloud": target}
    monkeypatch.setattr(look_module, "open_connection", lambda settings, _address=None: fakes[settings.alias].wire())
    monkeypatch.setattr(look_module, "time", clock)
    source_id, target_id = (cluster.create_topic("orders", 1).topic_id for cluster in (source, target))
    us = target.issue_producer_id()
    old = build_simple_batch([b"v"] * 10, timestamp=NOW - 3 * DAY, producer_id=us, epoch=0, base_sequence=0)
    assert target.append("orders", 0, old)[:2] == (0, 0)
    target.expire_producers()
    remembered = LedgerState(OffsetMap.of([(0, 0)]), ProducerIdentity(us, 0, 0), source_id, target_id)
    stillness, decided = SettledLogEnds(), []
    source.produce("orders", 0, [b"v"] * 10)
    for _ in range(5):
        source.produce("orders", 0, [b"more"])
        looked = look_module.inspect_logs([KEY], source.settings, target.settings, us, DAY, stillness)[KEY]
        assert isinstance(looked, tuple), looked
        decided.append(type(find_recovery_point(remembered, looked[0], us, "earliest")))
        clock.now += LOG_SETTLE_S / 3
    assert decided == [Reinspect, Reinspect, Reinspect, RecoveryPoint, RecoveryPoint]


def test_a_target_that_does_not_tell_of_producers_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leader holds our numbers, which are young, and cannot be asked. What only the leader has is waited for."""
    clock = Clock()
    source, target = (FakeCluster(alias, clock=lambda: NOW) for alias in ("onprem", "cloud"))
    fakes = {"onprem": source, "cloud": target}
    ahead = 3

    class LeaderAhead(FakeWire):
        """Followers lack the last records of its log."""

        def list_offsets(self, *args: Any, unreplicated: bool = False, **more: Any) -> list[OffsetAnswer]:
            found = super().list_offsets(*args, **more)
            return [replace(each, offset=each.offset + ahead) for each in found] if unreplicated else found

    monkeypatch.setattr(
        look_module, "open_connection", lambda settings, _address=None: LeaderAhead(fakes[settings.alias])
    )
    monkeypatch.setattr(look_module, "time", clock)
    source_id, target_id = (cluster.create_topic("orders", 1).topic_id for cluster in (source, target))
    us = target.issue_producer_id()
    young = build_simple_batch([b"v"] * 10, timestamp=NOW, producer_id=us, epoch=0, base_sequence=0)
    assert target.append("orders", 0, young)[:2] == (0, 0)
    source.produce("orders", 0, [b"v"] * 12)
    remembered = LedgerState(OffsetMap.of([(0, 0)]), ProducerIdentity(us, 0, 0), source_id, target_id)

    def look(stillness: SettledLogEnds) -> RecoveryPoint | Halt | Reinspect:
        looked = look_module.inspect_logs([KEY], source.settings, target.settings, us, DAY, stillness)[KEY]
        assert isinstance(looked, tuple), looked
        return find_recovery_point(remembered, looked[0], us, "earliest")

    told = look(SettledLogEnds())
    assert isinstance(told, RecoveryPoint)
    assert told.depth == DEPTH
    target.describes_producers = False
    begun = replace(remembered, identity=ProducerIdentity(us, 1, 10))  # and its first batch is not replicated
    looked = look_module.inspect_logs([KEY], source.settings, target.settings, us, DAY, SettledLogEnds())[KEY]
    assert isinstance(looked, tuple), looked
    waiting = find_recovery_point(begun, looked[0], us, "earliest")
    assert isinstance(waiting, Reinspect), waiting
    assert "3 records behind offset 10" in waiting.reason
    stillness, decided = SettledLogEnds(), []
    for _ in range(5):
        decided.append(look(stillness))
        clock.now += LOG_SETTLE_S / 3
    assert {type(each) for each in decided} == {Reinspect}  # it stood still, with three records that are not replicated
    ahead = 0
    for _ in range(4):
        decided.append(look(stillness))
        clock.now += LOG_SETTLE_S / 3
    assert [type(each) for each in decided[5:]] == [Reinspect, Reinspect, Reinspect, RecoveryPoint]
    assert (decided[-1].target_end, decided[-1].depth) == (10, 1)


@pytest.mark.parametrize(("policy", "goes_on"), [("delete", False), ("compact,delete", True)])
def test_the_last_batch_must_be_seen(monkeypatch: pytest.MonkeyPatch, policy: str, goes_on: bool) -> None:
    """Only the cleaner takes the last batch away for good."""
    source, target = (FakeCluster(alias, clock=lambda: NOW) for alias in ("onprem", "cloud"))
    fakes = {"onprem": source, "cloud": target}
    monkeypatch.setattr(look_module, "open_connection", lambda settings, _address=None: fakes[settings.alias].wire())
    monkeypatch.setattr(look_module, "Admin", lambda settings: nullcontext(fakes[settings.alias]))
    monkeypatch.setattr(look_module, "_find_tail", lambda *_: None)
    source.create_topic("orders", 1)
    target.create_topic("orders", 1, configs={"cleanup.policy": policy})
    target.produce("orders", 0, [b"v"], keys=[b"k"])
    looked = look_module.inspect_logs([KEY], source.settings, target.settings, 7, DAY, SettledLogEnds())[KEY]
    if goes_on:
        assert isinstance(looked, tuple)
    else:
        assert isinstance(looked, ClusterError)
        assert "does not give the last batch" in str(looked)
