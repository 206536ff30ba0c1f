"""CLU110 unsafe-identifier: a flow's id is too long for everything that is named after it.

Why: the id becomes a key in `watershed.flows`, part of Airflow's ids, a metric label and a file name. Letters and
length of single names are checked where they are read (`a-z`, `0-9` and `-`; aliases 40, suffixes 80); together they
must stay within 80 characters, so that an id with what Airflow and a file system put around it stays legal.

Source: apache/airflow validate_key (letters, digits, `-_.`, at most 250); 80 is ours
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext

_LONGEST = 80


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        if len(flow.id) > _LONGEST:
            yield Problem(
                "CLU110",
                f"the flow id {flow.id} has {len(flow.id)} characters; {_LONGEST} is the most",
                (Label(flow.declared),),
                path=flow.path,
                ids=(flow.id,),
                help=f"shorten the aliases `{flow.source}` and `{flow.target}`, or the suffix",
            )


RULE = Rule("CLU110", "unsafe-identifier", "error", __doc__, check)
