"""Opens a run on real clusters. The command line and Airflow open their runs here and nowhere else."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.actions import RequestProof
from watershed.cutover.driver import Approve, RunDriver, RunEvent, RunPorts, approve_all
from watershed.cutover.hooks.hook_caller import HookCaller
from watershed.cutover.journal.topology_journal import open_journal
from watershed.cutover.live.action_handler import LiveActionHandler
from watershed.cutover.live.application_control import (
    ApplicationControl,
    DeclaredApplications,
    find_journaled_confirmation,
)
from watershed.cutover.live.applications.allowed_programs import Caller
from watershed.cutover.live.applications.person_application import AskPerson
from watershed.cutover.observations import ProofOutcome
from watershed.cutover.run_choice import RunChoice, plan_run
from watershed.cutover.run_claim import ClaimRequest
from watershed.cutover.run_plan import RunPlan
from watershed.topology.plan import Plan


def open_run(
    plan: Plan,
    wanted: RunPlan | RunChoice,
    settings: Mapping[str, ConnectionSettings],
    *,
    prove: Callable[[RequestProof], ProofOutcome],
    applications: ApplicationControl | None = None,
    ask: AskPerson | None = None,
    caller: Caller = "terminal",
    approve: Approve = approve_all,
    say: Callable[[RunEvent], None] = lambda _event: None,
    sleep: Callable[[float], None] = time.sleep,
    holder: str | None = None,
    run_id: str | None = None,
    actor: str = "",
    resume: bool = False,
    abandon: bool = False,
    evidence: Path | Callable[[], Path] | None = None,
) -> RunDriver:
    """The driver of a run, over the clusters of `settings` (by alias) and the topology's journal.

    wanted: a choice becomes a run plan by what the journal says now. applications None: each in the way that the file
    declares. ask: puts what a person has to do to somebody; None: nobody can be asked. caller: who runs the migration,
    for what the host allows. holder: who writes to the journal; processes with one holder continue each other. run_id,
    resume, abandon: see `ClaimRequest`. Raises what `plan_run` raises, SecretMissing without the journal's key.
    """
    assert plan.migration is not None
    migration = plan.migration
    target = settings[plan.flow(migration.flow).target]
    journal = open_journal(plan, target, holder or secrets.token_hex(8))
    run_plan = plan_run(plan, wanted, journal.refresh(), run_id) if isinstance(wanted, RunChoice) else wanted
    driver: RunDriver  # hooks are told the run's name, which the driver learns when it claims the run
    hooks = HookCaller(
        migration.hooks, plan.topology, run_plan.wave.name, lambda: driver.run_id or "", time.monotonic, sleep
    )
    applications = applications or DeclaredApplications(
        migration.applications,
        {alias: tuple(each.bootstrap) for alias, each in settings.items()},
        ask,
        caller,
        lambda: f"{plan.topology}/{driver.run_id or ''}/{run_plan.wave.name}/",
        lambda order: find_journaled_confirmation(journal.chain.run(driver.run_id or ""), order),
    )
    handler = LiveActionHandler(plan, run_plan.flow, settings, applications, time.monotonic, hooks)
    ports = RunPorts(handler, journal, prove, approve, say, sleep=sleep)
    actor = actor or f"{os.environ.get('USER', 'someone')} (pid {os.getpid()})"
    driver = RunDriver(plan, run_plan, ports, ClaimRequest(actor, run_id, resume, abandon), evidence)
    return driver
