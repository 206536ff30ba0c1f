"""What must be true before a source may be taken down, who decides it, and what a person may do then."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from watershed.plugins.operators.person_notifier import PersonAwaitedNotifier
from watershed.plugins.operators.proof import find_run_verdict
from watershed.plugins.operators.spark_application import TRIGGER_SETTLE_S, list_attempts
from watershed.plugins.operators.straggler_watch import DEFER_LIMIT, MovedWave, list_moved_waves, render_utc_time
from watershed.plugins.state_folder import find_frozen_plan, is_state_shared, locate_run_folder
from watershed.plugins.steps.run_journal import open_migration_journal, read_chain_or_fail
from watershed.plugins.steps.step_driver import name_airflow_actor
from watershed.topology.text_escaping import escape_control_lines

if TYPE_CHECKING:
    from watershed.topology.migration_waves import PlanMigration
    from watershed.topology.plan import Plan


class RequirementsOperator(BaseOperator):
    """Waits for `decommission.not_before`, then checks `decommission.requires` by journal and proofs. Returns the
    evidence as Markdown. Skipped while a wave is not done: its own end asks again."""

    template_fields: Sequence[str] = ("plan",)

    def __init__(self, *, plan: str, proof: str, **kwargs: Any) -> None:
        super().__init__(retries=2, **kwargs)
        self.plan, self.proof = plan, proof

    def execute(self, context: Any) -> str:
        """Defers itself until `not_before`. Fails when a requirement is not met, and names each."""
        from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger

        plan = find_frozen_plan(self.plan).read()
        migration = plan.migration
        assert migration is not None
        assert migration.decommission is not None
        moved = list_moved_waves(plan, read_chain_or_fail(plan))
        missing = {wave.name for wave in migration.waves} - {wave.wave for wave in moved}
        if missing:
            left = _name_late_groups(migration, missing)
            raise AirflowSkipException(
                f"not done yet: {', '.join(sorted(missing))}{left}; the last wave's end asks again"
            )
        wait_ms = max(w.sealed_ms for w in moved) + migration.decommission.not_before_ms - time.time() * 1000
        if wait_ms > 0:
            self.log.info("the source stays for %s more", timedelta(seconds=int(wait_ms / 1000)))
            self.defer(
                trigger=TimeDeltaTrigger(timedelta(milliseconds=max(wait_ms, TRIGGER_SETTLE_S * 1000))),
                method_name="come_back",
                timeout=DEFER_LIMIT,
            )
        ti = context["ti"]
        proof = _read_newest_verdict(ti, self.proof) if self.proof else None
        rows, unmet = check_requirements(moved, migration.decommission.requires, proof, time.time() * 1000)
        if unmet:
            raise AirflowFailException("the source may not be taken down: " + "; ".join(unmet))
        return "\n".join(["| what | seen |", "|---|---|", *(f"| {what} | {seen} |" for what, seen in rows)])

    def come_back(self, context: Any, event: Any) -> str:
        """`not_before` is over: everything is read anew."""
        return self.execute(context)


def _name_late_groups(migration: PlanMigration, waves: set[str]) -> str:
    """The groups of those of these waves that move late groups, for people."""
    groups = [group for wave in migration.waves if wave.name in waves and wave.is_late for group in wave.consumers]
    return f" (groups that stay longer: {', '.join(groups)})" if groups else ""


def check_requirements(
    moved: Sequence[MovedWave], requires: Sequence[str], proof: str | None, now_ms: float
) -> tuple[list[tuple[str, str]], list[str]]:
    """Returns (what was seen, which requirements are not met). proof: the verdict of this run's proof of the reverse
    flow, "" without a verdict; None where the file has no reverse flow."""
    from watershed.cutover.evidence.proof_summary import PROVEN_VERDICTS

    rows = [(f"wave {wave.wave}", f"{wave.run}, sealed {render_utc_time(wave.sealed_ms)}") for wave in moved]
    unmet = []
    for wave in moved:
        late = "switch" in wave.outcomes.get("preflight", {})  # its proof is about what came back to its groups
        tail = wave.outcomes.get("history_proof" if late else "tail_proof", {})
        seen = f"{tail.get('verdict', 'none')}, {tail.get('unproven', '?')} unproven, level {tail.get('level', '?')}"
        rows.append((f"proof of wave {wave.wave}" + ("" if late else " up to its barrier"), seen))
        proven = tail.get("verdict") in PROVEN_VERDICTS and tail.get("unproven") == 0
        if "verify_full" in requires and not proven:
            unmet.append(f"verify_full: the proof of wave {wave.wave} says {seen}")
        if "all_waves_soaked" in requires and wave.soaked_ms > now_ms:
            unmet.append(
                f"all_waves_soaked: wave {wave.wave} can be rolled back until {render_utc_time(wave.soaked_ms)}"
            )
    rows.append(("proof of the way back", "there is none" if proof is None else proof or "nothing"))
    if "verify_full" in requires and proof is not None and not _is_passed(proof):
        unmet.append(f"verify_full: the proof of the way back says {proof or 'nothing'}")
    return rows, unmet


def _is_passed(proof: str) -> bool:
    """Whether this is what `_read_newest_verdict` makes of a proof that a migration takes as proven."""
    from watershed.cutover.evidence.proof_summary import PROVEN_VERDICTS

    verdict, _, rest = proof.partition(", ")
    return verdict in PROVEN_VERDICTS and rest == "0 unproven"


def _read_newest_verdict(ti: Any, task: str) -> str:
    """`proven, 0 unproven` of the newest attempt of a proof's task in this run; "" without one."""
    from watershed.cutover.evidence.proof_summary import read_proof_summary

    if not is_state_shared():
        told = find_run_verdict(ti, task)
        return f"{told['verdict']}, {told['unproven']} unproven" if told else ""
    tried = list_attempts(locate_run_folder(ti.dag_id, ti.run_id) / task)
    if not tried:
        return ""
    seen = read_proof_summary(tried[-1].folder / "summary.json")
    return f"{seen.verdict}, {seen.unproven} unproven"


class DecommissionApprovalOperator(ApprovalOperator):
    """A person decides whether the source may be taken down, and sees what was checked. The journal has the decision,
    the name and the evidence before the next task says what may be removed."""

    template_fields: Sequence[str] = (*ApprovalOperator.template_fields, "plan")

    def __init__(self, *, plan: str, evidence: str, question: str, **kwargs: Any) -> None:
        super().__init__(subject=question, fail_on_reject=True, notifiers=PersonAwaitedNotifier(), **kwargs)
        self.plan, self.evidence = plan, evidence

    def execute(self, context: Any) -> Any:
        """Asks in the Airflow UI, with the evidence as the body of the question."""
        self.body = self.seen(context)
        return super().execute(context)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> Any:
        """Writes the answer to the journal, then lets Airflow fail the task of a refusal."""
        if "error" not in event:
            who = (event.get("responded_by_user") or {}).get("name") or "somebody"
            granted = event["chosen_options"] == [self.APPROVE]
            self.log.info("%s by %s", "granted" if granted else "refused", who)
            journal_decommission_answer(
                find_frozen_plan(self.plan).read(), context["ti"], who, granted=granted, evidence=self.seen(context)
            )
        return super().execute_complete(context, event)

    def seen(self, context: Any) -> str:
        """The evidence that the task `evidence` returned; "" without one."""
        return str(context["ti"].xcom_pull(self.evidence) or "")


def journal_decommission_answer(plan: Plan, ti: Any, who: str, *, granted: bool, evidence: str) -> None:
    """Journal the decision, once a DAG run. Raises AirflowFailException when a wave was taken back meanwhile, or is
    being moved; AirflowException for what another try may settle."""
    from watershed.clusters.errors import ClusterError
    from watershed.cutover.errors import CutoverError, Superseded
    from watershed.cutover.journal.decommission import DECOMMISSION, write_decommission
    from watershed.cutover.observations import ApprovalAnswer

    assert plan.migration is not None
    actor = name_airflow_actor(ti.dag_id)
    try:
        journal = open_migration_journal(plan, f"{actor} {ti.run_id}")
        moved = list_moved_waves(plan, journal.refresh())
        back = {wave.name for wave in plan.migration.waves} - {wave.wave for wave in moved}
        if back and granted:
            raise AirflowFailException(
                f"not done any more: {', '.join(sorted(back))}{_name_late_groups(plan.migration, back)}; the source is "
                "needed, and nothing was journaled"
            )
        source = plan.flow(plan.migration.flow).source
        told = {"source": source, "waves": {wave.wave: wave.run for wave in moved}, "evidence": evidence}
        answer = ApprovalAnswer(0, granted=granted, by=who, note="in the Airflow UI or by its API")
        name = f"{DECOMMISSION}.{ti.run_id}"
        write_decommission(journal, name, "operator", answer, told, actor=actor, plan_hash=plan.hash)
    except (Superseded, ClusterError) as problem:
        raise AirflowException(escape_control_lines(str(problem))) from None
    except CutoverError as problem:
        raise AirflowFailException(f"{problem}. Clear this task to be asked again when that is over") from None


class TellDecommissionOperator(BaseOperator):
    """Says what a person may do now. Watershed itself deletes nothing."""

    template_fields: Sequence[str] = ("plan",)

    def __init__(self, *, plan: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan

    def execute(self, context: Any) -> list[str]:
        """Logs what may be removed by hand, in order, and returns it."""
        told = list_cleanup_tasks(find_frozen_plan(self.plan).read())
        for line in told:
            self.log.info("%s", escape_control_lines(line))
        return told


def list_cleanup_tasks(plan: Plan) -> list[str]:
    """What a person may do to remove the source, in this order."""
    assert plan.migration is not None
    flow = plan.flow(plan.migration.flow)
    back = sorted({w.rollback.reverse for w in plan.migration.waves if w.rollback and w.rollback.reverse})
    fences = sorted({w.fence.kind for w in plan.migration.waves} - {"stop"})
    topics = sorted({topic for wave in plan.migration.waves for topic in wave.topics})
    return [
        *(f"stop flow {name} (`topology flow stop {name} FILE`): there is no way back then" for name in back),
        *(f"leave the {kind} fence at {flow.source} up until its topics are gone" for kind in fences),
        f"delete at {flow.source}, when nobody needs its history: {', '.join(topics)}",
        f"delete the consumer groups' positions at {flow.source}, and the rights of the applications there",
        f"remove the migration from the file, then {flow.source}; journal and evidence stay at {flow.target}",
    ]
