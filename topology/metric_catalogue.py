"""Every metric that workers and the exporter serve: name, kind, unit, labels, meaning, and what to be woken for.

Collectors build their families from these definitions (`clusters.metric_families`), alert rules and dashboards take the
names from here, and `docs/metrics.md` is written from them. So each name stands once. Names follow Prometheus'
conventions: base units, the unit in the name, `_total` for counters
(https://prometheus.io/docs/practices/naming/).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

MetricKind = Literal["counter", "gauge", "histogram"]
ServedBy = Literal["worker", "exporter", "both"]


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """name: as queries write it; a histogram has it in front of `_bucket`, `_sum` and `_count`. unit: "" for plain
    numbers. labels: in the order of the values. served_by: the endpoint of a worker (`--metrics`), `topology exporter`,
    or both. alert: when somebody should hear of it, as a sentence; "" for what only explains others."""

    name: str
    kind: MetricKind
    unit: str
    labels: tuple[str, ...]
    meaning: str
    served_by: ServedBy
    alert: str = ""


_PARTITION: Final = ("flow", "topic", "target_topic", "partition")
_FLOW: Final = ("flow",)
# Topologies share clusters, and each has its own exporter: `topology` keeps their series and alerts apart.
_FLEET: Final = ("topology", "target")
_CLUSTER: Final = ("topology", "cluster")

LAG_RECORDS: Final = MetricDefinition(
    "watershed_lag_records", "gauge", "records", _PARTITION, "Source offsets not copied yet.", "both"
)
LAG_BYTES: Final = MetricDefinition(
    "watershed_lag_bytes", "gauge", "bytes", _PARTITION, "Their estimated size.", "both"
)
LAG_SECONDS: Final = MetricDefinition(
    "watershed_lag_seconds",
    "gauge",
    "seconds",
    _PARTITION,
    "How long the oldest uncopied record has been waiting.",
    "both",
)
EVENT_AGE_SECONDS: Final = MetricDefinition(
    "watershed_event_age_seconds",
    "gauge",
    "seconds",
    _PARTITION,
    "Age of the last copied record's timestamp, whatever that says.",
    "both",
)
OPEN_RECORDS: Final = MetricDefinition(
    "watershed_open_records",
    "gauge",
    "records",
    _PARTITION,
    "Offsets that wait for a source transaction to end.",
    "both",
)
FILLING_OFFSETS: Final = MetricDefinition(
    "watershed_filling_offsets",
    "gauge",
    "offsets",
    _PARTITION,
    "Offsets to fill before an aligned copy begins.",
    "both",
)
SOURCE_POSITION: Final = MetricDefinition(
    "watershed_source_position", "gauge", "offset", _PARTITION, "Next source offset to copy.", "both"
)
TARGET_END: Final = MetricDefinition(
    "watershed_target_end", "gauge", "offset", _PARTITION, "Log end of the target partition.", "both"
)
COPIED_BYTES: Final = MetricDefinition(
    "watershed_copied_bytes_total",
    "counter",
    "bytes",
    _PARTITION,
    "Bytes copied since a worker took the partition, before compression by the worker.",
    "both",
)
SAVED_BYTES: Final = MetricDefinition(
    "watershed_saved_bytes_total",
    "counter",
    "bytes",
    _PARTITION,
    "Of these, bytes that compression by the worker saved.",
    "both",
)
FLOW_LAG_RECORDS: Final = MetricDefinition(
    "watershed_flow_lag_records",
    "gauge",
    "records",
    _FLOW,
    "Source offsets of the flow not copied yet, of all partitions together. A flow that is paused or stopped as a "
    "whole tells those that waited then; more may wait by now.",
    "both",
)
FLOW_LAG_BYTES: Final = MetricDefinition(
    "watershed_flow_lag_bytes", "gauge", "bytes", _FLOW, "Their estimated size.", "both"
)
FLOW_LAG_SECONDS: Final = MetricDefinition(
    "watershed_flow_lag_seconds",
    "gauge",
    "seconds",
    _FLOW,
    "How long the oldest uncopied record of any partition has been waiting.",
    "both",
    "It stays over what the flow's readers can bear (`slo.lag.max`).",
)
COPIED_RECORDS: Final = MetricDefinition(
    "watershed_copied_records_total",
    "counter",
    "records",
    _FLOW,
    "Records that the target has acknowledged, or whose transaction was committed.",
    "both",
)
PARTITIONS: Final = MetricDefinition(
    "watershed_partitions",
    "gauge",
    "partitions",
    ("flow", "state"),
    "Partitions by state (states.md); a halted one needs a person.",
    "both",
    "A partition is in a state in which somebody has to decide something.",
)
PARTITIONS_SILENT: Final = MetricDefinition(
    "watershed_partitions_silent",
    "gauge",
    "partitions",
    _FLOW,
    "Partitions of a running flow of which no worker has reported for 15 s.",
    "exporter",
    "It is over 0 for a minute: nobody copies these partitions.",
)
FLOW_STATE: Final = MetricDefinition(
    "watershed_flow_state",
    "gauge",
    "",
    ("flow", "state"),
    "1 for the state that the flow is meant to have (running, paused, stopped), 0 for the others.",
    "exporter",
)
STOPPED_BY_BUDGET: Final = MetricDefinition(
    "watershed_flow_stopped_by_budget",
    "gauge",
    "",
    ("flow", "action"),
    "1 while the flow stands still because `slo.lag.max` was exceeded and `slo.on_breach` is the action.",
    "exporter",
    "It is there: the flow stands still until a person resumes it.",
)
BESIDE: Final = MetricDefinition(
    "watershed_beside", "gauge", "things", ("flow", "kind", "state"), "What travels beside records, by state.", "both"
)
LATENCY_SECONDS: Final = MetricDefinition(
    "watershed_latency_seconds",
    "histogram",
    "seconds",
    _FLOW,
    "Time from the arrival of records at the worker to their acknowledgement by the target.",
    "both",
)
REPLICATION_LATENCY_SECONDS: Final = MetricDefinition(
    "watershed_replication_latency_seconds",
    "histogram",
    "seconds",
    _FLOW,
    "Time from the append of records at the source (the newest timestamp of their batch) to their acknowledgement by "
    "the target.",
    "both",
    "Too large a share of the records takes longer than `slo.lag.p99`.",
)
THROTTLED_SECONDS: Final = MetricDefinition(
    "watershed_throttled_seconds_total",
    "counter",
    "seconds",
    _FLEET,
    "Seconds that brokers have asked the worker's threads to wait (quotas, KIP-219), added up over connections.",
    "both",
    "It grows by more than half a second a second, and lag grows too.",
)
FOLLOWER_BYTES: Final = MetricDefinition(
    "watershed_follower_bytes_total",
    "counter",
    "bytes",
    (),
    "Bytes of records that followers in the worker's rack sent in place of leaders.",
    "worker",
)
BUFFERED_BYTES: Final = MetricDefinition(
    "watershed_buffered_bytes", "gauge", "bytes", (), "Record batches in the worker's memory.", "worker"
)
WORKER_INFO: Final = MetricDefinition(
    "watershed_worker_info", "gauge", "", ("worker", "target", "pid", "version"), "Who the worker is; always 1.", "both"
)
WORKER_LAST_SEEN_SECONDS: Final = MetricDefinition(
    "watershed_worker_last_seen_seconds",
    "gauge",
    "seconds",
    ("target", "worker"),
    "How long ago the worker's newest heartbeat was written. A worker that is silent for 10 minutes is left out.",
    "exporter",
)
WORKER_STARTS: Final = MetricDefinition(
    "watershed_worker_starts_total",
    "counter",
    "starts",
    _FLEET,
    "Workers that began since the exporter began, without those of flows with `transform`.",
    "exporter",
    "Workers start more often than every few minutes, and nobody ordered it.",
)
FLEET_WORKERS: Final = MetricDefinition(
    "watershed_fleet_workers",
    "gauge",
    "workers",
    (*_FLEET, "kind"),
    "Workers into a target: `wanted` by the fleet's record, `present` by heartbeats of the last 15 s. Workers of flows "
    "with `transform` are counted with neither, as in `topology fleet status`.",
    "exporter",
    "For a minute fewer are present than wanted.",
)
CLUSTER_UP: Final = MetricDefinition(
    "watershed_cluster_up",
    "gauge",
    "",
    _CLUSTER,
    "1 where the exporter can read the cluster's control topics, 0 where it cannot.",
    "exporter",
    "It is 0 for a minute.",
)
EXPORTER_READ_AGE_SECONDS: Final = MetricDefinition(
    "watershed_exporter_read_age_seconds",
    "gauge",
    "seconds",
    _CLUSTER,
    "How old the exporter's knowledge of the cluster is: the time since its last answer, or since the exporter last "
    "counted, whichever is longer. Absent before the first answer.",
    "exporter",
    "It is over 60 s: all other values of this cluster are as old.",
)
PROOF_PASSED: Final = MetricDefinition(
    "watershed_proof_passed",
    "gauge",
    "",
    _FLOW,
    "Whether the newest proof of the flow compared all records and found none missing, repeated or different.",
    "exporter",
    "It is 0.",
)
PROOF_AGE_SECONDS: Final = MetricDefinition(
    "watershed_proof_age_seconds",
    "gauge",
    "seconds",
    _FLOW,
    "How long ago the newest proof of the flow ended.",
    "exporter",
    "It is older than the time between two proofs.",
)
PROOF_UNPROVEN_RECORDS: Final = MetricDefinition(
    "watershed_proof_unproven_records",
    "gauge",
    "records",
    _FLOW,
    "Records that the newest proof of the flow could not prove.",
    "exporter",
    "It is over 0.",
)
MIGRATION_STEP: Final = MetricDefinition(
    "watershed_migration_step",
    "gauge",
    "",
    ("migration", "wave", "step", "state"),
    "1 for the newest step of the newest run of each wave. state: under_way, overdue (for longer than the step may "
    "take), waiting (for a person), done or step_refused, and, as soon as the run has ended, how it ended (done, "
    "stopped, rolled_back, …).",
    "exporter",
    "A step is `overdue`, or `waiting` for longer than people need, or `step_refused` for 5 minutes, or a run has "
    "`stopped`.",
)

METRICS: Final = (
    *(LAG_RECORDS, LAG_BYTES, LAG_SECONDS, EVENT_AGE_SECONDS, OPEN_RECORDS, FILLING_OFFSETS),
    *(SOURCE_POSITION, TARGET_END, COPIED_BYTES, SAVED_BYTES),
    *(FLOW_LAG_RECORDS, FLOW_LAG_BYTES, FLOW_LAG_SECONDS, COPIED_RECORDS),
    *(PARTITIONS, PARTITIONS_SILENT, FLOW_STATE, STOPPED_BY_BUDGET, BESIDE),
    *(LATENCY_SECONDS, REPLICATION_LATENCY_SECONDS),
    *(THROTTLED_SECONDS, FOLLOWER_BYTES, BUFFERED_BYTES),
    *(WORKER_INFO, WORKER_LAST_SEEN_SECONDS, WORKER_STARTS, FLEET_WORKERS),
    *(CLUSTER_UP, EXPORTER_READ_AGE_SECONDS),
    *(PROOF_PASSED, PROOF_AGE_SECONDS, PROOF_UNPROVEN_RECORDS, MIGRATION_STEP),
)
