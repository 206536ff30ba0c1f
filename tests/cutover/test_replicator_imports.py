"""What `cutover` takes from `replicator`: every name, with its reason. A new import is added here, or not made.

Offset arithmetic is pure, and the steps may use it. Whatever reads control topics or acts on clusters is for `live/`
and `drill/` only: steps ask for it with an action (`cutover.actions`). `operations/` is what people do to flows and
partitions by hand, from a terminal or from Airflow (decision 0090): it takes what the workers understand as orders.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from watershed import cutover

# module of replicator -> (names, why cutover needs them)
ARITHMETIC = {
    "ledger.offset_translation": (
        {"CopiedPartition", "Offsets", "translate_group", "translate_group_back"},
        "a group's offset at the target follows from the runs of the ledger",
    ),
    "ledger.explicit_runs": (
        {"ExplicitRunMap", "RepeatedRunMap"},
        "how far the history of a late group's partition is known, and that it is refused with repeats",
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
    "flow_state_order": (
        {"answer_breach", "write_breach_answer"},
        "StartFlow answers the budget by which a flow stands still",
    ),
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
    "sync.protection": (
        {"inspect_protection", "keep_protection", "remove_protection"},
        "topics are opened for applications at the switch, and protected again when the move is taken back",
    ),
}
OPERATIONS = {
    "adoption.copy_proof": ({"ComparisonOptions", "PartitionProof", "prove_partitions"}, "adopt: what the copy holds"),
    "adoption.decision_writer": ({"build_adoption_decision", "write_decisions"}, "adopt: the decision"),
    "adoption.digest_reader": ({"NotProvable"}, "adopt: why a partition cannot be compared"),
    "adoption.duplicates_and_gaps": (
        {"ACCEPTABLE_FINDINGS", "FINDING_MEANINGS", "TOLERATED_FINDINGS", "render_findings"},
        "adopt: what the other tool lost or wrote twice",
    ),
    "adoption.mirrormaker_format": ({"MirrorMakerNotes"}, "adopt: MirrorMaker's own topics"),
    "adoption.mirrormaker_reader": ({"read_active_connect_groups", "read_mirrormaker_notes"}, "the same"),
    "apply_fleets": ({"find_fleet_changes"}, "plan: what apply would write of fleets"),
    "compression_forecast": ({"CompressionForecast", "forecast_compression"}, "plan: what flows would save"),
    "copy.aligned.offset_mode_plan": ({"TopicOffsetMode", "plan_offset_modes"}, "plan: how topics would be copied"),
    "flow_state_order": (
        {"FLOW_ORDERS", "FlowOrder", "apply_flow_order", "write_flow_order"},
        "pause, resume, stop, restart",
    ),
    "ledger.ledger": ({"DecisionBasis", "Ledger", "read_ledger"}, "what a decision about a partition is based on"),
    "ledger.offset_map": ({"OffsetMap"}, "backfill: how far a partition is copied"),
    "partition_control": (
        {
            "PartitionOrder",
            "apply_partition_order",
            "drop_ended_moves",
            "explain_impossible_order",
            "find_workers_of_earlier_versions",
            "write_partition_order",
        },
        "pause, resume or move single partitions",
    ),
    "worker.worker_host": ({"WORKER_CLIENT_PREFIX"}, "the same: what a worker is called"),
    "partition_key": ({"PartitionKey"}, "which partition a decision is about"),
    "partition_states": (
        {"COPY_FOREIGN_STATE", "GAP_ACCEPTABLE_STATES", "Halt", "OffsetSpan", "RESEEDABLE_STATES", "Reinspect"},
        "which decision a halted partition allows; backfill: why a start or an end is not found",
    ),
    "recovery.found_ends": ({"look_up_ends"}, "backfill: where it would end"),
    "recovery.log_inspection": ({"LeaderLog", "require_leader_logs"}, "backfill: what the source's logs hold"),
    "recovery.operator_decisions": (
        {"COPY_FOREIGN", "DecisionWithMap", "OperatorDecision", "submit_decision"},
        "accept-gap, reseed, copy-foreign, adopt",
    ),
    "recovery.start_offsets": ({"StartOrTrouble", "find_starts"}, "backfill: where it would begin"),
    "sync.access_removal": (
        {"describe_revoked_acl", "describe_revoked_user", "remove_revoked_acls", "remove_revoked_users"},
        "prune: removing what was revoked",
    ),
    "sync.protection": ({"remove_protection"}, "stop: a stopped flow protects nothing"),
    "sync.acls": ({"judge_acls_now"}, "prune: which rights were revoked"),
    "sync.users": ({"judge_users_now"}, "prune: which users were deleted"),
    "sync.group_control_records": (
        {"GroupResetDecision", "journal_group_reset", "record_group_sync"},
        "reset-group and sync",
    ),
    "sync.group_decisions": (
        {"GroupObservation", "PositionDecision", "decide_positions", "defer_commit", "is_set_by_another"},
        "the sync's own rules",
    ),
    "sync.group_sync": ({"GroupSyncer"}, "sync: one round"),
    "sync.groups": ({"build_group_report"}, "what became of each group"),
    "sync.sync_kind": ({"SyncClusters"}, "both ends of a round"),
    "sync.sync_on_apply": ({"find_sync_differences"}, "plan: what apply would carry over"),
}
ROOT = Path(cutover.__file__).parent
ROOM = "watershed.replicator."


def list_imports() -> dict[str, dict[str, set[str]]]:
    """module of replicator -> file of cutover -> names."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not [each.name for each in node.names if each.name.startswith(ROOM)], path
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(ROOM):
                module = (node.module or "").removeprefix(ROOM)
                found[module][str(path.relative_to(ROOT))] |= {each.name for each in node.names}
    return found


def list_taken(*, by_operations: bool) -> dict[str, set[str]]:
    """module of replicator -> names that `operations/` takes, or the rest of cutover."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, files in list_imports().items():
        for file, names in files.items():
            if file.startswith("operations/") == by_operations:
                found[module] |= names
    return dict(found)


def test_cutover_takes_only_these_names_from_replicator() -> None:
    expected = {module: names for module, (names, _why) in (ARITHMETIC | LIVE).items()}
    assert list_taken(by_operations=False) == expected


def test_operations_take_only_these_names_from_replicator() -> None:
    assert list_taken(by_operations=True) == {module: names for module, (names, _why) in OPERATIONS.items()}


def test_steps_use_offset_arithmetic_only() -> None:
    elsewhere = {
        module: sorted(files)
        for module, files in list_imports().items()
        if module in LIVE and not all(name.startswith(("live/", "drill/", "operations/")) for name in files)
    }
    assert elsewhere == {}
