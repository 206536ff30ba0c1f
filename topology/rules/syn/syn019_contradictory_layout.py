"""SYN019 contradictory-layout: what `stretch` says of a cluster contradicts itself, or `regions`.

Why: the layout says which regions hold acknowledged records, and which one decides when two of them do not hear of each
other. A region that is misspelled, or that both votes only and holds replicas, makes every promise built on it empty.

Source: Confluent, Multi-Region Clusters; own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.model import CheckedValue
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.text_escaping import shorten_and_escape


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    clusters = topology.root.at("clusters") if topology is not None else None
    for alias, cluster in clusters.fields.items() if clusters is not None else ():
        stretch = cluster.at("stretch")
        if stretch is not None:
            yield from _find_contradictions(f"clusters.{alias}", cluster, stretch)


def _find_contradictions(path: str, cluster: CheckedValue, stretch: CheckedValue) -> Iterator[Problem]:
    regions, here = set(cluster.texts("regions")), f"{path}.stretch"
    if len(regions) < 2:
        message = f"`{here}` lays out a stretch cluster, and `{path}.regions` does not say two regions"
        yield _problem(message, stretch, here, "say `regions: [ONE, TWO, …]`, or drop `stretch`")
        return
    placed, breaker = stretch.at("sync_replicas"), stretch.at("tie_breaker")
    named = [("sync_replicas", region, each) for region, each in (placed.fields if placed is not None else {}).items()]
    named += [("observers", each.data, each) for each in stretch.list("observers")]
    named += [] if breaker is None else [("tie_breaker", breaker.data, breaker)]
    for key, region, value in named:
        if region not in regions:
            known = ", ".join(sorted(map(shorten_and_escape, regions)))
            message = f"`{here}.{key}` names `{shorten_and_escape(region)}`, which is none of `{path}.regions`"
            yield _problem(message, value, f"{here}.{key}", f"the regions are {known}")
        elif breaker is not None and key != "tie_breaker" and region == breaker.data:
            name = shorten_and_escape(region)
            message = f"`{here}`: the tie breaker `{name}` only votes, and `{key}` puts replicas there"
            yield _problem(message, value, f"{here}.{key}", "take it out of one of the two")


def _problem(message: str, value: CheckedValue, path: str, help_: str) -> Problem:
    return Problem("SYN019", message, (Label(value.key or value.span),), path, help=help_)


RULE = Rule("SYN019", "contradictory-layout", "error", __doc__, check)
