"""The file of sources: what it takes, and what it says of a mistake."""

from __future__ import annotations

import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from watershed.topology.secret_ref import SecretRef
from watershed.topology.usage.sizing import BrokerCapacity
from watershed.topology.usage.sources_file import (
    CloudWatchSource,
    ConfluentSource,
    ExporterSource,
    PrometheusSource,
    UnusableSourcesFile,
    UsagePrices,
    build_usage_sources_schema,
    parse_usage_sources,
)

HEAD = "apiVersion: usage/v1alpha1\nkind: UsageSources\n"
WHOLE = (
    HEAD
    + """
clusters:
  a:
    prometheus:
      url: https://prometheus.example.internal/
      labels: {cluster: a, env: prod}
      metrics: {bytes_in: my_bytes_in}
      bearer: {env: WATERSHED_SECRET_P}
      ca: {file: /etc/ssl/ca.pem}
  b: {exporters: {urls: ["http://127.0.0.1:7071/metrics"]}}
  c:
    cloudwatch:
      cluster: orders
      region: eu-central-1
      disk: 1TiB
      credentials: {env: WATERSHED_SECRET_AWS}
      costs: {tag: {key: cluster, value: orders}}
  d: {confluent: {cluster: lkc-1, credentials: {env: WATERSHED_SECRET_CC}}}
prices: {currency: EUR, egress_per_gib: 0.05, storage_per_gib_month: 0.1, broker_month: 300}
broker: {bytes_in: 50MiB/s, bytes_out: 100MiB/s, disk: 2TiB, replicas: 3000, headroom: 30%}
link: 60MiB/s
"""
)


def test_every_key_is_read() -> None:
    found = parse_usage_sources(WHOLE, "usage.yaml")
    jsonschema.validate(yaml.safe_load(WHOLE), build_usage_sources_schema())
    a, b, c, d = found.clusters.values()
    assert isinstance(a, PrometheusSource)
    assert a.url == "https://prometheus.example.internal"
    assert a.labels == {"cluster": "a", "env": "prod"}
    assert (a.metrics["bytes_in"], a.metrics["log_size"]) == ("my_bytes_in", "kafka_log_log_size")
    assert (a.login.bearer, a.login.ca) == (
        SecretRef("env", "WATERSHED_SECRET_P"),
        SecretRef("file", "/etc/ssl/ca.pem"),
    )
    assert isinstance(b, ExporterSource)
    assert b.urls == ("http://127.0.0.1:7071/metrics",)
    assert isinstance(c, CloudWatchSource)
    assert (c.disk, c.costs, c.cost_tag) == (2**40, True, ("cluster", "orders"))
    assert isinstance(d, ConfluentSource)
    assert d.url == "https://api.telemetry.confluent.cloud"
    assert found.prices == UsagePrices("EUR", 0.05, 0.1, 300.0)
    assert found.broker == BrokerCapacity(50 << 20, 100 << 20, 2 << 40, 3000, 0.3)
    assert found.link == 60 << 20


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty; it begins with `apiVersion: usage/v1alpha1`"),
        ("kind: Topology\n", "needs `apiVersion`"),
        (HEAD + "clusters: {a: {}}\n", "usage.yaml:3: `clusters.a` needs one of: prometheus | exporters | cloudwatch"),
        (HEAD + "clusters: {a: {prometheus: {url: 'https://u:p@x'}}}\n", "expected an http address"),
        (
            HEAD + "clusters: {a: {prometheus: {url: 'https://x', bearer: {env: A}, credentials: {env: B}}}}\n",
            "keep one of",
        ),
        (
            HEAD + "clusters: {a: {prometheus: {url: 'https://x', metrics: {bytes_in: 'a{b}'}}}}\n",
            "the name of a metric",
        ),
        (HEAD + "clusters: {a: {prometheus: {url: 'https://x', labels: {'a b': x}}}}\n", "the name of a label"),
        (HEAD + "clusters: {}\nprices: {egress_per_gib: 1}\n", "`prices` needs `currency`"),
        (HEAD + "clusters: {}\nbroker: {headroom: 95%}\n", "expected at most `90%`"),
        (HEAD + "clusters: {}\nbroker: {disk: 0B}\n", "expected a size above zero"),
    ],
)
def test_a_mistake_is_said_with_its_line(text: str, says: str) -> None:
    with pytest.raises(UnusableSourcesFile) as refused:
        parse_usage_sources(text, "usage.yaml")
    assert says in str(refused.value)


def test_the_example_of_the_page_is_a_file_of_sources() -> None:
    page = (Path(__file__).parents[2] / "docs" / "usage.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert set(parse_usage_sources(example, "usage.md").clusters) == {"onprem", "cloud"}
