"""What a run does: along which flow applications move, which of them, by which steps.

A migration goes along the declared flow; a rollback, a failover and a failback are other steps over the same machinery
(`cutover.procedure`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from cutover.errors import NotSupported
from cutover.policy import Policy, policy_of
from cutover.steps import Step, steps_of
from cutover.words import PRESENTATION, Presentation
from topology.plan import Migration, Plan, PlanFlow, Strategy, Verify, Wave

if TYPE_CHECKING:
    from cutover.rollback.earlier import Earlier

Kind = Literal["migrate", "rollback", "failover", "failback", "drill"]


@dataclass(frozen=True, slots=True)
class Course:
    """wave: in the topic names of the source of `flow`. journal: alias of the cluster with the topology's journal:
    always the target of the migration's flow, so that every run of a topology is in one chain and takes one lock.
    earlier: the run that this one takes back. words: of its steps, where they are not those of a migration."""

    kind: Kind
    flow: PlanFlow
    wave: Wave
    policy: Policy
    steps: tuple[Step, ...]
    journal: str
    earlier: Earlier | None = None
    words: Mapping[str, Presentation] = field(default_factory=dict)

    def shown(self, step: str) -> Presentation:
        """How a step is told: in this course's own words, or in those of a migration."""
        return self.words.get(step) or PRESENTATION[step]


def migrate_course(
    plan: Plan, wave: str | None = None, policy: Policy | None = None, strategy: Strategy | None = None
) -> Course:
    """The course of `topology migrate`. strategy: another one than the file's. Raises NotSupported, in words for the
    person who wrote the file."""
    migration, found = wave_of(plan, wave)
    policy = policy or policy_of(found, migration)
    policy = replace(policy, strategy=strategy or policy.strategy)
    flow = plan.flow(migration.flow)
    return Course("migrate", flow, found, policy, steps_of(policy, rights=flow.sync.acls.holds_back), flow.target)


def wave_of(plan: Plan, wave: str | None) -> tuple[Migration, Wave]:
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
            if isinstance(gate, Verify) and gate.level == "L0":
                raise NotSupported(
                    f"wave {found.name}, gates.{place}: verify asks for level L0, which compares no record "
                    "and so proves nothing; use L1, L2 or L3"
                )
    return migration, found
