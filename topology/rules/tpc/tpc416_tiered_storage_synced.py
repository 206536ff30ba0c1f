"""TPC416 tiered-storage-synced: `remote.storage.enable` is carried over or set where the target has no remote storage,
or is kept equal continuously.

Why: a cluster without remote storage refuses a topic with it, so nothing is created; and once it is on, Kafka does not
let it be switched off as simply as a sync would try. Watershed leaves the key out of what it takes over, whatever
`include` says.

Source: apache/kafka TopicConfig.java; KIP-405, KIP-950
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import FileSpan, Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels

_KEY = "remote.storage.enable"


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        cluster = context.facts.cluster(flow.target)
        said = flow.settings.at("sync", "configs", "set", _KEY)
        listed = next((each for each in flow.settings.list("sync", "configs", "include") if each.data == _KEY), None)
        mode = flow.plan.sync_configs
        if said is not None and said.data == "true" and cluster.tiered_storage is False:
            message = f"flow {flow.id} sets {_KEY}, but {flow.target} has no remote storage"
            yield _problem(flow, message, said.span, cluster.span)
        elif listed is not None and mode != "never" and cluster.tiered_storage is False:
            message = f"flow {flow.id} carries {_KEY} over, but {flow.target} has no remote storage"
            yield _problem(flow, message, listed.span, cluster.span)
        elif listed is not None and mode == "continuous":
            message = (
                f"flow {flow.id} keeps {_KEY} equal continuously, which a target cannot follow when it is turned off"
            )
            yield _problem(flow, message, listed.span, None)


def _problem(flow: Flow, message: str, where: FileSpan, facts: FileSpan | None) -> Problem:
    return Problem(
        "TPC416",
        message,
        build_labels((where, "said here"), (facts, f"facts of {flow.target}")),
        path=f"{flow.path}.sync.configs",
        ids=(flow.id, flow.target),
        help=f"take {_KEY} out; where {flow.target} has remote storage, turn it on for its own topics",
    )


RULE = Rule("TPC416", "tiered-storage-synced", "error", __doc__, check)
