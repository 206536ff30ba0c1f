"""Groups on brokers with an authorizer: exactly the rights that are named suffice, and each is found missing."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from clusters.admin import Admin
from clusters.group_offsets import CommittedPosition, GroupOffsets
from clusters.missing_rights import find_missing_rights
from clusters.required_role_acls import derive_required_rights
from clusters.topic_partition import TopicPartition
from replicator.apply import apply_plan
from replicator.sync.groups import GroupKind
from replicator.sync.sync_kind import SyncClusters
from tests.replicator.guarded import await_rights, grant, guarded, revoke
from tests.replicator.real import plan_for
from topology.selectors import Selector
from topology.sync_settings import NO_SYNC, GroupSync, NameFilter, SyncSettings

__all__ = ["guarded"]  # the fixture
pytestmark = pytest.mark.kafka


def test_groups_are_followed_with_exactly_what_is_named(guarded, topic_name):
    """Two flows, there and back, so that the source's own ledger is asked, too."""
    sync = SyncSettings(groups=GroupSync("continuous", NameFilter((Selector("literal", topic_name),))))
    routes = (("onprem", "cloud"), ("cloud", "onprem"))
    plan = plan_for(guarded.admin, topic_name, topic_name, routes=routes, sync=sync, sync_configs="never")
    without = replace(plan, flows=tuple(replace(flow, sync=NO_SYNC) for flow in plan.flows))
    for alias in guarded.admin:
        with Admin(guarded.admin[alias]) as admin:
            admin.create_topic(topic_name, 1, 1)
    apply_plan(without, guarded.admin.__getitem__)
    needed = [
        right
        for right in derive_required_rights(plan, "worker")
        if right not in derive_required_rights(without, "worker")
    ]
    assert {right.resource for right in needed} == {"GROUP", "TOPIC"}
    with GroupOffsets(guarded.admin["onprem"]) as groups:
        assert groups.commit(topic_name, {TopicPartition(topic_name, 0): CommittedPosition(0)}) == {}
    everything = derive_required_rights(plan, "worker")
    grant(guarded, "probe", everything)
    await_rights(guarded, "probe", everything)
    settings = guarded.settings("probe")
    [told] = GroupKind().keep(plan.flows[0], SyncClusters(settings["onprem"], settings["cloud"]))
    assert (told.name, told.state, told.why) == (topic_name, "carried", "")
    for right in needed:
        revoke(guarded, "probe", right)
        there = [each for each in everything if each.cluster == right.cluster]
        deadline = time.monotonic() + 180
        while right not in [each.right for each in find_missing_rights(settings[right.cluster], there)]:
            assert time.monotonic() < deadline, f"not found missing: {right}"
            time.sleep(0.05)
        grant(guarded, "probe", (right,))
        await_rights(guarded, "probe", there)
