"""Real brokers, a worker, the exporter, a real Prometheus with the rules of `topology alerts`: which alert each fault
fires, after how many seconds, and that no other fires; none in quiet traffic.

$WATERSHED_QUIET_MINUTES: how long the quiet traffic is (1; 30 for the whole promise).
$WATERSHED_ALERT_DEFAULTS: see tests/cli/alerted.py.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.cli.alerted import (
    NO_WORKER,
    SILENCE_GOAL_S,
    WORKER,
    Alert,
    wait_alerts,
    wait_calm,
    watch_quiet,
    watched_file,
    write_file,
)
from tests.replicator.real import applied, settings_of, wait_copied, workers
from tests.replicator.states_scene import create, delete_records, delete_topics, in_state, produce, typed
from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import LEDGER_TOPIC, compute_slot
from watershed.clusters.settings import ConnectionSettings
from watershed.lab.clusters import freeze_lab_broker, kill_lab_broker
from watershed.lab.prometheus_server import (
    is_prometheus_built,
)
from watershed.topology import compile_path

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

QUIET_S = 60 * float(os.environ.get("WATERSHED_QUIET_MINUTES", "1"))
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.soak,
    pytest.mark.timeout(900 + 2 * QUIET_S),
    pytest.mark.skipif(not is_prometheus_built(), reason="python -m watershed.lab.prometheus_server build"),
]
TOPICS = ("expired", "recreated", "gone", "lost", "foreign", "refused", "fine")
HALTED: dict[str, Alert] = {
    "F11 source_expired": ("WatershedPartitionHalted", "source_expired"),
    "F13 source_recreated": ("WatershedPartitionHalted", "source_recreated"),
    "F14 source_gone": ("WatershedPartitionHalted", "source_gone"),
    "F16 target_gone": ("WatershedPartitionHalted", "target_gone"),
    "F25 rejected": ("WatershedPartitionHalted", "rejected"),
    "foreign writer": ("WatershedPartitionHalted", "target_foreign_write"),
}


def break_topics(onprem: ConnectionSettings, cloud: ConnectionSettings) -> None:
    """While the flow is paused, so that every fault is met at the same moment."""
    for each in TOPICS:
        produce(onprem, each, 200, 50)
    delete_records(onprem, "expired", 130)
    delete_topics(onprem, "recreated", "gone")
    delete_topics(cloud, "lost")
    create(onprem, "recreated")
    produce(onprem, "recreated", 1_000, 10)
    produce(cloud, "foreign", 9_000, 5)
    with Admin(cloud) as admin:
        admin.alter_topic_configs("refused", {"max.message.bytes": "50"})


def test_halts_and_lost_workers_fire_their_alerts_and_quiet_traffic_fires_none(own_pair: Lab, tmp_path: Path) -> None:
    settings = settings_of(own_pair)
    onprem, cloud = settings["onprem"], settings["cloud"]
    path = tmp_path / "watched.yaml"
    slo = "lag: {p99: 30s, max: 2m}, rpo: 5m, outage_allowance: 1d"
    write_file(path, settings, "watched", ", ".join(TOPICS), slo)
    plan = compile_path(path)
    create(onprem, *TOPICS)
    for each in TOPICS:
        produce(onprem, each, 0, 100)
    applied(settings, plan)
    with workers(plan, "cloud", tmp_path, WORKER) as start:
        first = start()
        for each in TOPICS:
            wait_copied(settings, plan, each, 1)
        with watched_file(path, tmp_path) as server:
            wait_calm(server)
            watch_quiet(server, QUIET_S, onprem, "fine")
            assert typed("topology flow pause onprem-to-cloud-watched FILE", path) == 0
            in_state(settings, plan, "fine", "paused")
            break_topics(onprem, cloud)
            assert typed("topology flow resume onprem-to-cloud-watched FILE", path) == 0
            wait_alerts(server, HALTED)
            halted = frozenset(HALTED.values())

            os.kill(first.pid, signal.SIGSTOP)
            try:
                wait_alerts(server, {"F04 the only worker is frozen": NO_WORKER}, halted, SILENCE_GOAL_S)
            finally:
                os.kill(first.pid, signal.SIGCONT)
            wait_calm(server, halted)
            first.kill()
            wait_alerts(server, {"the only worker is killed": NO_WORKER}, halted, SILENCE_GOAL_S)


def test_a_transaction_that_does_not_end(own_pair: Lab, tmp_path: Path) -> None:
    """With a shorter patience than the rule's 15 minutes."""
    settings = settings_of(own_pair)
    path = tmp_path / "open.yaml"
    write_file(path, settings, "open", "open", "lag: {max: 5s}")
    plan = compile_path(path)
    create(settings["onprem"], "open")
    produce(settings["onprem"], "open", 0, 100)
    applied(settings, plan)
    with workers(plan, "cloud", tmp_path, WORKER) as start:
        start()
        wait_copied(settings, plan, "open", 1)
        with watched_file(path, tmp_path, {"for: 15m": "for: 5s", "[2m]": "[15s]"}) as server:
            wait_calm(server)
            hanging = {"transactional.id": "open", "transaction.timeout.ms": 600_000}
            sending = Producer(settings["onprem"].librdkafka(hanging))
            sending.init_transactions(30)
            sending.begin_transaction()
            sending.produce("open", b"never committed", partition=0)
            assert sending.flush(30) == 0
            wait_alerts(server, {"F35 a hanging transaction": ("WatershedTransactionHangs", "")})
            sending.abort_transaction(30)
            wait_calm(server)


def test_clusters_that_do_not_answer(own_pair: Lab, tmp_path: Path) -> None:
    settings = settings_of(own_pair)
    path = tmp_path / "steady.yaml"
    write_file(path, settings, "steady", "steady", "lag: {max: 5s}")
    plan = compile_path(path)
    create(settings["onprem"], "steady")
    produce(settings["onprem"], "steady", 0, 100)
    applied(settings, plan)
    with workers(plan, "cloud", tmp_path, WORKER) as start:
        start()
        wait_copied(settings, plan, "steady", 1)
        with watched_file(path, tmp_path) as server:
            wait_calm(server)
            freeze_lab_broker(own_pair.directory, "onprem")
            try:
                wait_alerts(
                    server, {"F20 the source is frozen": ("WatershedPartitionsRetry", "")}, goal_s=SILENCE_GOAL_S
                )
            finally:
                freeze_lab_broker(own_pair.directory, "onprem", frozen=False)
            wait_calm(server)
            kill_lab_broker(own_pair.directory, "cloud")
            wait_alerts(
                server, {"F21 the target is killed": ("WatershedClusterUnreachable", "")}, goal_s=SILENCE_GOAL_S
            )


def test_a_proof_that_failed_a_spoilt_ledger_and_retention_that_comes_near(own_pair: Lab, tmp_path: Path) -> None:
    """The rule allows half of `slo.outage_allowance`: half a minute here. 15 s without a report are no silence yet."""
    settings = settings_of(own_pair)
    path, evidence = tmp_path / "near.yaml", tmp_path / "proofs"
    write_file(path, settings, "near", "near, spoilt", "outage_allowance: 1m")
    plan = compile_path(path)
    flow = plan.flows[0].id
    create(settings["onprem"], "near", "spoilt")
    for topic in ("near", "spoilt"):
        produce(settings["onprem"], topic, 0, 100)
    applied(settings, plan)
    failed: Alert = ("WatershedProofFailed", "")
    spoilt: Alert = ("WatershedPartitionHalted", "ledger_invalid")
    near: Alert = ("WatershedRetentionComesNear", "")
    with workers(plan, "cloud", tmp_path, WORKER) as start:
        worker = start()
        for topic in ("near", "spoilt"):
            wait_copied(settings, plan, topic, 1)
        with watched_file(path, tmp_path, options=("--proofs", str(evidence))) as server:
            wait_calm(server)
            proof = {"verdict": "different", "unproven": 3, "flows": [{"id": flow}], "ended_at": "2026-01-01T00:00:00Z"}
            (evidence / "one").mkdir(parents=True)
            (evidence / "one" / "summary.json").write_text(json.dumps(proof))
            wait_alerts(server, {"a proof failed": failed})

            assert typed(f"topology flow pause {flow} FILE", path) == 0
            in_state(settings, plan, "spoilt", "paused")
            sending = Producer(settings["cloud"].librdkafka())
            key = f"{flow}|spoilt|0|1.intruder|0"
            sending.produce(LEDGER_TOPIC, b"not json", key, compute_slot(flow, "spoilt", 0))
            assert sending.flush(30) == 0
            assert typed(f"topology flow resume {flow} FILE", path) == 0
            wait_alerts(server, {"F40 a record of the ledger": spoilt}, frozenset({failed}))

            worker.kill()
            gone = {"F12 retention comes near": near, "its only worker is killed": NO_WORKER}
            wait_alerts(server, gone, frozenset({failed, spoilt}), 90)
            with redirect_stdout(StringIO()) as told:
                assert main(["status", str(path), "--format", "json"]) == 0
            [row] = json.loads(told.getvalue())["flows"]
            states = {each["topic"]: (each["state"], each["silent"]) for each in row["partitions"]}
            assert states == {"near": ("silent", True), "spoilt": ("ledger_invalid", True)}
            assert (row["state"], row["lag_ms"] >= 30_000) == ("ledger_invalid", True)
