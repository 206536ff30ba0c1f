"""What the samples in `control_record_samples.tsv` say, as records: by the name of the sample.

A name begins with the class of the record (of the ledger: with the kind of the record). Behind the colon stands who
wrote it: `now` is what this version writes, the others are shapes of earlier versions. The bytes of the samples are
never changed: they stand in control topics somewhere. A version that writes otherwise adds a sample.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from watershed.clusters.alignment_records import AlignmentRecord
from watershed.clusters.budget_breaches import BudgetBreach
from watershed.clusters.fleet import FleetRecord, PlacementRecord, SupervisorRecord
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.flow_totals import FlowTotals
from watershed.clusters.partition_end_records import PartitionEnd
from watershed.clusters.partition_orders import PartitionMove, PartitionPause
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.producer_registry import ProducerRecord
from watershed.clusters.protection_records import ProtectionRecord
from watershed.clusters.streams_state_range import StateRange
from watershed.clusters.sync_reports import SyncReport
from watershed.clusters.synced_access_records import SyncedAcl, SyncedAcls, SyncedRight, SyncedUser
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.withheld_rights_records import WithheldRights
from watershed.clusters.worker_heartbeats import WorkerHeartbeat
from watershed.replicator.ledger.foreign_part import ForeignPart
from watershed.replicator.ledger.leader_epochs import LeaderEpochEntry
from watershed.replicator.ledger.ledger_block import Generation, LedgerBlock
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetRun
from watershed.replicator.ledger.transaction_positions import BlockWriter, LogKnowledge, TransactionPosition
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity
from watershed.replicator.partition_states import OffsetSpan
from watershed.replicator.recovery.operator_decisions import OperatorDecision
from watershed.replicator.sync.group_control_records import GroupResetDecision, SyncedPositions
from watershed.topology.breach_policy import BreachPolicy
from watershed.topology.copy_bounds import CopyBound, build_offsets_bound
from watershed.topology.egress_compression import EgressCompression
from watershed.topology.external_flows import ExternalFlow
from watershed.topology.inventory import InventoryAcl
from watershed.topology.naming import Naming
from watershed.topology.plan import PlanCluster, PlanFlow, PlanRegistry, PlanSecurity
from watershed.topology.proof_policy import ProofPolicy
from watershed.topology.secret_ref import SecretRef
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import (
    AclSync,
    GroupSync,
    NameFilter,
    QuotaSync,
    SchemaSync,
    SyncSettings,
    UserSync,
)

SOURCE_ID = uuid.UUID("00000000-0000-0000-0000-0000000000a1")
TARGET_ID = uuid.UUID("00000000-0000-0000-0000-0000000000b2")
ORDERS, EVENTS = TopicPartition("orders", 0), TopicPartition("events", 11)
NOW = 1_750_000_000_000
_SELECTED = TopicSelection(
    (Selector("literal", "orders"), Selector("glob", "shop.*")), (Selector("regex", "shop[.]x.*"),), True
)
_LITTLE = PlanFlow("a-to-b", "a", "b", TopicSelection((Selector("literal", "orders"),)))
_SYNC = SyncSettings(
    GroupSync("continuous", NameFilter((Selector("glob", "app-*"),)), 5_000, (("billing", "billing.b"),)),
    AclSync("continuous", NameFilter(), "on_failover", (("User:app", "orders"),)),
    QuotaSync("once", NameFilter((), (Selector("literal", "x"),)), (("app", None),)),
    UserSync("once"),
    SchemaSync("once", NameFilter(), "translate", "follow_topic"),
)
_MUCH = PlanFlow(
    "a-to-b", "a", "b", _SELECTED, Naming("map", map=(("orders", "bestellungen"),)), "none", "local", "process", 3,
    1_000_000, 5_000, "paused", "aligned", "latest", 3, "continuous", ("retention.ms",), ("segment.ms",),
    (("compression.type", "producer"),), ProofPolicy(60_000, "L2", 5, 2, 30_000, 0.5), True, "transactions",
    "they meet", True, "read_uncommitted", "continue", "quarantine", 4, False, "because", _SYNC,
)  # fmt: skip
_FLOW = FlowRecord(_LITTLE, "sha256:0", "shop", producer_id=7, source_cluster_id="Ab")
_DECISION = OperatorDecision(
    "accept-gap", "a-to-b", "orders", 0, "source_expired", 3, "ann", OffsetSpan(1, 5), None, "one", NOW
)
_STATUS = PartitionStatus("a-to-b", "orders", "orders.b", 0, "running")
_KEY = PartitionKey("a-to-b", "orders", "orders", 3)
_RENAMED = PartitionKey("a-to-b", "orders", "orders.b", 3)
_FEW = (OffsetRun(0, 0), OffsetRun(10, 15))
_MANY = tuple(OffsetRun(10 * n, 10 * n + 3 * n * n) for n in range(20))
_EXPLICIT = tuple(ExplicitRun(100 * n, 120 * n, 50 + n) for n in range(20))
_BLOCK = LedgerBlock(_KEY, Generation(4, "w.1"), 3, 90, ProducerIdentity(7, 2, 5), SOURCE_ID, TARGET_ID, _FEW)
_POSITION = TransactionPosition(
    _RENAMED, SOURCE_ID, TARGET_ID, OffsetRun(0, 0), 400, 2, 1, _EXPLICIT[:3], 2, "one", "n", 1, 20
)

_LITTLE_RECORD = replace(_FLOW, producer_id=None, source_cluster_id=None)
_MUCH_RECORD = replace(
    _FLOW,
    flow=_MUCH,
    generation=4,
    state="paused",
    existed={"orders": 2},
    retired=frozenset({"z", "a"}),
    begins={"orders": {0: 5, 11: 9}, "events": {0: 0}},
)

RECORDS: dict[str, Any] = {
    "FlowRecord:now": replace(_MUCH_RECORD, guarantee="exactly_once: transactions", end_revision=2),
    "FlowRecord:without pauses, moves": replace(_MUCH_RECORD, guarantee="exactly_once: transactions", end_revision=2),
    "FlowRecord:now, with orders about partitions": replace(
        _LITTLE_RECORD,
        pauses=(PartitionPause("orders", None, "ann", NOW), PartitionPause("payments", 3, "bob", NOW, "a reason")),
        moves=(PartitionMove("orders", 0, "host-2", "ann", NOW),),
    ),
    "FlowRecord:without end_revision": replace(_MUCH_RECORD, guarantee="exactly_once: transactions"),
    "FlowRecord:without end_revision, little": _LITTLE_RECORD,
    "FlowRecord:without end_revision, compressed": replace(
        _LITTLE_RECORD, flow=replace(_LITTLE, compression=EgressCompression("zstd", 3))
    ),
    "FlowRecord:without pauses, bounded": replace(
        _LITTLE_RECORD,
        flow=replace(
            _LITTLE, start=build_offsets_bound({"orders": {11: 9, 0: 5}}), end=CopyBound(timestamp_ms=NOW)
        ),
        end_revision=1,
    ),
    "FlowRecord:now, bounded": replace(
        _LITTLE_RECORD,
        flow=replace(
            _LITTLE, start=build_offsets_bound({"orders": {11: 9, 0: 5}}), end=CopyBound(timestamp_ms=NOW)
        ),
        end_revision=1,
    ),
    "FlowRecord:now, beside another tool": replace(
        _LITTLE_RECORD,
        flow=replace(
            _LITTLE,
            beside=(
                ExternalFlow(
                    "back",
                    "mirrormaker2",
                    "b",
                    "a",
                    TopicSelection((Selector("glob", "orders*"),)),
                    Naming("prefix", "us."),
                    marks_with="by-mm2",
                    leaves_out="by-us",
                    source_id="Cd",
                    tool_alias="us",
                ),
            ),
        ),
    ),
    "FlowRecord:now, little": _LITTLE_RECORD,
    "FlowRecord:now, protected": replace(
        _LITTLE_RECORD, flow=replace(_LITTLE, protect=True), unprotected=frozenset({"orders"})
    ),
    "FlowRecord:without pauses, little": _LITTLE_RECORD,
    "FlowRecord:without pauses, compressed": replace(
        _LITTLE_RECORD, flow=replace(_LITTLE, compression=EgressCompression("zstd", 3))
    ),
    "FlowRecord:now, compressed": replace(
        _LITTLE_RECORD, flow=replace(_LITTLE, compression=EgressCompression("zstd", 3))
    ),
    "FlowRecord:without guarantee": _MUCH_RECORD,
    "FlowRecord:without guarantee, little": _LITTLE_RECORD,
    "FlowRecord:without existed, retired, begins": _FLOW,
    "FlowRecord:with the fields of the first plans": _FLOW,
    "PartitionEnd:now": PartitionEnd("a-to-b", "orders", 3, 1, 400, 402, 90, "one", "w1", NOW),
    "AlignmentRecord:now": AlignmentRecord("a-to-b", "orders", "mapped", "they meet", "markers", "w1", NOW),
    "ProducerRecord:now": ProducerRecord(7, "a-to-b", ("Cd", "Ab"), "transactions", "shop"),
    "FlowRecord:now, with an answered breach": replace(_LITTLE_RECORD, answered_breaches=2),
    "FlowRecord:with a budget that acts": replace(
        _LITTLE_RECORD, flow=replace(_LITTLE, breach=BreachPolicy("pause", 60_000))
    ),
    "BudgetBreach:now": BudgetBreach(
        "a-to-b", 3, "fail", "slo.lag.max", 60_000, 91_500, "orders", 11, "host-w-7", NOW
    ),
    "BudgetBreach:answered": BudgetBreach(
        "a-to-b", 3, "fail", "slo.lag.max", 60_000, 91_500, "orders", 11, "host-w-7", NOW, answered=True
    ),
    "WithheldRights:now": WithheldRights(
        "a-to-b", (InventoryAcl("User:x", "WRITE", "ALLOW", "TOPIC", "orders", "LITERAL", "10.0.0.1"),), NOW
    ),
    "WithheldRights:without host": WithheldRights(
        "a-to-b", (InventoryAcl("User:x", "WRITE", "ALLOW", "TOPIC", "orders", "LITERAL"),), NOW
    ),
    "SyncedAcls:now": SyncedAcls(
        "a-to-b", "TOPIC", "orders.b",
        (
            SyncedAcl(
                InventoryAcl("User:x", "READ", "ALLOW", "TOPIC", "orders.b", "LITERAL"),
                (InventoryAcl("User:x", "READ", "ALLOW", "TOPIC", "orders", "LITERAL"),), NOW, NOW,
            ),
        ),
    ),
    "SyncedAcls:same name": SyncedAcls(
        "a-to-b", "TOPIC", "orders",
        (
            SyncedAcl(
                InventoryAcl("User:x", "READ", "ALLOW", "TOPIC", "orders", "LITERAL"),
                (InventoryAcl("User:x", "READ", "ALLOW", "TOPIC", "orders", "LITERAL"),), NOW,
            ),
        ),
    ),
    "SyncedRight:now": SyncedRight(
        "a-to-b",
        SyncedAcl(
            InventoryAcl("User:x", "READ", "ALLOW", "TOPIC", "orders.b", "LITERAL"),
            (InventoryAcl("User:x", "READ", "ALLOW", "TOPIC", "orders", "LITERAL"),), NOW, NOW,
        ),
    ),
    "SyncedRight:now, same name": SyncedRight(
        "a-to-b",
        SyncedAcl(
            InventoryAcl("User:x", "READ", "ALLOW", "TOPIC", "orders", "LITERAL"),
            (InventoryAcl("User:x", "READ", "ALLOW", "TOPIC", "orders", "LITERAL"),), NOW,
        ),
    ),
    "ProtectionRecord:now": ProtectionRecord(
        "a-to-b", InventoryAcl("User:x", "WRITE", "DENY", "TOPIC", "orders", "LITERAL")
    ),
    "SyncedUser:now": SyncedUser("a-to-b", "x", "SCRAM-SHA-512", NOW, NOW, NOW),
    "FleetRecord:now": FleetRecord(
        "shop", "b", "stopped", "sha256:1", 3, 2, "spark", "external", 4,
        {
            "a": PlanCluster(
                "a",
                ("a:9092", "a:9093"),
                "Ab",
                PlanSecurity("SASL_SSL", "SCRAM-SHA-512", SecretRef("env", "WATERSHED_SECRET_A")),
                PlanRegistry("https://registry", SecretRef("file", "/run/secrets/watershed/r")),
                "rack-1",
            ),
            "b": PlanCluster("b", ("b:9092",)),
        },
        ("sha256:9", "sha256:0"),
    ),
    "FleetRecord:with the fields of the first fleets": FleetRecord("shop", "b", "stopped", "sha256:0"),
    "SupervisorRecord:now": SupervisorRecord("shop", "b", 3, "host-1", True, 2, "a note", NOW, True),
    "SupervisorRecord:without bridged": SupervisorRecord("shop", "b", 3, "host-1", True, 2, "a note", NOW),
    "PlacementRecord:now": PlacementRecord("shop", "b", {"a-to-b|orders|0": 3}, "w1", NOW),
    "PartitionStatus:now": PartitionStatus(
        "a-to-b", "orders", "orders.b", 0, "aligning", 5, 9, 4, 4, 200, 4096, 77, 1,
        {"done": 1, "of": 5.5, "rate": 2, "seconds_left": None}, 1.5, 100, "an error", "a remedy",
        {"source": [1, 2], "target": None, "expected_id": None, "found_id": None}, "a note: grün", True, NOW, "w1",
        42, NOW, 3, 60,
    ),
    "PartitionStatus:without saved bytes": PartitionStatus(
        "a-to-b", "orders", "orders.b", 0, "aligning", 5, 9, 4, 4, 200, 4096, 77, 1,
        {"done": 1, "of": 5.5, "rate": 2, "seconds_left": None}, 1.5, 100, "an error", "a remedy",
        {"source": [1, 2], "target": None, "expected_id": None, "found_id": None}, "a note: grün", True, NOW, "w1",
        42, NOW, 3,
    ),
    "PartitionStatus:now, little": _STATUS,
    "PartitionStatus:little, without saved bytes": _STATUS,
    "PartitionStatus:without serving": replace(_STATUS, worker="w1", pid=42, at_ms=NOW),
    "PartitionStatus:with the five fields that are needed": _STATUS,
    "SyncReport:now": SyncReport(
        "a-to-b", "groups", "billing", "waiting", "not copied yet", {"partitions": [{"lag": None}]}, "w1", NOW
    ),
    "SyncReport:with the four fields that are needed": SyncReport("a-to-b", "groups", "billing", "equal"),
    "WorkerHeartbeat:now": WorkerHeartbeat(
        "w1", 42, NOW, (3, 7), {"a-to-b": NOW}, {"a-to-b": {13: 120, 40: 1}}, True,
        topology="orders", version="0.1.0+50d2608a6b3c", began_ms=NOW - 60_000,
        totals={"a-to-b": FlowTotals(121, 1.5, {4: 120, 10: 1}, 60.5, {12: 121})}, throttled_s=0.25, tells_all=True,
        transforms=True,
    ),
    "WorkerHeartbeat:without topology, version, began_ms, totals, throttled_s, tells_all, transforms": WorkerHeartbeat(
        "w1", 42, NOW, (3, 7), {"a-to-b": NOW}, {"a-to-b": {13: 120, 40: 1}}, True
    ),
    "WorkerHeartbeat:without pauses_partitions": WorkerHeartbeat(
        "w1", 42, NOW, (3, 7), {"a-to-b": NOW}, {"a-to-b": {13: 120, 40: 1}}
    ),
    "WorkerHeartbeat:without latencies": WorkerHeartbeat("w1", 42, NOW, (3, 7), {"a-to-b": NOW}),
    "WorkerHeartbeat:with the three fields that are needed": WorkerHeartbeat("w1", 42, NOW),
    "SyncedPositions:now": SyncedPositions("a-to-b", "billing", {ORDERS: 5, EVENTS: 6}, {ORDERS: 7}, {EVENTS: 8}),
    "StateRange:now": StateRange("a-to-b", "counter", {ORDERS: 5, EVENTS: 6}, {ORDERS: 7}, {ORDERS: "AgAAAaIf"}, NOW),
    "GroupResetDecision:now": GroupResetDecision("a-to-b", "billing", {ORDERS: None, EVENTS: 6}, "ann", "one", NOW),
    "OperatorDecision:now": replace(
        _DECISION, kind="adopt", lost=None, target_id=TARGET_ID, source_id=SOURCE_ID, base=90, position=80, tool="MM2"
    ),
    "OperatorDecision:now, a gap": replace(_DECISION, through=9),
    "OperatorDecision:without through, source_id, base, position, tool": _DECISION,
    "block:now": _BLOCK,
    "block:now, everything": replace(
        _BLOCK, key=_RENAMED, runs=_MANY, epochs=(LeaderEpochEntry(5, 1), LeaderEpochEntry(9, 2)), since=1, order="one",
        note="n", needs_epoch=True, closed=True, after=1, adopted="one", filling=True, given_up=8,
    ),
    "block:schema 1": replace(_BLOCK, key=_RENAMED),
    "position:now": _POSITION,
    "position:now, with repeats": replace(
        _POSITION, filled=0, log=LogKnowledge(2_000, True), writers=(BlockWriter(0, 1, "ab"), BlockWriter(1, 4, "cd"))
    ),
    "position:schema 1, without filled": replace(_POSITION, filled=0),
    "stretches:now": _EXPLICIT,
    "stretches:schema 1": _EXPLICIT[:3],
    "repeated:now": None,
    "takeover:now": None,
    "path:now": None,
    "foreign:now": ForeignPart("MM2", 2_000, 2_400, _EXPLICIT, (OffsetSpan(60, 62),)),
}  # fmt: skip
