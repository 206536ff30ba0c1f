"""The group sync beside a migration: every order of what both ask the target's broker, without a cluster."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from clusters.errors import RequestRefused
from clusters.group_offsets import CommittedOffsets, CommittedPosition, ListedGroup
from clusters.settings import ConnectionSettings
from clusters.topic_partition import TopicPartition
from replicator.sync import group_sync
from replicator.sync.group_decisions import GroupObservation, PositionMark, TranslatedPosition
from replicator.sync.group_sync import GroupSyncer
from replicator.sync.sync_kind import SyncClusters
from tests.replicator.offsets_broker import OffsetsBroker
from topology.plan import PlanFlow
from topology.selectors import Selector, TopicSelection

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
def carry(monkeypatch):
    """One round, whose inspection saw the group empty and further at the source than the target."""

    def run(broker: OffsetsBroker):
        monkeypatch.setattr(group_sync, "GroupOffsets", lambda settings: broker)
        monkeypatch.setattr(group_sync, "open_connection", lambda settings, address: broker)
        held = CommittedPosition(BEFORE, MINE)
        sight = GroupObservation(
            flow=FLOW.id,
            group="billing",
            target_group="billing",
            here=ListedGroup("billing", "Empty"),
            there=ListedGroup("billing", "Empty"),
            source=CommittedOffsets({PLACE: CommittedPosition(200)}),
            target=CommittedOffsets({PLACE: held}),
            landings={PLACE: TranslatedPosition(PLACE, SYNCED)},
            here_id="A",
            there_id="B",
            target_alias="b",
        )
        return GroupSyncer(FLOW, SyncClusters(settings_of("a"), settings_of("b"))).carry([sight])["billing"]

    return run


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
    except (Frozen, RequestRefused):
        assert others.freezes is not None or others.aborts is not None
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
    assert requests == 9
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


def test_a_round_of_another_worker_fences_this_one(carry):
    broker, done = held_broker(True), []

    def another(request: str) -> None:
        if request == "add_group":
            broker.before = lambda request: None
            done.extend(carry(broker))

    broker.before = another
    with pytest.raises(RequestRefused, match=r"another worker writes as watershed\.a-to-b\.groups now"):
        carry(broker)
    assert [move.state for move in done] == ["carried"]
    assert broker.current().positions[PLACE].offset == SYNCED
