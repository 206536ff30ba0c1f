"""The steps of `replicate__<name>`: freeze the plan, apply it, start the fleets, wait until every flow runs."""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from watershed.plugins.detached_process import DetachedProcess
from watershed.plugins.fleet_supervisors import (
    list_fleets,
    order_fleet_of,
    report_cluster_errors,
    start_missing_supervisors,
)
from watershed.plugins.lineage_datasets import MOST_EVENT_TOPICS, bound_topics, build_copy_lineage
from watershed.plugins.operators.person_notifier import find_notifier_problems
from watershed.plugins.shared_client_processes import ask_client_process
from watershed.plugins.state_folder import FrozenPlan, bring_plan, find_frozen_plan, freeze_plan, hand_plan_on
from watershed.plugins.steps.migration_dag_tasks import WORKER_WAIT_S
from watershed.topology.shell_command import quote_shell_argument
from watershed.topology.text_escaping import escape_control_lines

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from watershed.topology.plan import Plan

AskClusters = Callable[[str, str, dict[str, Any]], Any]  # as `ask_client_process`
_SERVED = ("running", "catching_up", "complete")
_LOOK_S = 1.0  # between two looks of a task
_FLOW_STATUS = "watershed.plugins.operators.flow_status"
_QUIET = ("starting", "aligning", "retrying", "paused", "stopped", *_SERVED)  # every other state is a halt


class FreezePlanOperator(BaseOperator):
    """Compile the file once; the whole run reads this plan, whatever happens to the file meanwhile.

    Fails for a plan hash other than `expected` ("" expects nothing). Returns the plan's hash.
    """

    template_fields: Sequence[str] = ("expected",)

    def __init__(self, *, path: str, expected: str | None = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = path
        self.expected = expected

    def execute(self, context: Any) -> str:
        """Fails for good when the file does not compile, or compiles to another plan than expected."""
        from watershed.topology.errors import InvalidTopology, UnreadableTopology

        try:
            plan = freeze_plan(Path(self.path))
        except (InvalidTopology, UnreadableTopology) as problem:
            plan = self.find_substitute(escape_control_lines(str(problem)))
        if self.expected and self.expected != plan.hash:
            raise AirflowFailException(
                f"{self.path} compiles to {plan.hash}, this run was asked for {self.expected}: the file has "
                "changed since it was reviewed. Review the new plan and trigger with its hash."
            )
        hand_plan_on(plan, context["ti"])
        flows = ", ".join(flow.id for flow in plan.read().flows)
        for untold in find_notifier_problems(os.environ):
            self.log.warning("whoever is awaited is not told: %s", escape_control_lines(untold))
        self.log.info("plan %s frozen in %s; flows: %s", plan.hash, plan.folder, flows)
        return plan.hash

    def find_substitute(self, problem: str) -> FrozenPlan:
        """A plan to go on with where the file does not compile. Here there is none: raises AirflowFailException, which
        says where the problem is and what to do."""
        file = quote_shell_argument(self.path)
        raise AirflowFailException(
            f"the topology file does not compile, so this run has changed nothing:\n{problem}\nFlows and workers that "
            f"run go on with the plan that was applied last. Mend the file (`topology lint {file}` shows each place; "
            "`topology explain CODE` the rule with an example), then clear this task, or trigger another run."
        )


class StartFleetsOperator(BaseOperator):
    """Have every fleet of the plan run, as `topology fleet start` does, and see to its supervisor.

    With `placement: embedded` a supervisor is started on this host unless one is there, here or elsewhere. It survives
    Airflow. `workers` overrides the number of workers. Returns the folders of the supervisors on this host.
    """

    template_fields: Sequence[str] = ("plan", "workers")

    def __init__(self, *, plan: str, workers: int | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.workers = workers

    def execute(self, context: Any) -> list[str]:
        """A fleet that runs already keeps its supervisor and, without `workers`, its number."""
        frozen = find_frozen_plan(self.plan)
        count = int(self.workers) if self.workers else None
        fleets = list_fleets(frozen.read())
        with report_cluster_errors():
            for fleet in fleets:
                order_fleet_of(frozen, fleet.target, "start", count)
            return start_missing_supervisors(frozen, fleets, self.log)


class FlowsRunningOperator(BaseOperator):
    """Wait until every partition of every flow is served: for WORKER_WAIT_S here, because leaving the worker costs
    seconds and workers are often there sooner, then without a worker slot.

    Fails for good when a fleet's program ended or a partition has halted, with its coordinates and remedy. A retry is
    for a task that was killed, as the Kafka client may do with its process.
    """

    template_fields: Sequence[str] = ("plan", "fleets")

    def __init__(self, *, plan: str, fleets: Any, timeout: timedelta = timedelta(minutes=30), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.fleets = fleets
        self.timeout = timeout
        self.served: dict[str, list[str]] = {}  # flow → source topics, for lineage; once all are served

    def execute(self, context: Any) -> None:
        """Leaves the worker slot when it takes longer; the triggerer follows the status topics then."""
        folders = [str(folder) for folder in self.fleets]
        watch, deadline = FlowsWatch(self.plan, folders, call_here), time.monotonic() + WORKER_WAIT_S
        while time.monotonic() < deadline:
            if (event := watch.look(self.log)) is not None:
                self.check(context, event)
                return
            time.sleep(_LOOK_S)
        self.defer(trigger=FlowsRunning(self.plan, folders), method_name="check", timeout=self.timeout)

    def check(self, context: Any, event: dict[str, Any]) -> None:
        """Fails with the partitions that have halted, or with the fleet that has ended. Another try would take their
        reports for those of an earlier fleet, and wait."""
        if event["problem"]:
            raise AirflowFailException(escape_control_lines(event["problem"]))
        self.log.info("%s", escape_control_lines(event["seen"]))
        self.served = event.get("topics", {})  # not there in an event of version 0.1.0
        if left_out := event.get("left_out", 0):
            self.log.info("lineage names %s topics, and leaves %s out", f"{MOST_EVENT_TOPICS:,}", f"{left_out:,}")

    def get_openlineage_facets_on_complete(self, _task_instance: Any) -> OperatorLineage[Any, Any]:
        """The topics that the flows read and write (docs/lineage.md). Airflow calls it where lineage is on."""
        return build_copy_lineage(find_frozen_plan(self.plan).read(), self.served)


class FlowsWatch:
    """Looks at `watershed.status` on the plan's target clusters. Only reports that are newer than those of the first
    look count: an earlier fleet may have left `running` behind."""

    def __init__(self, plan: str, fleets: list[str], ask: AskClusters) -> None:
        self.plan, self.fleets, self.ask = find_frozen_plan(plan).read(), fleets, ask
        self._first: dict[str, int] | None = None
        self._said = ""

    def look(self, log: Any) -> dict[str, Any] | None:
        """None while it goes on; at the end `seen` for people, `problem`, "" when every partition is served, and
        `topics`, `left_out` as `bound_topics` gives them."""
        from watershed.clusters.errors import ClusterError

        try:
            found = self._judge()
        except ClusterError as trouble:
            found = FlowsProgress(f"asking again: {trouble}", "", False)
        if found.text != self._said:
            log.info("%s", escape_control_lines(found.text))
            self._said = found.text
        problem = found.problem or describe_dead_fleets(self.fleets)
        if not (found.done or problem):
            return None
        topics, left_out = bound_topics(found.topics)
        return {"seen": found.text, "problem": problem, "topics": topics, "left_out": left_out}

    def _judge(self) -> FlowsProgress:
        wanted = ask_expected_partitions(self.plan, self.ask)
        view = ask_newest_reports(self.plan, self.ask)
        if self._first is None:
            self._first = {key: report.at_ms for key, report in view.items()}
        found = judge_flow_reports(wanted, {k: r for k, r in view.items() if r.at_ms != self._first.get(k)})
        if missing := ask_missing_workers(self.plan, self.ask):
            return replace(found, text="; ".join([found.text, *missing]), done=False)
        return found


class FlowsRunning(BaseTrigger):
    """The same in the triggerer."""

    def __init__(self, plan: str, fleets: list[str], poll_seconds: float = 3.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's has no annotations
        self.plan = plan
        self.fleets = fleets
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments, as Airflow's database keeps them."""
        kwargs = {"plan": self.plan, "fleets": self.fleets, "poll_seconds": self.poll_seconds}
        return "watershed.plugins.operators.replication.FlowsRunning", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event (`FlowsWatch.look`)."""
        await bring_plan(self, self.plan)
        watch = FlowsWatch(self.plan, self.fleets, ask_client_process)
        while True:
            if (event := await asyncio.to_thread(watch.look, self.log)) is not None:
                yield TriggerEvent(event)
                return
            await asyncio.sleep(self.poll_seconds)


@dataclass(frozen=True, slots=True)
class FlowsProgress:
    """Result of one poll. text: for people. problem: "" without one. done: every partition is served. topics: flow id →
    its source topics."""

    text: str
    problem: str
    done: bool
    topics: Mapping[str, Set[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExpectedPartitions:
    """What should run. places: flow id → the (topic, partition) pairs of its source that are to be served.

    standing: flow id → `stopped` or `paused`; the file wants it to run, an operator or a migration has stopped it. Also
    partitions that a person paused alone, by flow id and how many they are."""

    places: dict[str, set[tuple[str, int]]]
    standing: dict[str, str] = field(default_factory=dict)


def call_here(_topology: str, function: str, arguments: dict[str, Any]) -> Any:
    """In a task, which may hold a Kafka client."""
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)(**arguments)


def ask_expected_partitions(plan: Plan, ask: AskClusters = ask_client_process) -> ExpectedPartitions:
    """What `watershed.flows` wants of the plan's running flows now: a migration stops flows, and retires topics."""
    told = ask(plan.topology, f"{_FLOW_STATUS}:read_expected_partitions", {"plan": plan.hash})
    places = {flow: {(topic, partition) for topic, partition in found} for flow, found in told["places"].items()}
    return ExpectedPartitions(places, told["standing"])


def ask_newest_reports(plan: Plan, ask: AskClusters = ask_client_process) -> dict[str, Any]:
    """The newest report of every partition of the plan's flows, by its key."""
    from watershed.clusters.partition_status_records import PartitionStatus

    told = ask(plan.topology, f"{_FLOW_STATUS}:read_newest_reports", {"plan": plan.hash})
    return {report.key: report for report in map(PartitionStatus.from_json, told)}


def ask_missing_workers(plan: Plan, ask: AskClusters = ask_client_process) -> list[str]:
    """What somebody has to run where Airflow starts no workers (`placement: external`), a line for each fleet."""
    if not any(flow.placement == "external" for flow in plan.flows):
        return []
    told = ask(plan.topology, f"{_FLOW_STATUS}:read_fleet_states", {"plan": plan.hash})
    wanted = {fleet.target for fleet in list_fleets(plan)}
    return [each["text"] for each in told if each["waits"] and each["target"] in wanted]


def judge_flow_reports(wanted: ExpectedPartitions, view: dict[str, Any]) -> FlowsProgress:
    """Compare reports with what should be served."""
    words, loud, done = [f"{flow}: {state}, not waited for" for flow, state in wanted.standing.items()], [], True
    for flow, places in wanted.places.items():
        reports = [r for r in view.values() if r.flow == flow and (r.topic, r.partition) in places]
        served = [r for r in reports if r.state in _SERVED]
        loud += [r for r in reports if r.state not in _QUIET]
        lag = sum(r.lag_records or 0 for r in served)
        words.append(f"{flow}: {len(served)} of {len(places)} partitions served, lag {lag:,} records")
        done = done and len(served) == len(places)
    problem = "\n".join(f"{r.flow} {r.topic}-{r.partition}: {r.state}: {r.error} {r.remedy or ''}" for r in loud)
    topics = {flow: {topic for topic, _ in places} for flow, places in wanted.places.items()}
    return FlowsProgress("; ".join(words) or "no flow should run", problem, done, topics)


def describe_dead_fleets(folders: Sequence[str]) -> str:
    """Which supervisors on this host have ended, with the end of their logs; "" when all run.

    A folder without a program is another host's.
    """
    programs = [DetachedProcess(Path(folder)) for folder in folders]
    dead = [each for each in programs if each.pid() is not None and not each.alive()]
    return "\n".join(
        f"the fleet in {each.folder} has ended (exit {each.exit_code()}); its log ends with:\n{each.tail()}"
        for each in dead
    )
