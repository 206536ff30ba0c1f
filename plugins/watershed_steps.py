"""One step of one migration, as a process of Airflow does it: through the journal on the target cluster.

`cutover.driver.Migration` does the work and remembers it; it is only asked for one step.  A step that needs
what a process must not wait for leaves the driver by an exception and is asked for again later; the journal
makes that safe (an unfinished step is resumed, a finished one is not done again).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from plugins.watershed_spark import attempts
from plugins.watershed_state import frozen_plan, run_folder

if TYPE_CHECKING:
    from cutover.actions import AskApproval, Prove
    from cutover.consumers_first import Result
    from cutover.driver import Event, Migration
    from cutover.observations import ApprovalSeen, ProofSeen
    from topology.plan import Wave

PROOF_ATTEMPTS = 2  # a proof that was killed or failed as a tool is tried once more


@dataclass(frozen=True, slots=True)
class Row:
    """A step as the DAG shows it."""

    name: str
    does: str
    undo: str | None
    asks: bool


def rows_of(wave: Wave) -> list[Row]:
    """The steps of a wave in their order, without connecting to anything."""
    from cutover.policy import policy_of
    from cutover.steps import steps_of

    return [Row(step.name, step.does, step.undo, step.actor == "person") for step in steps_of(policy_of(wave))]


@dataclass(frozen=True, slots=True)
class Order:
    """What a step's task, its trigger and its rollback are told: all of it ids, so that it fits a trigger."""

    plan: str
    wave: str
    step: str
    dag: str
    run: str

    @property
    def evidence(self) -> Path:
        return run_folder(self.dag, self.run) / "evidence"

    def migration(self, **hooks: Any) -> Migration:
        """The driver for this run. Raises ClusterError, CutoverError."""
        from clusters.settings import connection_settings
        from cutover.driver import Migration, wave_of
        from cutover.journal import Journal
        from cutover.journal_topic import TopicLog

        plan = frozen_plan(self.plan).read()
        declared, _ = wave_of(plan, self.wave)
        flow = plan.flow(declared.flow)
        settings = {alias: connection_settings(plan.cluster(alias)) for alias in (flow.source, flow.target)}
        # One holder for all tasks of a run: its chain still refuses two processes that act at once.
        journal = Journal(TopicLog(settings[flow.target]), plan.topology, f"airflow {self.run}")
        return Migration(
            plan,
            self.wave,
            settings,
            journal=journal,
            run_id=self.run,
            actor=f"airflow {self.dag}",
            evidence=self.evidence,
            **hooks,
        )


class ProofNeeded(Exception):
    """The step has to wait for a Spark application with these properties."""

    def __init__(self, wanted: Prove) -> None:
        self.wanted = wanted
        super().__init__(f"a proof of {wanted.flow}")


class ApprovalNeeded(Exception):
    """The step has to wait for a person."""

    def __init__(self, wanted: AskApproval) -> None:
        self.wanted = wanted
        super().__init__(wanted.question)


class StillWaiting(Exception):
    """The step has waited for as long as a worker may."""


class Patience:
    """Sleeping with an end: raises StillWaiting after `seconds` of sleep in all, or when `stop` is set."""

    def __init__(self, seconds: float | None) -> None:
        self.left = seconds
        self.stop = threading.Event()

    def sleep(self, seconds: float) -> None:
        if self.left is not None:
            self.left -= seconds
            if self.left < 0:
                raise StillWaiting
        if self.stop.wait(seconds):
            raise StillWaiting


def run_step(
    order: Order,
    log: Any,
    folder: Path,
    approve: Callable[[AskApproval], ApprovalSeen],
    sleep: Callable[[float], None],
) -> Result:
    """Do one step. Raises ProofNeeded, ApprovalNeeded, StillWaiting; AirflowException for what cannot go on."""
    from clusters.errors import ClusterError
    from cutover.errors import CutoverError

    def say(event: Event) -> None:
        if event.kind != "skipped" or event.step == order.step:  # earlier steps are told by their own tasks
            log.info("%s: %s", event.kind, event.text)

    def prove(wanted: Prove) -> ProofSeen:
        return proof_in(folder, wanted, order.plan)

    try:
        return order.migration(prove=prove, approve=approve, say=say, sleep=sleep).run_step(order.step)
    except (ClusterError, CutoverError) as problem:
        raise AirflowFailException(str(problem)) from None


def roll_back(order: Order, log: Any) -> Result:
    """Give up the run, so that the driver takes back what was done; or finish a rollback (`cutover.giving_up`)."""
    from cutover.consumers_first import Result
    from cutover.giving_up import give_up

    if not order.plan or order.plan == "None":
        return Result("refused", "compile", "nothing had begun")

    def say(event: Event) -> None:
        log.info("%s: %s", event.kind, event.text)

    return give_up(order.migration, "the task of this step failed or was ended", say, order.run)


def proof_in(folder: Path, wanted: Prove, plan_hash: str) -> ProofSeen:
    """The verdict of the newest attempt in the task's folder. Raises ProofNeeded while there is none."""
    from cutover.proofs import read_summary

    tried = attempts(folder)
    if not tried or tried[-1].alive():
        raise ProofNeeded(wanted)
    last = tried[-1]
    broken = last.exit_code() not in (0, 1, 3)
    if broken:
        (last.folder / "collected").touch()
        if len(tried) < PROOF_ATTEMPTS:
            raise ProofNeeded(wanted)
    return read_summary(last.folder / "summary.json", plan_hash)


def proof_arguments(wanted: Prove) -> list[str]:
    arguments = ["--topology", "{topology}", "--out", "{out}", "--flow", wanted.flow]
    arguments += ["--topics", ",".join(wanted.topics), "--level", wanted.level]
    arguments += ["--final"] if wanted.final else []
    return arguments + (["--since", wanted.since] if wanted.since else [])


def ask_later(wanted: AskApproval) -> ApprovalSeen:
    raise ApprovalNeeded(wanted)


def evidence_text(wanted: AskApproval) -> str:
    """What a person decides on, as Markdown: the numbers that the gates saw; offsets stay in the journal."""
    lines = [f"**{wanted.by}** is asked to decide: {wanted.question}", ""]
    for step, outcome in wanted.evidence.items():
        lines += [f"#### {step.replace('_', ' ')}", "", "| what | seen |", "|---|---|"]
        for name, value in outcome.items():
            if isinstance(value, dict):
                lines += [f"| {name}: {key} | {number} |" for key, number in value.items() if isinstance(number, int)]
            elif value is not None:
                lines.append(f"| {name} | {value} |")
        lines.append("")
    return "\n".join(lines)
