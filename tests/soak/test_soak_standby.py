"""A failover and the way back in a real Airflow with its own two clusters (`make soak`): the source is killed while it
is written to, a person approves the loss, and the applications' own records are the judges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.airflow.live import SETTINGS, Live, database, kill_program, until
from tests.cutover.dr_scene import GROUP, SLOW, TOPIC, Site, site_in, wait_until
from tests.replicator.real import workers
from watershed.clusters.settings import resolve_connection_settings
from watershed.cutover.journal.hash_chain import JournalEntry
from watershed.lab import airflow, sample_applications
from watershed.lab.airflow_client import AirflowClient
from watershed.plugins.steps.run_journal import open_migration_journal
from watershed.replicator.apply import apply_plan
from watershed.topology import compile_path

NAME = "standby"
FILE = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: tests}}
clusters:
  onprem: {{bootstrap: ["{onprem}"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - source: onprem
    target: cloud
    topics: {{include: [{topic}]}}
    workers: {{engine: process, discovery: 1s, quota: {slow}B/s}}
    sync: {{groups: {{mode: continuous, interval: 1s}}}}
  - source: cloud
    target: onprem
    state: paused
    topics: {{include: [{topic}]}}
    delivery: {{semantics: transactions}}
    workers: {{engine: process, discovery: 1s}}
    sync: {{groups: {{mode: continuous, interval: 1s}}}}
migration:
  flow: onprem-to-cloud
  applications:
    {group}: {{http: "{billing}"}}
    orders: {{http: "{orders}"}}
  waves:
    - name: all
      topics: [{topic}]
      consumers: [{group}]
      producers: [orders]
      gates:
        before: [{{lag: {{max_records: 100000, hold: 1s}}}}, {{verify: {{level: L1}}}}]
        after: [{{stragglers: {{watch: 2s}}}}, {{verify: {{level: L1}}}}]
      rollback: {{until: 1h, reverse: cloud-to-onprem}}
"""


def begun(site: Site, path: Path) -> None:
    """The applications run at `onprem`, and the file says so."""
    site.start_applications()
    addresses = {alias: cluster.bootstrap for alias, cluster in site.lab.clusters.items()}
    http = {"billing": site.billing.http, "orders": site.orders.http}
    path.write_text(FILE.format(name=NAME, topic=TOPIC, group=GROUP, slow=SLOW, **addresses, **http))
    site.plan = compile_path(path)
    apply_plan(site.plan, lambda alias: resolve_connection_settings(site.plan.cluster(alias)))


@contextmanager
def lived(site: Site, home: Path) -> Iterator[Live]:
    """Airflow, with the DAGs of the site's file."""
    (home / "topologies").mkdir()
    with database() as url:
        try:
            web = airflow.launch_airflow(
                home / "airflow", topologies=home / "topologies", state=home / "state", database=url, settings=SETTINGS
            )
            begun(site, home / "topologies" / f"{NAME}.yaml")
            web = airflow.wait_until_healthy(web, timeout=600)
            names = {"orders": site.orders, GROUP: site.billing}
            yield Live(NAME, home, site.plan, web, AirflowClient(web.url), names, url or "")
        finally:
            airflow.stop_airflow(home / "airflow", grace=5.0)
            for record in (home / "state").rglob("process.json"):
                kill_program(record.parent)


def run(live: Live, kind: str, run_id: str, params: dict[str, object]) -> str:
    """Begin a run of `kind`__NAME; its DAG."""
    dag = f"{kind}__{NAME}"
    live.client.wait_for_dag(dag, 600)
    live.client.unpause(dag)
    live.client.trigger(dag, run_id, params)
    return dag


def ended(live: Live, dag: str, run_id: str) -> str:
    until(lambda: live.client.run_state(dag, run_id) in ("success", "failed"), f"the end of {dag}")
    return live.client.run_state(dag, run_id)


def approved(live: Live, dag: str, run_id: str, task: str, shows: str) -> None:
    question = live.question(run_id, task, dag)
    assert shows in question.body, question.body
    live.user("ops").answer(question, "Approve")


def entries(live: Live, run_id: str) -> list[JournalEntry]:
    return open_migration_journal(live.plan, "a test").refresh().run(run_id)


@pytest.mark.usefixtures("minutes")
def test_the_source_dies_and_applications_go_there_and_back(tmp_path: Path) -> None:
    with site_in(tmp_path / "site") as site, lived(site, tmp_path) as live:
        with workers(site.plan, "cloud", tmp_path) as start:
            start()
            wait_until(lambda: site.reported_lag() > 300 and len(site.carried()) == len(site.places))
            refused = run(live, "failover", "alive", {})
            assert ended(live, refused, "alive") == "failed"  # a source that answers is migrated
            assert any("though_source_answers" in line for lines in live.failures(refused, "alive").values()
                       for line in lines)  # fmt: skip
            site.kill()
            live.apps.update({"orders": site.orders, GROUP: site.billing})
            there = run(live, "failover", "dead", {})
            approved(live, there, "dead", "everything.accept_loss", "What is lost")
            assert ended(live, there, "dead") == "success", live.failures(there, "dead")
        assert set(live.where("orders", GROUP).values()) == {("running", "cloud")}
        failover = entries(live, "failover.dead")
        processed = site.processed()
        sample_applications.wait_for_count(
            site.orders, "acked", sample_applications.ask_application(site.orders)["acked"] + 200, seconds=180
        )
        site.revive()
        wait_until(lambda: site.leads("onprem"))
        lost, repeated = site.expected(processed, failover)
        with workers(site.plan, "onprem", tmp_path) as start:
            start()
            unsaid = run(live, "failback", "unsaid", {})
            assert ended(live, unsaid, "unsaid") == "failed"
            assert any("parameter divergence" in line for lines in live.failures(unsaid, "unsaid").values()
                       for line in lines)  # fmt: skip
            back = run(live, "failback", "skip", {"divergence": "skip"})
            approved(live, back, "skip", "everything.approval", "records that were never copied")
            assert ended(live, back, "skip") == "success", live.failures(back, "skip")
        assert set(live.where("orders", GROUP).values()) == {("running", "onprem")}
        assert entries(live, "failback.skip")[-1].observation["state"] == "done"
        group = site.settled()
        assert (group.repeated, group.out_of_order_per_key) == (repeated, 0), group
        assert group.lost <= lost, group  # the producer never heard of the newest ones in the log
