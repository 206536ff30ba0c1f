"""TPC404 min-isr-too-high: `min.insync.replicas` of a target topic is higher than its replication factor, or equal to
it (a warning).

Why: above the factor every write with `acks=all` is refused, and Watershed writes with nothing else; equal to it the
first broker that restarts stops the flow.

Source: apache/kafka TopicConfig.java, MIN_IN_SYNC_REPLICAS_DOC
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_plural, render_some_names
from watershed.topology.rules.tpc.target_topics import TargetTopics, build_target_topics
from watershed.topology.topic_facts import FlowTopic


def check(context: RuleContext) -> Iterator[Problem]:
    for flow, groups in context.facts.by_equal_facts if context.topology is not None else ():
        side = build_target_topics(context, flow)
        found: dict[tuple[int, int], list[FlowTopic | None]] = {}
        for topics in groups or ((None,),):
            replicas, needed = side.replicas(topics[0]), _needed(side, topics[0])
            # one replica that must be in sync is what a single broker offers; TPC405 speaks of that
            if replicas is not None and needed is not None and needed >= replicas and needed > 1:
                found.setdefault((replicas, needed), []).extend(topics)
        for (replicas, needed), some_topics in sorted(found.items()):
            yield _problem(flow, side, replicas, needed, some_topics)


def _needed(side: TargetTopics, topic: FlowTopic | None) -> int | None:
    """min.insync.replicas: of the topic, or of the brokers, as it is never taken over from the source."""
    own: int | None = side.set.min_insync_replicas if topic is None else side.fact(topic, "min_insync_replicas")
    return side.cluster.min_insync_replicas if own is None else own


def _problem(flow: Flow, side: TargetTopics, replicas: int, needed: int, topics: list[FlowTopic | None]) -> Problem:
    names = [topic.target_label for topic in topics if topic is not None]
    whose = f"{render_some_names(names)} at {flow.target}" if names else f"what flow {flow.id} creates at {flow.target}"
    declared = next((topic.target.span or topic.source.span for topic in topics if topic is not None), None)
    consequence = "every write is refused" if needed > replicas else "one broker down stops the flow"
    in_set = flow.settings.at("sync", "configs", "set", "min.insync.replicas")
    in_flow = flow.settings.at("replication_factor")
    return Problem(
        "TPC404",
        f"{whose}: {needed} of {render_plural(replicas, 'replica')} must be in sync; {consequence}",
        build_labels(
            (None if in_set is None else in_set.span, f"needs {needed}"),
            (None if in_flow is None else in_flow.span, render_plural(replicas, "replica")),
            (declared, "declared here"),
            (side.cluster.span, "the target's brokers"),
            (flow.declared, "this flow"),
        ),
        path=f"{flow.path}.sync.configs.set" if in_set is not None else flow.path,
        ids=(flow.id, *names[:1]),
        help=f"at most {max(1, replicas - 1)} in sync with {render_plural(replicas, 'replica')}, or more replicas",
        severity="error" if needed > replicas else "warning",
    )


RULE = Rule("TPC404", "min-isr-too-high", "error", __doc__, check)
