"""Rights to write that the flow holds back at its target until applications move (`sync.acls.include_write:
on_failover`): given right before a point of no return, and taken away again by whatever takes the move back.

What is to be given is in the journal before it is given, so whoever continues a run, or takes it back later, takes away
those and no others: a right that stood there before stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from watershed.cutover.actions import (
    ClusterSide,
    GiveRights,
    JsonObject,
    ReadRights,
    RecallDeeds,
    ReportMessage,
    TakeRights,
)
from watershed.cutover.errors import Refused
from watershed.cutover.journal.hash_chain import JournalChain, JournalEntry
from watershed.cutover.observations import ObservedRights, RecalledDeeds
from watershed.cutover.polling import ActionGenerator, perform_action
from watershed.cutover.run_context import RunContext
from watershed.cutover.utc_instant import render_utc_instant
from watershed.cutover.wave_states import WAVE_SEPARATOR, list_wave_states
from watershed.topology.acl_translation import is_acl_about, render_acl
from watershed.topology.inventory import InventoryAcl
from watershed.topology.plan import Plan, PlanFlow

_NAMED = 5  # rights in one message


def check_withheld_rights(
    context: RunContext, topics: Iterable[str], problems: list[str]
) -> ActionGenerator[JsonObject]:
    """What would keep them from being given is found before a single client is stopped."""
    try:
        seen = yield from perform_action(_wanted(context, topics), ObservedRights, context.policy)
    except Refused as why:
        problems.append(f"rights to write that flow {context.flow.id} holds back cannot be looked at: {why}")
        return {}
    if seen.missing and seen.unable:
        problems.append(
            f"{seen.unable}: {_named(seen.missing)} are held back at {context.flow.target} "
            "(`sync.acls.include_write: on_failover`), and producers cannot write without them"
        )
    return {"missing": [_shown(each) for each in seen.missing], "there": [_shown(each) for each in seen.there]}


def give_withheld_rights(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Those on the wave's topics and groups. One that reaches further is given as it is: a part of it is another
    right, which the source does not have."""
    seen = yield from perform_action(_wanted(context, context.partitions()), ObservedRights, context.policy)
    yield from give_missing_rights(context, outcome, seen)


def give_missing_rights(context: RunContext, outcome: JsonObject, seen: ObservedRights) -> ActionGenerator[None]:
    """Give what is missing, and what an earlier driver of this run had begun to give."""
    begun = yield from _begun(context)
    rights = (*begun, *(each for each in seen.missing if each not in begun))
    outcome["there"] = [_shown(each) for each in seen.there if each not in begun]
    outcome["given"] = [_shown(each) for each in rights]
    if rights:
        done = yield from perform_action(GiveRights(rights), ObservedRights, context.policy)
        if done.refused:
            named = "; ".join(f"{acl}: {why}" for acl, why in list(done.refused.items())[:_NAMED])
            outcome["refused"] = dict(done.refused)
            raise Refused(f"{context.flow.target} refuses rights that the applications need: {named}", outcome)
    as_of = "" if seen.known_ms is None else f" (as of {render_utc_instant(seen.known_ms)})"
    outcome["told"] = f"{len(rights)} rights given at {context.flow.target}, {len(outcome['there'])} were there{as_of}"
    yield ReportMessage(outcome["told"])


def undo_give_withheld_rights(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Takes away every right that this run gave, or began to give."""
    yield from take_rights(context, outcome, (yield from _begun(context)), "target")


def take_rights(
    context: RunContext, outcome: JsonObject, rights: Collection[JsonObject], side: ClusterSide
) -> ActionGenerator[None]:
    """Take away these rights, which runs of this topology gave. side: the role that their cluster has in the flow of
    `context`. Taking twice does no harm. Raises Refused when one of them is still there then."""
    outcome["rights_taken"] = [_shown(each) for each in rights]
    if not rights:
        return
    seen = yield from perform_action(TakeRights(side, tuple(rights)), ObservedRights, context.policy)
    if seen.there:
        named = "; ".join(f"{acl}: {why}" for acl, why in list(seen.refused.items())[:_NAMED])
        raise Refused(f"rights to write that were given could not be taken away: {named}", outcome)


def find_rights_to_take(plan: Plan, chain: JournalChain, flow: PlanFlow, wave: str) -> tuple[JsonObject, ...]:
    """Rights to remove from the target of `flow` when this wave (or `a+b`) goes back: given by a run of this topology,
    not removed since, and needed by no wave that stays."""
    assert plan.migration is not None
    leaving = wave.split(WAVE_SEPARATOR)
    truths = {each.name: each.truth for each in list_wave_states(plan, chain)}
    staying = [
        w
        for w in plan.migration.waves
        if w.name not in leaving and not w.is_late and truths.get(w.name) == flow.target  # late groups only read
    ]
    given = find_standing_rights(chain.entries)
    if any(not each.topics for each in staying):  # everything that the flow selects
        return ()
    topics = {flow.target_topic(topic) for each in staying for topic in each.topics}
    groups = {flow.sync.groups.target_group(group) for each in staying for group in each.consumers}
    return tuple(each for each in given if not is_acl_about(InventoryAcl(**each), topics, groups))


def find_standing_rights(entries: Iterable[JournalEntry]) -> tuple[JsonObject, ...]:
    """Rights that runs gave, or began to, and that none took away since."""
    found: list[JsonObject] = []
    for entry in entries:
        if entry.deed == "GiveRights" and entry.kind == "intent":
            found += [each for each in _rights(entry.observation) if each not in found]
        elif entry.deed == "TakeRights" and entry.kind == "outcome" and "failed" not in entry.observation:
            taken = list(_rights(entry.observation))
            found = [each for each in found if each not in taken]
    return tuple(found)


def _wanted(context: RunContext, topics: Iterable[str]) -> ReadRights:
    flow = context.flow
    groups = tuple(sorted(flow.sync.groups.target_group(group) for group in context.groups))
    return ReadRights(tuple(sorted(map(flow.target_topic, topics))), groups)


def _begun(context: RunContext) -> ActionGenerator[tuple[JsonObject, ...]]:
    found: list[JsonObject] = []
    for deed in (yield from perform_action(RecallDeeds("GiveRights"), RecalledDeeds, context.policy)).deeds:
        found += [each for each in _rights(deed) if each not in found]
    return tuple(found)


def _rights(deed: JsonObject) -> Iterator[JsonObject]:
    yield from deed.get("rights", ())  # a version before this one gave them without saying which


def _named(rights: Collection[JsonObject]) -> str:
    shown_ = [_shown(each) for each in rights]
    more = f" and {len(shown_) - _NAMED} more" if len(shown_) > _NAMED else ""
    return ", ".join(shown_[:_NAMED]) + more


def _shown(right: JsonObject) -> str:
    return render_acl(InventoryAcl(**right))
