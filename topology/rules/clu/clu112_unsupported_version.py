"""CLU112 unsupported-version: a cluster's Kafka is older than what a flow does with it.

Why: Watershed copies exactly once by the broker's check of sequence numbers. A target before 2.4 forgets them when
retention deletes records, and then refuses every batch. Brokers that are too old are refused before anything is begun.
Record headers and changing configs one by one are older, and only told with it.

Source: KAFKA-7190 (producer state outlives records since Kafka 2.4); KIP-98 (record batches in 0.11); KIP-339 (2.3);
KIP-82 (0.11); apache/kafka MirrorSourceConnector.java, which raises without incremental configs
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from watershed.topology.finding import Problem
from watershed.topology.model import Flow, Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.text_escaping import shorten_and_escape

_RELEASE = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,3}))?(?![0-9])")


@dataclass(frozen=True, slots=True)
class _VersionNeed:
    """What a flow does at one of its ends, since which release brokers can do it, and whether a flow does.

    asked: a scan asks the brokers for it, and CLU113 tells what they answered; the release does not count then.
    """

    end: str
    release: tuple[int, int]
    what: str
    used: Callable[[Flow], bool]
    asked: bool = False


_NEEDS = (
    _VersionNeed("target", (2, 4), "producer states that outlive records", lambda flow: True, asked=True),
    _VersionNeed("source", (0, 11), "record batches", lambda flow: True, asked=True),
    _VersionNeed("target", (2, 3), "changing configs one by one", lambda flow: flow.plan.sync_configs == "continuous"),
    _VersionNeed(
        "target", (0, 11), "record headers", lambda flow: flow.settings.at("provenance", "header") is not None
    ),
)


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    ends: dict[str, dict[str, list[Flow]]] = {}
    for flow in topology.flows:
        for end, alias in (("source", flow.source), ("target", flow.target)):
            ends.setdefault(alias, {}).setdefault(end, []).append(flow)
    for alias, flows in sorted(ends.items()):
        kafka = context.facts.cluster(alias).kafka
        match = _RELEASE.match(kafka or "")
        if match is None:
            continue
        release = int(match[1]), int(match[2] or 0)
        seen = context.inventory.cluster(alias) if context.inventory is not None else None
        answered = seen is not None and seen.capabilities is not None
        missing = [
            (need, using)
            for need in _NEEDS
            if release < need.release
            and not (need.asked and answered)
            and (using := [flow for flow in flows.get(need.end, ()) if need.used(flow)])
        ]
        if missing:
            yield _problem(context, topology, alias, shorten_and_escape(str(kafka)), missing)


def _problem(
    context: RuleContext, topology: Topology, alias: str, kafka: str, missing: list[tuple[_VersionNeed, list[Flow]]]
) -> Problem:
    [(newest, flows), *_] = missing
    seen = context.inventory.cluster(alias) if context.inventory is not None else None
    cluster = topology.root.at("clusters", alias)
    said = None if cluster is None else (cluster.at("facts", "kafka") or cluster)
    return Problem(
        "CLU112",
        f"`{alias}` runs Kafka {kafka}; as the {newest.end} of {render_some_names([flow.id for flow in flows])} "
        f"it needs "
        f"{_text(newest)}",
        build_labels((None if said is None else said.span, f"Kafka {kafka}"), (flows[0].declared, flows[0].id)),
        path=f"clusters.{alias}.facts.kafka",
        ids=(alias,),
        help=f"upgrade `{alias}` to Kafka {_text(newest)} or newer, or correct `facts.kafka`",
        notes=tuple(f"{need.what} ({need.end}): since Kafka {_text(need)}" for need, _ in missing),
        # a declared release is often years old; what brokers say of themselves is not
        severity=None if seen is not None and seen.kafka is not None else "warning",
        confidence="certain" if seen is not None and seen.kafka is not None else "likely",
    )


def _text(need: _VersionNeed) -> str:
    return ".".join(map(str, need.release))


RULE = Rule("CLU112", "unsupported-version", "error", __doc__, check)
