"""What a run does: along which flow applications move, which of them, by which steps.

A migration goes along the declared flow; a rollback, a failover and a failback are other steps over the same machinery
(`cutover.step_runner`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from watershed.cutover.errors import NotSupported
from watershed.cutover.migration_step_order import Step, StepText, list_strategy_steps
from watershed.cutover.policy import WavePolicy, build_wave_policy
from watershed.cutover.rollback.earlier_run import EarlierRun
from watershed.cutover.step_definitions import STEP_TEXTS
from watershed.topology.migration_waves import PlanMigration, ProofGate, Wave, WaveStrategy
from watershed.topology.plan import Plan, PlanFlow

RunKind = Literal["migrate", "rollback", "failover", "failback", "drill"]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """wave: in the topic names of the source of `flow`. journal: alias of the cluster with the topology's journal:
    always the target of the migration's flow, so that every run of a topology is in one chain and takes one lock.
    earlier: the run that this one takes back. texts: of its steps, where the direction matters (a rollback)."""

    kind: RunKind
    flow: PlanFlow
    wave: Wave
    policy: WavePolicy
    steps: tuple[Step, ...]
    journal: str
    earlier: EarlierRun | None = None
    texts: Mapping[str, StepText] = field(default_factory=dict)

    def find_text(self, step: str) -> StepText:
        """The texts of a step: this run plan's own, or those of a migration."""
        return self.texts.get(step) or STEP_TEXTS[step]


def plan_migration(
    plan: Plan, wave: str | None = None, policy: WavePolicy | None = None, strategy: WaveStrategy | None = None
) -> RunPlan:
    """The run plan of `topology migrate`. strategy: another one than the file's. Raises NotSupported, in words for the
    person who wrote the file."""
    migration, found = find_wave(plan, wave)
    if strategy is not None and found.is_late and strategy != found.strategy:
        raise NotSupported(
            f"wave {found.name} moves only groups, after their producers (consumers_last): it has no other order of "
            f"steps, and cannot be run as {strategy}"
        )
    policy = policy or build_wave_policy(found, migration)
    policy = replace(policy, strategy=strategy or policy.strategy)
    flow = plan.flow(migration.flow)
    steps = list_strategy_steps(policy, rights=flow.sync.acls.holds_back, protected=flow.protect)
    return RunPlan("migrate", flow, found, policy, steps, flow.target)


def find_wave(plan: Plan, wave: str | None) -> tuple[PlanMigration, Wave]:
    """The migration and the wave to run. Raises NotSupported, in words for the person who wrote the file."""
    migration = plan.migration
    if migration is None:
        raise NotSupported(f"topology {plan.topology} declares no migration; add a `migration:` section")
    names = [found.name for found in migration.waves]
    if not names:
        raise NotSupported(f"the migration of topology {plan.topology} has no waves")
    if wave is None and len(names) > 1:
        raise NotSupported(
            f"the migration of {plan.topology} has {len(names)} waves: name one with --wave ({', '.join(names)})"
        )
    if wave is not None and wave not in names:
        raise NotSupported(f"there is no wave {wave}; the migration has {', '.join(names)}")
    found = migration.waves[0] if wave is None else migration.wave(wave)
    for place, gates in (("before", found.gates_before), ("after", found.gates_after)):
        for gate in gates:
            if isinstance(gate, ProofGate) and gate.level == "L0":
                raise NotSupported(
                    f"wave {found.name}, gates.{place}: verify asks for level L0, which compares no record "
                    "and so proves nothing; use L1, L2 or L3"
                )
    return migration, found
