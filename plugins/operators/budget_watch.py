"""The tasks of `watch__<name>`: a run ends as failed when a budget has stopped a flow that says `slo.on_breach: fail`.

So whatever Airflow does about a failed run (callbacks, notifiers, a dashboard) hears of it, and each breach fails one
run. A run in which none comes ends as done after a day, so the next one asks the clusters that the file has then.
Nothing here changes a cluster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from watershed.plugins.operators.straggler_watch import DEFER_LIMIT
from watershed.plugins.shared_client_processes import ask_client_process
from watershed.plugins.state_folder import bring_plan, find_frozen_plan
from watershed.topology.text_escaping import escape_control_lines

_RUN_S: Final = 24 * 3600.0  # then the file is read again: it may have another target
_FUNCTION: Final = "watershed.plugins.operators.flow_status:read_failed_budgets"
TOLD_KEY: Final = "told"  # XCom: the breaches for which a run has failed


class BudgetWatchOperator(BaseOperator):
    """Wait, without a worker slot, until a budget stops a flow of the plan's topology; then fail, for good. After a day
    without one, end as done.

    The run that has ended says in its XCom `told` which breaches were told, so the next one waits for others.
    """

    template_fields: Sequence[str] = ("plan",)

    def __init__(self, *, plan: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan

    def execute(self, context: Any) -> None:
        """Leaves the worker at once; the triggerer follows `watershed.flows`."""
        told = context["ti"].xcom_pull(task_ids=self.task_id, key=TOLD_KEY, include_prior_dates=True)
        trigger = BudgetBroken(self.plan, list(told or ()), time.time() + _RUN_S)
        self.defer(trigger=trigger, method_name="end_watch", timeout=DEFER_LIMIT)

    def end_watch(self, context: Any, event: dict[str, Any]) -> None:
        """Raises AirflowFailException, which names each breach and the command that answers it."""
        context["ti"].xcom_push(key=TOLD_KEY, value=event["told"])
        if event["problem"]:
            raise AirflowFailException(escape_control_lines(event["problem"]))
        self.log.info("no budget has stopped a flow for a day; the next run reads the file again")


class BudgetBroken(BaseTrigger):
    """Asks the target clusters until a budget has stopped a flow, or the time is over. told: breaches that another run
    has told of. ends_s: when the time is over, in seconds since 1970."""

    def __init__(self, plan: str, told: list[str], ends_s: float, poll_seconds: float = 5.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's has no annotations
        self.plan = plan
        self.told = told
        self.ends_s = ends_s
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments, as Airflow's database keeps them."""
        kwargs = {"plan": self.plan, "told": self.told, "ends_s": self.ends_s, "poll_seconds": self.poll_seconds}
        return "watershed.plugins.operators.budget_watch.BudgetBroken", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event: `told`, all breaches that are open or were told; `problem`, for people, "" when the time is over.

        What cannot be asked is said once, and asked again. It does not hide what the other clusters answer."""
        from watershed.clusters.errors import ClusterError

        await bring_plan(self, self.plan)
        topology, said = find_frozen_plan(self.plan).read().topology, ""
        while True:
            try:
                seen = await asyncio.to_thread(ask_client_process, topology, _FUNCTION, {"plan": self.plan})
            except ClusterError as trouble:
                seen = {"breaches": {}, "unread": {"": str(trouble)}}
            trouble_now = "\n".join(text for _, text in sorted(seen["unread"].items()))
            if trouble_now not in ("", said):
                self.log.warning("asking again: %s", escape_control_lines(trouble_now))
            said = trouble_now
            event = judge_breaches(seen["breaches"], self.told, is_complete=not trouble_now)
            if event is None and time.time() >= self.ends_s:
                event = {"told": self.told, "problem": ""}
            if event is not None:
                yield TriggerEvent(event)
                return
            await asyncio.sleep(self.poll_seconds)


def judge_breaches(found: dict[str, str], told: Sequence[str], is_complete: bool = True) -> dict[str, Any] | None:
    """The event, where a breach is open that nobody has told of; None where none is. found: `flow/number` of each open
    breach → what it says. is_complete: every target has answered; else what was told of the others is kept."""
    new = [text for name, text in sorted(found.items()) if name not in told]
    if not new:
        return None
    kept = {*told} & {*found} if is_complete else {*told}  # numbers grow, so an answered one does not come again
    return {"told": sorted({*kept, *found}), "problem": "\n".join(new)}
