"""Decisions of people that belong to no run of steps: whether a source may be taken down."""

from __future__ import annotations

from typing import Any, Final

from watershed.cutover.errors import Locked
from watershed.cutover.journal.hash_chain import RUN_STEP, Journal, describe_holder
from watershed.cutover.observations import ApprovalAnswer

DECOMMISSION: Final = "decommission"


def write_decommission(
    journal: Journal,
    run: str,
    asked: str,
    seen: ApprovalAnswer,
    evidence: dict[str, Any],
    *,
    actor: str,
    plan_hash: str,
) -> bool:
    """Write down who decided it, in one entry that is a run of its own: it never holds the lock, whoever dies.

    run: its name in the journal, by which it is written once; False when it was there. asked: who was. Raises Locked
    while a run moves applications, Superseded when somebody wrote at the same moment, ClusterError.
    """
    chain = journal.refresh()
    if chain.run(run):
        return False
    if under_way := chain.unfinished():
        raise Locked(f"applications of {chain.topology} are being moved: {describe_holder(under_way)}")
    approval = {"asked": asked, "granted": seen.granted, "by": seen.by, "note": seen.note}
    journal.append(
        run,
        RUN_STEP,
        "outcome",
        {
            "kind": DECOMMISSION,
            "topology": chain.topology,
            "plan": plan_hash,
            "state": "done" if seen.granted else "refused",
            "step": "approve_decommission",
            "reason": "" if seen.granted else f"{seen.by} did not approve",
            "outcome": {**evidence, "approvals": [approval]},
        },
        actor=actor,
        plan_hash=plan_hash,
        wave="",  # of none
    )
    return True
