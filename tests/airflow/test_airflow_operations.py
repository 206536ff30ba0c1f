"""Operations in Airflow: shown, approved with that in view, done in the name of who approved; and whole commands."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.exceptions import HITLRejectException
from airflow.providers.standard.operators import hitl
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskAwaitingInput
from airflow.sdk.timezone import utcnow

from tests.airflow.test_airflow_dags import MIGRATION, TOPOLOGY, folder, load
from watershed.clusters.errors import ClusterError
from watershed.cutover.operations.plan_review import PlanReview
from watershed.cutover.operations.proposal import OperationRefused, Proposal
from watershed.plugins.operators import command_line, operations, plan_review
from watershed.plugins.operators.command_line import DrillOperator, InspectOperator, ShowDrillOperator
from watershed.plugins.operators.operations import (
    ApproveOperationOperator,
    CarryOutOperator,
    ShowOperationOperator,
    render_evidence,
)
from watershed.plugins.state_folder import find_frozen_plan, freeze_plan
from watershed.plugins.steps import command_runs
from watershed.plugins.steps.command_runs import ACTOR_VARIABLE, CommandRun
from watershed.topology.drift import FieldDrift
from watershed.topology.inventory import Inventory
from watershed.topology.lint import LintResult

__all__ = ["folder"]
ANN = {"responded_by_user": {"id": "1", "name": "ann"}}
YES: dict[str, Any] = {"chosen_options": ["Approve"], "basis": "10 to 24"} | ANN


class Context(dict[str, Any]):
    """Of one task; `results` are what the tasks before it returned."""

    def __init__(self, task: str, results: dict[str, Any] | None = None, **params: Any) -> None:
        results = results or {}
        ti = SimpleNamespace(
            dag_id="decide__orders", run_id="r", task_id=task, map_index=-1, id="1", xcom_pull=results.get
        )
        run = SimpleNamespace(triggering_user_name="bob")
        super().__init__(ti=ti, task_instance=ti, params=params, dag_run=run)


class Offered:
    """What would be done now, and what was."""

    def __init__(self) -> None:
        self.basis, self.needed, self.done = "10 to 24", True, list[str]()

    def propose(self, *_asked: Any) -> Proposal:
        def carry_out(actor: str) -> Iterator[str]:
            self.done.append(actor)
            yield "given up"

        lines = ("lost for good: ``` 15 records",)
        return Proposal("give up 15 records?", lines, self.basis, carry_out, ("a *note*",), self.needed)


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Offered:
    found = Offered()
    monkeypatch.setattr(operations, "propose_for_run", found.propose)
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **_detail: None)
    return found


def show() -> dict[str, Any]:
    task = ShowOperationOperator(task_id="show", plan="sha256:1", family="operation", file="orders.yaml")
    return task.execute(Context("show"))


def ask(seen: dict[str, Any], approval: str = "manual") -> ApproveOperationOperator:
    task = ApproveOperationOperator(task_id="approve", evidence="show", approval=approval)
    with pytest.raises(TaskAwaitingInput) as parked:
        task.execute(Context("approve", {"show": seen}))
    assert parked.value.kwargs == {"basis": seen["basis"]}
    return task


def carry_out(seen: dict[str, Any], answer: Any, approval: str = "manual") -> list[str]:
    task = CarryOutOperator(
        task_id="carry_out", plan="sha256:1", family="operation", file="orders.yaml", evidence="show",
        answer="approve", approval=approval,
    )  # fmt: skip
    return task.execute(Context("carry_out", {"show": seen, "approve": answer}))


def test_who_approves_sees_what_would_be_done_and_is_named(offered: Offered) -> None:
    seen = show()
    asked = ask(seen)
    assert asked.subject == "Give up 15 records?"
    assert asked.body == "```\nlost for good: ''' 15 records\n```\n\n**Note:** a \\*note\\*"
    event = {"chosen_options": ["Approve"], "params_input": {}, "responded_at": utcnow()} | ANN
    answer = asked.execute_complete(Context("approve"), event, basis="10 to 24")
    assert carry_out(seen, answer) == ["given up"]
    assert offered.done == ["ann, in Airflow (decide__orders)"]


def test_a_rejection_fails_the_task(offered: Offered) -> None:
    seen = show()
    event = {"chosen_options": ["Reject"], "params_input": {}, "responded_at": utcnow()} | ANN
    with pytest.raises(HITLRejectException):
        ask(seen).execute_complete(Context("approve", {"show": seen}), event)


def test_what_is_not_what_was_approved_is_not_done(offered: Offered) -> None:
    seen = show()
    offered.basis = "10 to 30"
    with pytest.raises(AirflowFailException, match=r"Shown: 10 to 24\. Now: 10 to 30\. Look again"):
        carry_out(seen, YES)
    assert offered.done == []
    with pytest.raises(AirflowFailException, match=r"Shown: 10 to 24\. Now: 10 to 30\. Look again"):
        carry_out(show(), YES)  # `show` was done again behind the question that was answered
    assert offered.done == []


@pytest.mark.parametrize(
    "answer", [None, {}, ANN, YES | {"chosen_options": ["Reject"]}, YES | {"basis": None}, "Approve", ["Approve"]]
)
def test_without_a_persons_yes_nothing_is_done(offered: Offered, frozen: str, answer: Any) -> None:
    """Whoever may write to the DAG may mark `approve` as done, or write its result."""
    with pytest.raises(AirflowFailException, match="nobody approved this, so nothing was done"):
        carry_out(show(), answer)
    assert offered.done == []
    drill = DrillOperator(task_id="drill", plan=frozen, answer="approve", approval="manual")
    with pytest.raises(AirflowFailException, match="nobody approved this, so nothing was done"):
        drill.execute(Context("drill", {"approve": answer}, wave="orders", strategy="fenced", records=1, keep=False))


@pytest.mark.parametrize(("user", "named"), [({"id": "7"}, "7"), ({}, "somebody"), (None, "somebody")])
def test_an_answer_without_a_name_is_not_the_triggering_users(offered: Offered, user: Any, named: str) -> None:
    carry_out(show(), YES | {"responded_by_user": user})
    assert offered.done == [f"{named}, in Airflow (decide__orders)"]


def test_nobody_is_asked_where_nothing_is_to_be_done_or_the_run_says_so(offered: Offered) -> None:
    seen = show()
    auto = ApproveOperationOperator(task_id="approve", evidence="show", approval="auto")
    assert auto.execute(Context("approve", {"show": seen})) is None
    carry_out(seen, None, "auto")
    assert offered.done == ["bob, in Airflow (decide__orders)"]
    offered.needed = False
    seen = show()
    task = ApproveOperationOperator(task_id="approve", evidence="show", approval="manual")
    assert task.execute(Context("approve", {"show": seen})) is None
    with pytest.raises(AirflowSkipException):
        carry_out(seen, None)


@pytest.mark.parametrize(
    ("problem", "raised", "again"),
    [
        (OperationRefused("say the topic"), AirflowFailException, False),
        (ClusterError("away"), AirflowException, True),
    ],
)
def test_only_a_cluster_that_does_not_answer_is_asked_again(
    offered: Offered, monkeypatch: pytest.MonkeyPatch, problem: Exception, raised: type[Exception], again: bool
) -> None:
    def fail(*_asked: Any) -> Proposal:
        raise problem

    monkeypatch.setattr(operations, "propose_for_run", fail)
    with pytest.raises(raised) as seen:
        show()
    assert isinstance(seen.value, AirflowFailException) is not again


def test_what_a_cluster_calls_things_stays_inside_the_fence() -> None:
    evidence = operations.encode_evidence("?", ["a\x1b[31m ```", "x" * 40_000], ["<b>\x07"], "", is_needed=True)
    text = render_evidence(evidence)
    assert "\x1b" not in text
    assert text.count("```") == 2
    assert "the rest is in the log of this task" in text
    assert "\\<b\\>" in text
    assert len(text) < 31_000
    noted = operations.encode_evidence("?", [], ["y" * 5_000] * 10_000, "", is_needed=True)
    assert noted["notes"][-1] == "9,900 more notes are in the log of the task that shows this"
    assert sum(map(len, noted["notes"])) < 102_000


def test_a_dag_that_decides_has_no_way_around_a_person(folder: Path) -> None:
    dags = load().dags
    for kind in ("decide", "abandon"):
        dag = dags[f"{kind}__orders"]
        assert "approval" not in dag.params
        assert dag.get_task("approve").approval == dag.get_task("carry_out").approval == "manual"
        assert dag.task_ids == ["compile", "show", "approve", "carry_out"]
    assert dags["operate__orders"].get_task("approve").approval == "{{ params.approval }}"


def test_apply_comes_behind_the_plan_and_its_approval(folder: Path) -> None:
    dag = load().dags["replicate__orders"]
    tasks = ["compile", "plan", "approve_apply", "apply", "start_fleets", "wait_running"]
    for task, following in itertools.pairwise(tasks):
        assert following in dag.get_task(task).downstream_task_ids


@pytest.fixture
def frozen(tmp_path: Path, state: Path) -> str:
    path = tmp_path / "orders.yaml"
    path.write_text(TOPOLOGY.replace("NAME", "orders") + MIGRATION)
    return freeze_plan(path).hash


def test_a_missing_right_ends_the_run_before_anything_is_asked(frozen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from watershed.cutover.operations import plan_review as reviews

    monkeypatch.setattr(reviews, "list_missing_apply_rights", lambda *_: ["CREATE on topic orders", "how to give it"])
    task = plan_review.ReviewPlanOperator(task_id="plan", plan=frozen, path="orders.yaml")
    with pytest.raises(AirflowFailException, match="CREATE on topic orders\nhow to give it"):
        task.execute(Context("plan"))


@pytest.mark.parametrize(("errors", "changes"), [(0, True), (0, False), (2, True)])
def test_the_plan_is_the_evidence(frozen: str, monkeypatch: pytest.MonkeyPatch, errors: int, changes: bool) -> None:
    from watershed.cutover.operations import plan_review as reviews

    review = SimpleNamespace(
        render=lambda: ["  + topic orders"], lint=SimpleNamespace(errors=errors), has_changes=changes, basis="b"
    )
    monkeypatch.setattr(reviews, "list_missing_apply_rights", lambda *_: [])
    monkeypatch.setattr(reviews, "list_apply_notes", lambda *_: ["slo is not executed"])
    monkeypatch.setattr(reviews, "review_plan", lambda *_: review)
    task = plan_review.ReviewPlanOperator(task_id="plan", plan=frozen, path="orders.yaml")
    if errors:
        with pytest.raises(AirflowFailException, match="2 rules are broken on the live clusters"):
            task.execute(Context("plan"))
        return
    seen = task.execute(Context("plan"))
    assert (seen["text"], seen["notes"], seen["is_needed"]) == ("  + topic orders", ["slo is not executed"], changes)
    assert seen["question"] == "apply orders (2 flows) to cloud, onprem?"


TOPIC = FieldDrift("cloud", "topic", "orders", "", None, "6 partitions")
CHANGES = {
    "as shown": [TOPIC],
    "made by an earlier try": [],
    "positions of groups move on": [TOPIC, FieldDrift("cloud", "group", "billing", "orders-0", "1", "7")],
    "another topic": [TOPIC, replace(TOPIC, name="clicks")],
    "another value": [replace(TOPIC, wanted="12 partitions")],
}


@pytest.mark.parametrize(("meanwhile", "approval"), itertools.product(CHANGES, ["manual", "auto"]))
def test_only_what_was_approved_is_applied(
    frozen: str, monkeypatch: pytest.MonkeyPatch, meanwhile: str, approval: str
) -> None:
    import watershed.replicator.apply as applying

    applied: list[str] = []

    def apply(plan: Any, *_more: Any) -> list[Any]:
        applied.append(plan.hash)
        return []

    monkeypatch.setattr(applying, "apply_plan", apply)
    basis = review_of(frozen, [TOPIC]).basis
    monkeypatch.setattr(plan_review, "review_frozen_plan", lambda *_: review_of(frozen, CHANGES[meanwhile]))
    task = plan_review.ApplyPlanOperator(
        task_id="apply", plan=frozen, path="orders.yaml", evidence="plan", answer="approve_apply", approval=approval
    )
    told = {"plan": {"is_needed": True, "basis": basis}, "approve_apply": YES | {"basis": basis}}
    if approval == "manual" and meanwhile.startswith("another"):
        with pytest.raises(AirflowFailException, match=r"nothing was applied\. Not shown: cloud: topic"):
            task.execute(Context("apply", told))
    else:
        task.execute(Context("apply", told))
    assert applied == ([] if approval == "manual" and meanwhile.startswith("another") else [frozen])


@pytest.mark.parametrize("needed", [True, False])
def test_without_an_approval_nothing_is_applied_but_what_needs_none(
    frozen: str, monkeypatch: pytest.MonkeyPatch, needed: bool
) -> None:
    monkeypatch.setattr(plan_review, "review_frozen_plan", lambda *_: review_of(frozen, [TOPIC]))
    task = plan_review.ApplyPlanOperator(
        task_id="apply", plan=frozen, path="orders.yaml", evidence="plan", answer="approve_apply", approval="manual"
    )
    seen = {"is_needed": needed, "basis": review_of(frozen, [TOPIC]).basis}
    with pytest.raises(AirflowFailException, match="nobody approved this" if needed else "Not shown: cloud: topic or"):
        task.execute(Context("apply", {"plan": seen}))


def review_of(frozen: str, found: list[FieldDrift]) -> PlanReview:
    return PlanReview(
        find_frozen_plan(frozen).read(),
        Inventory({}, live=True),
        found,
        LintResult("orders.yaml", {}, (), (), {}),
        [],
        [],
    )


def test_an_inspection_is_a_command_in_the_name_of_its_user(
    frozen: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`migrate --status` asks a cluster that does not exist: exit code 2, with what it said."""
    task = InspectOperator(task_id="inspect", plan=frozen)
    with pytest.raises(AirflowFailException, match="exit code 2: it could not be done; the log of this task"):
        task.execute(Context("inspect", operation="waves"))
    kept = state / "runs" / "decide__orders" / "r" / "inspect" / "output.txt"
    assert "127.0.0.1:10" in kept.read_text()
    with pytest.raises(AirflowFailException, match="groups needs flow"):
        task.execute(Context("inspect", operation="groups", flow=None))


def test_a_rehearsal_is_shown_and_rehearsed_by_the_command(frozen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    params = {"wave": "orders", "strategy": "fenced", "records": 100, "keep": True}
    seen = ShowDrillOperator(task_id="show", plan=frozen).execute(Context("show", **params))
    assert "rehearsal of orders" in seen["text"]
    assert "Nothing was touched." in seen["text"]
    runs: list[tuple[list[str], str]] = []

    def run(self: command_line.CommandOperator, arguments: list[str], _folder: Path, actor: str) -> list[str]:
        runs.append((arguments, actor))
        return []

    monkeypatch.setattr(command_line.CommandOperator, "run_command", run)
    drill = DrillOperator(task_id="drill", plan=frozen, answer="approve", approval="manual")
    drill.execute(Context("drill", {"approve": YES}, **params))
    [(arguments, actor)] = runs
    assert arguments[:4] == ["migrate", "--drill", "--wave=orders", "--strategy=fenced"]
    assert {"--drill-records=100", "--keep", "--approve=auto"} <= set(arguments)
    assert actor == "ann, in Airflow (decide__orders)"


def test_a_command_that_is_ended_hears_it_as_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = write_package(tmp_path)
    program.write_text(
        "import os, time\nprint(os.environ['WATERSHED_ACTOR'], flush=True)\n"
        "try:\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    print('taken back')\n    raise SystemExit(130)\n"
    )
    monkeypatch.setattr(command_runs, "IMPORT_ROOT", tmp_path)
    said: list[str] = []
    running = CommandRun(["x"], tmp_path / "run", said.append, "ann")
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(running.run()))
    thread.start()
    until(lambda: said)
    running.end()
    thread.join(60)
    assert (said, codes) == (["ann", "taken back"], [130])
    assert (tmp_path / "run" / "output.txt").read_text() == "ann\ntaken back\n"
    assert ACTOR_VARIABLE == "WATERSHED_ACTOR"
    running.end()  # it has ended


def test_a_command_outlives_a_task_that_is_killed(tmp_path: Path) -> None:
    """It has more to say than fits a pipe, and to remove what it made."""
    program = write_package(tmp_path)
    program.write_text(
        "import os, time\nprint(os.getpid(), flush=True)\n"
        "try:\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    print('x' * 1_000_000)\n    print('removed')\n"
    )
    script = (
        "import sys\nfrom pathlib import Path\nfrom watershed.plugins.steps import command_runs\n"
        "folder = Path(sys.argv[1])\ncommand_runs.IMPORT_ROOT = folder\n"
        "command_runs.CommandRun(['x'], folder / 'run', print, 'ann').run()\n"
    )
    printed = tmp_path / "run" / "output.txt"
    task = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], cwd=command_runs.IMPORT_ROOT)
    until(lambda: printed.exists() and printed.read_text().endswith("\n"))
    command = int(printed.read_text())
    task.kill()
    task.wait(60)
    os.kill(command, signal.SIGINT)
    until(lambda: printed.read_text().endswith("removed\n"))


def write_package(folder: Path) -> Path:
    """Where `watershed.cli.main` of a package of its own goes."""
    program = folder / "watershed" / "cli" / "main.py"
    program.parent.mkdir(parents=True)
    for each in (program.parent, program.parent.parent):
        (each / "__init__.py").touch()
    return program


def until(look: Callable[[], object]) -> None:
    deadline = time.monotonic() + 180
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.05)
