"""What a group of each kind is on a cluster, and that the flow's rename is kept to; without any cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.cutover.world import GROUP, a_plan
from watershed.clusters.errors import Unauthorised, Unreachable
from watershed.clusters.group_members import STREAMS_ASSIGNOR, GroupDescription, GroupMember
from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition, LogOffsets
from watershed.clusters.required_role_acls import derive_required_rights
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import ClusterSide, CommitOffsets, ReadGroup
from watershed.cutover.live import group_actions as live_groups
from watershed.cutover.live.group_actions import LiveGroups
from watershed.cutover.observations import ActionFailed, ObservedGroup
from watershed.replicator.sync.group_decisions import PositionMark
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import GroupSync, SyncSettings

PLACE = TopicPartition("orders", 0)
FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection((Selector("literal", "orders"),)))


@dataclass
class Clusters:
    """What both clusters show of any group, and what they were asked: (alias, what, group)."""

    described: GroupDescription = field(default_factory=lambda: GroupDescription("billing", "classic", "Empty"))
    shown: CommittedOffsets = field(default_factory=CommittedOffsets)
    log: LogOffsets = field(default_factory=lambda: LogOffsets("", 0, 10, 10))
    topics: list[str] = field(default_factory=list)
    refusal: dict[TopicPartition, str] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    alias: str = ""
    opened: int = 0
    closed: int = 0

    def look(self, groups: list[str]) -> dict[str, CommittedOffsets]:
        self.asked += [(self.alias, "look", each) for each in groups]
        return dict.fromkeys(groups, self.shown)

    held = read_share_offsets = look

    def logs(self, places: Mapping[TopicPartition, Any]) -> dict[TopicPartition, LogOffsets]:
        return dict.fromkeys(places, self.log)

    def topic_names(self) -> list[str]:
        return self.topics

    def commit(self, group: str, positions: Mapping[TopicPartition, CommittedPosition]) -> dict[TopicPartition, str]:
        self.asked.append((self.alias, " ".join(f"{p}={at.offset}{at.metadata}" for p, at in positions.items()), group))
        return self.refusal

    def alter_share(self, group: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        self.asked.append((self.alias, " ".join(f"{p}>{at}" for p, at in offsets.items()), group))
        return self.refusal


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Clusters:
    found = Clusters()

    class Opened:
        def __init__(self, settings: ConnectionSettings) -> None:
            self._alias = settings.alias

        def __enter__(self) -> Any:
            found.opened += 1
            return self

        def __exit__(self, *_: object) -> None:
            found.closed += 1

        def __getattr__(self, name: str) -> Any:
            found.alias = self._alias
            return getattr(found, name)

    monkeypatch.setattr(live_groups, "GroupOffsets", Opened)
    monkeypatch.setattr(live_groups, "describe_group", lambda _at, group: replace(found.described, id=group))
    return found


def groups(flow: PlanFlow = FLOW) -> LiveGroups:
    settings: dict[ClusterSide, ConnectionSettings] = {
        "source": ConnectionSettings("a", ()),
        "target": ConnectionSettings("b", ()),
    }
    return LiveGroups(flow, settings, lambda: 0)


def seen(side: ClusterSide = "source") -> ObservedGroup:
    return groups().look(ReadGroup(side, "billing"))


def test_a_group_has_its_own_name_on_each_side(both: Clusters) -> None:
    flow = replace(FLOW, sync=SyncSettings(groups=GroupSync(rename=(("billing", "billing-cloud"),))))
    for side in ("source", "target"):
        found = groups(flow).commit(CommitOffsets(side, "billing", {PLACE: 7}))
        assert isinstance(found, ObservedGroup)
        assert found.group == "billing"
    assert {(alias, name) for alias, _, name in both.asked} == {("a", "billing"), ("b", "billing-cloud")}


@pytest.mark.parametrize(
    ("type_", "assignor", "topics", "kind"),
    [
        ("classic", "range", ["billing-x-changelog"], "classic"),  # alive, and no Streams application
        ("classic", STREAMS_ASSIGNOR, [], "streams"),
        ("classic", "", ["billing-x-changelog", "orders"], "streams"),  # stopped: by the topics' names
        ("classic", "", ["billing2-x-changelog", "billing-changelog"], "classic"),
        ("consumer", "uniform", ["billing-x-changelog"], "consumer"),
        ("share", "simple", ["billing-x-changelog"], "share"),
        ("streams", "", [], "streams"),
        ("unknown", "", [], "unknown"),
    ],
)
def test_what_kind_a_group_is_of(both: Clusters, type_: str, assignor: str, topics: list[str], kind: str) -> None:
    internal = () if type_ == "streams" else None
    both.described, both.topics = GroupDescription("billing", type_, "Stable", assignor, (), internal), topics
    assert seen().kind == kind


def test_members_are_named_with_what_they_read(both: Clusters) -> None:
    both.described = GroupDescription(
        "billing", "consumer", "Stable", "uniform",
        (
            GroupMember("app", "/10.0.0.1", topics=frozenset({"orders"})),
            GroupMember("app", "/10.0.0.2", "b", away=True, topics=frozenset({"clicks"})),
        ),
    )  # fmt: skip
    found = seen()
    assert (found.members, found.static, found.reads) == (2, ("b",), {"orders", "clicks"})
    assert found.who == ("app at 10.0.0.1", "app at 10.0.0.2 (group.instance.id b, has left)")


def test_our_marks_are_no_text_of_an_application(both: Clusters) -> None:
    mark = str(PositionMark("a-to-b", 3, ("id-of-a",)))
    other = str(PositionMark("c-to-b", 3, ("id-of-c",)))
    places = [TopicPartition("orders", number) for number in range(3)]
    both.shown = CommittedOffsets(
        {p: CommittedPosition(5, text) for p, text in zip(places, (mark, other, "a bitmap"), strict=True)}
    )
    found = seen("target")
    assert found.texts == {places[2]: "a bitmap"}
    assert found.kept == {places[0]}
    assert seen("source").kept == set()


def test_a_share_group_is_done_with_more_than_its_start_offset_says(both: Clusters) -> None:
    """KIP-1226: lag 0 means that nothing is left; else it tells how many are done with, not which."""
    places = [TopicPartition("orders", number) for number in range(2)]
    both.described = GroupDescription("billing", "share", "Empty")
    both.shown = CommittedOffsets({place: CommittedPosition(4) for place in places}, lag={places[0]: 0, places[1]: 5})
    found = seen()
    assert found.offsets == dict.fromkeys(places, 4)
    assert found.done == {places[0]: 10}
    assert found.again == {places[1]: 1}


def test_where_brokers_tell_no_lag_all_of_it_may_come_again(both: Clusters) -> None:
    both.described, both.shown = (
        GroupDescription("billing", "share", "Empty"),
        CommittedOffsets({PLACE: CommittedPosition(4)}),
    )
    assert seen().again == {PLACE: 6}


def test_a_share_groups_start_is_set_and_a_classic_groups_text_written(both: Clusters) -> None:
    groups().commit(CommitOffsets("target", "billing", {PLACE: 7}, {PLACE: " text"}))
    both.described = GroupDescription("billing", "share", "Empty")
    groups().commit(CommitOffsets("target", "billing", {PLACE: 7}, {}, "share"))
    assert [what for _, what, _ in both.asked if what != "look"] == ["orders-0=7 text", "orders-0>7"]


@pytest.mark.parametrize("alive", [True, False])
def test_a_refused_commit_is_asked_again_unless_the_group_has_come_alive(both: Clusters, alive: bool) -> None:
    both.refusal = {PLACE: "no"}
    both.described = replace(both.described, members=(GroupMember("early", "/10.0.0.9"),) if alive else ())
    found = groups().commit(CommitOffsets("target", "billing", {PLACE: 7}))
    assert isinstance(found, ActionFailed)
    assert found.transient is not alive
    assert ("early at 10.0.0.9" in found.error) is alive


def test_questions_in_a_row_share_connections_until_one_fails(both: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = groups()
    for _ in range(2):
        asking.look(ReadGroup("source", "billing"))
        asking.look(ReadGroup("target", "billing"))
    assert (both.opened, both.closed) == (2, 0)

    def lost(_at: Any, _group: str) -> GroupDescription:
        raise ConnectionSettings("a", ()).unreachable("lost")

    with monkeypatch.context() as patched:
        patched.setattr(live_groups, "describe_group", lost)
        with pytest.raises(Unreachable):
            asking.look(ReadGroup("source", "billing"))
    asking.look(ReadGroup("source", "billing"))
    assert (both.opened, both.closed) == (3, 1)
    del asking
    assert both.closed == 3


def test_whoever_migrates_may_commit_for_the_renamed_group() -> None:
    plan = a_plan()
    renaming = SyncSettings(groups=GroupSync(rename=((GROUP, "elsewhere"),)))
    plan = replace(plan, flows=tuple(replace(flow, sync=renaming) for flow in plan.flows))
    groups = {
        (right.cluster, right.name) for right in derive_required_rights(plan, "migrate") if right.resource == "GROUP"
    }
    assert groups == {("onprem", GROUP), ("cloud", "elsewhere")}


def test_on_the_way_back_a_renamed_group_has_the_name_that_it_was_given_there() -> None:
    there = replace(FLOW, sync=SyncSettings(groups=GroupSync(rename=(("billing", "b.billing"),))))
    back = replace(FLOW, id="b-to-a", source="b", target="a")
    one, other = ConnectionSettings("a", ("127.0.0.1:1",)), ConnectionSettings("b", ("127.0.0.1:2",))
    returning = LiveGroups(back, {"source": other, "target": one}, lambda: 0, there)
    assert [returning._called(side, "billing") for side in ("source", "target")] == ["b.billing", "billing"]
    forward = LiveGroups(there, {"source": one, "target": other}, lambda: 0)
    assert [forward._called(side, "billing") for side in ("source", "target")] == ["billing", "b.billing"]


def test_a_right_that_is_missing_is_not_asked_for_again(both: Clusters) -> None:
    both.shown = CommittedOffsets(error="give this account DESCRIBE on __consumer_offsets", is_unauthorised=True)
    with pytest.raises(Unauthorised, match="DESCRIBE on __consumer_offsets"):
        seen()
