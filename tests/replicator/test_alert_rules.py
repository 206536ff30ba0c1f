"""The rules that `topology alerts` writes: names that exist, links that lead somewhere, buckets that are exported."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.replicator.alert_scenarios import FILE, QUIET, SCENARIOS
from watershed.cli.alerts import alerts
from watershed.clusters.flow_totals import FlowTotals
from watershed.replicator.alerting.alert_rules import build_rule_groups
from watershed.replicator.alerting.budget_rules import FAST_BURNS, SLOW_BURNS, record_slow_ratio
from watershed.replicator.alerting.promql import escape_annotation, match_label
from watershed.replicator.alerting.rule_group import AlertRule, RuleGroup, derive_resource_name, render_rule_file
from watershed.replicator.worker.metric_families import build_flow_families
from watershed.topology.flow_budgets import LONGEST_MEASURED_LATENCY_MS
from watershed.topology.loader import load_topology, parse_topology
from watershed.topology.metric_catalogue import METRICS, REPLICATION_LATENCY_SECONDS

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "topology" / "examples").glob("*.yaml"))
EXPECTED = Path(__file__).with_name("move.rules.yaml")


def build_groups(text: str = FILE) -> tuple[RuleGroup, ...]:
    topology = parse_topology(text).topology
    assert topology is not None
    return build_rule_groups(topology, Path("move.yaml"))


def list_alert_rules(groups: tuple[RuleGroup, ...]) -> list[AlertRule]:
    return [rule for group in groups for rule in group.rules if isinstance(rule, AlertRule)]


def list_series(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Every metric of ours in an expression with the labels that it is asked for."""
    for name, matchers in re.findall(r"(watershed_\w+)(?:\{([^}]*)\})?", expression):
        yield name, set(re.findall(r"(\w+)(?:=~|!=|!~|=)\"", matchers))


def find_labels(series: str) -> set[str]:
    """The labels of a name in the catalogue. Raises StopIteration for one that is not there."""
    metric = next(
        each
        for each in METRICS
        if series == each.name or (each.kind == "histogram" and re.fullmatch(f"{each.name}_(bucket|sum|count)", series))
    )
    return {*metric.labels, "le"} if series.endswith("_bucket") else set(metric.labels)


def test_the_example_is_what_is_written() -> None:
    assert render_rule_file(build_groups(), "move", "prometheus") == EXPECTED.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_rules_of_the_examples_ask_for_what_is_served(path: Path) -> None:
    topology = load_topology(path).topology
    assert topology is not None
    groups = build_rule_groups(topology, path)
    assert groups
    assert len({group.name for group in groups}) == len(groups)
    for group in groups:
        for rule in group.rules:
            for series, labels in list_series(rule.expression):
                assert labels <= find_labels(series), rule
    for rule in list_alert_rules(groups):
        assert rule.severity in ("critical", "warning")
        assert str(path) in rule.description or rule.name in ("WatershedExporterMissing", "WatershedExporterStale",
            "WatershedRetentionComesNear", "WatershedThrottled"), rule.name  # fmt: skip


def test_every_link_leads_to_a_section_of_the_runbooks() -> None:
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / "runbooks.md").read_text(encoding="utf-8"), re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
    assert {rule.section for rule in list_alert_rules(build_groups())} <= anchors


def test_the_page_lists_every_alert_and_each_has_a_scenario() -> None:
    names = {rule.name for rule in list_alert_rules(build_groups())}
    page = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(Watershed[A-Z]\w+)`", page)) == names
    assert {alert for scenario in SCENARIOS for alert in scenario.alerts} == names
    for series in QUIET:
        find_labels(series.partition("{")[0])


def test_the_workbooks_factors_for_a_budget_of_28_days() -> None:
    assert [round(each.slow_ratio, 5) for each in (*FAST_BURNS, *SLOW_BURNS)] == [0.1344, 0.056, 0.028, 0.00933]


def test_buckets_of_the_rules_are_those_that_are_exported() -> None:
    totals = {"a-to-b": FlowTotals(records=1, ages={0: 1}, age_s=1.0)}
    families = build_flow_families([], [], totals)
    [latency] = [each for each in families if each.name == REPLICATION_LATENCY_SECONDS.name]
    exported = {each.labels["le"] for each in latency.samples if "le" in each.labels} - {"+Inf"}
    limits = [1, 50, 5_000, 60_000, LONGEST_MEASURED_LATENCY_MS]
    rules = " ".join(record_slow_ratio("a-to-b", each, "5m").expression for each in limits)
    assert set(re.findall(r'le="([^"]+)"', rules)) <= exported
    assert all(float(each) != math.floor(float(each)) for each in exported)  # Prometheus would write 1 as 1.0
    assert int(max(map(float, exported)) * 100) == LONGEST_MEASURED_LATENCY_MS // 10


@pytest.mark.parametrize(
    ("limit", "buckets"),
    [(1, ["0.0008", "0.0016"]), (5_000, ["3.2768", "6.5536"]), (LONGEST_MEASURED_LATENCY_MS, ["1677.72", "3355.44"])],
)
def test_a_limit_lies_between_two_buckets(limit: int, buckets: list[str]) -> None:
    expression = record_slow_ratio("f", limit, "5m").expression
    assert re.findall(r'le="([^"]+)"', expression) == buckets
    weights = [float(each) for each in re.findall(r"([^\s(]+) \* sum", expression)]
    assert math.isclose(sum(weights), 1.0, rel_tol=1e-5)


def test_names_are_quoted() -> None:
    assert match_label("flow", ['a"b\\c']) == 'flow="a\\"b\\\\c"'
    assert match_label("flow", ["a.b", "c|d"]) == 'flow=~"a\\\\.b|c\\\\|d"'
    assert escape_annotation("{{ $labels }}") == '{{ "{{" }} $labels }}'
    assert derive_resource_name("Übung_1/x") == "watershed-bung-1-x"


def test_the_command_writes_both_kinds(tmp_path: Path) -> None:
    file = tmp_path / "move.yaml"
    file.write_text(FILE)
    ran = CliRunner().invoke(alerts, [str(file), "--out", str(tmp_path / "rules")], catch_exceptions=False)
    written = Path(ran.output.strip())
    assert written.name == "watershed-move.rules.yaml"
    ran = CliRunner().invoke(alerts, [str(file), "--format", "operator"], catch_exceptions=False)
    resource = yaml.safe_load(ran.output)
    assert (resource["kind"], resource["metadata"]["name"]) == ("PrometheusRule", "watershed-move")
    assert resource["spec"] == yaml.safe_load(written.read_text())


def test_a_target_with_transformed_flows_only_has_no_fleet_to_miss() -> None:
    text = FILE.replace(
        "target: c\n    topics: {include: [orders]}",
        """target: c
    topics: {include: [orders]}
    transform: {where: "offset >= 0"}""",
    )
    rules = [rule for rule in list_alert_rules(build_groups(text)) if 'target="c"' in rule.expression]
    assert [rule.name for rule in rules] == ["WatershedThrottled"]
    silent = [each for each in list_alert_rules(build_groups(text)) if each.name == "WatershedPartitionsSilent"]
    assert ["fleet_workers" in each.expression for each in silent] == [True, False]
