"""A hook as a run of a DAG (`cutover.live.airflow_rest`). A run that failed stays failed until somebody clears it in
Airflow; the hook then goes on with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from watershed.clusters.bounded_http import NoHttpAnswer
from watershed.clusters.errors import SecretMissing
from watershed.cutover.hooks.hook_messages import HookCall, HookReply
from watershed.cutover.live.airflow_rest import (
    BAD_RUN_STATES,
    GOOD_RUN_STATES,
    AirflowRefused,
    AirflowRest,
    build_dag_run_id,
    split_dag_task,
)

_PAUSES = (0.2, 0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class AirflowHook:
    """task: `dag_id` or `dag_id/task_id`: only that task is waited for. seconds: bound of it all."""

    task: str
    seconds: float
    environ: Mapping[str, str]
    clock: Callable[[], float]
    sleep: Callable[[float], None]

    def problems(self) -> list[str]:
        """Why the hook cannot be called: credentials, a DAG that is missing or paused. Asks Airflow up to three
        times."""
        rest = AirflowRest(self.environ)
        for last, pause in zip((False, False, True), _PAUSES, strict=False):
            try:
                problem = rest.find_dag_problem(self.task)
            except (SecretMissing, NoHttpAnswer, AirflowRefused) as error:
                if last or not isinstance(error, NoHttpAnswer):
                    return [str(error)]
                self.sleep(pause)
            else:
                return [] if problem is None else [problem]
        return []

    def call(self, asked: HookCall) -> HookReply:
        """Triggers the DAG run (its id comes from the call's key, so it runs once) and waits for its end."""
        try:
            split_dag_task(self.task)
        except AirflowRefused as error:
            return HookReply("no", f"airflow_task: {error}", 0)
        rest = AirflowRest(self.environ)
        run = build_dag_run_id(f"{asked.topology}.{asked.wave}.{asked.point}.{asked.name}", asked.key)
        ends, tries, begun = self.clock() + self.seconds, 0, False
        text = "not asked"
        while True:
            tries += 1
            try:
                if not begun:
                    rest.trigger(self.task, run, asked.to_json())
                state = rest.read_state(self.task, run)
                begun = True
                text = f"{self.task}, run {run}: {state}"
                if state in GOOD_RUN_STATES:
                    return HookReply("yes", text, tries)
                if state in BAD_RUN_STATES:
                    return HookReply(
                        "no", f"{text}. Clear it in Airflow and call again, or start a new migration", tries
                    )
            except NoHttpAnswer as silence:
                text = str(silence)
                if not silence.transient:
                    return HookReply("no", text, tries)
            except (AirflowRefused, SecretMissing) as error:
                return HookReply("no", str(error), tries)
            pause = _PAUSES[min(tries, len(_PAUSES)) - 1]
            if self.clock() + pause >= ends:
                return HookReply("silence", f"{text} after {self.seconds:g} s; a run that was begun goes on", tries)
            self.sleep(pause)
