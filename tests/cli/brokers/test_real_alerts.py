"""Real brokers, a worker, the exporter, a real Prometheus with the rules of `topology alerts`: which alert each fault
fires, after how many seconds, and that no other fires; none in quiet traffic.

$WATERSHED_QUIET_MINUTES: how long the quiet traffic is (1; 30 for the whole promise).
$WATERSHED_ALERT_DEFAULTS: 1 for a worker that waits for a log to settle as long as it does by default (35 s, not 3 s),
and a scrape and an evaluation every 15 s (not each second), as docs/alerts.md advises.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from io import StringIO
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.cli.exported import running_command, wait_answer
from tests.replicator.real import applied, settings_of, wait_copied, workers
from tests.replicator.states_scene import QUICK, create, delete_records, delete_topics, in_state, produce, typed
from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import LEDGER_TOPIC, compute_slot
from watershed.clusters.settings import ConnectionSettings
from watershed.lab.clusters import freeze_lab_broker, kill_lab_broker
from watershed.lab.free_ports import find_free_ports
from watershed.lab.prometheus_server import (
    PrometheusServer,
    end_prometheus,
    is_prometheus_built,
    list_firing_alerts,
    start_prometheus,
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
HAS_DEFAULTS = os.environ.get("WATERSHED_ALERT_DEFAULTS") == "1"
GOAL_S = 60
SILENCE_GOAL_S = (
    80 if HAS_DEFAULTS else 60
)  # 15 s of silence, 30 of waiting for the next scrape and evaluation, 30 more
INTERVAL_S = 15.0 if HAS_DEFAULTS else 1.0
WORKER = "" if HAS_DEFAULTS else QUICK
FILE = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: tests}}
clusters:
  onprem: {{bootstrap: ["{onprem}"]}}
  cloud: {{bootstrap: ["{cloud}"]}}
flows:
  - source: onprem
    target: cloud
    suffix: {name}
    topics: {{include: [{topics}]}}
    naming: {{policy: identity}}
    workers: {{engine: process, discovery: 1s}}
    slo: {{{slo}}}
"""
TOPICS = ("expired", "recreated", "gone", "lost", "foreign", "refused", "fine")
Alert = tuple[str, str]  # name, state
HALTED: dict[str, Alert] = {
    "F11 source_expired": ("WatershedPartitionHalted", "source_expired"),
    "F13 source_recreated": ("WatershedPartitionHalted", "source_recreated"),
    "F14 source_gone": ("WatershedPartitionHalted", "source_gone"),
    "F16 target_gone": ("WatershedPartitionHalted", "target_gone"),
    "F25 rejected": ("WatershedPartitionHalted", "rejected"),
    "foreign writer": ("WatershedPartitionHalted", "target_foreign_write"),
}
NO_WORKER: Alert = ("WatershedNoWorker", "")


def write_file(path: Path, settings: dict[str, ConnectionSettings], name: str, topics: str, slo: str) -> None:
    addresses = {alias: each.bootstrap[0] for alias, each in settings.items()}
    path.write_text(FILE.format(**addresses, name=name, topics=topics, slo=slo))


def read_alerts(server: PrometheusServer) -> set[Alert]:
    return {(each["alertname"], each.get("state", "")) for each in list_firing_alerts(server)}


def wait_alerts(
    server: PrometheusServer, wanted: dict[str, Alert], before: frozenset[Alert] = frozenset(), goal_s: float = GOAL_S
) -> None:
    """Until all fire; no other may fire meanwhile but those of `before`."""
    began, late = time.monotonic(), dict(wanted)
    while late:
        firing = read_alerts(server)
        assert firing <= {*wanted.values(), *before}, firing
        for fault in [each for each, alert in late.items() if alert in firing]:
            print(f"{fault}: {late.pop(fault)[0]} after {time.monotonic() - began:.0f} s")
        assert time.monotonic() < began + goal_s, late
        time.sleep(0.5)


def wait_calm(server: PrometheusServer, left: frozenset[Alert] = frozenset(), seconds: float = 120) -> None:
    """Until those of `left` fire and no others."""
    began = time.monotonic()
    while (firing := read_alerts(server)) != left:
        assert time.monotonic() < began + seconds, firing
        time.sleep(0.5)
    print(f"calm after {time.monotonic() - began:.0f} s")


def watch_quiet(server: PrometheusServer, seconds: float, source: ConnectionSettings, topic: str) -> None:
    began, number = time.monotonic(), 0
    while time.monotonic() < began + seconds:
        produce(source, topic, 100 + number, 10)
        number += 10
        assert read_alerts(server) == set()
        time.sleep(1)
    print(f"quiet: {number} records in {seconds:.0f} s, no alert")


@contextmanager
def watched_file(
    path: Path, folder: Path, changes: Mapping[str, str] = MappingProxyType({}), options: Sequence[str] = ()
) -> Iterator[PrometheusServer]:
    """The exporter of the file, and Prometheus with its rules, scraped and evaluated each second. changes: texts of the
    rules → what stands there instead. options: more of the exporter."""
    assert main(["alerts", str(path), "--out", str(folder / "rules")]) == 0
    port = find_free_ports(1)[0]
    with ExitStack() as stack:
        stack.enter_context(
            running_command(folder / "log", "exporter", str(path), "--listen", f"127.0.0.1:{port}", *options)
        )
        rules = list((folder / "rules").iterdir())
        assert rules
        for rule, (old, new) in product(rules, changes.items()):
            text = rule.read_text()
            assert old in text
            rule.write_text(text.replace(old, new))
        server = start_prometheus(
            folder / "prometheus", {"exporter": [f"127.0.0.1:{port}"]}, rules, interval_s=INTERVAL_S
        )
        stack.callback(end_prometheus, server)
        wait_answer(server, 'watershed_cluster_up{cluster="cloud"}', 1)
        yield server


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
