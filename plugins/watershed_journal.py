"""The topology's journal as Airflow's side reads it: whose turn it is, and what is done, whatever task states say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from topology.quoting import lines_visible

if TYPE_CHECKING:
    from cutover.journal.chain import Chain, Entry, Journal
    from topology.plan import Plan


def journal_of(plan: Plan, holder: str) -> Journal:
    """Always on the target of the migration's flow. Raises ClusterError without the key that the file refers to."""
    from clusters.settings import connection_settings
    from cutover.journal.opening import open_journal

    assert plan.migration is not None
    target = plan.flow(plan.migration.flow).target
    return open_journal(plan, connection_settings(plan.cluster(target)), holder)


def chain_of(plan: Plan) -> Chain:
    """The journal as it is now. Raises AirflowException, AirflowFailException."""
    from clusters.errors import ClusterError
    from cutover.errors import CutoverError

    try:
        return journal_of(plan, "airflow").refresh()
    except ClusterError as problem:
        raise AirflowException(lines_visible(str(problem))) from None
    except CutoverError as problem:
        raise AirflowFailException(lines_visible(str(problem))) from None


def done_waves(plan: Plan, chain: Chain) -> dict[str, str]:
    """Wave → the newest run that moved it, of those that are where they should be (`cutover.waves`)."""
    from cutover.runs import kind_of
    from cutover.waves import wave_states

    states = {state.name for state in wave_states(plan, chain) if state.state == "done"}
    done: dict[str, str] = {}
    for run in dict.fromkeys(entry.run for entry in chain.entries):
        entries = chain.run(run)
        if kind_of(entries) in ("migrate", "failover") and ended(entries[-1]) == "done":
            done |= {wave: run for wave in entries[0].wave.split("+") if wave in states}
    return done


def ended(last: Entry) -> str | None:
    """How a run ended, by its last entry; None while it has not."""
    from cutover.journal.chain import RUN

    return str(last.observation.get("state")) if last.step == RUN and last.kind == "outcome" else None
