"""promtool reads the rules, and plays the scenarios through them: which alerts fire, and that no other does."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.replicator.alert_scenarios import SCENARIOS, build_promtool_test
from tests.replicator.test_alert_rules import EXAMPLES, build_groups
from watershed.lab.prometheus_server import is_prometheus_built, run_promtool
from watershed.replicator.alerting.alert_rules import build_rule_groups
from watershed.replicator.alerting.rule_group import render_rule_file
from watershed.topology.loader import load_topology, parse_topology

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not is_prometheus_built(), reason="python -m watershed.lab.prometheus_server build"),
]
HOSTILE = """apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: "move", owner: us}
clusters:
  a.1: {bootstrap: ["a.example.internal:9092"]}
  b: {bootstrap: ["b.example.internal:9092"]}
flows:
  - {source: a.1, target: b, suffix: "x.y", topics: {include: [orders]}, slo: {lag: {p99: 1ms, max: 1s}, rpo: 1s}}
  - {source: a.1, target: b, topics: {include: [bills]}, slo: {end_to_end: {max: 1m}}}
"""


def test_scenarios(tmp_path: Path) -> None:
    (tmp_path / "move.rules.yaml").write_text(render_rule_file(build_groups(), "move", "prometheus"))
    tests = [build_promtool_test(each) for each in SCENARIOS]
    document = {"rule_files": ["move.rules.yaml"], "evaluation_interval": "15s", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(document))
    code, printed = run_promtool(["test", "rules", "tests.yaml"], tmp_path)
    assert code == 0, printed


def test_rules_of_all_examples_and_of_hostile_names(tmp_path: Path) -> None:
    loaded = [(path, load_topology(path).topology) for path in EXAMPLES]
    loaded.append((Path("it's {{ odd }}.yaml"), parse_topology(HOSTILE).topology))
    for index, (path, topology) in enumerate(loaded):
        assert topology is not None, path
        text = render_rule_file(build_rule_groups(topology, path), topology.name, "prometheus")
        (tmp_path / f"{index}.yaml").write_text(text)
    code, printed = run_promtool(["check", "rules", *(f"{index}.yaml" for index in range(len(loaded)))], tmp_path)
    assert code == 0, printed
