"""The tasks of `watch__<name>`: a run ends as failed when a budget has stopped a flow that says `slo.on_breach: fail`.

So whatever Airflow does about a failed run (callbacks, notifiers, a dashboard) hears of it, and each breach fails one
run. Nothing here changes a cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from watershed.plugins.operators.straggler_watch import DEFER_LIMIT
from watershed.plugins.shared_client_processes import ask_client_process
from watershed.plugins.state_folder import bring_plan, find_frozen_plan
from watershed.topology.text_escaping import escape_control_lines

_FUNCTION: Final = "watershed.plugins.operators.flow_status:read_failed_budgets"
TOLD_KEY: Final = "told"  # XCom: the breaches for which a run has failed


class BudgetWatchOperator(BaseOperator):
    """Wait, without a worker slot, until a budget stops a flow of the plan; then fail, for good.

    The run that has failed says in its XCom `told` for which breaches, so the next one waits for others.
    """

    template_fields: Sequence[str] = ("plan",)

    def __init__(self, *, plan: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan

    def execute(self, context: Any) -> None:
        """Leaves the worker at once; the triggerer follows `watershed.flows`."""
        told = context["ti"].xcom_pull(task_ids=self.task_id, key=TOLD_KEY, include_prior_dates=True)
        self.defer(trigger=BudgetBroken(self.plan, list(told or ())), method_name="fail_by_breach", timeout=DEFER_LIMIT)

    def fail_by_breach(self, context: Any, event: dict[str, Any]) -> None:
        """Raises AirflowFailException, which names each breach and the command that answers it."""
        context["ti"].xcom_push(key=TOLD_KEY, value=event["told"])
        raise AirflowFailException(escape_control_lines(event["problem"]))


class BudgetBroken(BaseTrigger):
    """Asks the target clusters until a budget has stopped a flow. told: breaches that another run has told of."""

    def __init__(self, plan: str, told: list[str], poll_seconds: float = 5.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's has no annotations
        self.plan = plan
        self.told = told
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments, as Airflow's database keeps them."""
        kwargs = {"plan": self.plan, "told": self.told, "poll_seconds": self.poll_seconds}
        return "watershed.plugins.operators.budget_watch.BudgetBroken", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event: `told`, all breaches that are open or were told; `problem`, for people."""
        from watershed.clusters.errors import ClusterError

        await bring_plan(self, self.plan)
        topology, said = find_frozen_plan(self.plan).read().topology, ""
        while True:
            try:
                found = await asyncio.to_thread(ask_client_process, topology, _FUNCTION, {"plan": self.plan})
            except ClusterError as trouble:
                if str(trouble) != said:
                    self.log.warning("asking again: %s", escape_control_lines(str(trouble)))
                found, said = {}, str(trouble)
            if event := judge_breaches(found, self.told):
                yield TriggerEvent(event)
                return
            await asyncio.sleep(self.poll_seconds)


def judge_breaches(found: dict[str, str], told: Sequence[str]) -> dict[str, Any] | None:
    """The event, where a breach is open that nobody has told of; None where none is. found: `flow/number` of each open
    breach → what it says."""
    new = [text for name, text in sorted(found.items()) if name not in told]
    if not new:
        return None
    kept = sorted({*told} & {*found})  # numbers grow, so an answered one does not come again
    return {"told": sorted({*kept, *found}), "problem": "\n".join(new)}
