"""Topics of a flow with `protect: true`: open for applications right before a point of no return, and protected again
by whatever takes the move back.

Which topics are open stands in the flow's record, so both deeds may be done twice, and a run that dies between intent
and outcome is gone on with by doing its deed again. Workers make no denials on a topic that is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from watershed.cutover.actions import JsonObject, LiftProtection, ReportMessage, RestoreProtection
from watershed.cutover.errors import Refused
from watershed.cutover.observations import ObservedRights
from watershed.cutover.polling import ActionGenerator, perform_action
from watershed.cutover.run_context import RunContext
from watershed.topology.acl_translation import render_acl
from watershed.topology.inventory import InventoryAcl

_NAMED = 5  # denials in one message


def lift_protection(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Of the wave's topics; those of other waves stay protected."""
    topics = tuple(sorted(context.partitions()))
    seen = yield from perform_action(LiftProtection(topics), ObservedRights, context.policy)
    outcome.update(topics=list(topics), lifted=_show(seen.missing))
    if seen.there:
        outcome["refused"] = dict(seen.refused)
        raise Refused(
            f"{context.flow.target} keeps denials that protect its topics: {_name(seen.refused)}. Applications cannot "
            "write there",
            outcome,
        )
    outcome["told"] = f"{len(seen.missing)} denials are gone at {context.flow.target}: applications may write"
    yield ReportMessage(outcome["told"])


def undo_lift_protection(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """The wave's topics are protected as before."""
    yield from _restore(context, outcome, tuple(sorted(context.partitions())), None)


def protect_after_return(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """After a rollback or failback, the flow of the migration that is taken back protects what it copies again."""
    flow = context.run_taken_back.flow
    if flow.protect:
        yield from _restore(context, outcome, tuple(sorted(map(context.rename, context.partitions()))), flow.id)


def _restore(
    context: RunContext, outcome: JsonObject, topics: tuple[str, ...], flow: str | None
) -> ActionGenerator[None]:
    seen = yield from perform_action(RestoreProtection(topics, flow), ObservedRights, context.policy)
    outcome["protected"] = _show(seen.there)
    if seen.refused:
        raise Refused(f"topics could not be protected again: {_name(seen.refused)}", outcome)


def _show(denials: Iterable[JsonObject]) -> list[str]:
    return [render_acl(InventoryAcl(**each)) for each in denials]


def _name(refused: Mapping[str, str]) -> str:
    return "; ".join(f"{acl}: {why}" for acl, why in list(refused.items())[:_NAMED])
