"""What is kept open for a flow: made once, closed when it is not needed any more, and new after a failure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.sync.flow_resources import FlowResources, WrittenValues
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection((Selector("literal", "orders"),)))
OTHER = replace(FLOW, id="c-to-b", source="c")
SIDES = SyncClusters(ConnectionSettings("a", ()), ConnectionSettings("b", ()), (FLOW, OTHER))


@dataclass
class Kept:
    flow: PlanFlow
    closed: bool = False

    def close(self) -> None:
        self.closed = True


@dataclass
class Made:
    all: list[Kept] = field(default_factory=list)

    def __call__(self, flow: PlanFlow, sides: SyncClusters) -> Kept:
        self.all.append(Kept(flow))
        return self.all[-1]


def use(resources: FlowResources[Kept], flow: PlanFlow, sides: SyncClusters = SIDES) -> Kept:
    with resources.use(flow, sides) as kept:
        return kept


def test_made_once_and_anew_for_another_content() -> None:
    made = Made()
    resources = FlowResources(made, lambda flow: True)
    first, again, other = use(resources, FLOW), use(resources, FLOW), use(resources, OTHER)
    assert first is again
    assert [each.closed for each in (first, other)] == [False, False]
    changed = use(resources, replace(FLOW, quota=5))
    assert first.closed
    moved = use(resources, replace(FLOW, quota=5), replace(SIDES, source=ConnectionSettings("a", ("x:1",))))
    assert changed.closed
    assert moved is not changed


def test_closed_when_the_flow_is_gone_or_needs_nothing_more() -> None:
    made = Made()
    resources = FlowResources(made, lambda flow: flow.quota is None)
    one, two = use(resources, FLOW), use(resources, OTHER)
    use(resources, FLOW, replace(SIDES, flows=(FLOW, replace(OTHER, quota=5))))
    assert (one.closed, two.closed) == (False, True)
    resources.close()
    assert one.closed


def test_what_is_used_while_all_is_closed_is_closed_afterwards() -> None:
    resources = FlowResources(Made(), lambda flow: True)
    with resources.use(FLOW, SIDES) as kept:
        resources.close()
        assert not kept.closed
    assert kept.closed
    assert use(resources, FLOW) is not kept


def test_new_after_a_failure() -> None:
    made = Made()
    resources = FlowResources(made, lambda flow: True)
    with pytest.raises(OSError), resources.use(FLOW, SIDES) as kept:
        raise OSError
    assert kept.closed
    assert use(resources, FLOW) is not kept


def test_what_is_written_is_not_written_again_for_an_hour() -> None:
    written = WrittenValues[str, int]()
    assert written.select_changed({"a": 1, "b": 2}, 0.0) == {"a": 1, "b": 2}
    written.note({"a": 1})  # b was refused
    assert written.select_changed({"a": 1, "b": 2}, 10.0) == {"b": 2}
    written.note({"b": 2})
    assert written.select_changed({"a": 0, "b": 2}, 3_500.0) == {"a": 0}
    assert written.select_changed({"a": 1, "b": 2}, 3_601.0) == {"a": 1, "b": 2}
