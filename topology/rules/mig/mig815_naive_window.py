"""MIG815 naive-window: a window's moment has no zone.

Why: it opens an hour early or late, twice a year or whenever the scheduler runs in another zone than the person who
wrote it.

Bad:

    flows:
      - {source: a, target: b, topics: {include: [orders]}}
      - {source: b, target: a, topics: {include: [orders]}, state: paused}
    migration:
      flow: a-to-b
      waves:
        - name: all
          topics: [orders]
          consumers: [billing]
          producers: [checkout]
          gates:
            before: [{lag: {max_records: 0, hold: 5m}}, {verify: {level: L1}}]
            after: [{stragglers: {watch: 6m}}]
          window: {opens: "2030-03-09T02:00:00", length: 2h}
          rollback: {until: 24h, reverse: b-to-a}

Good:

    flows:
      - {source: a, target: b, topics: {include: [orders]}}
      - {source: b, target: a, topics: {include: [orders]}, state: paused}
    migration:
      flow: a-to-b
      waves:
        - name: all
          topics: [orders]
          consumers: [billing]
          producers: [checkout]
          gates:
            before: [{lag: {max_records: 0, hold: 5m}}, {verify: {level: L1}}]
            after: [{stragglers: {watch: 6m}}]
          window: {opens: "2030-03-09T02:00:00Z", length: 2h}
          rollback: {until: 24h, reverse: b-to-a}

Source: RFC 3339, section 4
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from topology.finding import Label, Problem
from topology.rule import Rule, RuleContext
from topology.rules.mig.declared_waves import list_declared_waves

_ZONE = re.compile(r"(?:Z|[+-]\d\d:\d\d)$")


def check(context: RuleContext) -> Iterator[Problem]:
    for move in list_declared_waves(context.topology):
        opens = move.value.at("window", "opens")
        if opens is not None and _ZONE.search(opens.data) is None:
            yield Problem(
                "MIG815",
                f"the window of wave `{move.name}` opens at {opens.data}, in no zone",
                (Label(opens.span),),
                path=f"{move.path}.window.opens",
                ids=(move.name,),
                help=f'say which: "{opens.data}Z" is UTC, "{opens.data}+01:00" an hour ahead of it',
            )


RULE = Rule("MIG815", "naive-window", "error", __doc__, check)
