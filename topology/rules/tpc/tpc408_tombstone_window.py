"""TPC408 tombstone-window: a compacted source drops its tombstones sooner than the flow's lag, the outage that it is
meant to survive and the time to catch up allow.

Why: a tombstone that is gone before it was copied never deletes its key at the target: what was deleted lives there for
ever. Kafka keeps tombstones for 24 hours unless `delete.retention.ms` says otherwise.

Source: apache/kafka TopicConfig.java, DELETE_RETENTION_MS_DOC
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from watershed.topology.finding import Problem
from watershed.topology.quantities import render_duration
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.rules.tpc.outage_budget import build_outage_budget


def check(context: RuleContext) -> Iterator[Problem]:
    for flow, groups in context.facts.by_equal_facts if context.topology is not None else ():
        needed = build_outage_budget(context, flow, chain.from_iterable(groups))
        if needed is None:
            continue
        total = needed.total_ms
        compacted = [group for group in groups if group[0].source.compacted]
        short = sorted(
            (
                (topic.source.delete_retention_ms, topic.label, topic.source.span)
                for topic in chain.from_iterable(compacted)
                if topic.source.delete_retention_ms is not None and topic.source.delete_retention_ms < total
            ),
            key=lambda each: each[:2],
        )
        if short:
            least, label, span = short[0]
            slo = flow.settings.at("slo")
            need = needed.text
            yield Problem(
                "TPC408",
                f"{flow.source} keeps the tombstones of {render_some_names([name for _, name, _ in short])} for "
                f"{render_duration(least)}, but flow {flow.id} needs {need}: {needed}",
                build_labels(
                    (span, f"tombstones stay {render_duration(least)}"),
                    (slo.span if slo is not None else None, f"needs {need}"),
                    (flow.declared, "this flow"),
                ),
                path=f"{flow.path}.slo",
                ids=(flow.id, label),
                notes=needed.notes,
                help=f"raise delete.retention.ms at {flow.source} to {need} or more, or promise less in `slo`",
            )


RULE = Rule("TPC408", "tombstone-window", "error", __doc__, check)
