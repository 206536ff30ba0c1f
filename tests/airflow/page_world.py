"""What the page shows in tests: topologies of 1, 10 and 100 flows whose control topics are on a real cluster.

No worker runs: what workers and migrations write is written here, by their own writers, so that every state can be
seen at once. The migrations are real ones over the world in memory (`tests.cutover.world`). Below: the page without a
browser or a cluster, for what it answers to whom (fixture `page`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from tests.cutover.failover_world import a_dead_source
from tests.cutover.fake_log import FakeLog
from tests.cutover.world import POLICY, World, a_migration
from watershed.clusters.admin import Admin
from watershed.clusters.control_follower import FollowedRecord
from watershed.clusters.control_topics import (
    FLOWS_TOPIC,
    JOURNAL_TOPIC,
    STATUS_TOPIC,
    ControlWriter,
    ensure_control_topics,
)
from watershed.clusters.flow_records import FlowRecord, write_flow
from watershed.clusters.partition_status_records import PartitionStatus, write_partition_status
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.worker_heartbeats import WorkerHeartbeat, write_heartbeat
from watershed.cutover.actions import RequestProof
from watershed.cutover.failover.failover_plan import plan_failover
from watershed.cutover.journal.hash_chain import Journal
from watershed.cutover.observations import ApprovalAnswer, ProofOutcome
from watershed.cutover.run_plan import plan_migration
from watershed.plugins.page.cluster_snapshots import ClusterSnapshot, ControlTopicsView
from watershed.replicator.partition_states import REMEDIES
from watershed.topology import compile_path
from watershed.topology.plan import Plan, PlanCluster, PlanFlow

ADDRESS = "127.0.0.1:1"  # of clusters that nobody asks
NOW = 1_900_000_000.0
LATER_MS = 600_000
NOBODY = "127.0.0.1:9"  # no cluster listens there
RUNS = ("manual__2026-11-22T00:10:00+00:00", "manual__2026-11-22T01:30:00+00:00")
EVIL = "<img src=x onerror=alert(1)>"
HEAD = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: team-orders}}
clusters:
"""
CLUSTER = '  {alias}: {{bootstrap: ["{address}"], security: {{protocol: PLAINTEXT}}}}\n'
FLOW = "  - {{source: {source}, target: {target}, {suffix}topics: {{include: [{topics}]}}, naming: {naming}}}\n"
PREFIX = "{policy: prefix}"
MIGRATION = """
migration:
  flow: onprem-to-cloud
  strategy: consumers_first
  applications:
    billing: {http: "http://127.0.0.1:9"}
    checkout: {http: "http://127.0.0.1:9"}
  waves:
    - name: orders
      topics: [orders, clicks]
      consumers: [billing]
      producers: [checkout]
      gates:
        before: [{lag: {max_records: 0, hold: 2s}}, {verify: {level: L1}}, {approval: team-orders}]
        after: [{stragglers: {watch: 6m}}, {verify: {level: L1}}]
      rollback: {none: "the drill shows the way back"}
    - name: invoices
      after: [orders]
      topics: [invoices]
      consumers: [ledger]
      gates:
        before: [{lag: {max_records: 100, hold: 2s}}, {verify: {level: L2}}]
      rollback: {none: "only a consumer moves"}
"""


def one(address: str) -> str:
    """Two clusters, one flow, a migration of two waves."""
    clusters = {"onprem": _spelt(address, 0), "cloud": _spelt(address, 1)}
    naming = '{policy: template, template: "dc.{topic}"}'
    return _text("shop", clusters, [("onprem", "cloud", "orders, clicks, invoices", "")], naming) + MIGRATION


def with_a_way_back(address: str, name: str = "shop") -> str:
    """The same with a flow that leads home."""
    topics = ("orders", "clicks", "invoices")
    home = "{policy: map, map: {" + ", ".join(f"dc.{topic}: {topic}" for topic in topics) + "}}"
    names = ", ".join(f"dc.{topic}" for topic in topics)
    flow = FLOW.format(source="cloud", target="onprem", topics=names, suffix="", naming=home)
    text = one(address).replace("name: shop", f"name: {name}").replace("\nmigration:", f"{flow}\nmigration:")
    return text.replace('{none: "the drill shows the way back"}', "{until: 24h, reverse: cloud-to-onprem}")


def ten(address: str) -> str:
    """Four sites around a hub, and what goes on from there; one of the clusters does not answer."""
    sites = ["berlin", "lyon", "oslo", "porto"]
    clusters = {name: _spelt(address, number) for number, name in enumerate(["hub", "lake", *sites])}
    flows = [(site, "hub", topic, topic) for site in sites for topic in ("orders", "clicks")]
    flows += [("hub", "lake", "berlin.orders", ""), ("hub", "archive", "{glob: lyon.*}", "")]
    return _text("sites", clusters | {"archive": NOBODY}, flows)


def with_budgets(text: str, slo: str) -> str:
    """The same file with the budgets `slo` for all flows."""
    return text.replace("\nflows:", f"\ndefaults: {{slo: {slo}}}\nflows:")


def strait(address: str, other: str) -> str:
    """Two clusters, the second at an address of its own."""
    clusters = {"hub": _spelt(address, 0), "reef": other}
    return _text("strait", clusters, [("reef", "hub", "orders", "")])


def hundred(address: str) -> str:
    """Fifty shops, each with orders that come and prices that go, through one hub."""
    names = [f"shop-{number:02}" for number in range(1, 51)]
    clusters = {name: _spelt(address, number) for number, name in enumerate(["hub", *names])}
    flows = [(name, "hub", "orders", "") for name in names] + [("hub", name, "prices", "") for name in names]
    return _text("chain", clusters, flows)


def _text(name: str, clusters: dict[str, str], flows: Iterable[tuple[str, str, str, str]], naming: str = PREFIX) -> str:
    """flows: source, target, topics, suffix."""
    text = HEAD.format(name=name)
    text += "".join(CLUSTER.format(alias=alias, address=address) for alias, address in clusters.items()) + "flows:\n"
    for source, target, topics, suffix in flows:
        told = f"suffix: {suffix}, " if suffix else ""
        text += FLOW.format(source=source, target=target, topics=topics, suffix=told, naming=naming)
    return text


def _spelt(address: str, number: int) -> str:
    """One broker under many addresses: a file may name each only once."""
    host, _, port = address.rpartition(":")
    return f"{host.rpartition('.')[0]}.{'0' * number}1:{port}"


def record(settings: ConnectionSettings, plan: Plan) -> None:
    """Write every flow as applied."""
    with Admin(settings) as admin:
        ensure_control_topics(admin)
    with ControlWriter(settings) as writer:
        for flow in plan.flows:
            write_flow(writer, FlowRecord(flow, plan.hash, plan.topology))


def report(settings: ConnectionSettings, plan: Plan, states: dict[str, str], partitions: int = 2) -> None:
    """One report of every partition, and a worker's heartbeat with latencies; `states`: flow → state, running without
    one. They are from later than now, so that they do not grow old before a slow machine shows them."""
    with ControlWriter(settings) as writer:
        for number, flow in enumerate(plan.flows):
            for partition in range(partitions):
                told = status_of(flow, number, partition, states.get(flow.id, "running"))
                write_partition_status(
                    writer, told if states.get(flow.id) == "silent" else replace(told, at_ms=told.at_ms + LATER_MS)
                )
        counts = {flow.id: {17 + number % 4: 970, 30: 25, 38: 5} for number, flow in enumerate(plan.flows)}
        later = int(time.time() * 1000) + LATER_MS
        write_heartbeat(writer, WorkerHeartbeat(f"of {plan.topology}", 1, later, latencies=counts))
        writer.flush()


def status_of(flow: PlanFlow, number: int, partition: int, state: str) -> PartitionStatus:
    topic = flow.topics.include[0].text.replace("*", "daily")
    end = 1_204_338 + 977 * number + partition
    bad = state in REMEDIES and partition == 1
    now = int(time.time() * 1000)
    lag = {"catching_up": 48_211, "running": number % 3}.get(state, 1_930)
    remedy = REMEDIES[state].format(flow=flow.id, topic=topic, partition=partition, file="FILE") if bad else None
    return PartitionStatus(
        flow=flow.id,
        topic=topic,
        target_topic=flow.target_topic(topic),
        partition=partition,
        state="running" if state in REMEDIES and not bad else "running" if state == "silent" else state,
        source_position=end - lag,
        source_end=end,
        target_end=end - lag,
        lag_records=lag,
        lag_ms=lag * 11,
        rate_bytes=1.7e6 * (1 + number % 7) if state in ("running", "catching_up") else 0.0,
        copied_bytes=8_123_456_789,
        error=f"{EVIL}: offsets {end} to {end + 4} on the target were written by somebody else" if bad else None,
        remedy=remedy,
        worker=f"worker-{number % 3}",
        at_ms=now - 60_000 if state == "silent" else now,
    )


def journal(settings: ConnectionSettings, plan: Plan, other: Plan, dag: str = "migrate__shop") -> None:
    """A run whose tail was not proven and that was rolled back, then one that is as far as the tail's proof; of the
    other topology a rehearsal and a failover."""
    log = FakeLog()
    spoiled = ProofOutcome(0, "different", 3, {"proven": 41, "altered": 3}, "/proofs/tail.json", "root")
    for number, begun_s in enumerate((9_000.0, 600.0), 1):
        world = World()
        since = time.time() - begun_s - world.now

        def prove(wanted: RequestProof, world: World = world, first: bool = number == 1) -> ProofOutcome:
            return spoiled if wanted.final and first else world.prove(wanted)

        migration = a_migration(
            world,
            log,
            plan=plan,
            wave="orders",
            actor=f"airflow {dag}",
            run_id=f"migrate.{RUNS[number - 1]}.orders",  # as `plugins.steps.step_driver` names it
            journal=Journal(log, plan.topology, f"airflow {number}", lambda: since + world.now),  # noqa: B023
            approve=lambda _asked: ApprovalAnswer(0, True, "ops", "in the Airflow UI or by its API"),
            prove=prove,
        )
        migration.run(until_step="tail_proof")
    rehearsed_and_lost(other, of_other := FakeLog())
    for each in (log, of_other):
        _write(settings, each)


def rehearsed_and_lost(plan: Plan, log: FakeLog) -> int:
    """A rehearsal of the wave, then its failover; returns how many records that lost."""
    world = World()
    journal = Journal(log, plan.topology, "first", world.clock)
    course = replace(plan_migration(plan, "orders", POLICY), kind="drill")
    a_migration(world, log, plan=plan, run_plan=course, policy=None, journal=journal, run_id="drill-1").run()
    world = a_dead_source()
    lost = len(world.lost)
    journal = Journal(log, plan.topology, "second", world.clock)
    course = plan_failover(plan, "orders", POLICY, journal.refresh())
    a_migration(world, log, plan=plan, run_plan=course, policy=None, journal=journal, approve=approved).run()
    return lost


def approved(_asked: Any) -> ApprovalAnswer:
    return ApprovalAnswer(0, True, "ops", "in the UI")


def _write(settings: ConnectionSettings, log: FakeLog) -> None:
    with ControlWriter(settings) as writer:
        for value in log.records:
            writer.put(JOURNAL_TOPIC, f"{value['topology']}/{value['run']}/{value['seq']}", value, 0)


def plan_in(folder: Path, text: str) -> Plan:
    """Write the file under its topology's name and compile it."""
    name = text.partition("name: ")[2].partition(",")[0]
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return compile_path(path)


# -- the page without a browser ---------------------------------------------------------------------------------


class Manager:
    """Airflow's auth manager, as far as the page asks it. `hidden`: DAGs that nobody may read; `without`:
    kinds of things that nobody may see of any DAG."""

    def __init__(self) -> None:
        self.hidden: set[str] = set()
        self.without: set[str] = set()
        self.acts = False

    def is_authorized_dag(self, *, method: str, details: Any, access_entity: Any = None, **_about: Any) -> bool:
        if access_entity is not None and access_entity.value in self.without:
            return False
        return details.id not in self.hidden and (self.acts or method == "GET")


class StillReaders:
    """In place of threads: what was seen is given."""

    def __init__(self) -> None:
        self.seen: dict[str, ClusterSnapshot] = {}

    def look(self, cluster: PlanCluster) -> ClusterSnapshot:
        return self.seen.get(cluster.alias, ClusterSnapshot())


def all_known(ids: list[str]) -> list[Any]:
    """In place of Airflow's table of DAGs: it has parsed all of them."""
    from watershed.plugins.page.user_rights import KnownDag

    return [KnownDag(each, None, True) for each in ids]


def asked(client: TestClient, path: str, **query: str) -> Any:
    answer = client.get(f"/api/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def seen(plan: Plan, states: dict[str, str], topology: str = "") -> ClusterSnapshot:
    """A target cluster as its control topics tell it."""
    view = ControlTopicsView()
    records = []
    for number, flow in enumerate(plan.flows):
        applied = FlowRecord(flow, plan.hash, topology or plan.topology).to_json()
        records.append(FollowedRecord(FLOWS_TOPIC, 0, flow.id, json.dumps(applied).encode()))
        for partition in (0, 1):
            told = status_of(flow, number, partition, states.get(flow.id, "running"))
            told = replace(told, at_ms=int(NOW * 1000) - (60_000 if states.get(flow.id) == "silent" else 0))
            records.append(FollowedRecord(STATUS_TOPIC, 0, told.key, json.dumps(told.to_json()).encode()))
    view.take(records)
    return view.snapshot(NOW)


def everywhere(plan: Plan, snapshot: ClusterSnapshot) -> dict[str, ClusterSnapshot]:
    return {cluster.alias: snapshot for cluster in plan.clusters}


def proof_in(state: Path, dag: str, run: str = "manual__2026-11-22T00:00:00+00:00", **summary: Any) -> Path:
    from watershed.plugins.state_folder import locate_run_folder

    folder = locate_run_folder(dag, run) / "prove" / "1"
    folder.mkdir(parents=True)
    (folder / "process.json").write_text(json.dumps({"pid": 1, "module": "watershed.spark.verify"}))
    (folder / "log").write_text("")
    if summary:
        (folder / "summary.json").write_text(json.dumps(summary))
        (folder / "report.html").write_text("<h1>report</h1>")
    return folder
