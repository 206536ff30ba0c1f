"""The lab's Prometheus scrapes, evaluates rules, answers queries, and says what it refuses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from prometheus_client import CollectorRegistry, Counter, start_http_server

from watershed.lab.errors import LabError
from watershed.lab.prometheus_server import (
    end_prometheus,
    is_prometheus_built,
    list_firing_alerts,
    query_prometheus,
    run_promtool,
    start_prometheus,
)

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not is_prometheus_built(), reason="python -m watershed.lab.prometheus_server build"),
]
RULES = """
groups:
- name: lab
  rules:
  - alert: TooMany
    expr: lab_things_total > 2
"""


@pytest.fixture
def scraped() -> Iterator[str]:
    registry = CollectorRegistry()
    counter = Counter("lab_things", "Things.", registry=registry)
    counter.inc(3)
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    assert isinstance(thread, Thread)
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_it_scrapes_and_evaluates(tmp_path: Path, scraped: str) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    assert run_promtool(["check", "rules", "rules.yaml"], tmp_path)[0] == 0
    server = start_prometheus(tmp_path / "prometheus", {"lab": [scraped]}, [rules])
    try:
        deadline = time.monotonic() + 30
        while not list_firing_alerts(server) and time.monotonic() < deadline:
            time.sleep(0.2)
        [sample] = query_prometheus(server, 'lab_things_total{job="lab"}')
        assert (sample.value, sample.labels["instance"]) == (3.0, scraped)
        assert [alert["alertname"] for alert in list_firing_alerts(server)] == ["TooMany"]
        assert [each.value for each in query_prometheus(server, "1 + 1")] == [2.0]
        with pytest.raises(LabError, match="parse error"):
            query_prometheus(server, "lab_things_total{")
    finally:
        end_prometheus(server)


def test_a_rule_file_that_it_refuses_is_told(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("groups: [{name: x, rules: [{alert: A, expr: '1 +'}]}]")
    assert run_promtool(["check", "rules", "rules.yaml"], tmp_path)[0] != 0
    with pytest.raises(LabError, match="did not become ready"):
        start_prometheus(tmp_path / "prometheus", {}, [rules])
