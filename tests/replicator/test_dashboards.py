"""Every query of the dashboards asks for metrics and labels that are served."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.replicator.test_alert_rules import find_labels, list_series
from watershed.cli.dashboards import dashboards
from watershed.replicator import partition_states
from watershed.replicator.alerting.budget_rules import BUDGET_LEFT, SLOW_RATIO
from watershed.replicator.alerting.dashboard_files import list_queries, read_dashboards

NAMES = ["watershed-estate.json", "watershed-fleet.json", "watershed-flow.json", "watershed-migration.json"]


def test_there_are_four() -> None:
    assert list(read_dashboards()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_queries_ask_for_what_is_served(name: str) -> None:
    queries = list(list_queries(read_dashboards()[name]))
    assert len(queries) > 3
    for query in queries:
        recorded = re.findall(r"watershed:[\w:]+", query)
        assert all(each == BUDGET_LEFT or each.startswith(SLOW_RATIO) for each in recorded)
        served = list(list_series(query))
        assert served or recorded, query
        grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")}
        for series, labels in served:
            assert labels <= find_labels(series), query
            assert grouped <= find_labels(series), query


@pytest.mark.parametrize("name", NAMES)
def test_panels_do_not_overlap_and_say_which_flow_they_mean(name: str) -> None:
    document = json.loads(read_dashboards()[name])
    cells = [
        (x, y)
        for panel in document["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])


def test_the_panel_of_halted_partitions_counts_every_halted_state_and_no_other() -> None:
    [query] = [each for each in list_queries(read_dashboards()["watershed-estate.json"]) if "source_" in each]
    [pattern] = re.findall(r'state=~"([^"]+)"', query)
    named = [getattr(partition_states, name) for name in dir(partition_states) if name.isupper()]
    others = [each for each in named if isinstance(each, str) and each not in partition_states.REMEDIES]
    assert all(re.fullmatch(pattern, each) for each in partition_states.REMEDIES)
    assert not any(re.fullmatch(pattern, each) for each in others if each.isidentifier())


def test_the_command_writes_them(tmp_path: Path) -> None:
    CliRunner().invoke(dashboards, ["--out", str(tmp_path / "new")], catch_exceptions=False)
    assert sorted(each.name for each in (tmp_path / "new").iterdir()) == NAMES
