"""The topology's journal as Airflow's side reads it: whose turn it is, and what is done, whatever task states say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from watershed.topology.text_escaping import escape_control_lines

if TYPE_CHECKING:
    from watershed.cutover.journal.hash_chain import Journal, JournalChain, JournalEntry
    from watershed.topology.plan import Plan


def open_migration_journal(plan: Plan, holder: str) -> Journal:
    """Always on the target of the migration's flow. Raises ClusterError without the key that the file refers to."""
    from watershed.clusters.settings import resolve_connection_settings
    from watershed.cutover.journal.topology_journal import open_journal

    assert plan.migration is not None
    target = plan.flow(plan.migration.flow).target
    return open_journal(plan, resolve_connection_settings(plan.cluster(target)), holder)


def read_chain_or_fail(plan: Plan) -> JournalChain:
    """The journal as it is now. Raises AirflowException, AirflowFailException."""
    from watershed.clusters.errors import ClusterError
    from watershed.cutover.errors import CutoverError

    try:
        return open_migration_journal(plan, "airflow").refresh()
    except ClusterError as problem:
        raise AirflowException(escape_control_lines(str(problem))) from None
    except CutoverError as problem:
        raise AirflowFailException(escape_control_lines(str(problem))) from None


def find_done_waves(plan: Plan, chain: JournalChain) -> dict[str, str]:
    """Wave → the newest run that moved it, of those that are where they should be (`cutover.list_wave_states`)."""
    from watershed.cutover.run_claim import read_run_kind
    from watershed.cutover.wave_states import list_wave_states

    states = {state.name for state in list_wave_states(plan, chain) if state.state == "done"}
    done: dict[str, str] = {}
    for run in dict.fromkeys(entry.run for entry in chain.entries):
        entries = chain.run(run)
        if read_run_kind(entries) in ("migrate", "failover") and read_end_state(entries[-1]) == "done":
            done |= {wave: run for wave in entries[0].wave.split("+") if wave in states}
    return done


def read_end_state(last: JournalEntry) -> str | None:
    """How a run ended, by its last entry; None while it has not."""
    from watershed.cutover.journal.hash_chain import RUN_STEP

    return str(last.observation.get("state")) if last.step == RUN_STEP and last.kind == "outcome" else None
