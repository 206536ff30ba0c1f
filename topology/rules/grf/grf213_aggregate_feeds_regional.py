"""GRF213 aggregate-feeds-regional: a flow leads from an aggregate cluster to a regional one.

Why: regional to aggregate needs no guard because flows only ever run from one set of clusters to the other. One flow
back destroys that argument for the whole topology.

Source: Uber, multi-region Kafka (regional and aggregate clusters)
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    body = topology.root.at("pattern", "active_active") if topology is not None else None
    if topology is None or body is None or body.get("via") != "aggregate":
        return
    regionals, aggregates = set(body.texts("regionals")), set(body.texts("aggregates"))
    for flow in topology.flows:
        if flow.source in aggregates and flow.target in regionals:
            yield Problem(
                "GRF213",
                f"{flow.id} leads from the aggregate cluster {flow.source} back to the regional {flow.target}",
                (Label(flow.declared), Label(body.key or body.span, "here flows only run from regional to aggregate")),
                path=flow.path,
                ids=(flow.id,),
                help="let applications read that topic at the aggregate, or use `via: direct`",
            )
    for alias in sorted(regionals & aggregates):
        yield Problem(
            "GRF213",
            f"{alias} is a regional and an aggregate cluster at once",
            (Label(body.where("aggregates")), Label(body.where("regionals"), "and here")),
            path="pattern.active_active",
            ids=(alias,),
            help="use two clusters, or `via: direct`",
        )


RULE = Rule("GRF213", "aggregate-feeds-regional", "error", __doc__, check)
