"""`topology journal`: what migrations did, and whether the record of it is whole."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.plans import connector, plan_at

if TYPE_CHECKING:
    from cutover.journal import Entry


@click.command(epilog="Example: topology journal orders.yaml --verify")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--verify", is_flag=True, help="Only check the hash chain; exit 1 when it does not hold.")
@click.option("--run", "run_id", default=None, metavar="NAME", help="Only the entries of this run.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def journal(path: Path, verify: bool, run_id: str | None, form: str) -> int:
    """Print the journal of a topology's migrations, oldest entry first.

    Every entry carries the hash of the one before. An entry that was changed or removed ends the listing with exit 1
    and its offset; what stands before it is still shown.
    """
    from cutover.errors import BrokenChain, NotSupported
    from cutover.journal import Chain
    from cutover.journal_topic import TopicLog

    plan = plan_at(path)
    if plan.migration is None:
        raise NotSupported(f"topology {plan.topology} declares no migration, so it has no journal")
    target = plan.flow(plan.migration.flow).target
    chain, broken = Chain(plan.topology), None
    try:
        chain.follow(TopicLog(connector(plan)(target)).read(0))
    except BrokenChain as error:
        broken = error
    shown = [] if verify else [entry for entry in chain.entries if run_id in (None, entry.run)]
    if form == "json":
        document = {
            "schema": 1,
            "topology": plan.topology,
            "cluster": target,
            "root": chain.root,
            "count": len(chain.entries),
            "void": chain.void,
            "whole": broken is None,
            "broken_at": None if broken is None else broken.offset,
            "entries": [entry.to_json() for entry in shown],
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        for entry in shown:
            click.echo(_line(entry))
        if broken is None:
            click.echo(f"{len(chain.entries)} entries, chain whole, root {chain.root}")
    if broken is not None:
        raise broken
    return 0


def _line(entry: Entry) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(entry.at_ms / 1000))
    what = f"{entry.step} {entry.deed}".strip()
    seen = entry.observation
    refused = seen.get("refused") or seen.get("failed")
    note = f"refused: {refused}" if refused else seen.get("state") or " ".join(_names(seen))
    return f"{when}  {entry.run}  {entry.seq:4}  {entry.kind:7}  {what:34} {note}".rstrip()


def _names(seen: dict[str, object]) -> list[str]:
    return [str(seen[key]) for key in ("name", "group", "side") if key in seen]
