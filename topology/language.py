"""The language `topology/v1alpha1`: every section and key, as shapes. JSON Schema for editors comes from here too.

`{source}`-like words in templates, selectors and secret references are checked here; what needs two places of the file
(an undeclared cluster, a flow id) is checked by rules.
"""

from __future__ import annotations

import re
from typing import Any

from topology import quantities
from topology.errors import BadSelector
from topology.model import Value
from topology.plan import SecretRef
from topology.selectors import Selector
from topology.shapes import Converted, ListOf, MapOf, Record, Scalar, ScalarOr, Shape

API_VERSION = "topology/v1alpha1"
KIND = "Topology"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d)?")
_ADDRESS = re.compile(r"(?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_HTTP = re.compile(r"https?://[A-Za-z0-9._~\[\]:-]+(?:/[A-Za-z0-9._~/-]*)?")


def _scalar(expected: str, convert: Any, kind: str = "string", *, quoted: bool = False, **more: Any) -> Scalar:
    return Scalar(convert, expected, {"type": kind, **more}, quoted)


def _matching(pattern: re.Pattern[str], expected: str, limit: int = 249) -> Any:
    def convert(text: str) -> str:
        if pattern.fullmatch(text) is None or len(text) > limit:
            raise ValueError(f"expected {expected}")
        return text

    return convert


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a text that is not empty")
    return text


def _integer(low: int, high: int) -> Scalar:
    expected = f"a whole number from {low} to {high}"

    def convert(text: str) -> int:
        if re.fullmatch(r"-?[0-9]{1,18}", text) is None or not low <= int(text) <= high:
            raise ValueError(f"expected {expected}")
        return int(text)

    return _scalar(expected, convert, "integer", minimum=low, maximum=high)


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("expected `true` or `false`")
    return text == "true"


def word(*words: str) -> Scalar:
    """One of these words."""
    expected = f"one of {', '.join(words)}"

    def convert(text: str) -> str:
        if text not in words:
            from topology.nearest import nearest

            near = nearest(text, words)
            raise ValueError(f"expected {expected}" + (f"; did you mean `{near}`?" if near else ""))
        return text

    return _scalar(expected, convert, enum=list(words))


def _address(text: str) -> str:
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match[1]) < 65536:
        raise ValueError("expected `host:port`")
    return text


def _selector(kind: Any) -> Any:
    def convert(text: str) -> Selector:
        if kind == "literal" and _TOPIC.fullmatch(text) is None:
            if set("*?[](|)\\^$+") & set(text):
                raise ValueError("a plain selector is one topic's exact name; write {glob: …} or {regex: …}")
            raise ValueError("not a topic name (letters, digits, `.`, `_`, `-`; at most 249)")
        selector = Selector(kind, text)
        try:
            selector.automaton()
        except BadSelector as error:
            raise ValueError(str(error)) from None
        return selector

    return convert


def _union(value: Value) -> Any:
    [chosen] = value.fields.values()
    return chosen.data


def _secret(value: Value) -> SecretRef:
    [(kind, chosen)] = value.fields.items()
    return SecretRef(kind, chosen.data)  # type: ignore[arg-type]  # the record has only the legal kinds


def _flow_naming(value: Value) -> None:
    from topology.naming import template

    policy = value.get("policy")
    needs = {"template": "template", "map": "map"}.get(policy)
    for name in ("template", "map", "separator"):
        if name in value.fields and policy != {"separator": "prefix"}.get(name, name):
            raise ValueError(f"policy {policy} takes no `{name}`")
    if needs and needs not in value.fields:
        raise ValueError(f"policy {policy} needs `{needs}`")
    if policy == "template":
        template(value.get("template"), "s", "t")
    if policy == "map":
        targets = [each.data for each in value.fields["map"].fields.values()]
        twice = sorted({name for name in targets if targets.count(name) > 1})
        if twice:
            raise ValueError(f"two topics are mapped to `{twice[0]}`; a rename must be one-to-one")


NAME = _scalar("a name of lower-case letters, digits and `-`", _matching(_NAME, "a name of `a-z0-9-`", 80), quoted=True)
TEXT = _scalar("a text", _text, quoted=True)
TOPIC = _scalar("a topic's name", _selector("literal"), quoted=True)
BOOLEAN = _scalar("`true` or `false`", _boolean, "boolean")
DURATION = _scalar("a duration such as `30s`", quantities.duration_ms)
RETENTION = _scalar("a duration such as `7d`, or `forever`", quantities.retention_ms)
SIZE = _scalar("a size such as `1MiB`", quantities.size_bytes)
RATE = _scalar("a rate such as `60MiB/s`", quantities.rate_bytes)
SHARE = _scalar("a share such as `5%`", quantities.fraction)
COUNT = _integer(1, 1_000_000)
RECORDS = _integer(0, 10**15)
INSTANT = _scalar('an instant such as "2026-03-02T02:00:00Z"', _matching(_INSTANT, "an RFC 3339 instant"), quoted=True)
ADDRESS = _scalar("`host:port`", _address)
MODE = word("never", "once", "continuous")
SELECTOR = ScalarOr(
    TOPIC,
    Converted(
        Record(
            {
                "glob": _scalar("a glob", _selector("glob"), quoted=True),
                "regex": _scalar("a regex", _selector("regex"), quoted=True),
            },
            one_of=True,
        ),
        _union,
    ),
)
SECRET = Converted(Record({"airflow_connection": TEXT, "env": TEXT, "file": TEXT}, one_of=True), _secret)
SELECTORS = ListOf(SELECTOR, empty="nothing would be selected; name topics, or leave the section out")
NAMES = ListOf(NAME)
TEXTS = ListOf(TEXT)


def _sync(**more: Shape) -> Record:
    return Record({"mode": MODE, "include": ListOf(SELECTOR), "exclude": ListOf(SELECTOR), **more})


LAG = Record({"p99": DURATION, "max": DURATION})
SETTINGS: dict[str, Shape] = {
    "topics": Record({"include": SELECTORS, "exclude": ListOf(SELECTOR), "allow_internal": BOOLEAN}),
    "naming": Converted(
        Record(
            {
                "policy": word("identity", "prefix", "template", "map"),
                "separator": _scalar("`.`, `-` or `_`", _matching(re.compile(r"[._-]{1,3}"), "`.`, `-` or `_`")),
                "template": TEXT,
                "map": MapOf(_scalar("a topic's name", _matching(_TOPIC, "a topic's name"), quoted=True)),
            },
            required=("policy",),
        ),
        _flow_naming,
        "NAM305",
    ),
    "provenance": Record({"guard": word("producer_id", "none"), "header": TEXT, "forward": word("all", "local")}),
    "merge": Record(
        {
            "allowed": BOOLEAN,
            "duplicates": word("forbidden", "allowed"),
            "partitions": word("equal", "any"),
            "compacted": word("forbid", "allow"),
        }
    ),
    "offsets": word("mapped", "aligned"),
    "state": word("running", "paused"),
    "replication_factor": _integer(1, 32),
    "partitions": Record({"mode": word("grow", "fixed"), "mapping": word("preserve", "key")}),
    "delivery": Record(
        {
            "semantics": word("exactly_once", "at_least_once", "transactions"),
            "isolation": word("read_committed", "read_uncommitted"),
            "start": word("earliest", "latest"),
            "on_gap": word("stop", "continue"),
            "rejected": word("stop", "quarantine"),
        }
    ),
    "workers": Record(
        {
            "engine": word("spark", "process"),
            "count": _integer(1, 1_000),
            "near": word("source", "target"),
            "quota": RATE,
            "discovery": DURATION,
        }
    ),
    "sync": Record(
        {
            "configs": Record({"mode": MODE, "include": TEXTS, "exclude": TEXTS, "set": MapOf(TEXT)}),
            "acls": _sync(include_write=word("never", "on_failover", "always")),
            "groups": _sync(interval=DURATION, when_target=word("empty")),
            "quotas": _sync(),
            "schemas": _sync(
                ids=word("preserve", "translate"),
                subjects=word("keep", "follow_topic"),
            ),
        }
    ),
    "slo": Record(
        {
            "lag": LAG,
            "end_to_end": LAG,
            "outage_allowance": DURATION,
            "rpo": DURATION,
            "rto": DURATION,
            "on_breach": word("alert", "pause", "fail"),
        }
    ),
    "verify": Record({"every": DURATION, "level": word("L0", "L1", "L2", "L3")}),
    "expected": Record({"peak_ingress": RATE}),
}
FLOW = Record(
    {"source": NAME, "target": NAME, "suffix": NAME, **SETTINGS},
    required=("source", "target"),
)
CLUSTER = Record(
    {
        "bootstrap": ListOf(ADDRESS, empty="a cluster needs at least one address"),
        "cluster_id": TEXT,
        "region": TEXT,
        "regions": TEXTS,
        "residency": TEXT,
        "stretch": Record(
            {"max_rtt": DURATION, "sync_replicas": MapOf(COUNT), "tie_breaker": TEXT, "observers": TEXTS}
        ),
        "security": Record(
            {
                "protocol": word("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT"),
                "mechanism": word("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"),
                "credentials": SECRET,
                "ca": SECRET,
                "certificate": SECRET,
                "key": SECRET,
            },
            required=("protocol",),
        ),
        "schema_registry": Record({"url": TEXT, "credentials": SECRET}, required=("url",)),
        "owner": TEXT,
        "facts": Record(
            {"brokers": COUNT, "racks": COUNT, "kafka": TEXT, "max_message": SIZE, "tiered_storage": BOOLEAN}
        ),
        "limits": Record({"ingress": RATE, "egress": RATE, "partitions": COUNT, "workers": COUNT, "headroom": SHARE}),
        "topics": ListOf(
            Record(
                {
                    "match": SELECTOR,
                    "partitions": COUNT,
                    "replication_factor": _integer(1, 32),
                    "min_insync_replicas": _integer(1, 32),
                    "retention": RETENTION,
                    "retention_bytes": SIZE,
                    "cleanup": word("delete", "compact", "compact_delete"),
                    "delete_retention": DURATION,
                    "max_message": SIZE,
                    "timestamps": word("create_time", "log_append_time"),
                    "compression": word("producer", "none", "gzip", "snappy", "lz4", "zstd"),
                    "tiered_storage": BOOLEAN,
                    "keyed": BOOLEAN,
                    "transactional": BOOLEAN,
                    "schema": word("avro", "protobuf", "json", "none"),
                    "residency": TEXT,
                    "classification": TEXT,
                },
                required=("match",),
            )
        ),
    },
    required=("bootstrap",),
)
PATTERN = Record(
    {
        "hub_and_spoke": Record(
            {"hub": NAME, "spokes": NAMES, "up": Record(SETTINGS), "down": Record(SETTINGS)},
            required=("hub", "spokes"),
        ),
        "active_active": Record(
            {
                "via": word("aggregate", "direct"),
                "regionals": NAMES,
                "aggregates": NAMES,
                "members": NAMES,
                **SETTINGS,
            },
            required=("via",),
        ),
        "active_standby": Record(
            {
                "active": NAME,
                "standby": NAME,
                "failback": Record(
                    {"reverse": word("declared_paused", "none"), "on_divergence": word("stop")},
                    required=("reverse",),
                ),
                **SETTINGS,
            },
            required=("active", "standby"),
        ),
        "aggregation": Record({"sources": NAMES, "target": NAME, **SETTINGS}, required=("sources", "target")),
        "chain": Record({"path": NAMES, **SETTINGS}, required=("path",)),
    },
    one_of=True,
)
GATE = Record(
    {
        "lag": Record({"max_records": RECORDS, "hold": DURATION}, required=("max_records", "hold")),
        "verify": Record({"level": word("L0", "L1", "L2", "L3"), "sample": SHARE}, required=("level",)),
        "approval": TEXT,
        "stragglers": Record({"watch": DURATION}, required=("watch",)),
        "consumer_lag": Record({"max_records": RECORDS, "within": DURATION}, required=("max_records", "within")),
    },
    one_of=True,
)
STRATEGY = word("consumers_first", "producers_first", "fenced")
MIGRATION = Record(
    {
        "flow": NAME,
        "strategy": STRATEGY,
        "applications": MapOf(
            Record({"http": _scalar("an address such as `http://127.0.0.1:8080`", _matching(_HTTP, "an http address"))})
        ),
        "waves": ListOf(
            Record(
                {
                    "name": NAME,
                    "after": NAMES,
                    "topics": ListOf(TOPIC, empty="a wave moves at least one topic"),
                    "consumers": TEXTS,
                    "producers": TEXTS,
                    "strategy": STRATEGY,
                    "window": Record({"opens": INSTANT, "length": DURATION}, required=("opens", "length")),
                    "gates": Record({"before": ListOf(GATE), "after": ListOf(GATE)}),
                    "rollback": Record({"until": DURATION, "reverse": NAME, "none": TEXT}),
                },
                required=("name", "topics"),
            ),
            empty="a migration has at least one wave",
        ),
        "decommission": Record({"not_before": DURATION, "requires": TEXTS}, required=("not_before",)),
    },
    required=("flow", "waves"),
)
TOPOLOGY = Record(
    {
        "apiVersion": word(API_VERSION),
        "kind": word(KIND),
        "metadata": Record(
            {"name": NAME, "owner": TEXT, "description": TEXT, "labels": MapOf(TEXT)},
            required=("name",),
        ),
        "clusters": MapOf(CLUSTER, _matching(_NAME, "an alias of lower-case letters, digits and `-`", 40)),
        "defaults": Record(SETTINGS),
        "pattern": PATTERN,
        "flows": ListOf(FLOW),
        "migration": MIGRATION,
    },
    required=("apiVersion", "kind", "metadata", "clusters"),
)


def json_schema() -> dict[str, Any]:
    """The whole language as JSON Schema 2020-12."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Watershed topology",
        "description": f"apiVersion {API_VERSION}",
    }
    return head | TOPOLOGY.schema()
