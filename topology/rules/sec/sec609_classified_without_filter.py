"""SEC609 classified-without-filter: a topic labelled `pii` or the like is carried to another owner's cluster.

Why: who may read it is decided by somebody else there, and every field goes along: a flow copies records whole, it
takes nothing out of them. Looked at where both clusters say their `owner`; followed over several flows. The labels
`public`, `open`, `none` and `unclassified` are free.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import CheckedValue
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names, sort_unique_names
from watershed.topology.rules.sec.labelled_paths import LabelledPath, find_labelled_paths
from watershed.topology.text_escaping import shorten_and_escape

_FREE = {"public", "open", "none", "unclassified"}


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    owners = {alias: topology.root.at("clusters", alias, "owner") for alias in topology.clusters}

    different = len({owner.data for owner in owners.values() if owner is not None}) > 1

    def matters(label: str) -> bool:
        return different and label.casefold() not in _FREE

    def handed_over(journey: LabelledPath) -> bool:
        mine, theirs = owners.get(journey.birth), owners.get(journey.target)
        return mine is not None and theirs is not None and bool(mine.data != theirs.data)

    for found in find_labelled_paths(context, "classification", matters, handed_over).values():
        owner = owners[found[0].target]
        if owner is not None:
            yield _problem(owner, found)


def _problem(owner: CheckedValue, found: list[LabelledPath]) -> Problem:
    first = found[0]
    last = first.flows[-1]
    names = sort_unique_names(journey.symbol.label for journey in found)
    over = f" (by way of {first.route})" if len(first.flows) > 1 else ""
    return Problem(
        "SEC609",
        f"flow {last.id} carries {render_some_names(names)} ({shorten_and_escape(first.label)}) to "
        f"{first.target}, which belongs to "
        f"{shorten_and_escape(owner.data)}{over}",
        build_labels(
            (last.declared, "carries it there"),
            (first.span, shorten_and_escape(first.label)),
            (owner.span, "another owner"),
        ),
        path=f"{last.path}.topics",
        ids=(last.id, *sort_unique_names(journey.birth for journey in found), *names),
        help="write a topic without the protected fields and copy that one, or say in a comment who agreed to it",
        confidence="certain" if any(journey.symbol.certain for journey in found) else "possible",
    )


RULE = Rule("SEC609", "classified-without-filter", "warning", __doc__, check)
