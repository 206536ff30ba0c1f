"""NAM305 rename-not-reversible: a naming loses the original name, or is incomplete; of a map (a warning): an entry
takes a name away from a topic that keeps it, or never applies.

Why: fail-back and offset translation must find the source topic of every copy; two topics under one name are a merge
by accident. A template needs no `{source}` for that: every flow knows its own source, and flows that meet in one name
are GRF204's. A map is read backwards as a whole, so that an entry for a topic which the flow does not take still claims
its target's name.

Source: own; MirrorMaker 2 builds its map of new topics by name (apache/kafka MirrorSourceConnector.java)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from watershed.topology.finding import Label, Problem
from watershed.topology.model import CheckedValue, Flow, Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import render_some_names
from watershed.topology.rules.nam.flows_by_value import find_naming_value, group_flows_by_value, list_flow_ids
from watershed.topology.spelling import suggest_word
from watershed.topology.text_escaping import shorten_and_escape


def check(context: RuleContext) -> Iterator[Problem]:
    for problem in context.problems("NAM305"):
        yield replace(problem, severity="error")  # such a naming cannot even be applied
    if context.topology is not None:
        yield from _maps(context.topology)
        yield from _failback(context.topology)


def _failback(topology: Topology) -> Iterator[Problem]:
    """The way back selects by the pattern's names, and the way there has changed them."""
    pattern = topology.root.at("pattern", "active_standby")
    if pattern is None or pattern.get("failback", "reverse") != "declared_paused":
        return
    there = topology.flow(f"{pattern.get('active')}-to-{pattern.get('standby')}")
    if there is not None and there.plan.naming.policy != "identity":
        yield Problem(
            "NAM305",
            f"the way back selects names that {there.id} has changed: after a failover nothing would go home",
            (
                Label(pattern.where("failback", "reverse"), "the way back"),
                Label(there.settings.where("naming", "policy"), "the way there renames"),
            ),
            path="pattern.active_standby.failback",
            ids=(there.id,),
            help="keep names in a pair with failback (`naming: {policy: identity}`), or declare the way back under "
            "`flows:` with the changed names and a map",
        )


def _maps(topology: Topology) -> Iterator[Problem]:
    """One map may serve several flows, from `defaults:`. An entry is dead when none of them takes its topic; it takes a
    name away from each flow that keeps that name, also where another flow takes the entry's topic."""
    for value, flows in group_flows_by_value(topology.flows, lambda flow: find_naming_value(flow, "map")):
        lost = [(name, flow) for name in sorted(value.fields) for flow in flows if _loses_original(value, name, flow)]
        for name, flow in lost:
            yield _lost(value, name, flow, shared=any(each.plan.selects(name) for each in flows))
        told = {name for name, _ in lost}
        selections = {flow.plan.topics for flow in flows}
        dead = sorted(name for name in value.fields if not any(each.selects(name) for each in selections))
        if idle := [name for name in dead if name not in told]:
            yield _idle(value, idle, flows)


def _loses_original(renames: CheckedValue, name: str, flow: Flow) -> bool:
    """Whether the flow takes the entry's target name as a topic and leaves it its name, and not the entry's topic."""
    to = renames.fields[name].data
    return to not in renames.fields and flow.plan.selects(to) and not flow.plan.selects(name)


def _lost(renames: CheckedValue, name: str, flow: Flow, *, shared: bool) -> Problem:
    """shared: another flow needs the entry."""
    to = renames.fields[name].data
    return Problem(
        "NAM305",
        f"flow {flow.id} copies `{to}` under its own name, but the map keeps that name for "
        f"`{shorten_and_escape(name)}`, which it "
        "does not take: the copy's original cannot be found",
        (Label(renames.fields[name].span, "mapped here"),),
        path=f"{flow.path}.naming.map.{shorten_and_escape(name)}",
        ids=(flow.id, name, to),
        help=f"give {flow.id} a map of its own, without `{shorten_and_escape(name)}`"
        if shared
        else f"take `{shorten_and_escape(name)}` out of the map, or select it and exclude `{to}`",
    )


def _idle(renames: CheckedValue, names: list[str], flows: list[Flow]) -> Problem:
    literals = {each.text for flow in flows for each in flow.plan.topics.include if each.kind == "literal"}
    near = suggest_word(names[0], literals - set(renames.fields))
    entry = renames.fields[names[0]]
    nobody = f"{flows[0].id} does not take" if len(flows) == 1 else "no flow that uses it takes"
    return Problem(
        "NAM305",
        f"the map renames {render_some_names([shorten_and_escape(name) for name in names])}, which {nobody}",
        (Label(entry.key or entry.span),),
        path=f"{flows[0].path}.naming.map.{shorten_and_escape(names[0])}",
        ids=(*list_flow_ids(flows), *names),
        help=(f"did you mean `{near}`? " if near else "") + "select the topic, or remove the entry",
    )


RULE = Rule("NAM305", "rename-not-reversible", "warning", __doc__, check)
