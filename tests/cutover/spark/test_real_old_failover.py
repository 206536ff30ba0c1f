"""A source of an old release dies for good, or comes back: failover and failback by the `topology` command.

The applications' own records are the judge, and the dead cluster's own logs. Soak: each takes minutes.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.cutover.commands import HEAD, MIGRATION, NO_WAY_BACK, STANDBY, WAY_BACK, run_topology, worker_running
from tests.cutover.dr_scene import SLOW, TOPIC, Site, site_in, wait_until
from watershed.cutover.journal.hash_chain import JournalChain, JournalEntry
from watershed.cutover.journal.journal_topic import JournalTopicLog
from watershed.lab import sample_applications
from watershed.lab.demo.demo_setup import can_be_target
from watershed.topology import compile_path

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1_800)]


def write_file(site: Site, way_back: bool, quota: str = f", quota: {SLOW}B/s") -> Path:
    """An active cluster, its standby that is behind, and what a failover promotes. quota: of the workers, so that the
    standby is behind."""
    values = WAY_BACK if way_back else NO_WAY_BACK
    addresses = {alias: cluster.bootstrap for alias, cluster in site.lab.clusters.items()}
    apps = (site.orders, site.billing)
    lines = "\n".join(f'    {app.name}: {{http: "{app.http}"}}' for app in apps)
    path = site.home / "standby.yaml"
    path.write_text(
        HEAD.format(**addresses)
        + STANDBY.format(topics=TOPIC, quota=quota, reverse=values["reverse"])
        + MIGRATION.format(applications=lines, topics=TOPIC, producers="orders", rollback=values["rollback"])
    )
    site.plan = compile_path(path)
    return path


def read_entries(site: Site, run_id: str) -> list[JournalEntry]:
    """What the journal holds of a run."""
    chain = JournalChain(site.plan.topology)
    chain.follow(JournalTopicLog(site.settings["cloud"]).read(0))
    return list(chain.run(run_id))


def find_clusters(site: Site) -> set[tuple[str, str]]:
    """State and cluster of both applications."""
    told = [sample_applications.ask_application(app) for app in (site.orders, site.billing)]
    return {(each["state"], each["cluster"]) for each in told}


def wait_for_more(site: Site) -> None:
    before = sample_applications.ask_application(site.orders)["acked"]
    sample_applications.wait_for_count(site.orders, "acked", before + 200, seconds=180)


@pytest.mark.parametrize("release", ["1.1.1", "2.4.1", "2.8.2"])
def test_what_is_lost_is_what_was_said(tmp_path: Path, release: str) -> None:
    with site_in(tmp_path, kafka=release) as site:
        site.start_applications()
        path = write_file(site, can_be_target(release))
        run = partial(run_topology, home=tmp_path)
        assert run("apply", path).code == 0
        with worker_running(path, "cloud", tmp_path):
            wait_until(lambda: site.reported_lag() > 300 and len(site.carried()) == len(site.places))
            alive = run("failover", path, "--accept-loss", "any", "--approve", "auto")
            assert alive.code == 1
            assert "--though-source-answers" in alive.text
            site.kill()
            shown = run("failover", path, "--show-loss", "--format", "json")
            assert shown.read_json()["loss"]["offsets"] > 0
            done = run("failover", path, "--accept-loss", "any", "--approve", "auto", "--format", "json")
            assert done.code == 0
        assert find_clusters(site) == {("running", "cloud")}
        processed = site.processed()
        wait_for_more(site)
        site.revive()
        wait_until(lambda: site.leads("onprem"))
        lost, repeated = site.expected(processed, read_entries(site, done.read_json()["run"]))
        assert run("apply", path).code == 0  # the flow that the failover stopped stays so
        told = run("status", path, "--format", "json").read_json()
        assert [each["desired"] for each in told["flows"] if each["id"] == site.flow] == ["stopped"]
        if can_be_target(release):
            go_back(site, path)
        else:
            refused = run("failback", path, "--divergence", "skip", "--approve", "auto")
            assert refused.code == 2
            assert "no flow leads from cloud back to onprem (wave all says `none: nothing is copied" in refused.text
            assert find_clusters(site) == {("running", "cloud")}
        wait_for_more(site)
        group = site.settled()
    assert (group.repeated, group.out_of_order_per_key) == (repeated, 0), group
    assert group.lost <= lost, group  # the producer never heard of the newest ones in the log


def go_back(site: Site, path: Path) -> None:
    """What only the old cluster holds is listed first, and then everything returns there."""
    run = partial(run_topology, home=site.home)
    write_file(site, way_back=True, quota="")  # which would slow the way back as well
    assert run("apply", path).code == 0
    with worker_running(path, "onprem", site.home):
        refused = run("failback", path, "--approve", "auto")
        assert refused.code == 1
        assert "--divergence" in refused.text
        only_old = site.home / "only-old.jsonl"
        assert run("failback", path, "--report", only_old).code == 0
        rows = [json.loads(line) for line in only_old.read_text().splitlines()]
        assert rows
        assert {row["topic"] for row in rows} == {TOPIC}
        assert run("failback", path, "--divergence", "skip", "--approve", "auto").code == 0
    assert find_clusters(site) == {("running", "onprem")}
