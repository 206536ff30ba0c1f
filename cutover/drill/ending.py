"""Ending a rehearsal whose process has died, or that cannot go on: by its journal alone, so that it takes neither the
file as it was nor the process. Its producers and consumers died with the process; fences, flows and copies did not."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from clusters import fences
from clusters.errors import ClusterError
from clusters.settings import ConnectionSettings
from cutover.actions import Json
from cutover.drill.removing import remove
from cutover.errors import Locked, NothingToResume
from cutover.fences.fencing import standing_fence
from cutover.journal.chain import RUN, TAKEN_OVER, Chain, Entry, Journal, holder_of
from cutover.procedure import Result
from cutover.runs import Claim, kind_of

_Say = Callable[[str], None]
_Remove = Callable[[Mapping[str, ConnectionSettings], Json], list[str]]


@dataclass(frozen=True, slots=True)
class _Ended:
    """runs: those that were ended. left: what could not be removed, and why."""

    runs: tuple[str, ...]
    left: tuple[str, ...]


def end_drill(
    journal: Journal,
    settings: Mapping[str, ConnectionSettings],
    actor: str,
    why: str,
    say: _Say = lambda _text: None,
    removing: _Remove = remove,
    only: tuple[str, ...] = (),
) -> _Ended:
    """Take over every unfinished rehearsal of the topology, lower its fence, remove its copies, end it; and remove what
    finished ones (a failover ends them) have left. It ends also where something could not be removed: that is said.
    only: these runs and no others.

    Raises NothingToResume when there is nothing of a rehearsal, Locked when another run holds the lock, Superseded.
    """
    chain = journal.refresh()
    holding = chain.unfinished()
    if holding and kind_of(holding) != "drill":
        raise Locked(f"no rehearsal is unfinished, but {holder_of(holding)}; what a rehearsal left has to wait for it")
    open_runs = [each for each in _drills(chain) if not _over(each) and (not only or each[0].run in only)]
    if not open_runs and (only or not left_behind(chain)):
        raise NothingToResume(f"topology {chain.topology} has no unfinished rehearsal, and none has left anything")
    runs, left = list[str](), list[str]()
    for entries in reversed(open_runs):  # the way back before the way there
        first = entries[0]
        claim = Claim(journal, first.run, actor, first.plan_hash, first.wave)
        # from here on its process acts no more
        claim.write(TAKEN_OVER, "intent", {"from": entries[-1].holder, "by": journal.holder})
        left += _lowered(claim, entries, settings, say)
        left += [each for what in _made(entries, chain) for each in _removed(claim, what, settings, say, removing)]
        ended = Result("abandoned", _step(entries), why)
        claim.write(RUN, "outcome", {**asdict(ended), "left": left})
        say(f"{first.run}: abandoned: {why}")
        runs.append(first.run)
    for of, what in ({} if only else left_behind(journal.chain)).items():
        if of not in runs:  # its own run has ended: this is one for itself
            claim = Claim(journal, f"{of}.cleared-{secrets.token_hex(2)}", actor, what["plan"], "")
            claim.write(RUN, "intent", {"topology": chain.topology, "kind": "drill", "clears": of})
            left += _removed(claim, what, settings, say, removing)
            claim.write(RUN, "outcome", asdict(Result("done", "remove_copies")))
    return _Ended(tuple(runs), tuple(left))


def left_behind(chain: Chain) -> dict[str, Json]:
    """Run → what it has made and nobody has removed since, as `MakeCopies` has it."""
    every = [entry for entries in _drills(chain) for entry in entries]
    gone = {_key(e.observation["what"]) for e in every if _has_removed(e, chain)}
    made = {e.run: e.observation["what"] for e in every if e.deed == "MakeCopies" and e.kind == "intent"}
    return {run: what for run, what in made.items() if _key(what) not in gone}


def _has_removed(entry: Entry, chain: Chain) -> bool:
    if entry.deed != "RemoveCopies" or entry.kind != "outcome" or "failed" in entry.observation:
        return False
    step = next((e for e in chain.run(entry.run) if (e.step, e.kind, e.deed) == (entry.step, "outcome", "")), None)
    told = [*entry.observation.get("left", ())]
    if step is not None:
        told += step.observation.get("outcome", {}).get("left", ())
    return not told


def _lowered(claim: Claim, entries: list[Entry], settings: Mapping[str, ConnectionSettings], say: _Say) -> list[str]:
    deed = standing_fence(entries)
    if deed is None:
        return []
    _, source, target = entries[0].observation["work"]["flow"]
    alias = source if deed["side"] == "source" else target
    claim.write("lower_fence", "intent", deed, "LowerFence")
    try:
        told = fences.lower_denials(settings[alias], deed["snapshot"]).told
    except ClusterError as error:
        claim.write("lower_fence", "outcome", {**deed, "failed": str(error)}, "LowerFence")
        return [f"the fence of {claim.run} at {alias}: {error}"]
    claim.write("lower_fence", "outcome", deed, "LowerFence")
    say(told)
    return []


def _removed(
    claim: Claim, what: Json, settings: Mapping[str, ConnectionSettings], say: _Say, removing: _Remove
) -> list[str]:
    claim.write("remove_copies", "intent", {"what": what}, "RemoveCopies")
    left = removing(settings, what)
    claim.write("remove_copies", "outcome", {"what": what, "left": left}, "RemoveCopies")
    say(f"removed: {', '.join(each['copy'] for each in what['copies'])}, flows {', '.join(what['flows'])}")
    for each in left:
        say(f"left: {each}")
    return left


def _made(entries: list[Entry], chain: Chain) -> list[Json]:
    found = left_behind(chain).get(entries[0].run)
    return [] if found is None else [found]


def _drills(chain: Chain) -> list[list[Entry]]:
    """Their entries, oldest run first."""
    runs: dict[str, list[Entry]] = {}
    for entry in chain.entries:
        runs.setdefault(entry.run, []).append(entry)
    return [entries for entries in runs.values() if kind_of(entries) == "drill"]


def _over(entries: list[Entry]) -> bool:
    return any(entry.step == RUN and entry.kind == "outcome" for entry in entries)


def _step(entries: list[Entry]) -> str:
    return next((entry.step for entry in reversed(entries) if entry.step not in (RUN, TAKEN_OVER)), RUN)


def _key(what: Json) -> str:
    return json.dumps(sorted(each["copy"] for each in what["copies"]))
