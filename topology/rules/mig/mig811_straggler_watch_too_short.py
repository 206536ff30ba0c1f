"""MIG811 straggler-watch-too-short: the watch for stragglers is shorter than clients remember where their brokers are.

Why: a producer looks up its brokers again after `metadata.max.age.ms`, five minutes by default; one that was idle, or
that buffers, writes only then. A shorter watch that sees nothing has not looked long enough. Below ten seconds it
cannot even span one request with its retry: an error. In a lab (all addresses on this machine) it is a remark.

Source: apache/kafka ProducerConfig metadata.max.age.ms; confluentinc/kcp internal/manifest/gateway.go
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.quantities import render_duration
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.rules.mig.declared_waves import list_declared_waves, lower_severity_in_lab

_METADATA_AGE_MS = 300_000
_FLOOR_MS = 10_000


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    for move in list_declared_waves(topology):
        for gate in move.gates("stragglers"):
            watch = gate.get("watch")
            if topology is None or watch is None or watch >= _METADATA_AGE_MS:
                continue
            yield Problem(
                "MIG811",
                f"wave `{move.name}` watches for stragglers for {render_duration(watch)}; clients look for their "
                f"brokers "
                f"every {render_duration(_METADATA_AGE_MS)}",
                build_labels((gate.where("watch"), "too short to see them"), (move.span, "this wave")),
                path=f"{move.path}.gates",
                ids=(move.name,),
                help="say `watch: 6m`, or longer than the largest `metadata.max.age.ms` of the producers",
                severity=lower_severity_in_lab(topology, "error" if watch < _FLOOR_MS else "warning"),
            )


RULE = Rule("MIG811", "straggler-watch-too-short", "warning", __doc__, check)
