"""The group sync beside a migration: every order of what both ask the target's broker, without a cluster."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.replicator.offsets_broker import OffsetsBroker
from watershed.clusters.errors import Unreachable
from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition, ListedGroup
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.transaction_requests import ProducerIdAndEpoch
from watershed.replicator.sync import group_sync, position_transaction
from watershed.replicator.sync.group_decisions import GroupObservation, PositionMark, TranslatedPosition
from watershed.replicator.sync.group_sync import GroupSyncer
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

PLACE = TopicPartition("orders", 0)
FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("literal", "orders"),)))
MINE = str(PositionMark("a-to-b", 50, ("A",)))
BEFORE, SYNCED, MOVED, READ = 60, 100, 110, 115  # of the earlier round, this one, the migration, the application


def settings_of(alias: str) -> ConnectionSettings:
    return ConnectionSettings(alias, ("127.0.0.1:1",))


class Frozen(Exception):
    """The worker stands still here and never goes on."""


@dataclass
class Others:
    """What goes on beside the round. turns: before which request of the round each event comes, in their order; an
    event that has to wait for a transaction's end comes before a later one."""

    broker: OffsetsBroker
    turns: tuple[int, ...]
    freezes: int | None = None  # before which request
    aborts: int | None = None  # before which request the transaction is over its time
    waits: bool = True  # whether the application waits for a transaction's end (Java does, librdkafka does not)
    asked: int = 0
    began_at: int | None = None
    queue: list[tuple[int, Callable[[], bool]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = list(zip(self.turns, (self.commit, self.look_again, self.begin, self.go_on), strict=False))

    def __call__(self, _request: str) -> None:
        self.come(self.asked)
        if self.aborts == self.asked:
            self.broker.abort_open()
        if self.freezes == self.asked:
            raise Frozen
        self.asked += 1

    def come(self, turn: int) -> None:
        while self.queue and self.queue[0][0] <= turn and self.queue[0][1]():
            del self.queue[0]

    def at(self) -> int:
        return self.broker.current().positions[PLACE].offset

    def commit(self) -> bool:
        self.broker.put(PLACE, MOVED)
        return True

    def look_again(self) -> bool:
        """`start_consumers`, which knows only what is decided."""
        if self.broker.current().unstable:
            return False
        if self.at() != MOVED:
            self.broker.put(PLACE, MOVED)
        return True

    def begin(self) -> bool:
        if self.waits and self.broker.current().unstable:
            return False
        self.began_at, self.broker.alive = self.at(), True
        return True

    def go_on(self) -> bool:
        self.broker.put(PLACE, READ)
        return True


@pytest.fixture
def carry(carry_groups):
    """One round, whose inspection saw the group empty and further at the source than the target."""

    def run(broker: OffsetsBroker):
        return carry_groups(broker)["billing"]

    return run


@pytest.fixture
def carry_groups(monkeypatch):
    """The same for `billing` and for groups that the target does not have yet, in this order."""

    def run(broker: OffsetsBroker, *, before=(), after=(), retries=0):
        monkeypatch.setattr(group_sync, "GroupOffsets", lambda settings: broker)
        monkeypatch.setattr(group_sync, "open_connection", lambda settings, address: broker)
        monkeypatch.setattr(group_sync, "_APART_S", 0.0)
        monkeypatch.setattr(position_transaction, "_SETTLED_S", 0.0)
        sights = [sight_of(group) for group in (*before, "billing", *after)]
        sides = SyncClusters(settings_of("a"), settings_of("b"))
        return GroupSyncer(FLOW, sides, retries=retries).carry(sights)

    return run


def sight_of(group: str) -> GroupObservation:
    known = group == "billing"
    return GroupObservation(
        flow=FLOW.id,
        group=group,
        target_group=group,
        here=ListedGroup(group, "Empty"),
        there=ListedGroup(group, "Empty") if known else None,
        source=CommittedOffsets({PLACE: CommittedPosition(200)}),
        target=CommittedOffsets({PLACE: CommittedPosition(BEFORE, MINE)} if known else {}),
        landings={PLACE: TranslatedPosition(PLACE, SYNCED)},
        here_id="A",
        there_id="B",
        target_alias="b",
    )


def held_broker(transactions: bool) -> OffsetsBroker:
    broker = OffsetsBroker(transactions)
    broker.put(PLACE, BEFORE, MINE)
    return broker


def every_order(requests: int, events: int) -> Iterator[tuple[int, ...]]:
    return itertools.combinations_with_replacement(range(requests + 1), events)


def play(carry, others: Others) -> None:
    """The round, and then what is left to happen."""
    others.broker.before = others
    try:
        carry(others.broker)
    except Frozen:
        assert others.freezes is not None
    others.come(99)
    others.broker.abort_open()
    others.come(99)
    assert not others.queue


def count_requests(carry, transactions: bool) -> int:
    others = Others(held_broker(transactions), ())
    others.broker.before = others
    carry(others.broker)
    return others.asked


@pytest.mark.parametrize("transactions", [True, False])
def test_a_round_that_nobody_disturbs_commits_with_its_mark(carry, transactions):
    broker = held_broker(transactions)
    [move] = carry(broker)
    assert (move.state, move.at_target) == ("carried", SYNCED)
    assert broker.current().positions == {PLACE: CommittedPosition(SYNCED, str(PositionMark("a-to-b", 200, ("A",))))}
    assert broker.current().unstable == frozenset()


@pytest.mark.parametrize("waits", [True, False])
def test_an_application_begins_where_the_migration_committed_in_every_order(carry, waits):
    requests = count_requests(carry, transactions=True)
    assert requests == 10
    for turns in every_order(requests, 4):
        others = Others(held_broker(True), turns, waits=waits)
        play(carry, others)
        assert (others.began_at, others.at()) == (MOVED, READ), turns


@pytest.mark.parametrize("waits", [True, False])
def test_a_worker_that_stands_still_or_a_transaction_over_its_time_changes_nothing(carry, waits):
    requests = count_requests(carry, transactions=True)
    for turns in every_order(requests, 3):
        for stops in range(requests):
            for one in ({"freezes": stops}, {"aborts": stops}):
                others = Others(held_broker(True), turns, waits=waits, **one)
                play(carry, others)
                assert (others.began_at, others.at()) == (MOVED, MOVED), (turns, one)


def test_without_transactions_one_order_sets_the_application_back(carry):
    """Why there are transactions: the worker looks, the run commits and looks again, and then the worker commits."""
    requests = count_requests(carry, transactions=False)
    assert requests == 2
    set_back = []
    for turns in every_order(requests, 3):
        others = Others(held_broker(False), turns)
        play(carry, others)
        if (others.began_at, others.at()) != (MOVED, MOVED):
            set_back.append(turns)
    assert set_back == [(1, 1, 2)]


def test_a_group_that_moved_or_came_alive_meanwhile_leaves_all_of_the_round_for_the_next(carry):
    for event in ("put", "live"):
        broker = held_broker(True)

        def moves(request: str, broker: OffsetsBroker = broker, event: str = event) -> None:
            if request == "listed" and event == "live":
                broker.alive = True
            elif request == "append" and event == "put":
                broker.put(PLACE, 77)

        broker.before = moves
        [move] = carry(broker)
        assert (move.state, move.write) == ("waiting", None)
        assert "group billing moved at b meanwhile" in move.why
        assert broker.current().positions[PLACE].offset == (77 if event == "put" else BEFORE)
        broker.before, broker.alive = lambda request: None, False
        assert carry(broker)[0].state == ("different" if event == "put" else "carried")


def test_a_group_that_may_not_be_committed_for_is_refused_by_name(carry):
    broker = held_broker(True)
    broker.may_commit = False
    [move] = carry(broker)
    assert (move.state, move.write) == ("refused", None)
    assert move.why == "cluster b refused a commit (GROUP_AUTHORIZATION_FAILED)"
    assert broker.current().positions[PLACE].offset == BEFORE


def fence_once(broker: OffsetsBroker, carry) -> list:
    """Another worker's round comes in the middle of this one. → what it did."""
    done: list = []

    def another(request: str) -> None:
        if request == "add_group":
            broker.before = lambda request: None
            done.extend(carry(broker))

    broker.before = another
    return done


def test_a_round_of_another_worker_fences_this_one(carry):
    broker = held_broker(True)
    done = fence_once(broker, carry)
    [move] = carry(broker)
    assert (move.state, move.write) == ("waiting", None)
    assert "another worker writes as watershed.a-to-b.groups now: nothing was committed at b" in move.why
    assert [each.state for each in done] == ["carried"]
    assert broker.current().positions[PLACE].offset == SYNCED


def test_a_command_that_a_worker_has_fenced_tries_once_more(carry, carry_groups):
    broker = held_broker(True)
    fence_once(broker, carry)
    [move] = carry_groups(broker, retries=1)["billing"]
    assert (move.state, move.at_target) == ("equal", SYNCED)  # the worker has carried it meanwhile


@pytest.mark.parametrize("code", [error_codes.INVALID_GROUP_ID, 25, 69, error_codes.GROUP_AUTHORIZATION_FAILED])
def test_a_group_that_the_target_refuses_stops_no_other(carry_groups, code):
    broker = held_broker(True)
    broker.refuses["bad"] = code
    found = carry_groups(broker, before=["bad"], after=["good"])
    assert {group: move.state for group, [move] in found.items()} == {
        "bad": "refused",
        "billing": "carried",
        "good": "carried",
    }
    assert error_codes.describe_error_code(code) in found["bad"][0].why
    assert not broker.open
    assert broker.current().positions[PLACE].offset == SYNCED


@pytest.mark.parametrize("code", [error_codes.COORDINATOR_NOT_AVAILABLE, error_codes.INVALID_TXN_STATE])
def test_an_append_that_may_have_been_done_commits_nothing(carry_groups, monkeypatch, code):
    """Nobody looked at the group behind it."""
    monkeypatch.setattr(position_transaction, "COORDINATOR_WAIT_S", 0.0)
    broker = held_broker(True)
    broker.refuses["bad"] = code
    found = carry_groups(broker, after=["bad"])
    assert {move.state for [move] in found.values()} == {"waiting"}
    assert "nothing was committed at b" in found["billing"][0].why
    assert broker.current().unstable == frozenset()
    assert broker.current().positions[PLACE].offset == BEFORE


def test_the_empty_group_id_is_committed_outside_of_the_transaction(carry_groups):
    """Brokers answer INVALID_GROUP_ID to it in a transaction, and take it without."""
    broker = held_broker(True)
    broker.refuses[""] = error_codes.INVALID_GROUP_ID
    found = carry_groups(broker, before=[""])
    assert {group: move.state for group, [move] in found.items()} == {"": "carried", "billing": "carried"}
    assert broker.plain == [""]


def test_a_consumer_that_joins_after_the_append_is_left_alone(carry):
    for late in ("held", "listed"):
        broker, asked = held_broker(True), []

        def joins(request: str, broker: OffsetsBroker = broker, asked: list = asked, late: str = late) -> None:
            asked.append(request)
            broker.alive = broker.alive or (request == late and "append" in asked)

        broker.before = joins
        assert carry(broker)[0].state == "waiting"
        assert broker.current().positions[PLACE].offset == BEFORE
        assert asked.index("append") < len(asked) - 1 - asked[::-1].index("listed") < asked.index("end")
        assert asked[asked.index("end") - 1] == "listed"


def test_a_group_whose_coordinator_moves_is_left_alone(carry):
    broker = held_broker(True)
    broker.moves = True
    assert carry(broker)[0].state == "waiting"
    assert broker.current().positions[PLACE].offset == BEFORE


def test_a_look_that_fails_leaves_no_transaction_open(carry):
    broker = held_broker(True)

    def fails(request: str) -> None:
        if request == "listed":
            raise Unreachable("b does not answer", alias="b")

    broker.before = fails
    with pytest.raises(Unreachable):
        carry(broker)
    assert broker.current().unstable == frozenset()
    assert broker.current().positions[PLACE].offset == BEFORE


@pytest.mark.parametrize("request_name", ["listed", "end"])
def test_a_worker_that_stood_still_since_its_last_look_commits_only_what_is_young(carry, monkeypatch, request_name):
    """Not every server keeps positions in the order of their appends."""
    broker, now, asked = held_broker(True), [1000.0], []

    def stands_still(request: str) -> None:
        asked.append(request)
        if request == request_name == "listed":
            now[0] += 6

    broker.before = stands_still
    monkeypatch.setattr(group_sync.time, "monotonic", lambda: now[0])
    [move] = carry(broker)
    assert move.state == ("waiting" if request_name == "listed" else "carried")
    assert broker.current().positions[PLACE].offset == (BEFORE if request_name == "listed" else SYNCED)


def test_a_transaction_takes_as_many_groups_as_it_has_time_for(carry_groups, monkeypatch):
    broker, now, asked = held_broker(True), [1000.0], []

    def is_slow(request: str) -> None:
        asked.append(request)
        now[0] += 0.4

    broker.before = is_slow
    monkeypatch.setattr(group_sync.time, "monotonic", lambda: now[0])
    found = carry_groups(broker, after=[f"g{number}" for number in range(9)])
    assert {move.state for [move] in found.values()} == {"carried"}
    assert len(found) == 10
    assert asked.count("append") == 10
    assert asked.count("end") > 1


def test_a_transaction_over_its_time_is_not_called_fenced(carry, monkeypatch):
    broker, now = held_broker(True), [1000.0]

    def is_late(request: str) -> None:
        if request == "append":
            now[0] += 20
            broker.abort_open()

    broker.before = is_late
    monkeypatch.setattr(group_sync.time, "monotonic", lambda: now[0])
    [move] = carry(broker)
    assert move.why.startswith("the transaction was over its time of 15 s, and the target aborted it")


def test_where_the_answer_to_the_end_is_lost_nobody_is_told_that_nothing_was_committed(carry, monkeypatch):
    broker = held_broker(True)
    monkeypatch.setattr(
        broker, "end_transaction", lambda *_, **how: (error_codes.INVALID_TXN_STATE, broker_identity(broker))
    )
    [move] = carry(broker)
    assert "it is not known whether this was committed at b" in move.why


def test_without_the_right_on_the_transactional_id_each_group_is_refused_with_its_name(carry, monkeypatch):
    broker = held_broker(True)
    code = error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    monkeypatch.setattr(broker, "init_producer", lambda *_: (code, broker_identity(broker)))
    [move] = carry(broker)
    assert move.state == "refused"
    assert "WRITE on the transactional id watershed.a-to-b.groups is missing" in move.why


def broker_identity(broker: OffsetsBroker) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(7, broker.epoch)
