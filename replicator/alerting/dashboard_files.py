"""The dashboards for Grafana that come with Watershed. Their files are package data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any


def read_dashboards() -> dict[str, str]:
    """By file name, the JSON of each dashboard."""
    folder = files("watershed.replicator.alerting") / "dashboards"
    found = {each.name: each.read_text(encoding="utf-8") for each in folder.iterdir() if each.name.endswith(".json")}
    return dict(sorted(found.items()))


def list_queries(dashboard: str) -> Iterator[str]:
    """Every PromQL expression of a dashboard, those behind its variables too. dashboard: the JSON."""
    document = json.loads(dashboard)
    for variable in document["templating"]["list"]:
        if variable["type"] == "query":
            yield _turn_into_promql(variable["query"]["query"])
    yield from _list_targets(document["panels"])


def _list_targets(panels: list[Mapping[str, Any]]) -> Iterator[str]:
    for panel in panels:
        yield from (str(target["expr"]) for target in panel.get("targets", ()))
        yield from _list_targets(panel.get("panels", []))


def _turn_into_promql(variable: str) -> str:
    """`label_values(METRIC, LABEL)` is Grafana's own; this asks Prometheus for the same."""
    metric, _, label = variable.removeprefix("label_values(").removesuffix(")").partition(", ")
    return f"count by ({label}) ({metric})"
