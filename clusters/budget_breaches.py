"""What a budget of the file did to a flow (`slo.on_breach`): a record of its own in `watershed.flows` of the flow's
target, one a flow.

It is not part of the flow's record. Persons and runs read that, change it and write it again; a worker that wrote it in
between could undo what a run has just said of topics that move (docs/decisions/0131-budgets-that-act.md).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from watershed.clusters.control_record_codec import ControlRecordBody, ControlRecordFormat
from watershed.clusters.control_records import read_latest_records
from watershed.clusters.control_topics import FLOWS_TOPIC
from watershed.clusters.control_values import ControlValue
from watershed.clusters.errors import TopicMissing
from watershed.clusters.flow_records import BREACH_PREFIX, FlowRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.topology.breach_policy import BreachAction
from watershed.topology.quantities import render_duration
from watershed.topology.shell_command import render_shell_command


@dataclass(frozen=True, slots=True)
class BudgetBreach(ControlRecordBody):
    """A flow stands still because a budget was exceeded, until a person answers.

    number: 1 for the flow's first breach; two workers that decide at once give the same number, so it is one breach.
    budget: the key in the file. limit_ms: what it allows. lag_ms: how long the oldest uncopied record of the partition
    had been waiting. topic, partition: at the source. worker: who saw it; at_ms: its clock, milliseconds since 1970,
    for people only. answered: a person answered it. The flow's record says so, too (`FlowRecord.answered_breaches`),
    and either is enough: a version that does not know that number loses it where it writes the flow's record again, and
    a worker that comes late may write this record once more, without the answer.
    """

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat(
        "a budget breach", FLOWS_TOPIC, added_later=("answered",)
    )
    flow: str
    number: int
    action: BreachAction
    budget: str
    limit_ms: int
    lag_ms: int
    topic: str
    partition: int
    worker: str
    at_ms: int
    answered: bool = False

    @property
    def key(self) -> str:
        """One record a flow."""
        return build_breach_key(self.flow)

    def is_open(self, record: FlowRecord) -> bool:
        """Whether the flow stands still by it: nobody has answered it. record: the flow's."""
        return not self.answered and self.number > record.answered_breaches

    def adapt_for_earlier_versions(self, value: ControlValue) -> ControlValue:
        """What came later is written where it says something."""
        return value if self.answered else {name: each for name, each in value.items() if name != "answered"}


def build_breach_key(flow: str) -> str:
    """The key in `watershed.flows`."""
    return f"{BREACH_PREFIX}{flow}"


def read_budget_breaches(settings: ConnectionSettings) -> dict[str, BudgetBreach]:
    """The newest breach of each flow into this cluster, answered ones included, by flow; empty when the cluster has no
    control topics yet. Raises ClusterError."""
    try:
        found = read_latest_records(
            settings, FLOWS_TOPIC, BudgetBreach.from_json, lambda key: key.startswith(BREACH_PREFIX)
        )
    except TopicMissing:
        return {}
    return {breach.flow: breach for breach in found.values()}


def pick_open_breach(record: FlowRecord | None, breaches: Mapping[str, BudgetBreach]) -> BudgetBreach | None:
    """The breach by which the flow stands still; None where none does. breaches: by flow."""
    breach = breaches.get(record.key) if record is not None else None
    return breach if record is not None and breach is not None and breach.is_open(record) else None


def describe_breach(breach: BudgetBreach) -> str:
    """`paused by slo.lag.max (1m): orders-3 was 95.2 s behind (worker w1 saw it at 2026-03-01 12:00:00 UTC)`."""
    done = "paused" if breach.action == "pause" else "stopped"
    try:
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(breach.at_ms / 1000))
    except (OverflowError, ValueError, OSError):  # anybody may have written it
        when = f"timestamp {breach.at_ms}"
    return (
        f"{done} by {breach.budget} ({render_duration(breach.limit_ms)}): {breach.topic}-{breach.partition} was "
        f"{breach.lag_ms / 1000:,.1f} s behind (worker {breach.worker} saw it at {when})"
    )


def explain_breach(record: FlowRecord | None, breaches: Mapping[str, BudgetBreach], file: str = "FILE") -> str:
    """That the flow stands still by a budget, and the command that lets it go on; "" where it does not. breaches: by
    flow. file: the topology file's path."""
    breach = pick_open_breach(record, breaches)
    if breach is None:
        return ""
    return f"flow {breach.flow} is {describe_breach(breach)}; `{build_answer_command(breach.flow, file)}` lets it go on"


def build_answer_command(flow: str, file: str = "FILE") -> str:
    """The command that lets the flow go on. file: the topology file's path."""
    return render_shell_command("topology", "flow", "resume", flow, file)
