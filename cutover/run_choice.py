"""Which run is meant: what a person or a DAG asks for, and the run plan that file and journal make of it.

The command line and Airflow choose a run here and nowhere else, so that both begin, preview and continue the same one.
"""

from __future__ import annotations

from dataclasses import dataclass

from watershed.cutover.drill.drill_plan import plan_drill
from watershed.cutover.failover.failback_plan import plan_failback, preview_failback
from watershed.cutover.failover.failover_plan import plan_failover
from watershed.cutover.journal.hash_chain import JournalChain
from watershed.cutover.rollback.rollback_plan import StrandedChoice, plan_rollback, preview_rollback
from watershed.cutover.run_claim import find_begun_strategy
from watershed.cutover.run_plan import RunKind, RunPlan, plan_migration
from watershed.cutover.wave_states import find_next_wave
from watershed.topology.migration_waves import WaveStrategy
from watershed.topology.plan import Plan


@dataclass(frozen=True, slots=True)
class RunChoice:
    """What is asked for. wave: its name, or several of a failover or failback as one (`a+b`); None: the only one or the
    next one of a migration, everything that has not moved of a failover, the newest of a failback.

    strategy: another one than the file's. stranded: what becomes of groups that have passed records which only the old
    source has; None refuses them. accept_loss: that many records may be missing after a failover; None: a person is
    asked. though_source_answers: the failover goes on although the source answers.
    """

    kind: RunKind
    wave: str | None = None
    strategy: WaveStrategy | None = None
    stranded: StrandedChoice | None = None
    accept_loss: int | None = None
    though_source_answers: bool = False


def preview_run(plan: Plan, choice: RunChoice) -> RunPlan:
    """The run plan as the file alone has it, for a dry run, a DAG and the page: no cluster and no journal is read.

    A way back is shown as that of a run which went through. Raises NotSupported.
    """
    match choice.kind:
        case "migrate":
            return plan_migration(plan, choice.wave, strategy=choice.strategy)
        case "rollback":
            return preview_rollback(plan, choice.wave)
        case "failover":
            return _plan_failover(plan, choice)
        case "failback":
            return preview_failback(plan, choice.wave)
        case "drill":
            return plan_drill(plan)


def plan_run(plan: Plan, choice: RunChoice, chain: JournalChain, run: str | None = None) -> RunPlan:
    """The run plan of the run that begins now, or goes on (under the name `run`), by what the journal says.

    Raises NotSupported; WaveDone where every wave has moved; NothingToRollBack, PlanChanged and WaveBlocked for a way
    back.
    """
    match choice.kind:
        case "migrate":
            wave = choose_wave(plan, choice.wave, chain)
            return plan_migration(plan, wave, strategy=choice.strategy or find_begun_strategy(chain, wave))
        case "rollback":
            return plan_rollback(plan, choice.wave, chain, stranded=choice.stranded)
        case "failover":
            return _plan_failover(plan, choice, chain, run)
        case "failback":
            return plan_failback(plan, choice.wave, chain, stranded=choice.stranded)
        case "drill":
            return plan_drill(plan)


def choose_wave(plan: Plan, wave: str | None, chain: JournalChain) -> str:
    """The wave that was named, the only one, or the next one by the journal. Raises WaveDone when all have moved."""
    waves = plan.migration.waves if plan.migration else ()
    if wave is not None or len(waves) == 1:
        return wave or waves[0].name
    return find_next_wave(plan, chain)


def _plan_failover(plan: Plan, choice: RunChoice, chain: JournalChain | None = None, run: str | None = None) -> RunPlan:
    return plan_failover(
        plan,
        choice.wave,
        None,
        chain,
        run,
        accept_loss=choice.accept_loss,
        though_source_answers=choice.though_source_answers,
    )
