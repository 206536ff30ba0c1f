"""Airflow with the page Replication, and what it shows: topologies of 1, 10 and 100 flows on a real cluster, a
migration that is under way, a proof. For tests with a browser, and for the pictures in the documentation.
"""

from __future__ import annotations

import contextlib
import json
import os
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.airflow import page_world, ui
from watershed.clusters.settings import ConnectionSettings
from watershed.lab.hostile_broker import HostileBroker, build_friendly_answer
from watershed.topology.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
STATES = {
    "hub-to-lake": "target_foreign_write",
    "porto-to-hub-orders": "catching_up",
    "oslo-to-hub-clicks": "paused",
    "lyon-to-hub-clicks": "silent",
    "shop-07-to-hub": "source_expired",
    "hub-to-shop-12": "retrying",
}


@dataclass(frozen=True, slots=True)
class Site:
    """Airflow at `url`, and what its page reads."""

    url: str
    settings: ConnectionSettings
    plans: dict[str, Plan]
    state: Path
    harbour: Plan

    def token(self, user: str) -> str:
        body = json.dumps({"username": user, "password": user}).encode()
        asked = urllib.request.Request(f"{self.url}/auth/token", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=120) as answer:
            return str(json.load(answer)["access_token"])

    def clusters(self, topology: str) -> dict[str, dict[str, Any]]:
        """What the page says of each cluster, by alias."""
        asked = urllib.request.Request(f"{self.url}/replication/api/flows?topology={topology}")
        asked.add_header("Authorization", f"Bearer {self.token('view')}")
        with urllib.request.urlopen(asked, timeout=120) as answer:
            return {each["alias"]: each for each in json.load(answer)["clusters"]}

    def report(self, states: dict[str, str]) -> None:
        for plan in self.plans.values():
            page_world.report(self.settings, plan, states)


@contextlib.contextmanager
def open_site(home: Path) -> Iterator[Site]:
    """Everything in this folder, with Airflow's api-server in this process. Its database must be there. Sets the
    environment."""
    from watershed.lab import clusters

    topologies, broker = home / "topologies", home / "broker"
    topologies.mkdir()
    with contextlib.ExitStack() as stack:
        stack.callback(clusters.end_clusters, broker)
        address = clusters.start_clusters(broker, ["hub"]).cluster("hub").bootstrap
        os.environ |= {"WATERSHED_TOPOLOGIES": str(topologies), "WATERSHED_STATE": str(home / "state")}
        ten = page_world.with_budgets(page_world.ten(address), "{lag: {max: 10s}, rpo: 1h}")
        texts = (page_world.one(address), ten, page_world.hundred(address))
        plans = {plan.topology: plan for plan in (page_world.plan_in(topologies, text) for text in texts)}
        settings = ConnectionSettings("hub", (address,))
        reef = HostileBroker(build_friendly_answer(list), two_faced=True)
        stack.callback(reef.close)
        page_world.record(settings, page_world.plan_in(topologies, page_world.strait(address, reef.address)))
        harbour = page_world.plan_in(topologies, page_world.with_a_way_back(address, "harbour"))
        for plan in plans.values():
            page_world.record(settings, plan)
        page_world.journal(settings, plans["shop"], harbour)
        ui.parsed(ROOT / "dags")
        _proof(home / "state")
        url = stack.enter_context(ui.served(home))
        yield Site(url, settings, plans, home / "state", harbour)


def _proof(state: Path) -> None:
    folder = state / "runs" / "verify__shop" / "run1" / "prove" / "1"
    folder.mkdir(parents=True)
    (folder / "process.json").write_text(json.dumps({"pid": 1, "module": "watershed.spark.verify"}))
    (folder / "log").write_text("")
    told = {"verdict": "different", "unproven": 3, "altered": 3, "records": 120_445, "level": "L2", "mode": "rolling"}
    (folder / "summary.json").write_text(json.dumps(told))
    (folder / "report.html").write_text("<!doctype html><title>r</title><h1>different, says the report</h1>")
