"""Committing what was decided: what may have changed between the inspection and the commit, without a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from watershed.clusters.errors import WrongCluster
from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition, GroupOffsets, ListedGroup, LogOffsets
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.sync import group_sync
from watershed.replicator.sync.group_decisions import GroupObservation, PositionMark, TranslatedPosition
from watershed.replicator.sync.group_sync import GroupSyncer
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import GroupSync

PLACE = TopicPartition("orders", 0)
FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("literal", "orders"),)))
SETTINGS = ConnectionSettings("a", ("127.0.0.1:1",))
MINE = str(PositionMark("a-to-b", 50, ("A",)))


def sight(held: CommittedOffsets, **more) -> GroupObservation:
    """Whose group stands at 200 at the source, which is 100 at the target."""
    return GroupObservation(
        flow="a-to-b",
        group="billing",
        target_group="billing",
        here=ListedGroup("billing", "Empty"),
        there=None,
        source=CommittedOffsets({PLACE: CommittedPosition(200)}),
        target=held,
        landings={PLACE: TranslatedPosition(PLACE, 100)},
        here_id="A",
        there_id="B",
        target_alias="b",
        **more,
    )


@dataclass
class Target:
    """Answers `held` so; remembers what is committed."""

    answer: CommittedOffsets
    committed: list[tuple[str, dict]] = field(default_factory=list)
    after_held: object = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def has_transactions(self):
        """As of a server without them; with them: `test_group_sync_orders`."""
        return False

    def held(self, groups):
        if self.after_held is not None:
            self.after_held()
        return dict.fromkeys(groups, self.answer)

    def commit(self, group, positions):
        self.committed.append((group, dict(positions)))
        return {}


@pytest.fixture
def carried(monkeypatch):
    def run(target: Target, *sights: GroupObservation):
        monkeypatch.setattr(group_sync, "GroupOffsets", lambda settings: target)
        return GroupSyncer(FLOW, SyncClusters(SETTINGS, SETTINGS)).carry(sights)

    return run


def test_a_position_that_is_still_ours_is_moved_on(carried):
    target = Target(CommittedOffsets({PLACE: CommittedPosition(60, MINE)}))
    [move] = carried(target, sight(CommittedOffsets({PLACE: CommittedPosition(60, MINE)})))["billing"]
    assert (move.state, move.at_target) == ("carried", 100)
    assert [group for group, _ in target.committed] == ["billing"]


def test_nothing_is_committed_once_the_target_does_not_tell_where_the_group_stands(carried):
    """Its coordinator moved, or a right was taken away: what is not told may be anybody's."""
    target = Target(CommittedOffsets(error="cluster b refused reading offsets (NOT_COORDINATOR)"))
    [move] = carried(target, sight(CommittedOffsets({PLACE: CommittedPosition(60, MINE)})))["billing"]
    assert target.committed == []
    assert (move.state, move.write, move.at_target) == ("refused", None, 60)
    assert "NOT_COORDINATOR" in move.why


def test_nothing_is_committed_by_a_worker_that_stood_still_since_it_looked(carried, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(group_sync, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def stands_still():
        now[0] += 300

    target = Target(CommittedOffsets({PLACE: CommittedPosition(60, MINE)}), after_held=stands_still)
    [move] = carried(target, sight(CommittedOffsets({PLACE: CommittedPosition(60, MINE)})))["billing"]
    assert target.committed == []
    assert (move.state, move.write, move.at_target) == ("waiting", None, 60)


def test_an_order_stays_while_the_target_does_not_tell_where_the_group_stands(carried, monkeypatch):
    closed = []
    monkeypatch.setattr(GroupSyncer, "_close", lambda watch, sight, found: closed.append(sight.group))
    carried(
        Target(CommittedOffsets()),
        sight(CommittedOffsets(error="refused"), decided_positions={PLACE: 140}, refusal="refused"),
    )
    assert closed == []


@pytest.mark.parametrize(
    ("rename", "groups", "left"),
    [
        ((), ("a", "b"), set()),
        ((("a", "b"),), ("a",), set()),
        ((("a", "b"),), ("a", "b"), {"a", "b"}),
        ((("a", "b"), ("b", "a")), ("a", "b"), set()),
        ((("a", "x"), ("b", "x")), ("a", "b", "c"), {"a", "b"}),
    ],
)
def test_two_groups_never_become_one(rename, groups, left):
    """The one that is further would make the other skip records."""
    assert set(group_sync.find_target_name_clashes(GroupSync(rename=rename), groups)) == left


def test_another_cluster_than_the_one_that_is_pinned_is_asked_for_no_group(monkeypatch):
    @dataclass
    class Answer:
        cluster_id: str = "somebody-elses"
        brokers: tuple = ()

    class Broker:
        def ask(self, *_, **__):
            return Answer()

    monkeypatch.setattr(GroupOffsets, "_first", lambda groups: Broker())
    with pytest.raises(WrongCluster), GroupOffsets(ConnectionSettings("a", ("127.0.0.1:1",), cluster_id="ours")):
        pass


def test_the_stable_end_of_a_log_is_never_behind_its_end(monkeypatch):
    """What lands between the two questions would count as read by whoever resumes behind the stable end."""
    ends = iter([{PLACE: 100}, {PLACE: 110}, {PLACE: 0}])  # log end, stable end, log start: as they are asked

    class Broker:
        def ask(self, *_, **__):
            part = SimpleNamespace(partition_index=0, leader_id=1)
            return SimpleNamespace(topics=[SimpleNamespace(name="orders", topic_id="id", partitions=[part])])

    monkeypatch.setattr(GroupOffsets, "_first", lambda groups: Broker())
    monkeypatch.setattr(GroupOffsets, "_offsets", lambda groups, *asked: next(ends))
    groups = GroupOffsets(SETTINGS)
    groups._brokers = {1: ("127.0.0.1", 1)}
    assert groups.logs([PLACE]) == {PLACE: LogOffsets("id", 0, 100, 100)}
