"""Tasks that run a command as it is: an inspection, or a rehearsal (`plugins.steps.command_runs`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from watershed.plugins.operators.cutover_steps import find_triggering_user
from watershed.plugins.operators.operations import AUTO, encode_evidence, name_decider, name_operator, require_approval
from watershed.plugins.state_folder import find_frozen_plan, locate_task_folder
from watershed.plugins.steps.command_runs import CommandRun, build_inspection, explain_exit_code
from watershed.topology.text_escaping import escape_controls


class CommandOperator(BaseOperator):
    """What both below share: the process, its end with the task, its exit code."""

    template_fields: Sequence[str] = ("plan",)

    def __init__(self, *, plan: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.running: CommandRun | None = None

    def run_command(self, arguments: Sequence[str], folder: Path, actor: str) -> list[str]:
        """Returns what it printed. Fails the task for an exit code other than 0."""
        printed: list[str] = []

        def say(line: str) -> None:
            printed.append(escape_controls(line))
            self.log.info("%s", escape_controls(line))

        self.running = CommandRun(arguments, folder, say, actor)
        code = self.running.run()
        if code:
            raise AirflowFailException(explain_exit_code(code))
        return printed

    def on_kill(self) -> None:
        """Somebody clears or marks the task: the command ends as after Ctrl-C."""
        if self.running is not None:
            self.running.end()


class InspectOperator(CommandOperator):
    """Runs an inspection; its files are in the task's folder, whose path is the result."""

    def execute(self, context: Any) -> str:
        """Fails where the command found something wrong, as it ends with 1 then."""
        folder, params = locate_task_folder(context), context["params"]
        try:
            arguments = build_inspection(params["operation"], find_frozen_plan(self.plan).topology, folder, params)
        except ValueError as problem:
            raise AirflowFailException(str(problem)) from None
        self.run_command(arguments, folder, name_operator(context["ti"].dag_id, find_triggering_user(context)))
        self.log.info("kept in %s", folder)
        return str(folder)


class ShowDrillOperator(CommandOperator):
    """Says what a rehearsal would make and do. Its result is the evidence of the approval."""

    def execute(self, context: Any) -> dict[str, Any]:
        """Connects to nothing."""
        folder = locate_task_folder(context)
        arguments = [*build_drill_arguments(context["params"], dry=True), str(find_frozen_plan(self.plan).topology)]
        lines = self.run_command(arguments, folder, "")
        return encode_evidence("rehearse this on copies of the topics?", lines, (), "", is_needed=True)


class DrillOperator(CommandOperator):
    """Rehearses a wave. Its producers and consumers are in the command's process, so it holds its worker slot. What it
    made is removed, also when the task is ended; `abandon__<name>` does so after a lost worker. answer: the task that
    asked. approval: `auto` where nobody was to be asked."""

    template_fields: Sequence[str] = ("plan", "approval")

    def __init__(self, *, answer: str, approval: str, **kwargs: Any) -> None:
        super().__init__(retries=0, **kwargs)
        self.answer, self.approval = answer, approval

    def execute(self, context: Any) -> str:
        """Returns the folder of the evidence. Fails where nobody approved."""
        folder, ti = locate_task_folder(context), context["ti"]
        file = str(find_frozen_plan(self.plan).topology)
        arguments = [*build_drill_arguments(context["params"]), "--approve=auto", f"--evidence={folder}", file]
        answer = ti.xcom_pull(self.answer)
        if self.approval != AUTO:
            require_approval(answer)
        self.run_command(arguments, folder, name_decider(context, answer, self.approval))
        return str(folder)


def build_drill_arguments(params: Any, *, dry: bool = False) -> list[str]:
    """`topology migrate --drill` with what was chosen, without the file. dry: only what it would do."""
    chosen = ["migrate", "--drill", f"--wave={params['wave']}"]
    if params["strategy"] != "as in the file":
        chosen.append(f"--strategy={params['strategy']}")
    if dry:
        return [*chosen, "--dry-run"]
    return [*chosen, f"--drill-records={params['records']}", *(["--keep"] if params["keep"] else [])]
