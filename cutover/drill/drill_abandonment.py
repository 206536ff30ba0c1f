"""Ending a rehearsal whose process has died, or that cannot go on: by its journal alone, so that it takes neither the
file as it was nor the process. Its producers and consumers died with the process; fences, flows and copies did not."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from watershed.clusters import producer_fence
from watershed.clusters.errors import ClusterError
from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.actions import JsonObject
from watershed.cutover.drill.copy_removal import delete_copies
from watershed.cutover.errors import Locked, NothingToResume
from watershed.cutover.fences.journaled_fence import find_standing_fence
from watershed.cutover.journal.hash_chain import (
    RUN_STEP,
    TAKEOVER_STEP,
    Journal,
    JournalChain,
    JournalEntry,
    describe_holder,
)
from watershed.cutover.run_claim import RunClaim, read_run_kind
from watershed.cutover.step_runner import RunResult

_Say = Callable[[str], None]
_Remove = Callable[[Mapping[str, ConnectionSettings], JsonObject], list[str]]


@dataclass(frozen=True, slots=True)
class _EndedDrills:
    """runs: those that were ended. left: what could not be removed, and why."""

    runs: tuple[str, ...]
    left: tuple[str, ...]


def end_drills(
    journal: Journal,
    settings: Mapping[str, ConnectionSettings],
    actor: str,
    why: str,
    say: _Say = lambda _text: None,
    removing: _Remove = delete_copies,
    only: tuple[str, ...] = (),
) -> _EndedDrills:
    """Take over every unfinished rehearsal of the topology, lower its fence, remove its copies, end it; and remove what
    finished ones (a failover ends them) have left. It ends also where something could not be removed: that is said.
    only: these runs and no others.

    Raises NothingToResume when there is nothing of a rehearsal, Locked when another run holds the lock, Superseded.
    """
    chain = journal.refresh()
    holding = chain.unfinished()
    if holding and read_run_kind(holding) != "drill":
        raise Locked(
            f"no rehearsal is unfinished, but {describe_holder(holding)}; what a rehearsal left has to wait for it"
        )
    open_runs = [each for each in _drills(chain) if not _over(each) and (not only or each[0].run in only)]
    if not open_runs and (only or not find_copies_left_behind(chain)):
        raise NothingToResume(f"topology {chain.topology} has no unfinished rehearsal, and none has left anything")
    runs, left = list[str](), list[str]()
    for entries in reversed(open_runs):  # the way back before the way there
        first = entries[0]
        claim = RunClaim(journal, first.run, actor, first.plan_hash, first.wave)
        # from here on its process acts no more
        claim.write(TAKEOVER_STEP, "intent", {"from": entries[-1].holder, "by": journal.holder})
        left += _lowered(claim, entries, settings, say)
        left += [each for what in _made(entries, chain) for each in _removed(claim, what, settings, say, removing)]
        ended = RunResult("abandoned", _step(entries), why)
        claim.write(RUN_STEP, "outcome", {**asdict(ended), "left": left})
        say(f"{first.run}: abandoned: {why}")
        runs.append(first.run)
    for of, what in ({} if only else find_copies_left_behind(journal.chain)).items():
        if of not in runs:  # its own run has ended: this is one for itself
            claim = RunClaim(journal, f"{of}.cleared-{secrets.token_hex(2)}", actor, what["plan"], "")
            claim.write(RUN_STEP, "intent", {"topology": chain.topology, "kind": "drill", "clears": of})
            left += _removed(claim, what, settings, say, removing)
            claim.write(RUN_STEP, "outcome", asdict(RunResult("done", "remove_copies")))
    return _EndedDrills(tuple(runs), tuple(left))


def find_copies_left_behind(chain: JournalChain) -> dict[str, JsonObject]:
    """Run → what it has made and nobody has removed since, as `MakeCopies` has it."""
    every = [entry for entries in _drills(chain) for entry in entries]
    gone = {_key(e.observation["what"]) for e in every if _has_removed(e, chain)}
    made = {e.run: e.observation["what"] for e in every if e.deed == "MakeCopies" and e.kind == "intent"}
    return {run: what for run, what in made.items() if _key(what) not in gone}


def _has_removed(entry: JournalEntry, chain: JournalChain) -> bool:
    if entry.deed != "RemoveCopies" or entry.kind != "outcome" or "failed" in entry.observation:
        return False
    step = next((e for e in chain.run(entry.run) if (e.step, e.kind, e.deed) == (entry.step, "outcome", "")), None)
    kept = [*entry.observation.get("left", ())]
    if step is not None:
        kept += step.observation.get("outcome", {}).get("left", ())
    return not kept


def _lowered(
    claim: RunClaim, entries: list[JournalEntry], settings: Mapping[str, ConnectionSettings], say: _Say
) -> list[str]:
    deed = find_standing_fence(entries)
    if deed is None:
        return []
    _, source, target = entries[0].observation["work"]["flow"]
    alias = source if deed["side"] == "source" else target
    claim.write("lower_fence", "intent", deed, "LowerFence")
    try:
        lowered = producer_fence.lower_acl_fence(settings[alias], deed["snapshot"]).told
    except ClusterError as error:
        claim.write("lower_fence", "outcome", {**deed, "failed": str(error)}, "LowerFence")
        return [f"the fence of {claim.run} at {alias}: {error}"]
    claim.write("lower_fence", "outcome", deed, "LowerFence")
    say(lowered)
    return []


def _removed(
    claim: RunClaim, what: JsonObject, settings: Mapping[str, ConnectionSettings], say: _Say, removing: _Remove
) -> list[str]:
    claim.write("remove_copies", "intent", {"what": what}, "RemoveCopies")
    left = removing(settings, what)
    claim.write("remove_copies", "outcome", {"what": what, "left": left}, "RemoveCopies")
    say(f"removed: {', '.join(each['copy'] for each in what['copies'])}, flows {', '.join(what['flows'])}")
    for each in left:
        say(f"left: {each}")
    return left


def _made(entries: list[JournalEntry], chain: JournalChain) -> list[JsonObject]:
    found = find_copies_left_behind(chain).get(entries[0].run)
    return [] if found is None else [found]


def _drills(chain: JournalChain) -> list[list[JournalEntry]]:
    """Their entries, oldest run first."""
    runs: dict[str, list[JournalEntry]] = {}
    for entry in chain.entries:
        runs.setdefault(entry.run, []).append(entry)
    return [entries for entries in runs.values() if read_run_kind(entries) == "drill"]


def _over(entries: list[JournalEntry]) -> bool:
    return any(entry.step == RUN_STEP and entry.kind == "outcome" for entry in entries)


def _step(entries: list[JournalEntry]) -> str:
    return next((entry.step for entry in reversed(entries) if entry.step not in (RUN_STEP, TAKEOVER_STEP)), RUN_STEP)


def _key(what: JsonObject) -> str:
    return json.dumps(sorted(each["copy"] for each in what["copies"]))
