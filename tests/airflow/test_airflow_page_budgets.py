"""The budgets of a file (`slo`) on the page Replication."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.airflow.page_world import asked, everywhere, seen, with_budgets
from watershed.plugins.page import file_budgets
from watershed.topology.plan import Plan

pytestmark = pytest.mark.airflow

Promise = Callable[[str], None]


@pytest.fixture
def promise(page: TestClient, topologies: dict[str, Plan], tmp_path: Path) -> Promise:
    """Writes the `slo` of all flows into the file of ten flows; the page then lists its files again."""
    path = tmp_path / "topologies" / "sites.yaml"
    before = path.read_text()
    plan = topologies["sites"]
    told = seen(plan, {"hub-to-lake": "catching_up", "oslo-to-hub-orders": "catching_up"})
    page.app.state.page.readers.seen = everywhere(plan, told)  # type: ignore[attr-defined]

    def write(slo: str) -> None:
        path.write_text(with_budgets(before, slo))
        page.app.state.page._files = (float("-inf"), {})  # type: ignore[attr-defined]

    return write


def budgets_of(page: TestClient, flow: str) -> Any:
    """The same in the table of flows and in the panel of the flow."""
    in_panel = asked(page, "flow", topology="sites", flow=flow)
    [in_table] = [each for each in asked(page, "flows", topology="sites")["flows"] if each["id"] == flow]
    assert in_table["budgets"] == in_panel["budgets"]
    return in_panel["budgets"]


def test_the_page_shows_what_is_left_of_each_budget(page: TestClient, promise: Promise) -> None:
    promise("{lag: {max: 1m, p99: 5s}, rpo: 1h}")
    used = 48_211 * 11  # milliseconds: what `page_world.status_of` reports of a flow that catches up
    assert budgets_of(page, "hub-to-lake") == [
        {"path": "slo.lag.max", "limit_ms": 60_000, "used_ms": used, "left_ms": 60_000 - used, "exceeded": True},
        {"path": "slo.rpo", "limit_ms": 3_600_000, "used_ms": used, "left_ms": 3_600_000 - used, "exceeded": False},
    ]
    assert [each["exceeded"] for each in budgets_of(page, "hub-to-archive")] == [False, False]


def test_where_nobody_reports_nothing_is_said_to_be_left(page: TestClient, promise: Promise) -> None:
    promise("{rpo: 1h}")
    page.app.state.page.readers.seen = {}  # type: ignore[attr-defined]
    assert [(each["used_ms"], each["left_ms"]) for each in budgets_of(page, "hub-to-lake")] == [(None, None)]


def test_a_file_without_budgets_shows_none(page: TestClient) -> None:
    assert {len(each["budgets"]) for each in asked(page, "flows", topology="sites")["flows"]} == {0}


def test_a_changed_file_is_read_again_and_an_unchanged_one_is_not(
    page: TestClient, promise: Promise, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[Path] = []
    read = file_budgets.read_budgets_at
    monkeypatch.setattr(file_budgets, "read_budgets_at", lambda path: parsed.append(path) or read(path))
    for slo, limit in (("{rpo: 1h}", 3_600_000), ("{rpo: 1h}", 3_600_000), ("{rpo: 2h}", 7_200_000)):
        promise(slo)
        assert [each["limit_ms"] for each in budgets_of(page, "hub-to-lake")] == [limit]
    assert len(parsed) == 2


def test_a_file_that_does_not_compile_any_more_keeps_its_budgets(page: TestClient, promise: Promise) -> None:
    promise("{rpo: 1h}")
    before = budgets_of(page, "hub-to-lake")
    promise("{rpo: soon}")
    assert "rpo" in asked(page, "flows", topology="sites")["problem"]
    assert budgets_of(page, "hub-to-lake") == before
