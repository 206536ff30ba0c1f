"""GRF209 mixed-guard-names: records pass flows that write their hops under different header names.

Why: each header then shows a part of the way only, and none shows all of it.

Source: own; every product that ships such a header has one fixed name for it
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.grf.grf208_header_dropped import find_provenance_header, list_consecutive_flows


def check(context: RuleContext) -> Iterator[Problem]:
    for one, two in list_consecutive_flows(context):
        first, second = find_provenance_header(one), find_provenance_header(two)
        if first is not None and second is not None and first != second:
            yield Problem(
                "GRF209",
                f"{one.id} writes hops into `{first}`, {two.id} into `{second}`",
                tuple(Label(flow.settings.where("provenance", "header"), flow.id) for flow in (one, two)),
                path=two.path,
                ids=tuple(sorted((one.id, two.id))),
                help="use one name, best under `defaults: {provenance: {header: …}}`",
            )


RULE = Rule("GRF209", "mixed-guard-names", "error", __doc__, check)
