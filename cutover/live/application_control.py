"""Telling applications to stop and to start, each in the way that the topology file declares for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from watershed.cutover.journal.hash_chain import JournalEntry
from watershed.cutover.live.airflow_rest import AirflowRest
from watershed.cutover.live.applications.airflow_application import AirflowApplication
from watershed.cutover.live.applications.allowed_programs import Caller
from watershed.cutover.live.applications.application_adapter import (
    ApplicationAdapter,
    ApplicationOrder,
    ApplicationState,
)
from watershed.cutover.live.applications.command_application import CommandApplication
from watershed.cutover.live.applications.http_application import HttpApplication
from watershed.cutover.live.applications.kubernetes_application import KubernetesApplication
from watershed.cutover.live.applications.person_application import AskPerson, PersonApplication
from watershed.topology.application_controls import UNDECLARED_APPLICATION, PlanApplication


class ApplicationControl(Protocol):
    """What stops and starts applications: `DeclaredApplications`, or a rehearsal's own (`cutover.drill`). Every method
    raises ApplicationControlFailed."""

    def look(self, name: str) -> ApplicationState:
        """State of the application."""

    def tell(self, order: ApplicationOrder) -> ApplicationState:
        """Stops or starts it; `stopping` and `starting` mean that it is under way."""

    def follow(self, order: ApplicationOrder) -> ApplicationState:
        """How far an order is that was under way."""


@dataclass(frozen=True, slots=True)
class DeclaredApplications:
    """declared: application (or group) → how it is stopped and started; one that is absent, by a person.

    bootstraps: cluster alias → its bootstrap servers. ask None: nobody can be asked, so applications of persons cannot
    be moved. caller: who runs the migration. prefix: of the keys of orders: topology, run and wave, asked for at each
    order. find_confirmation: see `PersonApplication`. environ: what the host allows, and secrets."""

    declared: Mapping[str, PlanApplication] = field(default_factory=dict)
    bootstraps: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ask: AskPerson | None = None
    caller: Caller = "terminal"
    prefix: Callable[[], str] = lambda: ""
    find_confirmation: Callable[[ApplicationOrder], str | None] = lambda _order: None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    wall: Callable[[], float] = time.time
    _adapters: dict[str, ApplicationAdapter] = field(default_factory=dict, init=False, repr=False, compare=False)

    def look(self, name: str) -> ApplicationState:
        """State of the application, as its adapter knows it."""
        return self._adapter(name).read()

    def tell(self, order: ApplicationOrder) -> ApplicationState:
        """Gives the order to the application's adapter."""
        return self._adapter(order.name).tell(self._keyed(order))

    def follow(self, order: ApplicationOrder) -> ApplicationState:
        """How far the order is."""
        return self._adapter(order.name).follow(self._keyed(order))

    def _keyed(self, order: ApplicationOrder) -> ApplicationOrder:
        prefix = self.prefix()
        opposites = tuple((alias, f"{prefix}{key}") for alias, key in order.opposites)
        return replace(order, key=f"{prefix}{order.key}", opposites=opposites)

    def _adapter(self, name: str) -> ApplicationAdapter:
        if name not in self._adapters:
            self._adapters[name] = self._build_adapter(name)
        return self._adapters[name]

    def _build_adapter(self, name: str) -> ApplicationAdapter:
        app = self.declared.get(name, UNDECLARED_APPLICATION)
        seconds = app.bound_ms / 1000
        match app:
            case PlanApplication(http=str(url)):
                return HttpApplication(name, url, seconds, app.authentication, self.environ, self.wall)
            case PlanApplication(command=str(program)):
                return CommandApplication(name, program, seconds, self.caller, self.environ)
            case PlanApplication(airflow=control) if control is not None:
                return AirflowApplication(name, control, AirflowRest(self.environ))
            case PlanApplication(kubernetes=control) if control is not None:
                return KubernetesApplication(name, control, self.bootstraps, self.environ)
            case _:
                return PersonApplication(name, app.person or "", app.bound_ms, self.ask, self.find_confirmation)


NO_APPLICATIONS = DeclaredApplications()


def find_journaled_confirmation(entries: Sequence[JournalEntry], order: ApplicationOrder) -> str | None:
    """Who confirmed this order before in this run, as the journal says; None where nobody did, or where the application
    was told the opposite since. A run that is resumed asks nobody twice."""
    deeds = {"StopApplication": "stop", "StartApplication": "start"}
    for entry in reversed(entries):
        told = entry.observation
        if entry.deed in deeds and entry.kind == "outcome" and told.get("name") == order.name and "failed" not in told:
            same = (deeds[entry.deed], told.get("side")) == (order.verb, order.side)
            return str(told.get("said") or "confirmed before") if same else None
    return None
