"""The file that says where each cluster's history is kept, and at which prices and sizes to reckon: `usage/v1alpha1`.

It stands beside the topology and is no part of it: no plan depends on where somebody's Prometheus is (decision 0126).
Secrets are references only, as in the topology.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from watershed.topology.errors import TopologyError
from watershed.topology.language.cluster import AWS_REGION_SHAPE
from watershed.topology.language.scalars import (
    CLUSTER_ID_SHAPE,
    COUNT_SHAPE,
    HTTP_URL_SHAPE,
    LINE_SHAPE,
    NAME_REGEX,
    NONZERO_RATE_SHAPE,
    SECRET_REF_SHAPE,
    SHARE_SHAPE,
    SIZE_SHAPE,
    build_enum_shape,
    build_regex_converter,
    build_text_shape,
)
from watershed.topology.model import CheckedValue
from watershed.topology.problem_collector import ProblemCollector
from watershed.topology.scalar_shape import ScalarShape
from watershed.topology.secret_ref import SecretRef
from watershed.topology.usage.sizing import DEFAULT_HEADROOM, BrokerCapacity
from watershed.topology.yaml_shapes import ConvertedShape, ListShape, MapShape, RecordShape, ShapeKey
from watershed.topology.yaml_tree import parse_yaml

USAGE_API_VERSION: Final = "usage/v1alpha1"
USAGE_KIND: Final = "UsageSources"
_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,199}")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,199}")
_PRICE = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_CURRENCY = re.compile(r"[A-Z]{3}")
# What the rule files make of Kafka's MBeans: jmx_exporter's examples/kafka-*.yml, Strimzi's kafka-metrics, Bitnami's
# chart.
DEFAULT_METRIC_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bytes_in": "kafka_server_brokertopicmetrics_bytesin_total",
        "bytes_out": "kafka_server_brokertopicmetrics_bytesout_total",
        "messages_in": "kafka_server_brokertopicmetrics_messagesin_total",
        "log_size": "kafka_log_log_size",
    }
)
CONFLUENT_METRICS_URL: Final = "https://api.telemetry.confluent.cloud"


class UnusableSourcesFile(TopologyError):
    """The file of sources cannot be used; the message has each problem with its line."""


@dataclass(frozen=True, slots=True)
class HttpLogin:
    """How a server of metrics knows us: a token, or user and password; and by whose certificate we know it. All are
    references."""

    bearer: SecretRef | None = None
    credentials: SecretRef | None = None
    ca: SecretRef | None = None


@dataclass(frozen=True, slots=True)
class PrometheusSource:
    """url: without `/api/v1`. labels: which series are this cluster's. metrics: names of the counters and of the
    gauge."""

    url: str
    labels: Mapping[str, str]
    metrics: Mapping[str, str]
    login: HttpLogin


@dataclass(frozen=True, slots=True)
class ExporterSource:
    """urls: the page of each broker's JMX exporter."""

    urls: tuple[str, ...]
    metrics: Mapping[str, str]
    login: HttpLogin


@dataclass(frozen=True, slots=True)
class CloudWatchSource:
    """cluster: its name at MSK. disk: bytes of a broker's volume, None: not said, so sizes in bytes are not known.
    endpoint, cost_endpoint: in place of AWS's own. cost_tag: of the cluster's costs; costs: whether they are asked
    for."""

    cluster: str
    region: str
    disk: int | None = None
    credentials: SecretRef | None = None
    endpoint: str | None = None
    cost_endpoint: str | None = None
    costs: bool = False
    cost_tag: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ConfluentSource:
    """cluster: `lkc-…`. credentials: a Cloud API key with its secret."""

    cluster: str
    credentials: SecretRef
    url: str = CONFLUENT_METRICS_URL


HistorySource = PrometheusSource | ExporterSource | CloudWatchSource | ConfluentSource


@dataclass(frozen=True, slots=True)
class UsagePrices:
    """In one currency, by the user. None: not said, so nothing is reckoned with it."""

    currency: str = ""
    egress_per_gib: float | None = None
    storage_per_gib_month: float | None = None
    broker_month: float | None = None


@dataclass(frozen=True, slots=True)
class UsageSources:
    """link: bytes a second that a copy reaches; None: the flow's quota, else what `topology report` assumes."""

    clusters: Mapping[str, HistorySource]
    prices: UsagePrices = UsagePrices()
    broker: BrokerCapacity = field(default_factory=BrokerCapacity)
    link: int | None = None


def _price(text: str) -> float:
    if _PRICE.fullmatch(text) is None:
        raise ValueError("expected an amount such as `0.09`, not negative, without a currency")
    return float(text)


def _headroom(value: CheckedValue) -> float:
    if value.data > 0.9:
        raise ValueError("expected at most `90%`: something of a broker must be used")
    return float(value.data)


def _disk(value: CheckedValue) -> int:
    if not value.data:
        raise ValueError("expected a size above zero, such as `2TiB`")
    return int(value.data)


_DISK_SHAPE = ConvertedShape(SIZE_SHAPE, _disk)
_PRICE_SHAPE = ScalarShape(_price, "an amount such as `0.09`", {"type": "number", "minimum": 0}, bare=True)
_METRIC_SHAPE = build_text_shape("the name of a metric", build_regex_converter(_METRIC_NAME, "the name of a metric"))
_METRICS_SHAPE = RecordShape(
    {
        name: ShapeKey(_METRIC_SHAPE, f"The name of the {'gauge' if name == 'log_size' else 'counter'}.", f"`{usual}`")
        for name, usual in DEFAULT_METRIC_NAMES.items()
    }
)
_LOGIN_KEYS = {
    "bearer": ShapeKey(SECRET_REF_SHAPE, "Where a token stands."),
    "credentials": ShapeKey(SECRET_REF_SHAPE, "Where `user:password` stand."),
    "ca": ShapeKey(SECRET_REF_SHAPE, "The server's certificate authority.", "the system's authorities"),
}
_PROMETHEUS_SHAPE = RecordShape(
    {
        "url": ShapeKey(HTTP_URL_SHAPE, "Prometheus, or what speaks its HTTP API; without `/api/v1`."),
        "labels": ShapeKey(
            MapShape(LINE_SHAPE, build_regex_converter(_LABEL_NAME, "the name of a label")),
            "Labels by which this cluster's series are told from others'.",
        ),
        "metrics": ShapeKey(_METRICS_SHAPE, "Names, where the exporter's rules give others."),
        **_LOGIN_KEYS,
    },
    required=("url",),
)
_EXPORTERS_SHAPE = RecordShape(
    {
        "urls": ShapeKey(ListShape(HTTP_URL_SHAPE, empty="name the page of each broker"), "The page of each broker."),
        "metrics": ShapeKey(_METRICS_SHAPE, "Names, where the exporter's rules give others."),
        **_LOGIN_KEYS,
    },
    required=("urls",),
    bare_list="urls",
)
_CLOUDWATCH_SHAPE = RecordShape(
    {
        "cluster": ShapeKey(LINE_SHAPE, "The cluster's name at MSK."),
        "region": ShapeKey(AWS_REGION_SHAPE, "Its region."),
        "disk": ShapeKey(_DISK_SHAPE, "The volume of one broker: CloudWatch tells only the share that is used."),
        "credentials": ShapeKey(SECRET_REF_SHAPE, "Where `access key:secret key` stand.", "this machine's identity"),
        "endpoint": ShapeKey(HTTP_URL_SHAPE, "CloudWatch's address, where it is not the region's own."),
        "costs": ShapeKey(
            RecordShape(
                {
                    "tag": ShapeKey(
                        RecordShape(
                            {
                                "key": ShapeKey(LINE_SHAPE, "The tag's key."),
                                "value": ShapeKey(LINE_SHAPE, "Its value."),
                            },
                            required=("key", "value"),
                        ),
                        "A cost allocation tag of this cluster.",
                        "all clusters of the account together",
                    ),
                    "endpoint": ShapeKey(HTTP_URL_SHAPE, "Cost Explorer's address, where it is not AWS's own."),
                }
            ),
            "Ask Cost Explorer what was paid. AWS charges for each request.",
            "it is not asked",
        ),
    },
    required=("cluster", "region"),
)
_CONFLUENT_SHAPE = RecordShape(
    {
        "cluster": ShapeKey(CLUSTER_ID_SHAPE, "The cluster's id, `lkc-…`."),
        "credentials": ShapeKey(SECRET_REF_SHAPE, "Where a Cloud API key stands, as `key:secret`."),
        "url": ShapeKey(HTTP_URL_SHAPE, "The Metrics API.", f"`{CONFLUENT_METRICS_URL}`"),
    },
    required=("cluster", "credentials"),
)
_SOURCES_SHAPE = RecordShape(
    {
        "apiVersion": ShapeKey(build_enum_shape(USAGE_API_VERSION), "The version of this file."),
        "kind": ShapeKey(build_enum_shape(USAGE_KIND), "What this document is."),
        "clusters": ShapeKey(
            MapShape(
                RecordShape(
                    {
                        "prometheus": ShapeKey(_PROMETHEUS_SHAPE, "A Prometheus that scrapes the brokers."),
                        "exporters": ShapeKey(_EXPORTERS_SHAPE, "The brokers' JMX exporters themselves: two readings."),
                        "cloudwatch": ShapeKey(_CLOUDWATCH_SHAPE, "Amazon MSK."),
                        "confluent": ShapeKey(_CONFLUENT_SHAPE, "Confluent Cloud."),
                    },
                    one_of=True,
                ),
                build_regex_converter(NAME_REGEX, "the alias of a cluster", 40),
            ),
            "By the topology's alias: where the history of each cluster is kept.",
        ),
        "prices": ShapeKey(
            RecordShape(
                {
                    "currency": ShapeKey(
                        build_text_shape("a currency", build_regex_converter(_CURRENCY, "three letters, such as EUR")),
                        "ISO 4217.",
                    ),
                    "egress_per_gib": ShapeKey(_PRICE_SHAPE, "A GiB that leaves a source cluster."),
                    "storage_per_gib_month": ShapeKey(_PRICE_SHAPE, "A GiB on the target's disks for 30 days."),
                    "broker_month": ShapeKey(_PRICE_SHAPE, "A broker of the target for 30 days."),
                },
                required=("currency",),
            ),
            "What things cost you. Nothing is reckoned with a price that is not here.",
        ),
        "broker": ShapeKey(
            RecordShape(
                {
                    "bytes_in": ShapeKey(NONZERO_RATE_SHAPE, "What a broker takes, with copies from other brokers."),
                    "bytes_out": ShapeKey(NONZERO_RATE_SHAPE, "What a broker sends, with copies to other brokers."),
                    "disk": ShapeKey(_DISK_SHAPE, "Its disk."),
                    "replicas": ShapeKey(COUNT_SHAPE, "Replicas of partitions that it holds.", "4000"),
                    "headroom": ShapeKey(
                        ConvertedShape(SHARE_SHAPE, _headroom), "The share that stays free.", f"{DEFAULT_HEADROOM:.0%}"
                    ),
                }
            ),
            "One broker of the target.",
        ),
        "link": ShapeKey(NONZERO_RATE_SHAPE, "What a copy reaches between the clusters.", "the flow's quota"),
    },
    required=("apiVersion", "kind", "clusters"),
)


def parse_usage_sources(text: str, file: str) -> UsageSources:
    """Raises UnusableSourcesFile, with every problem."""
    node, problems = parse_yaml(text, file)
    reader = ProblemCollector()
    root = None if node is None else _SOURCES_SHAPE.read(node, "", reader)
    found = [*problems, *reader.problems]
    if root is None or found:
        lines = [f"{file}:{each.labels[0].span.line}: {each.message}" + (f" ({each.help})" if each.help else "")
                 for each in found]  # fmt: skip
        begins = f"it begins with `apiVersion: {USAGE_API_VERSION}` and `kind: {USAGE_KIND}`"
        raise UnusableSourcesFile("\n".join(lines) or f"{file}: the file is empty; {begins}")
    clusters = {alias: _read_source(value) for alias, value in root.fields["clusters"].fields.items()}
    _require_one_proof(file, clusters)
    return UsageSources(clusters, _read_prices(root), _read_broker(root), root.get("link"))


def build_usage_sources_schema() -> dict[str, Any]:
    """The file's JSON Schema, for editors."""
    definitions: dict[str, Any] = {}
    schema = _SOURCES_SHAPE.schema(definitions)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "$defs": definitions}


def _read_source(value: CheckedValue) -> HistorySource:
    [(kind, said)] = value.fields.items()
    if kind == "prometheus":
        labels = (
            {} if (found := said.at("labels")) is None else {name: each.data for name, each in found.fields.items()}
        )
        return PrometheusSource(said.get("url").rstrip("/"), labels, _read_metrics(said), _read_login(said))
    if kind == "exporters":
        return ExporterSource(said.texts("urls"), _read_metrics(said), _read_login(said))
    if kind == "confluent":
        url = said.get("url", default=CONFLUENT_METRICS_URL).rstrip("/")
        return ConfluentSource(said.get("cluster"), said.get("credentials"), url)
    tag = said.at("costs", "tag")
    return CloudWatchSource(
        cluster=said.get("cluster"),
        region=said.get("region"),
        disk=said.get("disk"),
        credentials=said.get("credentials"),
        endpoint=said.get("endpoint"),
        cost_endpoint=said.get("costs", "endpoint"),
        costs=said.at("costs") is not None,
        cost_tag=None if tag is None else (tag.get("key"), tag.get("value")),
    )


def _read_metrics(said: CheckedValue) -> Mapping[str, str]:
    return {name: said.get("metrics", name, default=usual) for name, usual in DEFAULT_METRIC_NAMES.items()}


def _read_login(said: CheckedValue) -> HttpLogin:
    return HttpLogin(said.get("bearer"), said.get("credentials"), said.get("ca"))


def _require_one_proof(file: str, clusters: Mapping[str, HistorySource]) -> None:
    for alias, source in clusters.items():
        login = source.login if isinstance(source, PrometheusSource | ExporterSource) else None
        if login is not None and login.bearer is not None and login.credentials is not None:
            raise UnusableSourcesFile(f"{file}: clusters.{alias} has `bearer` and `credentials`; keep one of them")


def _read_prices(root: CheckedValue) -> UsagePrices:
    names = ("egress_per_gib", "storage_per_gib_month", "broker_month")
    said = {name: root.get("prices", name) for name in names}
    return UsagePrices(root.get("prices", "currency", default=""), **said)


def _read_broker(root: CheckedValue) -> BrokerCapacity:
    names = ("bytes_in", "bytes_out", "disk", "replicas", "headroom")
    said = {name: found for name in names if (found := root.get("broker", name)) is not None}
    return BrokerCapacity(**said)
