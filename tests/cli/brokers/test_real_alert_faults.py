"""As test_real_alerts.py, with faults that need proxies, an authorizer, a broker's files, or several workers."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka.admin import AclOperation, AclPermissionType, AdminClient

from tests.cli.alerted import (
    NO_WORKER,
    SILENCE_GOAL_S,
    WORKER,
    Alert,
    wait_alerts,
    wait_calm,
    watched_file,
    write_file,
)
from tests.replicator.brokers.test_fault_disks import damage
from tests.replicator.brokers.test_fault_oddities import acl, allow, quota
from tests.replicator.faults import AUTHORIZER, QUICK_BROKER, Faulty, Feeding, faulty_clusters
from tests.replicator.real import applied, settings_of, wait_copied, workers
from tests.replicator.real_schemas import PARTITIONS, clients, connect_to, plan_with, registered, write
from tests.replicator.states_scene import create, in_state, produce, typed
from watershed.clusters.admin import Admin
from watershed.clusters.registry.schema import Schema
from watershed.cutover.journal.hash_chain import Journal
from watershed.cutover.journal.journal_topic import JournalTopicLog
from watershed.lab.clusters import end_clusters, kill_lab_broker, restart_lab_broker, start_clusters, stop_lab_broker
from watershed.lab.fault_proxy import HELD_CONNECTION, FaultProxy
from watershed.lab.prometheus_server import is_prometheus_built
from watershed.replicator.apply import apply_plan
from watershed.replicator.sync.sync_on_apply import apply_sync_differences
from watershed.topology import compile_path

if TYPE_CHECKING:
    from watershed.lab.schema_registry import SchemaRegistryProcess

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not is_prometheus_built(), reason="python -m watershed.lab.prometheus_server build"),
]
MIGRATION = """\
migration:
  flow: onprem-to-cloud-{name}
  strategy: consumers_first
  applications: {{{applications}}}
  waves:
"""
WAVE = """\
    - name: {name}
      topics: [{name}]
      consumers: [reads-{name}]
      producers: [writes-{name}]
      gates:
        before: [{{lag: {{max_records: 0, hold: 5s}}}}, {{verify: {{level: L1}}}}]
        after: [{{stragglers: {{watch: 6m}}}}]
      rollback: {{none: a test}}
"""
RETRY: Alert = ("WatershedPartitionsRetry", "")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    with faulty_clusters(tmp_path_factory.mktemp("alerted"), {"onprem": 1, "cloud": 1}, AUTHORIZER) as clusters:
        yield clusters


def hold(pair: Faulty, alias: str) -> None:
    pair.proxy(alias).up = pair.proxy(alias).down = HELD_CONNECTION


def test_no_way_to_a_cluster(pair: Faulty, tmp_path: Path) -> None:
    """The worker's connections are held; the exporter has a way of its own."""
    behind, path = tmp_path / "behind.yaml", tmp_path / "ways.yaml"
    write_file(behind, pair.through, "ways", "ways", "lag: {max: 5s}")
    write_file(path, pair.settings, "ways", "ways", "lag: {max: 5s}")
    plan = compile_path(behind)
    create(pair.settings["onprem"], "ways")
    produce(pair.settings["onprem"], "ways", 0, 100)
    applied(pair.through, plan)
    with workers(plan, "cloud", tmp_path, WORKER) as start:
        start()
        wait_copied(pair.settings, plan, "ways", 1)
        with watched_file(path, tmp_path) as server:
            wait_calm(server)
            for alias, fault, alert in (
                ("onprem", "F20 no way to the source", RETRY),
                # Workers report at the target: one that cannot reach it is as good as dead.
                ("cloud", "F21 no way to the target", NO_WORKER),
            ):
                hold(pair, alias)
                try:
                    wait_alerts(server, {fault: alert}, goal_s=SILENCE_GOAL_S)
                finally:
                    pair.proxies[alias].heal()
                wait_calm(server)


def test_a_right_a_damaged_batch_a_truncated_source(pair: Faulty, tmp_path: Path) -> None:
    """All are met at the same moment: the flow is paused while they are made."""
    onprem = pair.settings["onprem"]
    path = tmp_path / "spoilt.yaml"
    topics = ("closed", "damaged", "truncated", "whole")
    write_file(path, pair.settings, "spoilt", ", ".join(topics), "lag: {max: 5m}")
    plan = compile_path(path)
    flow = plan.flows[0].id
    create(onprem, *topics)
    for each in topics:
        produce(onprem, each, 0, 100)
    applied(pair.settings, plan)
    halted: dict[str, Alert] = {
        "F15 source truncated": ("WatershedPartitionHalted", "source_truncated"),
        "F24 a damaged batch": ("WatershedPartitionHalted", "rejected"),
        "F31 a right is taken away": ("WatershedPartitionHalted", "unauthorised"),
    }
    denial = acl("closed", AclOperation.READ, AclPermissionType.DENY)
    rules = AdminClient(onprem.librdkafka())
    with workers(plan, "cloud", tmp_path, WORKER) as start:
        start()
        for each in topics:
            wait_copied(pair.settings, plan, each, 1)
        with watched_file(path, tmp_path) as server:
            wait_calm(server)
            assert typed(f"topology flow pause {flow} FILE", path) == 0
            for each in topics:
                in_state(pair.settings, plan, each, "paused")
            for number in range(100, 400, 100):  # several batches
                for each in ("closed", "damaged"):
                    produce(onprem, each, number, 100)
            stop_lab_broker(pair.home, "onprem")  # in good order: it checks nothing when it starts again
            damage(segment_of(pair, "damaged"))
            truncate(segment_of(pair, "truncated"))
            restart_lab_broker(pair.home, "onprem")
            rules.create_acls([denial])[denial].result(60)
            wait_calm(server)
            assert typed(f"topology flow resume {flow} FILE", path) == 0
            try:
                wait_alerts(server, halted)
            finally:
                allow(rules, "closed")
            wait_calm(server, frozenset(halted.values()) - {halted["F31 a right is taken away"]})


def segment_of(pair: Faulty, topic: str) -> Path:
    (segment,) = (pair.lab.cluster("onprem").brokers[0].data / f"{topic}-0").glob("*.log")
    return segment


def truncate(segment: Path) -> None:
    """As a disk that was restored from before anything was written."""
    for each in segment.parent.iterdir():
        if each.name != "partition.metadata":
            each.unlink()
    segment.touch()


def test_brokers_throttle_and_lag_grows(pair: Faulty, tmp_path: Path) -> None:
    """With a shorter patience than the rule's 5 minutes, and windows as short."""
    path = tmp_path / "throttled.yaml"
    write_file(path, pair.settings, "throttled", "throttled", "lag: {max: 15m}")
    plan = compile_path(path)
    create(pair.settings["onprem"], "throttled")
    produce(pair.settings["onprem"], "throttled", 0, 100)
    applied(pair.settings, plan)
    with workers(plan, "cloud", tmp_path, WORKER) as start:
        start()
        wait_copied(pair.settings, plan, "throttled", 1)
        with watched_file(path, tmp_path, {"for: 5m": "for: 5s", "[5m]": "[20s]"}) as server:
            wait_calm(server)
            source = pair.settings["onprem"]
            with Feeding(lambda count, first: produce(source, "throttled", 100 + first, count), 1_000):
                wait_calm(server)
                quota(pair.settings["cloud"], "producer_byte_rate", 2_000.0)
                try:
                    wait_alerts(server, {"F27 brokers throttle": ("WatershedThrottled", "")})
                finally:
                    quota(pair.settings["cloud"], "producer_byte_rate", None)
            wait_calm(server)


def test_one_worker_of_two_is_frozen_or_killed(pair: Faulty, tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    write_file(path, pair.settings, "two", "two", "lag: {max: 2m}")
    plan = compile_path(path)
    create(pair.settings["onprem"], "two", partitions=4)
    for partition in range(4):
        produce(pair.settings["onprem"], "two", 0, 100, partition)
    applied(pair.settings, plan)
    assert typed("topology fleet scale FILE --target cloud --workers 2", path) == 0
    missing: Alert = ("WatershedWorkersMissing", "")
    with workers(plan, "cloud", tmp_path, WORKER) as start:
        start()
        other = start()
        wait_copied(pair.settings, plan, "two", 4)
        with watched_file(path, tmp_path) as server:
            wait_calm(server)
            other.send(signal.SIGSTOP)
            try:
                wait_alerts(server, {"F04 one worker of two is frozen": missing}, goal_s=SILENCE_GOAL_S)
            finally:
                other.send(signal.SIGCONT)
            wait_calm(server)
            other.kill()
            wait_alerts(server, {"F01 one worker of two is killed": missing}, goal_s=SILENCE_GOAL_S)


def test_migrations_that_stand_still(pair: Faulty, tmp_path: Path) -> None:
    """The journal is written as runs write it. With a shorter patience than 15 minutes for a person and 5 minutes for a
    run that stands between the clusters; what is overdue is 6 minutes old."""
    path = tmp_path / "moved.yaml"
    waves = ("asks", "refused", "overdue", "back")
    write_file(path, pair.settings, "moved", ", ".join(waves), "lag: {max: 2m}")
    applications = [f'{verb}-{each}: {{http: "http://127.0.0.1:9"}}' for verb in ("reads", "writes") for each in waves]
    moves = MIGRATION.format(name="moved", applications=", ".join(applications))
    moves += "".join(WAVE.format(name=each) for each in waves)
    path.write_text(path.read_text() + moves)
    plan = compile_path(path)
    create(pair.settings["onprem"], *waves)
    applied(pair.settings, plan)
    alerts: dict[str, Alert] = {
        "a step waits for a person": ("WatershedMigrationWaits", "waiting"),
        "a step was refused": ("WatershedMigrationBroken", "step_refused"),
        "the process of a migration died": ("WatershedMigrationOverdue", "overdue"),
        "a migration was taken back": ("WatershedMigrationTakenBack", "rolled_back"),
    }
    with workers(plan, "cloud", tmp_path, WORKER) as start:
        start()
        for each in waves:
            in_state(pair.settings, plan, each, "running")
        with watched_file(path, tmp_path, {"for: 15m": "for: 5s", "for: 5m": "for: 5s"}) as server:
            wait_calm(server)
            log = JournalTopicLog(pair.settings["cloud"])
            old, new = Journal(log, "moved", "died", lambda: time.time() - 360), Journal(log, "moved", "lives")
            write_entries(old, plan.hash, "overdue", ("freeze", "intent", {"bound_ms": 1_000}))
            write_entries(new, plan.hash, "asks", ("approval", "intent", {}))
            refused = {"outcome": {"verdict": "different"}, "refused": "not proven"}
            write_entries(
                new, plan.hash, "refused", ("history_proof", "intent", {}), ("history_proof", "outcome", refused)
            )
            write_entries(new, plan.hash, "back", ("run", "outcome", {"state": "rolled_back"}))
            wait_alerts(server, alerts)


def write_entries(journal: Journal, plan_hash: str, wave: str, *entries: tuple[str, Any, dict[str, Any]]) -> None:
    who = {"actor": "ann", "plan_hash": plan_hash, "wave": wave}
    journal.refresh()
    for step, kind, observation in (("run", "intent", {"kind": "migrate"}), *entries):
        journal.append(f"migrate.{wave}", step, kind, observation, **who)


def test_too_few_replicas_at_the_target(pair: Faulty, tmp_path: Path) -> None:
    """The target needs all three replicas, and one broker is killed: it refuses, and tells the workers so."""
    home = tmp_path / "three"
    try:
        lab = start_clusters(home, ["three"], brokers=3, settings=QUICK_BROKER)
        settings = {"onprem": pair.settings["onprem"], "cloud": replace(settings_of(lab)["three"], alias="cloud")}
        path = tmp_path / "replicas.yaml"
        write_file(path, settings, "replicas", "replicas", "lag: {max: 5s}")
        plan = compile_path(path)
        create(settings["onprem"], "replicas")
        produce(settings["onprem"], "replicas", 0, 100)
        applied(settings, plan)
        with workers(plan, "cloud", tmp_path, WORKER) as start:
            start()
            wait_copied(settings, plan, "replicas", 1)
            with watched_file(path, tmp_path) as server:
                wait_calm(server)
                with Admin(settings["cloud"]) as admin:
                    admin.alter_topic_configs("replicas", {"min.insync.replicas": "3"})
                kill_lab_broker(home, "three", 3)
                produce(settings["onprem"], "replicas", 100, 100)
                wait_alerts(server, {"F26 too few replicas": RETRY}, goal_s=SILENCE_GOAL_S)
    finally:
        end_clusters(home)


@pytest.mark.slow
def test_an_unknown_schema_and_no_registry(
    pair: Faulty, registry_pair: list[SchemaRegistryProcess], tmp_path: Path
) -> None:
    """Records wait for their schema at the target, and go on by themselves."""
    name, path = f"schemas-{uuid.uuid4().hex[:8]}", tmp_path / "schemas.yaml"  # registries outlive this test
    registries = dict(zip(("onprem", "cloud"), (urlsplit(each.url) for each in registry_pair), strict=True))
    proxies = {alias: FaultProxy((each.hostname or "", each.port or 0)) for alias, each in registries.items()}
    try:
        urls = {alias: f"http://{each.address}{registries[alias].path}" for alias, each in proxies.items()}
        write_file(path, pair.settings, name, name, "lag: {max: 5s}")
        plan = plan_with(pair.lab, name, urls, mode="once", ids="translate")
        create(pair.settings["onprem"], name, partitions=PARTITIONS)
        with clients({alias: each.geturl() for alias, each in registries.items()}) as (here, _):
            ids, key = registered(here, name)
            apply_plan(plan, connect_to(plan))
            write(pair.settings["onprem"], name, ids, key, 100)
            with workers(plan, "cloud", tmp_path, WORKER) as start:
                start()
                wait_copied(pair.settings, plan, name, PARTITIONS)
                with watched_file(path, tmp_path) as server:
                    wait_calm(server)
                    later = here.register(f"{name}-value", Schema('{"type":"string","doc":"later"}'))
                    write(pair.settings["onprem"], name, [later], key, 100, 100)
                    wait_alerts(server, {"F32 an unknown schema": RETRY}, goal_s=SILENCE_GOAL_S)
                    assert [each.error for each in apply_sync_differences(plan, connect_to(plan))] == [None]
                    wait_calm(server)
                    last = here.register(f"{name}-value", Schema('{"type":"string","doc":"last"}'))
                    assert [each.error for each in apply_sync_differences(plan, connect_to(plan))] == [None]
                    proxies["onprem"].up = proxies["onprem"].down = HELD_CONNECTION
                    write(pair.settings["onprem"], name, [last], key, 100, 200)
                    wait_alerts(server, {"F33 no registry": RETRY}, goal_s=SILENCE_GOAL_S)
                    proxies["onprem"].heal()
                    wait_copied(pair.settings, plan, name, PARTITIONS)
                    wait_calm(server)
    finally:
        for each in proxies.values():
            each.close()
