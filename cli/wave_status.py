"""The waves of a migration on the command line: which one is meant, and how far each is."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from watershed.clusters.settings import ConnectionSettings
    from watershed.cutover.journal.hash_chain import JournalChain
    from watershed.cutover.wave_states import WaveState
    from watershed.topology.plan import Plan

_COLOURS = {"done": "green", "unfinished": "yellow", "next": "cyan"}


def read_migration_journal(plan: Plan, target: ConnectionSettings) -> JournalChain:
    """The topology's journal as it is now. Raises CutoverError, and ClusterError (also without its key)."""
    from watershed.cutover.journal.topology_journal import read_journal_chain

    return read_journal_chain(plan, target)


def show_wave_states(plan: Plan, chain: JournalChain, form: str) -> int:
    """Prints every wave with its state, and where its topics are written to. Returns the exit code 0."""
    from watershed.cutover.wave_states import describe_late_groups, list_wave_states

    states = list_wave_states(plan, chain, int(time.time() * 1000))
    if form == "json":
        waves = [state.to_json() for state in states]
        click.echo(json.dumps({"schema": 1, "topology": plan.topology, "waves": waves}, indent=2))
        return 0
    width = max(4, *(len(state.name) for state in states))
    click.echo(f"{'wave':<{width}}  {'state':<10}  {'truth':<12}  what is known")
    for state in states:
        name = click.style(f"{state.state:<10}", fg=_COLOURS.get(state.state))
        click.echo(f"{state.name:<{width}}  {name}  {state.truth:<12}  {_known(state)}")
    click.echo()
    for state in states:
        click.echo(f"topics of {state.name}, written to at {state.truth}: {', '.join(state.topics)}")
    source = plan.flow(plan.migration.flow).source if plan.migration is not None else ""
    for late in filter(None, (describe_late_groups(state, source) for state in states)):
        click.echo(late)
    return 0


def _known(state: WaveState) -> str:
    if state.run is None:
        told = "never begun"
    elif state.ended is None:
        told = f"{state.kind} {state.run} is at step {state.step}" + _describe_silence(state)
    else:
        told = f"{state.kind} {state.run} ended {state.ended.replace('_', ' ')}"
    return told + (f"; comes after {', '.join(state.waits_for)}" if state.waits_for else "")


def _describe_silence(state: WaveState) -> str:
    """What is wrong with a run that should have written something by now; empty where nothing is."""
    from watershed.cutover.utc_instant import render_utc_instant

    if not state.overdue or state.last_ms is None:
        return ""
    return (
        f", and has written nothing since {render_utc_instant(state.last_ms)}, for longer than this step may take: its "
        f"process is dead or hangs. End it if it still runs, then go on with `topology {state.kind} FILE --resume`"
    )
