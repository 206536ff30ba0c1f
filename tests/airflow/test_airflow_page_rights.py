"""Who may see what on the page Replication, and what its routes serve at all."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.airflow import page_world
from tests.airflow.page_world import Manager, asked, proof_in
from watershed.clusters.control_follower import FollowedRecord
from watershed.clusters.control_topics import FLOWS_TOPIC, STATUS_TOPIC
from watershed.clusters.flow_records import FlowRecord
from watershed.plugins.page import routes
from watershed.plugins.page.cluster_snapshots import ControlTopicsView
from watershed.topology.plan import Plan

pytestmark = pytest.mark.airflow


def test_nobody_reads_anything_without_a_user(page: TestClient) -> None:
    """Every route there is, those of static files included."""
    page.app.dependency_overrides.clear()  # type: ignore[attr-defined]
    paths = [route.path.replace("{name}", "main.js") for route in page.app.routes]  # type: ignore[attr-defined]
    assert len(paths) >= 7
    for path in paths:
        answer = page.get(path, params={"topology": "shop", "flow": "onprem-to-cloud"})
        assert answer.status_code == 401, path
        assert "onprem" not in answer.text


def test_a_topology_whose_dag_may_not_be_read_is_not_there(page: TestClient, manager: Manager) -> None:
    manager.hidden = {"replicate__shop"}
    assert [each["name"] for each in asked(page, "topologies")["topologies"]] == ["sites"]
    for path in ("flows", "flow", "topics", "groups", "fleets", "preview", "migrations", "proofs"):
        asked_for = {"flow": "onprem-to-cloud", "what": "verify"}
        found = page.get(f"/api/{path}", params={"topology": "shop"} | asked_for)
        never = page.get(f"/api/{path}", params={"topology": "never"} | asked_for)
        assert (found.status_code, never.status_code) == (404, 404)
        assert found.text.replace("shop", "X") == never.text.replace("never", "X")


def test_migrations_and_proofs_are_for_whoever_may_read_those_dags(
    page: TestClient, manager: Manager, state: Path
) -> None:
    proof_in(state, "verify__shop")
    proof_in(state, "migrate__shop")
    assert len(asked(page, "proofs", topology="shop")["proofs"]) == 2
    manager.hidden = {"migrate__shop"}
    assert page.get("/api/migrations", params={"topology": "shop"}).status_code == 404
    assert [each["dag"] for each in asked(page, "proofs", topology="shop")["proofs"]] == ["verify__shop"]
    assert "migrate" not in {each["what"] for each in asked(page, "flows", topology="shop")["actions"]}


def test_whoever_may_only_look_is_told_why_nothing_can_be_started(page: TestClient, manager: Manager) -> None:
    actions = asked(page, "flows", topology="shop")["actions"]
    assert {each["what"] for each in actions} >= {"replicate", "verify", "migrate"}
    assert not any(each["allowed"] or each["answers"] for each in actions)
    assert "not start runs of migrate__shop" in next(each["why_not"] for each in actions if each["what"] == "migrate")
    manager.acts = True
    assert all(each["allowed"] for each in asked(page, "flows", topology="shop")["actions"])


def test_nothing_but_reading_is_served(page: TestClient) -> None:
    assert {method for route in page.app.routes for method in route.methods} <= {"GET", "HEAD"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["..%2froutes.py", "%2e%2e", "nothing.js", "..%5cmain.js", "%2fetc%2fpasswd"])
def test_only_the_pages_own_files_are_served(page: TestClient, name: str) -> None:
    assert page.get(f"/static/{name}").status_code == 404


def test_the_page_asks_for_nothing_from_elsewhere(page: TestClient) -> None:
    answer = page.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for path in routes.PAGE_FILES.iterdir():
        text = path.read_text(encoding="utf-8")
        assert not [line for line in text.splitlines() if "://" in line and "http://www.w3.org" not in line], path
        assert "innerHTML" not in text
        assert " style=" not in text


def test_a_file_that_does_not_compile_says_why(page: TestClient, topologies: dict[str, Plan], tmp_path: Path) -> None:
    (tmp_path / "topologies" / "broken.yaml").write_text("kind: Nothing\n")
    page.app.state.page._files = (float("-inf"), {})  # type: ignore[attr-defined]
    answer = page.get("/api/flows", params={"topology": "broken"})
    assert answer.status_code == 422
    assert "broken.yaml" in answer.json()["detail"]


def test_a_file_that_does_not_compile_any_more_is_told_beside_its_last_plan(
    page: TestClient, topologies: dict[str, Plan], tmp_path: Path
) -> None:
    assert page_world.asked(page, "flows", topology="shop")["problem"] is None
    path = tmp_path / "topologies" / "shop.yaml"
    path.write_text(path.read_text() + "bogus: 1\n")
    page.app.state.page._files = (float("-inf"), {})  # type: ignore[attr-defined]
    for view in ("flows", "fleets", "migrations"):
        told = page_world.asked(page, view, topology="shop")
        assert "shop.yaml" in told["problem"]
        assert "bogus" in told["problem"]
    assert page_world.asked(page, "flows", topology="sites")["problem"] is None


def test_characters_that_turn_the_order_of_reading_are_escapes(page: TestClient, topologies: dict[str, Plan]) -> None:
    plan = topologies["shop"]
    told = replace(page_world.status_of(plan.flows[0], 0, 0, "rejected"), state="rejected", error="name \u202egnp.exe")
    records = [FollowedRecord(STATUS_TOPIC, 0, told.key, json.dumps(told.to_json()).encode())]
    records.append(
        FollowedRecord(FLOWS_TOPIC, 0, told.flow, json.dumps(FlowRecord(plan.flows[0], "", "shop").to_json()).encode())
    )
    view = ControlTopicsView()
    view.take(records)
    page.app.state.page.readers.seen = {"cloud": view.snapshot(time.time())}  # type: ignore[attr-defined]
    answer = page.get("/api/flow", params={"topology": "shop", "flow": told.flow})
    assert "\u202e" not in answer.json()["rows"][0]["error"]
    assert answer.json()["rows"][0]["error"] == "name \\u202egnp.exe"


def test_the_plugin_is_as_airflow_wants_it() -> None:
    views = routes.WatershedPage.external_views
    assert [view["destination"] for view in views] == ["nav", "dag", "dag_run"]
    assert len({view["url_route"] for view in views}) == 3
    assert all(view["href"].startswith(routes.PAGE_URL_PREFIX.strip("/")) for view in views)
    assert "cluster_snapshots" not in sys.modules


def test_every_route_is_one_whose_rights_are_known(page: TestClient) -> None:
    """A new route has to be put here, and into the tests above. Files of the page are for every user."""
    names = ("flows", "flow", "topics", "groups", "fleets", "preview", "migrations", "proofs")
    about_a_topology = {f"/api/{name}" for name in names}
    paths = {route.path for route in page.app.routes}  # type: ignore[attr-defined]
    assert paths == {"/", "/static/{name}", "/api/topologies"} | about_a_topology
