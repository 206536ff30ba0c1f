"""Rights to write that the flow holds back at its target until applications move (`sync.acls.include_write:
on_failover`): given right before a point of no return, and taken away again by whatever takes the move back.

What is to be given is in the journal before it is given, so whoever continues a run, or takes it back later, takes away
those and no others: a right that stood there before stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from cutover.actions import GiveRights, Json, LookAtRights, Recall, Say, Side, TakeRights
from cutover.errors import Refused
from cutover.failover.loss import instant
from cutover.ground import Ground
from cutover.journal.chain import Chain, Entry
from cutover.observations import Recalled, RightsSeen
from cutover.waiting import Asking, ask
from cutover.waves import JOINED, wave_states
from topology.bindings import about, shown
from topology.inventory import InventoryAcl
from topology.plan import Plan, PlanFlow

_NAMED = 5  # rights in one message


def look_at_rights(ground: Ground, topics: Iterable[str], problems: list[str]) -> Asking[Json]:
    """What would keep them from being given is found before a single client is stopped."""
    try:
        seen = yield from ask(_wanted(ground, topics), RightsSeen, ground.policy)
    except Refused as why:
        problems.append(f"rights to write that flow {ground.flow.id} holds back cannot be looked at: {why}")
        return {}
    if seen.missing and seen.unable:
        problems.append(
            f"{seen.unable}: {_named(seen.missing)} are held back at {ground.flow.target} "
            "(`sync.acls.include_write: on_failover`), and producers cannot write without them"
        )
    return {"missing": [_shown(each) for each in seen.missing], "there": [_shown(each) for each in seen.there]}


def write_rights(ground: Ground, note: Json) -> Asking[None]:
    """Those on the wave's topics and groups. One that reaches further is given as it is: a part of it is another
    right, which the source does not have."""
    seen = yield from ask(_wanted(ground, ground.partitions()), RightsSeen, ground.policy)
    yield from give(ground, note, seen)


def give(ground: Ground, note: Json, seen: RightsSeen) -> Asking[None]:
    """Give what is missing, and what an earlier driver of this run had begun to give."""
    begun = yield from _begun(ground)
    rights = (*begun, *(each for each in seen.missing if each not in begun))
    note["there"] = [_shown(each) for each in seen.there if each not in begun]
    note["given"] = [_shown(each) for each in rights]
    if rights:
        done = yield from ask(GiveRights(rights), RightsSeen, ground.policy)
        if done.refused:
            named = "; ".join(f"{acl}: {why}" for acl, why in list(done.refused.items())[:_NAMED])
            note["refused"] = dict(done.refused)
            raise Refused(f"{ground.flow.target} refuses rights that the applications need: {named}", note)
    as_of = "" if seen.known_ms is None else f" (as of {instant(seen.known_ms)})"
    note["told"] = f"{len(rights)} rights given at {ground.flow.target}, {len(note['there'])} were there{as_of}"
    yield Say(note["told"])


def undo_write_rights(ground: Ground, note: Json) -> Asking[None]:
    yield from take(ground, note, (yield from _begun(ground)), "target")


def take(ground: Ground, note: Json, rights: Collection[Json], side: Side) -> Asking[None]:
    """Take away these rights, which runs of this topology gave. side: the role that their cluster has in the flow of
    `ground`. Taking twice does no harm. Raises Refused when one of them is still there then."""
    note["rights_taken"] = [_shown(each) for each in rights]
    if not rights:
        return
    seen = yield from ask(TakeRights(side, tuple(rights)), RightsSeen, ground.policy)
    if seen.there:
        named = "; ".join(f"{acl}: {why}" for acl, why in list(seen.refused.items())[:_NAMED])
        raise Refused(f"rights to write that were given could not be taken away: {named}", note)


def given_for(plan: Plan, chain: Chain, flow: PlanFlow, wave: str) -> tuple[Json, ...]:
    """What is to be taken away at the target of `flow` when this wave (or several as one) leaves it: the rights that
    runs of this topology gave and none took since, but those that waves need which stay."""
    assert plan.migration is not None
    leaving = wave.split(JOINED)
    truths = {each.name: each.truth for each in wave_states(plan, chain)}
    staying = [w for w in plan.migration.waves if w.name not in leaving and truths.get(w.name) == flow.target]
    given = standing_rights(chain.entries)
    if any(not each.topics for each in staying):  # everything that the flow selects
        return ()
    topics = {flow.target_topic(topic) for each in staying for topic in each.topics}
    groups = {flow.sync.groups.target_group(group) for each in staying for group in each.consumers}
    return tuple(each for each in given if not about(InventoryAcl(**each), topics, groups))


def standing_rights(entries: Iterable[Entry]) -> tuple[Json, ...]:
    """Rights that runs gave, or began to, and that none took away since."""
    found: list[Json] = []
    for entry in entries:
        if entry.deed == "GiveRights" and entry.kind == "intent":
            found += [each for each in _rights(entry.observation) if each not in found]
        elif entry.deed == "TakeRights" and entry.kind == "outcome" and "failed" not in entry.observation:
            taken = list(_rights(entry.observation))
            found = [each for each in found if each not in taken]
    return tuple(found)


def _wanted(ground: Ground, topics: Iterable[str]) -> LookAtRights:
    flow = ground.flow
    groups = tuple(sorted(flow.sync.groups.target_group(group) for group in ground.groups))
    return LookAtRights(tuple(sorted(map(flow.target_topic, topics))), groups)


def _begun(ground: Ground) -> Asking[tuple[Json, ...]]:
    found: list[Json] = []
    for deed in (yield from ask(Recall("GiveRights"), Recalled, ground.policy)).deeds:
        found += [each for each in _rights(deed) if each not in found]
    return tuple(found)


def _rights(deed: Json) -> Iterator[Json]:
    yield from deed.get("rights", ())  # a version before this one gave them without saying which


def _named(rights: Collection[Json]) -> str:
    shown_ = [_shown(each) for each in rights]
    more = f" and {len(shown_) - _NAMED} more" if len(shown_) > _NAMED else ""
    return ", ".join(shown_[:_NAMED]) + more


def _shown(right: Json) -> str:
    return shown(InventoryAcl(**right))
