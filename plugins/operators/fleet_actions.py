"""The tasks of `fleet__<name>` and `supervise__<name>`: orders to fleets, and supervisors inside tasks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from airflow.sdk import BaseOperator, Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from watershed import IMPORT_ROOT
from watershed.plugins.fleet_supervisors import (
    Fleet,
    find_applied_plan,
    list_fleets,
    order_fleet_of,
    read_rows_of,
    report_cluster_errors,
    start_missing_supervisors,
)
from watershed.plugins.operators.replication import FreezePlanOperator
from watershed.plugins.shared_client_processes import ask_client_process
from watershed.plugins.state_folder import FrozenPlan, bring_plan, find_frozen_plan, freeze_plan
from watershed.plugins.supervisor_queues import list_supervise_kinds
from watershed.plugins.topology_dags import read_last_plan
from watershed.topology.errors import InvalidTopology, UnreadableTopology
from watershed.topology.text_escaping import escape_control_lines

if TYPE_CHECKING:
    from watershed.replicator.worker.fleet_status import FleetRow

FleetAction = Literal["heal", "status", "start", "scale", "restart", "stop"]
ALL_FLEETS: Final = "all"
_UNWATCHED: Final = ("heal", "status")  # nobody waits for what comes of them
_END_S: Final = 60.0  # for a supervisor to end its workers
_LEAVE_S: Final = 20.0  # for a supervisor to give its lease up
_LOOK_S: Final = 1.0  # how often a silent supervisor is looked after
_MOST_TOLD: Final = 1 << 16  # bytes: what a pipe holds


class FreezeFleetPlanOperator(FreezePlanOperator):
    """The same for `fleet__<name>`: where the file does not compile any more, `heal` and `status` go on with the last
    plan that did. Nobody starts dead supervisors otherwise, until somebody mends the file."""

    template_fields: Sequence[str] = (*FreezePlanOperator.template_fields, "action")

    def __init__(self, *, action: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.action = action

    def find_substitute(self, problem: str) -> FrozenPlan:
        """Raises AirflowFailException for an action that changes something, and where no plan was kept."""
        last = read_last_plan(Path(self.path)) if self.action in _UNWATCHED else None
        if last is not None:
            with contextlib.suppress(FileNotFoundError):
                frozen = find_frozen_plan(last.hash)
                self.log.error("the topology file does not compile any more; mend it:\n%s", problem)
                self.log.error("%s goes on with the last plan that compiled, %s", self.action, last.hash)
                return frozen
        return super().find_substitute(problem)


class FleetActionOperator(BaseOperator):
    """Give the chosen fleets an order, and start supervisors that are missing. Returns the fleets as rows.

    action: `heal` starts missing supervisors only, `status` changes nothing, the others as `topology fleet`.
    """

    template_fields: Sequence[str] = ("plan", "action", "target", "workers")

    def __init__(
        self, *, plan: str, action: str, target: str = ALL_FLEETS, workers: int | str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.action = action
        self.target = target
        self.workers = workers

    def execute(self, context: Any) -> list[dict[str, Any]]:
        """Fails for good for a fleet that is not there, and for an order that makes no sense."""
        frozen = find_frozen_plan(self.plan)
        fleets = choose_fleets(list_fleets(frozen.read()), self.target)
        count = int(self.workers) if self.workers else None
        if self.action == "scale" and count is None:
            raise AirflowFailException("scale needs the number of workers: fill in `workers`; nothing was changed")
        with report_cluster_errors():
            if self.action in ("start", "scale", "restart", "stop"):
                for fleet in fleets:
                    before, after = order_fleet_of(frozen, fleet.target, self.action, count)  # type: ignore[arg-type]
                    changed = "nothing to change" if before == after else f"{before.state}, {before.workers} workers"
                    self.log.info("%s: %s -> %s, %d workers", fleet.target, changed, after.state, after.workers)
            if self.action != "status":
                start_missing_supervisors(frozen, fleets, self.log)
            rows = [row for fleet in fleets for row in read_rows_of(frozen.read(), fleet.target)]
        for row in rows:
            self.log.info("%s", describe_row(row))
        return [asdict(row) for row in rows]


class FleetSizedOperator(BaseOperator):
    """Wait, without a worker slot, until the chosen fleets are what they should be. Skipped after heal and status."""

    template_fields: Sequence[str] = ("plan", "action", "target")

    def __init__(
        self,
        *,
        plan: str,
        action: str,
        target: str = ALL_FLEETS,
        timeout: timedelta = timedelta(minutes=30),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.action = action
        self.target = target
        self.timeout = timeout

    def execute(self, context: Any) -> None:
        """Leaves the worker slot; the triggerer asks the clusters."""
        if self.action in _UNWATCHED:
            raise AirflowSkipException(f"nothing is waited for after {self.action}")
        self.defer(trigger=FleetsSized(self.plan, self.target), method_name="tell", timeout=self.timeout)

    def tell(self, context: Any, event: dict[str, Any]) -> None:
        """The fleets as they are now, in the task's log."""
        self.log.info("%s", escape_control_lines(event["seen"]))


class FleetsSized(BaseTrigger):
    """Asks for the fleets of a plan until they are what they should be."""

    def __init__(self, plan: str, target: str, poll_seconds: float = 2.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's has no annotations
        self.plan = plan
        self.target = target
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments, as Airflow's database keeps them."""
        kwargs = {"plan": self.plan, "target": self.target, "poll_seconds": self.poll_seconds}
        return "watershed.plugins.operators.fleet_actions.FleetsSized", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event: `seen`, for people."""
        from watershed.clusters.errors import ClusterError

        await bring_plan(self, self.plan)
        frozen, said = find_frozen_plan(self.plan), ""
        topology = frozen.read().topology
        while True:
            try:
                told = await asyncio.to_thread(
                    ask_client_process,
                    topology,
                    "watershed.plugins.operators.flow_status:read_fleet_states",
                    {"plan": self.plan},
                )
                chosen = [each for each in told if self.target in (ALL_FLEETS, each["target"])]
                text, done = "; ".join(each["text"] for each in chosen), all(each["at_size"] for each in chosen)
            except ClusterError as trouble:
                text, done = f"asking again: {trouble}", False
            if text != said:
                self.log.info("%s", escape_control_lines(text))
                said = text
            if done:
                yield TriggerEvent({"seen": text})
                return
            await asyncio.sleep(self.poll_seconds)


class SuperviseFleetOperator(BaseOperator):
    """Supervise one fleet inside this task, or stand by for it, for ever (`placement: task`). A retry goes on where it
    was, with the plan that was applied last. path: the topology file, for a host that has not kept that plan.

    The supervisor ends with the task's process; its workers go on until the next supervisor has its own ready.
    """

    template_fields: Sequence[str] = ("plan",)

    def __init__(self, *, plan: str, target: str, path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.target = target
        self.path = path
        self._process: subprocess.Popen[bytes] | None = None

    def execute(self, context: Any) -> None:
        """Fails, so that it is tried again, when the supervisor has ended."""
        frozen = find_frozen_plan(self.plan)
        [fleet] = choose_fleets(list_fleets(frozen.read()), self.target)
        with report_cluster_errors():  # the run began with an earlier plan, maybe weeks ago
            [row] = read_rows_of(frozen.read(), self.target)
        module, arguments = fleet.program((self._find_newer_plan(fleet, row.plan_hash) or frozen).topology)
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, "--end-with-parent"],
            env={**fleet.build_environment(), "PYTHONPATH": str(IMPORT_ROOT), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for line in _read_lines(self._process):
            self.log.info("%s", escape_control_lines(line))
        code = self._process.wait()
        raise AirflowException(f"the supervisor of the fleet into {self.target} ended with exit code {code}")

    def _find_newer_plan(self, fleet: Fleet, applied: str) -> FrozenPlan | None:
        """The plan that was applied last: kept on this host, or what the file is now. applied: "" of a fleet that has
        none. None, with a warning, where it is neither."""
        found = find_applied_plan(fleet, applied)
        if found is None and applied:
            with contextlib.suppress(InvalidTopology, UnreadableTopology):  # somebody edits it; then it is another plan
                freeze_plan(Path(self.path))
            found = find_applied_plan(fleet, applied)
        if found is None and applied:
            self.log.warning(
                "going on with the plan of this run, %s. %s was applied last, which is not kept on this host, and the "
                "file %s is another plan by now. Apply the file, then clear `compile` and this task",
                *(escape_control_lines(each) for each in (self.plan, applied, self.path)),
            )
        return found

    def on_kill(self) -> None:
        """Somebody cleared or marked the task, or Airflow ends it because its api-server did not answer: both are the
        same signal. Where another task stands by, the supervisor leaves, and its workers go on until the other
        one's are ready; else they hand their partitions over and end."""
        if self._process is not None and self._process.poll() is None:
            stands_by = len(list_supervise_kinds()) > 1
            self._process.send_signal(signal.SIGUSR1 if stands_by else signal.SIGTERM)
            try:
                self._process.wait(_LEAVE_S if stands_by else _END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()


def _read_lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """What it prints, until it has ended. Its workers hold the same pipe and go on without it: no end of file tells."""
    assert process.stdout is not None
    pipe, rest, ended = process.stdout.fileno(), b"", False
    while not ended:
        ended = process.poll() is not None
        if select.select([pipe], [], [], 0 if ended else _LOOK_S)[0]:
            told = os.read(pipe, _MOST_TOLD)
            ended = ended or not told
            *lines, rest = (rest + told).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
    if rest:
        yield rest.decode(errors="replace")


def build_fleet_params(targets: Sequence[str]) -> dict[str, Param]:
    """The parameters of `fleet__<name>`. targets: the clusters into which the file's flows go."""
    return {
        "action": Param(
            "heal",
            enum=list(get_args(FleetAction)),
            description="What to do. heal: start missing supervisors; status: only tell.",
        ),
        "target": Param(ALL_FLEETS, enum=[ALL_FLEETS, *targets], description="The cluster whose fleet is meant."),
        "workers": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=256,
            description="How many workers; for scale and start.",
        ),
    }


def choose_fleets(fleets: Sequence[Fleet], target: str) -> list[Fleet]:
    """Those into the target, or all. Raises AirflowFailException where there is none."""
    found = [fleet for fleet in fleets if target in (ALL_FLEETS, fleet.target)]
    if not found:
        known = ", ".join(fleet.target for fleet in fleets) or "none"
        raise AirflowFailException(f"no running flow goes into {target}; fleets are into: {known}. Nothing was changed")
    return found


def describe_row(row: FleetRow) -> str:
    """One line for people, with what to do where nobody of us can start workers."""
    from watershed.replicator.worker.fleet_status import describe_fleet_row, describe_missing_workers

    if row.placement == "external" and row.state == "running" and not row.is_at_size:
        return escape_control_lines(describe_missing_workers(row))
    return escape_control_lines(describe_fleet_row(row))
