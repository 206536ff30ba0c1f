"""What a rehearsal moves, as a plan: copies alone, under names that no flow of anybody takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cutover.world import REVERSE, a_plan
from tests.cutover.world_back import back_plan
from watershed.cutover.drill.drill_plan import has_way_back, plan_drill, preview_drill_back
from watershed.cutover.drill.drill_topology import (
    DRILL_PREFIX,
    MAX_TOPIC_NAME_CHARS,
    build_drill_topology,
    list_left_out,
    map_copies_to_originals,
    name_copy,
)
from watershed.cutover.errors import NotSupported
from watershed.topology.application_controls import PlanApplication
from watershed.topology.breach_policy import BreachPolicy
from watershed.topology.migration_waves import ApprovalGate, HoldGate, LagGate, WaveFence, WaveHooks, WaveWindow
from watershed.topology.naming import Naming
from watershed.topology.plan import Plan, decode_plan, encode_plan, seal_plan
from watershed.topology.selectors import Selector, TopicSelection

RUN = "drill-1"
NAMES = st.text("abcXYZ019._-", min_size=1, max_size=120).filter(lambda name: name not in (".", ".."))
NAMINGS = st.sampled_from([Naming(), Naming("prefix", before="dc."), Naming("template", before="a-", after=".b")])


def with_topics(topics: tuple[str, ...], naming: Naming) -> Plan:
    """Everything is selected by both flows, as widely as can be."""
    base = back_plan(topics=topics)
    wide = TopicSelection((Selector("glob", "*"),), allow_internal=True)
    flows = tuple(
        replace(flow, topics=wide, naming=naming if flow.id != REVERSE else Naming("map", map=_back(topics, naming)))
        for flow in base.flows
    )
    assert base.migration is not None
    wave = replace(base.migration.waves[0], topics=topics)
    return seal_plan(replace(base, flows=flows, migration=replace(base.migration, waves=(wave,))))


def _back(topics: tuple[str, ...], naming: Naming) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((naming.apply(topic), topic) for topic in topics if naming.apply(topic) != topic))


@given(st.sets(NAMES, min_size=1, max_size=6), NAMINGS, st.text(min_size=1, max_size=20))
def test_every_topic_has_a_copy_that_only_the_rehearsal_takes(names: set[str], naming: Naming, run: str) -> None:
    plan = with_topics(tuple(sorted(name for name in names)), naming)
    assert plan.migration is not None
    wanted = [name for name in plan.migration.waves[0].topics if plan.flows[1].selects(name)]
    if len(wanted) < len(names):
        with pytest.raises(NotSupported, match="does not carry"):
            build_drill_topology(plan, None, run)
        return
    found = build_drill_topology(plan, None, run)
    assert found.migration is not None
    there = found.flow(found.migration.flow)
    copies = map_copies_to_originals(plan, None, run)
    assert set(copies.values()) == set(names)
    assert there.topics.literals == tuple(sorted(copies))
    assert all(there.selects(copy) for copy in copies)
    taken = {*copies, *map(there.target_topic, copies)}
    assert all(name.startswith(DRILL_PREFIX) and len(name) <= MAX_TOPIC_NAME_CHARS for name in taken)
    assert not any(flow.selects(name) for flow in plan.flows for name in taken), "a real flow takes a copy"
    assert len({there.target_topic(copy) for copy in copies}) == len(copies)
    if has_way_back(found):
        back = found.flow(found.migration.waves[0].rollback.reverse)  # type: ignore[union-attr, arg-type]
        assert {back.target_topic(there.target_topic(copy)) for copy in copies} == set(copies)
        assert preview_drill_back(found).kind == "drill"
    assert not {flow.id for flow in found.flows} & {flow.id for flow in plan.flows}
    assert decode_plan(encode_plan(found)) == found


def test_a_wave_keeps_its_order_and_gates_and_nothing_that_touches_others() -> None:
    plan = back_plan(
        strategy="fenced",
        gates_before=(LagGate(7, 100), ApprovalGate("ann"), HoldGate(5)),
        hooks=WaveHooks(before=("ticket",)),
        window=WaveWindow("2030-01-01T00:00:00Z", 1),
        fence=WaveFence("quota"),
    )
    found = build_drill_topology(plan, None, RUN)
    assert found.migration is not None
    [wave] = found.migration.waves
    assert (wave.strategy, wave.gates_before, wave.hooks, wave.window) == (
        "fenced",
        (LagGate(7, 100),),
        WaveHooks(),
        None,
    )
    assert wave.fence.kind == "stop"
    assert wave.consumers == (name_copy(RUN, "billing"),)
    told = " ".join(list_left_out(plan, None))
    for word in ("hooks before: ticket", "quota fence", "the window", "approval by ann", "holding for 0.005 s"):
        assert word in told
    names = [step.name for step in plan_drill(found).steps]
    assert names[:3] == ["look_at_originals", "make_copies", "preflight"]
    assert names[-3:] == ["count_records", "remove_copies", "seal"]
    assert not {"approval", "hooks_before", "window", "hold_before"} & {*names}


def test_an_acl_fence_stands_on_copies_for_the_real_principals() -> None:
    plan = back_plan(fence=WaveFence("acl"))
    assert plan.migration is not None
    known = {**plan.migration.applications, "checkout": PlanApplication("http://127.0.0.1:1", "User:checkout")}
    found = build_drill_topology(
        seal_plan(replace(plan, migration=replace(plan.migration, applications=known))), None, RUN
    )
    assert found.migration is not None
    assert found.migration.waves[0].fence.kind == "acl"
    assert found.migration.applications[name_copy(RUN, "checkout")] == PlanApplication(None, "User:checkout")


def test_another_strategy_may_be_rehearsed() -> None:
    found = build_drill_topology(back_plan(), None, RUN, "producers_first")
    assert plan_drill(found).policy.strategy == "producers_first"


def test_a_name_that_would_be_too_long_is_refused_with_its_length() -> None:
    topic = "t" * 230
    plan = a_plan(topics=(topic,))
    assert plan.migration is not None
    wave = replace(plan.migration.waves[0], topics=(topic,))
    with pytest.raises(NotSupported, match="has 253 characters; topics have 249 at most"):
        build_drill_topology(replace(plan, migration=replace(plan.migration, waves=(wave,))), None, RUN)


def test_no_budget_stops_a_rehearsal() -> None:
    plan = a_plan()
    acting = tuple(replace(flow, breach=BreachPolicy("pause", 60_000)) for flow in plan.flows)
    plan = seal_plan(replace(plan, flows=acting))
    assert {flow.breach for flow in build_drill_topology(plan, None, RUN).flows} == {None}
    assert "slo.on_breach: pause; no budget stops the rehearsal" in list_left_out(plan, None)


def test_without_a_way_back_it_is_said() -> None:
    plan = a_plan()
    assert not has_way_back(build_drill_topology(plan, None, RUN))
    assert "the way back: the wave has no rollback.reverse" in list_left_out(plan, None)
