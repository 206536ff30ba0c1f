"""`topology usage` from a file of sources to JSON, HTML and exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clusters.usage.metrics_servers import Answer, Asked, serve_metrics
from watershed.cli.main import main

TOPOLOGY = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: shop}
clusters:
  onprem: {bootstrap: ["k1:9092"]}
  cloud: {bootstrap: ["k2:9092"]}
flows:
  - {source: onprem, target: cloud, topics: {include: [orders]}}
"""
SOURCES = """
apiVersion: usage/v1alpha1
kind: UsageSources
clusters:
  onprem: {exporters: {urls: ["URL"]}}
  cloud: {prometheus: {url: "http://127.0.0.1:9", bearer: {env: WATERSHED_SECRET_NOT_THERE}}}
"""


def answer(asked: Asked) -> Answer:
    return 200, b'kafka_server_brokertopicmetrics_bytesin_total{topic="orders"} 5\n', {}


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(TOPOLOGY)
    return path


def test_one_source_fails_and_the_other_counts(topology: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources, output, page = (topology.with_name(name) for name in ("usage.yaml", "usage.json", "usage.html"))
    with serve_metrics(answer) as server:
        sources.write_text(SOURCES.replace("URL", server.url))
        arguments = ["usage", str(topology), "--sources", str(sources), "--sample", "1s"]
        assert main([*arguments, "-o", str(output), "--report", str(page)]) == 3
        seen = capsys.readouterr()
        assert main(arguments) == 3
    assert "no history of cloud: clusters.cloud.prometheus.bearer: secret {env: WATERSHED_SECRET_NOT_THERE}" in seen.err
    document = json.loads(output.read_text())
    assert document["clusters"]["onprem"]["topics"]["orders"]["rates"]["bytes_in"]["mean"] == 0.0
    assert document["clusters"]["cloud"]["failure"].startswith("clusters.cloud.prometheus.bearer")
    assert document["clusters"]["cloud"]["rates"] == {}
    assert "<h1>shop: use and cost</h1>" in page.read_text()
    assert capsys.readouterr().out.startswith("# shop: use and cost\n")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--interval", "30s"], "--interval: whole seconds, at least `1m`"),
        (["--since", "1m"], "--since is shorter than --interval"),
        (["--sample", "0s"], "--sample: whole seconds, at least `1s`"),
        (["--report", "x.pdf"], "a report is a .html or a .md file"),
        (["--report", "x.json"], "a report is a .html or a .md file"),
        ([], "has a cluster `elsewhere`"),
    ],
)
def test_wrong_usage_is_said_before_anything_is_asked(
    topology: Path, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = topology.with_name("usage.yaml")
    sources.write_text(SOURCES.replace("cloud:", "elsewhere:").replace("URL", "http://127.0.0.1:9"))
    assert main(["usage", str(topology), "--sources", str(sources), *options]) == 2
    assert says in capsys.readouterr().err
