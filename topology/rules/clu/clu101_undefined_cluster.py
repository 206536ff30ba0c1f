"""CLU101 undefined-cluster: a flow, pattern or migration names a cluster that `clusters:` does not declare.

Why: nothing can be copied from or to a name; most often it is a typing error.

Source: rhysd/actionlint rule_job_needs.go, which offers the nearest name, too
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.model import CheckedValue
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.spelling import suggest_word

_NAMES = ("hub", "active", "standby", "target")
_LISTS = ("spokes", "regionals", "aggregates", "members", "sources", "path")


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None or context.topology.root.at("clusters") is None:
        return
    known = context.topology.clusters
    for path, value in find_cluster_mentions(context.topology.root):
        alias = value.data
        if alias not in known:
            near = suggest_word(alias, known)
            yield Problem(
                "CLU101",
                f"cluster `{alias}` is not declared",
                (Label(value.span),),
                path=path,
                ids=(alias,),
                help=(f"did you mean `{near}`? " if near else "") + f"declared: {', '.join(sorted(known)) or 'none'}",
            )


def find_cluster_mentions(root: CheckedValue) -> Iterator[tuple[str, CheckedValue]]:
    """Pairs (path, value) of every place in the file that names a cluster."""
    for section in ("flows", "external_flows"):
        for index, flow in enumerate(root.list(section)):
            ends = ((end, flow.at(end)) for end in ("source", "target"))
            yield from ((f"{section}[{index}].{end}", value) for end, value in ends if value is not None)
    pattern = root.at("pattern")
    for kind, body in pattern.fields.items() if pattern is not None else ():
        for name in _NAMES:
            if (value := body.at(name)) is not None:
                yield f"pattern.{kind}.{name}", value
        for name in _LISTS:
            for index, value in enumerate(body.list(name)):
                yield f"pattern.{kind}.{name}[{index}]", value


RULE = Rule("CLU101", "undefined-cluster", "error", __doc__, check)
