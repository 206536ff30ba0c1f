"""Makes drivers over fakes: each port of a run can be named by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from watershed.cutover.driver import RunDriver, RunPorts
from watershed.cutover.policy import WavePolicy
from watershed.cutover.run_claim import ClaimRequest
from watershed.cutover.run_plan import RunPlan, plan_migration
from watershed.topology.plan import Plan


def build_driver(
    plan: Plan,
    wave: str | None = None,
    *,
    run_plan: RunPlan | None = None,
    policy: WavePolicy | None = None,
    run_id: str | None = None,
    actor: str = "ann",
    resume: bool = False,
    abandon: bool = False,
    evidence: Path | None = None,
    **ports: Any,
) -> RunDriver:
    """ports: fields of `RunPorts`; `handler`, `journal` and `prove` must be there."""
    run_plan = run_plan or plan_migration(plan, wave, policy)
    return RunDriver(plan, run_plan, RunPorts(**ports), ClaimRequest(actor, run_id, resume, abandon), evidence)
