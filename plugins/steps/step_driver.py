"""Does steps of one run in an Airflow process, through the journal on the target cluster.

`cutover.driver.RunDriver` does the steps and journals them; this module only asks it for some of them. A step may need
something for which a process must not wait. Then the step leaves the driver by an exception, and Airflow asks for it
again later. The journal makes that safe: an unfinished step is resumed, and a finished step is not done again.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from watershed.plugins.detached_process import DetachedProcess
from watershed.plugins.operators.spark_application import list_attempts
from watershed.plugins.state_folder import (
    find_frozen_plan,
    is_state_shared,
    locate_run_folder,
    make_file_name,
    write_json_file,
)
from watershed.plugins.steps.live_messages import keep_live_message
from watershed.plugins.steps.migration_dag_tasks import (
    ALL_WAVES,
    FENCED_WAIT_S,
    NO_CHOICES,
    RunChoices,
    build_run_choice,
    is_close_to_fence,
    list_fenced_steps,
    preview_run_plan,
    waits_long,
)
from watershed.plugins.steps.standby_proof import (
    STANDBY_STAY_S,
    STANDBY_SUMMARY_FILE,
    StandbyProof,
    has_proven_and_stays,
    is_standby_attempt,
    plan_standby_proof,
    read_standby_verdict,
)
from watershed.topology.text_escaping import escape_control_lines

if TYPE_CHECKING:
    from watershed.cutover.actions import AskApproval, RequestProof
    from watershed.cutover.driver import RunDriver, RunEvent
    from watershed.cutover.live.applications.person_application import AskPerson, PersonAnswer, PersonRequest
    from watershed.cutover.migration_step_order import Step
    from watershed.cutover.observations import ApprovalAnswer, ProofOutcome
    from watershed.cutover.run_plan import RunKind
    from watershed.cutover.step_runner import RunResult

_PROOF_ATTEMPTS = 2  # a proof that was killed, or that ended without a verdict, is tried once more

ApproveStep = Callable[["AskApproval"], "ApprovalAnswer"]


@dataclass(frozen=True, slots=True)
class StepOrder:
    """What a step's task, its trigger and its rollback receive. All of it is ids, so that it fits into a trigger.

    steps: what to do, in this order. strategy: "" means the strategy of the file. user: who triggered the DAG run, as
    Airflow calls him; "" where nobody did."""

    plan: str
    wave: str
    steps: tuple[str, ...]
    dag: str
    run: str
    kind: RunKind = "migrate"
    strategy: str = ""
    choices: RunChoices = NO_CHOICES
    user: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON values only: a trigger's arguments are kept in Airflow's database."""
        return asdict(self) | {"steps": [*self.steps], "choices": self.choices.to_json()}

    @classmethod
    def of_json(cls, told: dict[str, Any]) -> StepOrder:
        """Reads what `to_json` wrote."""
        choices = RunChoices.of_json(told["choices"]) if "choices" in told else NO_CHOICES
        known = {each.name: told[each.name] for each in fields(cls) if each.name in told}  # a release may drop one
        return cls(**{**known, "steps": tuple(told["steps"]), "choices": choices})

    @property
    def journal_run(self) -> str:
        """The run's name in the journal, where every wave of a DAG run is a run of its own."""
        return f"{self.kind}.{self.run}" + ("" if self.wave == ALL_WAVES else f".{self.wave}")

    @property
    def evidence(self) -> Path:
        """Where the run's evidence is written."""
        return locate_run_folder(self.dag, self.run) / "evidence" / make_file_name(self.wave)

    def folder(self, step: str) -> Path:
        """Where a step's Spark applications run."""
        return locate_run_folder(self.dag, self.run) / make_file_name(f"{self.wave}.{step}")

    @property
    def standby(self) -> StandbyProof:
        """The Spark application that is warm when the producers of this wave are fenced."""
        return StandbyProof(DetachedProcess(self.folder("standby")), self.folder("history_proof"))

    def migration(self, **hooks: Any) -> RunDriver:
        """The driver for this run. Raises ClusterError, CutoverError."""
        from watershed.clusters.settings import resolve_connection_settings
        from watershed.cutover.run_opening import open_run

        plan = find_frozen_plan(self.plan).read()
        return open_run(
            plan,
            build_run_choice(plan, self.kind, self.wave, self.strategy, self.choices),
            {str(cluster.alias): resolve_connection_settings(cluster) for cluster in plan.clusters},
            # All tasks of a run are the same holder. The chain still refuses two processes that act at once.
            holder=f"airflow {self.journal_run}",
            run_id=self.journal_run,
            actor=name_airflow_actor(self.dag, self.user),
            evidence=self.evidence,
            caller="airflow",
            **hooks,
        )


def name_airflow_actor(dag: str, user: str = "") -> str:
    """Who acts, as the journal has it: the DAG, and who triggered its run."""
    return f"airflow {dag}" + (f" for {user}" if user else "")


class ProofNeeded(Exception):
    """The step has to wait for a Spark application that does this proof in this folder. may_stay: it may be the one
    that proves the tail, too."""

    def __init__(self, wanted: RequestProof, folder: Path, *, may_stay: bool = False) -> None:
        self.wanted, self.folder, self.may_stay = wanted, folder, may_stay
        super().__init__(f"a proof of {wanted.flow}")


class StandbyNeeded(Exception):
    """Before producers are fenced, a Spark application has to do this proof: that makes it warm."""

    def __init__(self, wanted: RequestProof) -> None:
        self.wanted = wanted
        super().__init__("an application that stands by")


class ApprovalNeeded(Exception):
    """The step has to wait for a person."""

    def __init__(self, wanted: AskApproval) -> None:
        self.wanted = wanted
        super().__init__(wanted.question)


class ConfirmationNeeded(Exception):
    """The step has to wait for a person who stops or starts an application."""

    def __init__(self, request: PersonRequest) -> None:
        self.request = request
        super().__init__(request.task)


class StillWaiting(Exception):
    """The step has waited for as long as a worker may."""


class WaitBudget:
    """Sleep with a limit: raises StillWaiting after `seconds` of sleep in one step, or when `stop` is set."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = self.left = seconds
        self.stop = threading.Event()

    def begin_step(self, least: float = 0.0) -> None:
        """Every step may wait for as long as the one before it, and for `least` seconds. Raises StillWaiting where
        nobody waits for it any more."""
        if self.stop.is_set():
            raise StillWaiting
        self.left = None if self.seconds is None else max(self.seconds, least)

    def sleep(self, seconds: float) -> None:
        """Raises StillWaiting instead of sleeping past the budget."""
        if self.left is not None:
            self.left -= seconds
            if self.left < 0:
                raise StillWaiting
        if self.stop.wait(seconds):
            raise StillWaiting


def defer_confirmation(request: PersonRequest) -> PersonAnswer:
    """Never answers: raises ConfirmationNeeded, so that the task asks a person."""
    raise ConfirmationNeeded(request)


def run_steps(
    order: StepOrder,
    log: Any,
    approve: ApproveStep,
    patience: WaitBudget,
    ask: AskPerson = defer_confirmation,
    *,
    leave_long: bool = False,
) -> RunResult:
    """Do the steps, until one of them has another result than `paused`. Each says in the log when it begins and ends.

    leave_long: a step that usually waits longer than `patience` is not begun here. Raises ProofNeeded, StandbyNeeded,
    ApprovalNeeded, ConfirmationNeeded, StillWaiting; AirflowFailException when the run cannot go on; AirflowException
    when another try may help.
    """
    from watershed.clusters.errors import ClusterError
    from watershed.cutover.errors import CutoverError, Superseded
    from watershed.cutover.step_runner import RunResult

    at = order.steps[0]
    migration: RunDriver

    def say(event: RunEvent) -> None:
        if event.kind != "skipped" or event.step == at:  # the tasks of earlier steps report those
            log.info("%s: %s: %s", event.step, event.kind, escape_control_lines(event.text))
        _keep_live(order, event, log)

    def prove(wanted: RequestProof) -> ProofOutcome:
        seen = _prove_by_standby(order, at, wanted, patience.sleep) if wanted.final else None
        may_stay = at == "history_proof" and any(step.name == "tail_proof" for step in migration.steps)
        return seen or _read_step_proof(order.folder(at), wanted, order.plan, may_stay=may_stay)

    try:
        migration = order.migration(
            prove=prove,
            approve=approve,
            say=say,
            sleep=patience.sleep,
            ask=lambda each: _ask_forward(migration, ask, each),
        )
        result = RunResult("paused", at)
        steps = {step.name: step for step in migration.steps}
        if patience.seconds is not None:  # in a worker: the triggerer's machine may have no Spark
            begin_standby_early(order, migration, log)
        fenced = list_fenced_steps(migration.steps)
        for at in list_steps_to_do(order, [*steps]):
            stays = at in fenced and not is_state_shared()  # what the tail's proof builds on is on this host only
            _prepare_step(order, migration, steps[at], log, leave_long=leave_long and not stays)
            patience.begin_step(math.inf if stays else FENCED_WAIT_S if at in fenced else 0.0)
            result = migration.run_step(at)
            if result.state != "paused":
                break
    except Superseded as problem:  # the other process goes on; if it ends, the next try goes on
        raise AirflowException(escape_control_lines(str(problem))) from None
    except (ClusterError, CutoverError) as problem:
        raise AirflowFailException(escape_control_lines(str(problem))) from None
    return result


def _ask_forward(migration: RunDriver, ask: AskPerson, request: PersonRequest) -> PersonAnswer:
    """Steps ask; a rollback inside a step's task leaves that to the task that takes back: it has a question of its
    own."""
    if migration.is_undoing:
        raise AirflowFailException(f"{_ASKED_THERE} {escape_control_lines(request.task)}")
    return ask(request)


def _keep_live(order: StepOrder, event: RunEvent, log: Any) -> None:
    """For whoever watches the run. A step must not fail because nobody can be shown what it waits for."""
    if event.kind in ("begin", "seen"):
        _tell_live(order, event.step, event.text, log)


def _tell_live(order: StepOrder, step: str, text: str, log: Any) -> None:
    try:
        keep_live_message(order.dag, order.run, order.wave, step, text)
    except OSError as problem:
        log.warning("the page is not told what this step sees: %s", problem)


_WARMING = "Spark gets ready to prove what is written last; producers write on until it is"


def _prepare_step(order: StepOrder, migration: RunDriver, step: Step, log: Any, *, leave_long: bool) -> None:
    """Raises StandbyNeeded and StillWaiting for a step that must not begin here and now."""
    if step.name == "fence_producers":
        try:
            require_warm_standby(order, migration)
        except StandbyNeeded:
            _tell_live(order, step.name, _WARMING, log)
            raise
    is_left = leave_long and step.actor != "hook" and waits_long(step)
    if is_left and not _is_done(migration, order, step.name):
        raise StillWaiting


def _is_done(migration: RunDriver, order: StepOrder, step: str) -> bool:
    """Whether the journal has the step's outcome."""
    from watershed.cutover.journal.hash_chain import find_step_outcome

    return find_step_outcome(migration.journal.refresh().run(order.journal_run), step) is not None


def list_steps_to_do(order: StepOrder, there: Sequence[str]) -> list[str]:
    """The steps to do, of those that the run has (`there`). A rollback, failover or failback may need steps that the
    DAG does not show, because they depend on the journal. The task of the next step that the DAG shows does them. A
    step that the run does not need is left out."""
    if order.kind == "migrate":
        return list(order.steps)
    run_plan = preview_run_plan(find_frozen_plan(order.plan).read(), order.kind, order.wave)
    shown = {step.name for step in run_plan.steps}
    found: list[str] = []
    for name in there:
        if name in order.steps:
            found.append(name)
            if name == order.steps[-1]:
                return found
        elif name in shown:
            found = [each for each in found if each in order.steps]
        else:
            found.append(name)
    return [each for each in found if each in order.steps]


_ASKED_THERE = "the step was refused, and to take back what was done takes a person, whom the task take_back asks:"


def take_back_wave(order: StepOrder, log: Any, ask: AskPerson = defer_confirmation) -> RunResult:
    """Give up the run: the driver takes back what was done, or finishes a rollback (`cutover.run_abandonment`). Raises
    ConfirmationNeeded."""
    from watershed.cutover.run_abandonment import abandon_run
    from watershed.cutover.step_runner import RunResult

    if not order.plan or order.plan == "None":
        return RunResult("refused", "compile", NOTHING_BEGUN)

    def say(event: RunEvent) -> None:
        log.info("%s: %s: %s", event.step, event.kind, escape_control_lines(event.text))

    order.standby.dismiss()

    def opened(**hooks: Any) -> RunDriver:
        return order.migration(
            abandon=True, ask=ask, **hooks
        )  # to take a run back, any file that moves the same is enough

    return abandon_run(opened, "the task of this step failed or was ended", say, order.journal_run)


NOTHING_BEGUN = "nothing had begun"


def require_warm_standby(order: StepOrder, migration: RunDriver) -> None:
    """Raises StandbyNeeded while the application that will prove the tail is not warm, and may still become so."""
    wanted = plan_standby_proof(migration, order.journal_run)
    if wanted is not None and not (order.standby.begun and order.standby.told):
        raise StandbyNeeded(wanted)


def begin_standby_early(order: StepOrder, migration: RunDriver, log: Any) -> None:
    """It becomes warm while consumers move, where the fence follows then without a person and without a long wait."""
    names = [step.name for step in migration.steps]
    first = order.steps[0]
    if first not in names or "approval" not in names or names.index(first) <= names.index("approval"):
        return
    if order.standby.begun or not is_close_to_fence(migration.steps, first):
        return
    wanted = plan_standby_proof(migration, order.journal_run, upto=first)
    if wanted is not None:
        begin_standby(order, wanted, log)


def begin_standby(order: StepOrder, wanted: RequestProof, log: Any) -> None:
    """Starts the application that is warm when producers are fenced, once a wave."""
    arguments = [*build_proof_arguments(find_proof_base(order, wanted)), "--stay", str(STANDBY_STAY_S)]
    order.standby.begin(arguments, find_frozen_plan(order.plan).topology, log)


def _prove_by_standby(
    order: StepOrder, at: str, wanted: RequestProof, sleep: Callable[[float], None]
) -> ProofOutcome | None:
    """The verdict on the tail from the warm application; None when it reached no verdict. Raises StillWaiting."""
    folder, topology = order.folder(at), find_frozen_plan(order.plan).topology
    arguments = build_proof_arguments(find_proof_base(order, wanted))
    if not order.standby.prove(folder, arguments, topology, sleep):
        return None
    order.standby.dismiss()
    return read_standby_verdict(folder, order.plan)


def _read_step_proof(folder: Path, wanted: RequestProof, plan_hash: str, *, may_stay: bool) -> ProofOutcome:
    """The verdict of the newest attempt in the step's folder. Raises ProofNeeded while there is none."""
    from watershed.cutover.evidence.proof_summary import read_proof_summary

    tried = list_attempts(folder)
    if tried and has_proven_and_stays(tried[-1]):
        return read_proof_summary(tried[-1].folder / STANDBY_SUMMARY_FILE, plan_hash)
    if not tried or tried[-1].alive():
        raise ProofNeeded(wanted, folder, may_stay=may_stay)
    last = tried[-1]
    if last.exit_code() not in (0, 1, 3):
        (last.folder / "collected").touch()
        if len(tried) < _PROOF_ATTEMPTS + is_standby_attempt(tried[0]):
            raise ProofNeeded(wanted, folder, may_stay=may_stay)
    return read_proof_summary(last.folder / "summary.json", plan_hash)


def find_proof_base(order: StepOrder, wanted: RequestProof) -> RequestProof:
    """The proof with what it builds on as far as this host has it. An earlier proof that another host made is not read:
    then the application that stands by on this host has proven the same before the fence, or everything is read."""
    from watershed.cutover.evidence.proof_summary import PROVEN_VERDICTS, read_proof_summary

    if wanted.since is None or Path(wanted.since).exists():
        return wanted
    own = order.standby.process.folder / STANDBY_SUMMARY_FILE
    proven = own.exists() and read_proof_summary(own, order.plan).verdict in PROVEN_VERDICTS
    return replace(wanted, since=str(own) if proven else None)


def build_proof_arguments(wanted: RequestProof) -> list[str]:
    """Arguments of `spark.verify`; `{topology}` and `{out}` are filled in when it starts."""
    arguments = ["--topology", "{topology}", "--out", "{out}", "--flow", wanted.flow]
    arguments += ["--topics", ",".join(wanted.topics), "--level", wanted.level]
    arguments += ["--final"] if wanted.final else []
    return arguments + (["--since", wanted.since] if wanted.since else [])


def defer_approval(wanted: AskApproval) -> ApprovalAnswer:
    """Never answers: raises ApprovalNeeded, so that the task asks a person."""
    raise ApprovalNeeded(wanted)


@dataclass(frozen=True, slots=True)
class ApprovalAnswers:
    """What people decided in one DAG run. It is kept until the step that asked is done: a step may ask several people,
    and each of them answers in a separate task."""

    folder: Path

    @classmethod
    def of(cls, order: StepOrder) -> ApprovalAnswers:
        """The answers of the order's DAG run."""
        return cls(locate_run_folder(order.dag, order.run) / "answers")

    def keep(self, order: StepOrder, by: str, seen: ApprovalAnswer) -> None:
        """Keeps an answer for this step; a later answer of the same person replaces it."""
        write_json_file(self._path(order, by), {"granted": seen.granted, "by": seen.by, "note": seen.note})

    def given(self, order: StepOrder, by: str) -> ApprovalAnswer | None:
        """The answer of `by` to this step; None while there is none."""
        from watershed.cutover.observations import ApprovalAnswer

        try:
            return ApprovalAnswer(0, **json.loads(self._path(order, by).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def _path(self, order: StepOrder, by: str) -> Path:
        return self.folder / make_file_name(f"{order.wave}.{order.steps[0]}.{by}.json")
