"""Where the page Replication draws clusters and flows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.airflow import page_world
from tests.airflow.page_world import ADDRESS
from watershed.plugins.page.graph_layout import build_flow_arrows, lay_out_graph

pytestmark = pytest.mark.airflow


@pytest.mark.parametrize("text", [page_world.one, page_world.ten, page_world.hundred])
def test_nothing_in_the_graph_lies_on_something_else(tmp_path: Path, text: Any) -> None:
    plan = page_world.plan_in(tmp_path, text(ADDRESS))
    drawn = build_flow_arrows((flow.id, flow.source, flow.target) for flow in plan.flows)
    told = lay_out_graph([cluster.alias for cluster in plan.clusters], drawn)
    boxes = [(b["x"], b["y"], b["x"] + b["w"], b["y"] + b["h"]) for b in told["boxes"].values()]
    labels = [(x - 90, y - 17, x + 90, y + 17) for each in told["arrows"].values() for x, y in [each["at"]]]
    assert len(labels) == len(plan.flows)
    for number, one in enumerate([*boxes, *labels]):
        assert one[0] >= 0
        assert one[2] <= told["width"]
        assert one[3] <= told["height"]
        for other in [*boxes, *labels][number + 1 :]:
            assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def test_many_flows_between_two_clusters_are_one_arrow() -> None:
    [one] = build_flow_arrows((f"a-to-b-{number}", "a", "b") for number in range(30))
    assert (one.key, len(one.flows)) == ("a → b", 30)
