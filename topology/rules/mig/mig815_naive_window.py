"""MIG815 naive-window: a window's moment has no zone.

Why: it opens an hour early or late, twice a year or whenever the scheduler runs in another zone than the person who
wrote it.

Source: RFC 3339, section 4
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.mig.declared_waves import list_declared_waves

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
