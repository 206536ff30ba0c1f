"""The source is killed with lag, on real brokers: what is lost is what was declared, offset by offset."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.cutover.dr_scene import POLICY, Site, site_in, wait_until
from tests.replicator.brokers.test_real_adoption import QUICK
from tests.replicator.real import applied, workers
from watershed.cli.failover import _show_loss
from watershed.clusters.flow_records import read_flows
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.driver import RunDriver
from watershed.cutover.failover.failback_plan import plan_failback
from watershed.cutover.failover.failover_plan import plan_failover
from watershed.cutover.journal.hash_chain import find_step_outcome
from watershed.cutover.offsets import decode_offsets
from watershed.cutover.operations.moved_applications import describe_moved_applications
from watershed.cutover.run_opening import open_run
from watershed.lab import sample_applications
from watershed.replicator.recovery.divergence import read_divergence
from watershed.topology.plan import seal_plan

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def failed_over(site: Site, tmp_path: Path) -> RunDriver:
    run = open_run(
        site.plan,
        plan_failover(site.plan, policy=POLICY),
        site.settings,
        prove=lambda _wanted: pytest.fail("a failover proves nothing: there is nothing to compare with"),
        evidence=tmp_path / "failover",
        say=lambda event: print(f"{event.at_ms / 1000:7.1f} {event.step} {event.kind} {event.text}"),
    )
    result = run.run()
    assert result.state == "done", result
    return run


def failed_back(site: Site, run: RunDriver, cut: dict[TopicPartition, int], tmp_path: Path) -> RunDriver:
    chain = run.journal.refresh()
    refused = plan_failback(site.plan, None, chain, POLICY)
    settings = site.settings
    say = partial(print, flush=True)
    proof = site.prove_back(cut)
    asked = open_run(site.plan, refused, settings, prove=proof, say=say, evidence=tmp_path / "asked")
    result = asked.run()
    assert (result.state, result.step) == ("refused", "divergence"), result
    decided = plan_failback(site.plan, None, asked.journal.refresh(), POLICY, "skip")
    back = open_run(site.plan, decided, settings, prove=proof, say=say, evidence=tmp_path / "back")
    result = back.run()
    assert result.state == "done", result
    return back


def test_the_source_is_killed_and_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with site_in(tmp_path) as site:
        site.start()
        with workers(site.plan, "cloud", tmp_path) as start:
            start()
            wait_until(lambda: site.reported_lag() > 300 and len(site.carried()) == len(site.places))
            sample_applications.stop_client(site.orders)
            wait_until(lambda: site.lag() > 150)  # some seconds' worth, of which a part is left at the kill
            site.kill()
            site.wait_unseen()
            ends = {place: each.source_end for place, each in site.reports().items()}
            assert _show_loss(site.plan, plan_failover(site.plan), site.settings, "json") == 0
            shown = json.loads(capsys.readouterr().out)["loss"]
            run = failed_over(site, tmp_path)
        chain = run.journal.chain.entries
        fenced, placed = find_step_outcome(chain, "cut_workers_off"), find_step_outcome(chain, "place_groups")
        assert fenced is not None
        assert placed is not None
        copied, cut = decode_offsets(fenced[0]["copied"]), decode_offsets(fenced[0]["target_ends"])
        declared = {p: (copied[p], ends[p]) for p in site.places if copied[p] < ends[p]}
        assert shown["offsets"] >= fenced[0]["loss"]["offsets"]
        assert fenced[0]["loss"]["offsets"] == sum(end - at for at, end in declared.values()) > 0
        landed = site.at_source(decode_offsets(placed[0]["groups"]["billing"]["target"]))
        processed = site.processed()
        again = sum(max(0, min(copied[p], processed.get(p, 0)) - landed[p]) for p in site.places)
        unread = sum(len(range(max(copied[p], processed.get(p, 0)), ends[p])) for p in site.places)
        told = " ".join(describe_moved_applications(site.plan, site.settings.__getitem__))
        assert f"its applications are at cloud since failover {run.run_id}" in told
        assert "back: `topology failback`" in told
        sample_applications.wait_for_count(
            site.orders, "acked", sample_applications.ask_application(site.orders)["acked"] + 200, seconds=180
        )
        site.revive()
        before = read_flows(site.settings["cloud"])[site.plan.flows[0].id]
        applied(site.settings, seal_plan(replace(site.plan, proofs={"note": "applied again"})))
        after = read_flows(site.settings["cloud"])[site.plan.flows[0].id]
        assert (after.state, after.retired) == (before.state, before.retired) == ("stopped", {site.topic})
        wait_until(lambda: site.leads("onprem"))
        extra = read_divergence(site.settings["onprem"], copied)
        assert {each.place: (each.first, each.last + 1) for each in extra.stretches} == declared
        assert sum(each.records for each in extra.stretches) == fenced[0]["loss"]["offsets"]
        with workers(site.plan, "onprem", tmp_path) as start:
            start()
            back = failed_back(site, run, cut, tmp_path)
        named = find_step_outcome(back.journal.chain.run(back.run_id or ""), "divergence")
        assert named is not None
        ranges = {str(p): [[first, end - 1]] for p, (first, end) in declared.items()}
        assert {p: row["ranges"] for p, row in named[0]["partitions"].items()} == ranges
        sample_applications.wait_for_count(
            site.orders, "acked", sample_applications.ask_application(site.orders)["acked"] + 100, seconds=180
        )
        assert {sample_applications.ask_application(app)["cluster"] for app in (site.orders, site.billing)} == {
            "onprem"
        }
        assert describe_moved_applications(site.plan, site.settings.__getitem__) == []
        group = site.settled()
        with workers(site.plan, "cloud", tmp_path, QUICK) as start:  # the standby follows again, behind its fence
            start()
            wait_until(lambda: site.lag() == 0)
        assert site.newest("cloud", 50) == site.newest("onprem", 50)
        assert (group.lost, group.repeated, group.out_of_order_per_key) == (unread, again, 0), group
