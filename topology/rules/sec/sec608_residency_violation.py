"""SEC608 residency-violation: a topic that must stay in one legal area is carried into a cluster that is in another.

Why: it is against the law or a contract from the first record on, and copies are hard to take back. Followed over every
flow that carries the topic on. A cluster that does not say its `residency` is not judged.

Source: own; robot-head/crabka residency module, where a denial wins over what is allowed
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names, sort_unique_names
from watershed.topology.rules.sec.labelled_paths import LabelledPath, find_labelled_paths
from watershed.topology.text_escaping import shorten_and_escape


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return

    places = (_residency(topology, alias) for alias in topology.clusters)
    known = {place.casefold() for place in places if place is not None}

    def matters(label: str) -> bool:
        return bool(known - {label.casefold()})

    def elsewhere(journey: LabelledPath) -> bool:
        there = _residency(topology, journey.target)
        return there is not None and there.casefold() != journey.label.casefold()

    for found in find_labelled_paths(context, "residency", matters, elsewhere).values():
        yield _problem(topology, found)


def _problem(topology: Topology, found: list[LabelledPath]) -> Problem:
    first = found[0]
    last, here = first.flows[-1], shorten_and_escape(first.label)
    there = topology.root.at("clusters", first.target, "residency")
    names = sort_unique_names(journey.symbol.label for journey in found)
    over = f" (by way of {first.route})" if len(first.flows) > 1 else ""
    return Problem(
        "SEC608",
        f"flow {last.id} carries {render_some_names(names)}, which must stay in {here}, to {first.target} in "
        f"{shorten_and_escape(_residency(topology, first.target) or '')}{over}",
        build_labels(
            (last.declared, "carries it there"),
            (first.span, f"must stay in {here}"),
            (there.span if there is not None else None, "another place"),
        ),
        path=f"{last.path}.topics",
        ids=(last.id, *sort_unique_names(journey.birth for journey in found), *names),
        help=f"exclude these topics from flow {first.flows[0].id}, or copy them to a cluster in {here}",
        confidence="certain" if any(journey.symbol.certain for journey in found) else "possible",
    )


def _residency(topology: Topology, alias: str) -> str | None:
    said: str | None = topology.root.get("clusters", alias, "residency")
    return said


RULE = Rule("SEC608", "residency-violation", "error", __doc__, check)
