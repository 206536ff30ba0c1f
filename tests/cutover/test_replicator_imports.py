"""What `cutover` takes from `replicator`: every name, with its reason. A new import is added here, or not made.

Offset arithmetic is pure, and the steps may use it. Whatever reads control topics or acts on clusters is for `live/`
and `drill/` only: steps ask for it with an action (`cutover.actions`).
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import cutover

# module of replicator -> (names, why cutover needs them)
ARITHMETIC = {
    "ledger.offset_translation": (
        {"CopiedPartition", "Offsets", "translate_group", "translate_group_back"},
        "a group's offset at the target follows from the runs of the ledger",
    ),
    "ledger.offset_map": ({"OffsetMap"}, "offsets of a group that comes back from the target"),
    "ledger.switchover_map": (
        {"SwitchoverMap", "translate_returning_group"},
        "the same, where the flow back began at the switch",
    ),
    "ledger.round_trip_map": ({"build_round_trip_map"}, "records that went to the target and came back"),
    "errors": ({"NoLedger", "ReplicatorError"}, "an answer that says why a ledger cannot be read"),
}
LIVE = {
    "adoption.decision_writer": ({"write_decisions"}, "Rejoin leaves decisions for the workers"),
    "apply": ({"apply_plan"}, "a drill applies the flows over its copies"),
    "ledger.ledger": ({"read_ledger"}, "Rejoin compares the ledgers of both sides"),
    "ledger.ledger_follower": ({"LedgerFollower"}, "ReadCopies follows the ledger while a step waits"),
    "recovery.divergence": ({"read_divergence"}, "FindDivergence reads the old primary's own records"),
    "copy.flow_epoch_fence": (
        {"FlowNotFenced", "explain_fence_refusal", "fence_flow"},
        "CutOff fences the flow's producers before a promotion",
    ),
    "recovery.rejoin": ({"RejoinPoint", "plan_rejoin"}, "where the workers go on after a round trip"),
    "partition_states": ({"REMEDIES"}, "a halted partition is shown with its remedy"),
    "sync.group_control_records": ({"FlowsFollower"}, "whether the group sync has let go of a group"),
    "sync.group_decisions": ({"PositionMark", "WRITABLE_GROUP_STATES"}, "the sync's own rule for groups at rest"),
    "sync.quotas": ({"is_quota_selected"}, "whether another flow would carry a fence's quota"),
}
ROOT = Path(cutover.__file__).parent


def list_imports() -> dict[str, dict[str, set[str]]]:
    """module of replicator -> file of cutover -> names."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not [each.name for each in node.names if each.name.split(".")[0] == "replicator"], path
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "replicator":
                module = (node.module or "").partition(".")[2]
                found[module][str(path.relative_to(ROOT))] |= {each.name for each in node.names}
    return found


def test_cutover_takes_only_these_names_from_replicator() -> None:
    taken = {module: set().union(*files.values()) for module, files in list_imports().items()}
    assert taken == {module: names for module, (names, _why) in (ARITHMETIC | LIVE).items()}


def test_steps_use_offset_arithmetic_only() -> None:
    elsewhere = {
        module: sorted(files)
        for module, files in list_imports().items()
        if module in LIVE and not all(name.startswith(("live/", "drill/")) for name in files)
    }
    assert elsewhere == {}
