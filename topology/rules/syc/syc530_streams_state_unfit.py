"""SYC530 streams-state-unfit: a setting of the flow keeps the state of a Kafka Streams application from the target.

Why: a store is what all records of its changelog come to. A copy that begins later, that ends, or whose records are
changed or left out comes to another store. And positions that are never carried, or once only, are no standby: the copy
goes on without them, and everything since is applied again.

Source: own; decision 0122
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import FileSpan, Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        named = flow.settings.list("sync", "groups", "streams")
        for path, span, why, remedy in _find_obstacles(flow) if named else ():
            yield Problem(
                "SYC530",
                f"flow {flow.id} is to carry the state of {named[0].data}, and {why}",
                build_labels((named[0].span, "an application with state"), (span, "set here")),
                path=f"{flow.path}.{path}",
                ids=(flow.id, path),
                help=remedy,
            )


def _find_obstacles(flow: Flow) -> Iterator[tuple[str, FileSpan, str, str]]:
    """Path, place, what is wrong, what to write."""
    settings, plan = flow.settings, flow.plan
    mode = plan.sync.groups.mode
    if mode != "continuous":
        told = "never carries positions" if mode == "never" else "carries positions once only"
        where = settings.where("sync", "groups", "mode")
        yield "sync.groups.mode", where, told, "write `mode: continuous`"
    starts = plan.start != "earliest"
    if starts or plan.end is not None:
        key = "start" if starts else "end"
        copied = "begins later than the changelogs" if starts else "ends"
        remedy = f"leave out `delivery.{key}` here, and copy other topics that need it by a flow of their own"
        yield f"delivery.{key}", settings.where("delivery", key), f"the copy {copied}", remedy
    if plan.transform is not None:
        remedy = "copy the application's topics by a flow without `transform`"
        yield "transform", settings.where("transform"), "records are changed on the way", remedy


RULE = Rule("SYC530", "streams-state-unfit", "error", __doc__, check)
