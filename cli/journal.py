"""`topology journal`: what migrations did, and whether the record of it is whole."""

from __future__ import annotations

import json
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from watershed.cli.actor import name_actor
from watershed.cli.journal_decisions import show_decisions
from watershed.cli.plan_settings import build_settings_lookup, compile_plan_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from watershed.clusters.settings import ConnectionSettings
    from watershed.cutover.errors import BrokenChain
    from watershed.cutover.journal.hash_chain import JournalChain, JournalEntry, VoidLine
    from watershed.cutover.journal.signing import Signing
    from watershed.topology.plan import Plan


@click.command(epilog="Example: topology journal orders.yaml --verify")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--verify", is_flag=True, help="Only check the hash chain of all runs; exit 1 when it does not hold.")
@click.option("--run", "run_id", default=None, metavar="NAME", help="Only the entries of this run.")
@click.option("--orders", "ordered", is_flag=True, help="What was ordered by hand instead: accept-gap, reseed, adopt, "
              "reset-group; needs no migration.")  # fmt: skip
@click.option(
    "--sign",
    "signed_root",
    default=None,
    metavar="ROOT",
    help="Vouch for the entries up to the one with this hash, which were written before `migration.journal` "
    "named a key; `none`: for none of them, and begin anew.",
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def journal(path: Path, verify: bool, run_id: str | None, ordered: bool, signed_root: str | None, form: str) -> int:
    """Print the journal of a topology's migrations, oldest entry first.

    Every entry carries the hash of the one before. An entry that was changed or removed ends the listing with exit 1
    and its offset; what stands before it is still shown. With --orders exit 1 when one of them was changed.

    Lines of others that name the topology do not count; they are named at the end, and stop nobody. With a key
    (`migration.journal`) only entries that are signed with it count; without access to it they are shown, and said
    not to be verified.
    """
    from watershed.cutover.errors import BrokenChain, NotSupported
    from watershed.cutover.journal.hash_chain import JournalChain
    from watershed.cutover.journal.journal_topic import JournalTopicLog

    plan = compile_plan_at(path)
    if ordered:
        if verify or run_id is not None or signed_root is not None:
            raise click.UsageError("--orders goes without --verify, --run and --sign: those are about migrations")
        return _show_orders(plan, form)
    if plan.migration is None:
        raise NotSupported(
            f"topology {plan.topology} declares no migration, so it has no run to show; --orders shows what was "
            "ordered by hand"
        )
    target = plan.flow(plan.migration.flow).target
    if signed_root is not None:
        return _sign(plan, build_settings_lookup(plan)(target), signed_root)
    signing, unverified = _signing(plan)
    chain, broken = JournalChain(plan.topology, signing=signing), None
    try:
        chain.follow(JournalTopicLog(build_settings_lookup(plan)(target)).read(0))
    except BrokenChain as error:
        broken = error
    shown = [] if verify else [entry for entry in chain.entries if run_id in (None, entry.run)]
    if form == "json":
        _show_json(plan, target, chain, shown, broken, verified=unverified is None or not chain.signed)
    else:
        for entry in shown:
            click.echo(_line(entry))
        for run in _runs(chain) if verify else []:
            state = run["state"] or f"unfinished, at step {run['step']}"
            click.echo(f"{run['run']}: {run['kind']} of wave {run['wave']}, {run['entries']} entries, {state}")
        _show_chain_state(chain, unverified, is_whole=broken is None)
    if broken is not None:
        raise broken
    return 0


def _show_orders(plan: Plan, form: str) -> int:
    targets = map(build_settings_lookup(plan), sorted({flow.target for flow in plan.flows}))
    return show_decisions(plan.topology, frozenset(flow.id for flow in plan.flows), targets, form)


def _show_json(
    plan: Plan,
    target: str,
    chain: JournalChain,
    shown: Sequence[JournalEntry],
    broken: BrokenChain | None,
    *,
    verified: bool,
) -> None:
    document = {
        "schema": 1,
        "topology": plan.topology,
        "cluster": target,
        "root": chain.root,
        "count": len(chain.entries),
        "void": len(chain.void),
        "void_lines": [each.to_json() for each in chain.void],
        "signed": chain.signed,
        "verified": verified,
        "whole": broken is None,
        "broken_at": None if broken is None else broken.offset,
        "runs": _runs(chain),
        "entries": [entry.to_json() for entry in shown],
    }
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def _show_chain_state(chain: JournalChain, unverified: str | None, *, is_whole: bool) -> None:
    """What does not count, what is not verified, and the root where the chain is whole."""
    for line in chain.foreign:
        click.echo(_named(line))
    if chain.signed and unverified is not None:
        click.echo(f"{chain.signed} entries are signed; not verified here: no key. {unverified}")
    if is_whole:
        click.echo(f"{len(chain.entries)} entries, chain whole, root {chain.root}")
    aside = chain.unsigned
    if aside is not None and aside.entries:
        click.echo(
            f"{len(aside.entries)} entries were written without a key, up to {aside.root}: nothing goes on before "
            f"somebody vouches for them (`topology journal FILE --sign {aside.root}`) or for none (`--sign none`)"
        )


def _signing(plan: Plan) -> tuple[Signing, str | None]:
    """The keys, and why they are not here: who only reads goes on without them."""
    from watershed.clusters.errors import SecretMissing
    from watershed.cutover.journal.signing import TRUSTING, read_signing_keys

    try:
        return read_signing_keys(plan), None
    except SecretMissing as missing:
        return TRUSTING, str(missing)


def _sign(plan: Plan, settings: ConnectionSettings, root: str) -> int:
    """Raises CutoverError and ClusterError."""
    from watershed.cutover.journal.topology_journal import open_journal

    actor = f"{name_actor()} (pid {os.getpid()})"
    journal = open_journal(plan, settings, secrets.token_hex(8))
    entry = journal.sign(None if root == "none" else root, actor=actor, plan_hash=plan.hash)
    left = len(journal.chain.foreign)
    click.echo(f"signed: {entry.seq} entries count, {left} lines do not; root {journal.chain.root}")
    return 0


def _named(line: VoidLine) -> str:
    about = f" (run {line.run}, step {line.step})" if line.run or line.step else ""
    return f"not counted: offset {line.offset}{about}: {line.why}"


def _runs(chain: JournalChain) -> list[dict[str, Any]]:
    """Every run, oldest first: what it was, and how it ended (state None: it has not)."""
    from watershed.cutover.journal.hash_chain import RUN_STEP, TAKEOVER_STEP

    found: dict[str, list[JournalEntry]] = {}
    for entry in chain.entries:
        found.setdefault(entry.run, []).append(entry)
    runs = []
    for name, entries in found.items():
        last = entries[-1]
        over = last.step == RUN_STEP and last.kind == "outcome"
        step = next((each.step for each in reversed(entries) if each.step not in (RUN_STEP, TAKEOVER_STEP)), RUN_STEP)
        runs.append(
            {
                "run": name,
                "kind": entries[0].observation.get("kind", "migrate"),
                "wave": entries[0].wave,
                "entries": len(entries),
                "state": last.observation.get("state") if over else None,
                "step": step,
            }
        )
    return runs


def _line(entry: JournalEntry) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(entry.at_ms / 1000))
    what = f"{entry.step} {entry.deed}".strip()
    seen = entry.observation
    refused = seen.get("refused") or seen.get("failed")
    note = f"refused: {refused}" if refused else seen.get("state") or " ".join(_names(seen))
    return f"{when}  {entry.run}  {entry.seq:4}  {entry.kind:7}  {what:34} {note}".rstrip()


def _names(seen: dict[str, object]) -> list[str]:
    return [str(seen[key]) for key in ("kind", "wave", "name", "group", "flow", "side", "topics") if seen.get(key)]
