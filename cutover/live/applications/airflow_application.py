"""An application that DAGs stop and start: a run is triggered, and waited for. The run gets the order in its `conf`
under `watershed`; its id follows from the order's key, so an order that is repeated finds the run of the first.

No order overtakes another: one is not triggered before the runs of this migration with the other verb have ended.
"""

from __future__ import annotations

from dataclasses import dataclass

from watershed.clusters.bounded_http import NoHttpAnswer
from watershed.clusters.errors import SecretMissing
from watershed.cutover.live.airflow_rest import (
    BAD_RUN_STATES,
    GOOD_RUN_STATES,
    AirflowRefused,
    AirflowRest,
    build_dag_run_id,
)
from watershed.cutover.live.applications.application_adapter import (
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    UNKNOWN,
    ApplicationControlFailed,
    ApplicationOrder,
    ApplicationState,
)
from watershed.topology.application_controls import AirflowControl


@dataclass(frozen=True, slots=True)
class AirflowApplication:
    """rest: where Airflow is, and as whom it is asked."""

    name: str
    control: AirflowControl
    rest: AirflowRest

    def read(self) -> ApplicationState:
        """Unknown: Airflow knows its runs, and not the application. Raises where a run could not be triggered."""
        for target in (self.control.stop, self.control.start):
            try:
                problem = self.rest.find_dag_problem(target)
            except (NoHttpAnswer, AirflowRefused, SecretMissing) as error:
                raise self._fail(error) from None
            if problem is not None:
                raise ApplicationControlFailed(f"application {self.name}: {problem}", transient=False)
        return ApplicationState(UNKNOWN, None, "airflow")

    def tell(self, order: ApplicationOrder) -> ApplicationState:
        """Triggers the run of this order, and says how far it is. Under way, too, while an opposite one has to end."""
        try:
            earlier = self._find_opposite(order)
            if earlier is not None:
                return self._describe_under_way(order, f"waits for the end of {earlier}")
            self.rest.trigger(self._target(order), self._run(order), order.to_json())
            return self._read_run(order)
        except (NoHttpAnswer, AirflowRefused, SecretMissing) as error:
            raise self._fail(error) from None

    def follow(self, order: ApplicationOrder) -> ApplicationState:
        """How far the run of this order is; triggers it, if it had to wait."""
        try:
            if self.rest.has_run(self._target(order), self._run(order)):
                return self._read_run(order)
        except (NoHttpAnswer, AirflowRefused, SecretMissing) as error:
            raise self._fail(error) from None
        return self.tell(order)

    def _find_opposite(self, order: ApplicationOrder) -> str | None:
        """A run of this migration with the other verb that has not ended."""
        verb, target = ("start", self.control.start) if order.verb == "stop" else ("stop", self.control.stop)
        for alias, key in order.opposites:
            run = build_dag_run_id(f"{verb}.{order.name}.{alias}", key)
            if self.rest.is_under_way(target, run):
                return f"{target}, run {run}"
        return None

    def _read_run(self, order: ApplicationOrder) -> ApplicationState:
        target, run = self._target(order), self._run(order)
        state = self.rest.read_state(target, run)
        text = f"{target}, run {run}: {state}"
        if state in BAD_RUN_STATES:
            raise ApplicationControlFailed(
                f"application {self.name}: {text}. Clear it in Airflow when its cause is repaired, and repeat",
                transient=False,
            )
        if state in GOOD_RUN_STATES:
            stops = order.verb == "stop"
            return ApplicationState(STOPPED if stops else RUNNING, None if stops else order.alias, "airflow", text)
        return self._describe_under_way(order, text)

    def _describe_under_way(self, order: ApplicationOrder, text: str) -> ApplicationState:
        return ApplicationState(STOPPING if order.verb == "stop" else STARTING, None, "airflow", text)

    def _target(self, order: ApplicationOrder) -> str:
        return self.control.stop if order.verb == "stop" else self.control.start

    def _run(self, order: ApplicationOrder) -> str:
        return build_dag_run_id(f"{order.verb}.{order.name}.{order.alias}", order.key)

    def _fail(self, error: Exception) -> ApplicationControlFailed:
        transient = isinstance(error, NoHttpAnswer) and error.transient
        return ApplicationControlFailed(f"application {self.name}: {error}", transient=transient)
