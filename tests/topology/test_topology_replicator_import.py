"""Confluent Replicator's connectors: each setting by itself, and everything that is wrong with one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from watershed.topology.errors import UnreadableTopology
from watershed.topology.interop.import_formats import ForeignDocument, import_text
from watershed.topology.interop.imported_topology import ImportedFlow, ImportedTopology
from watershed.topology.interop.replicator_import import read
from watershed.topology.selectors import Selector

PLAIN = {
    "connector.class": "io.confluent.connect.replicator.ReplicatorSourceConnector",
    "src.kafka.bootstrap.servers": "a.example.internal:9092",
    "dest.kafka.bootstrap.servers": "b.example.internal:9092",
    "topic.whitelist": "orders",
}


def imported(**config: Any) -> ImportedTopology:
    settings = PLAIN | {key.replace("_", "."): value for key, value in config.items()}
    kept = {key: value for key, value in settings.items() if value is not None}
    return import_text(json.dumps({"name": "copy", "config": kept}, indent=1), "copy.json")


def flow(**config: Any) -> ImportedFlow:
    [found] = imported(**config).flows
    return found


def codes(**config: Any) -> list[str]:
    return [problem.code for problem in imported(**config).problems if problem.severity != "info"]


def test_a_plain_connector_is_a_flow_with_nothing_wrong() -> None:
    result = imported()
    assert result.format == "replicator"
    assert [(each.id, each.include, each.exclude) for each in result.flows] == [
        ("copy-source-to-copy-target", (Selector("literal", "orders"),), ())
    ]
    assert {each.alias: each.bootstrap for each in result.clusters} == {
        "copy-source": ("a.example.internal:9092",),
        "copy-target": ("b.example.internal:9092",),
    }
    assert {(each.code, each.severity) for each in result.problems} == {("SEC603", "info")}
    assert result.flows[0].settings["sync"] == {"configs": {"mode": "continuous"}, "groups": {"mode": "never"}}


@pytest.mark.parametrize(
    ("text", "naming"),
    [
        ("${topic}", {"policy": "identity"}),
        ("dc1.${topic}", {"policy": "template", "template": "dc1.{topic}"}),
        ("${topic}_replica", {"policy": "template", "template": "{topic}_replica"}),
        ("a-${topic}-b", {"policy": "template", "template": "a-{topic}-b"}),
        ("fx", {"policy": "map", "map": {"orders": "fx"}}),
        ("x y ${topic}", {"policy": "identity"}),
        ("${topic}-${topic}", {"policy": "identity"}),
        ("${kafka.topic}", {"policy": "identity"}),
    ],
)
def test_rename_formats(text: str, naming: dict[str, Any]) -> None:
    assert flow(topic_rename_format=text).settings["naming"] == naming


def test_one_name_for_several_topics_is_an_error_and_not_guessed() -> None:
    config = {"topic_rename_format": "fx", "topic_whitelist": "a,b"}
    assert codes(**config) == ["NAM304"]
    assert flow(**config).settings["naming"] == {"policy": "template", "template": "fx"}


@pytest.mark.parametrize(
    ("config", "include", "exclude"),
    [
        ({"topic_whitelist": " a , b,"}, ["a", "b"], []),
        ({"topic_whitelist": None, "topic_regex": r"web\..*"}, [{"glob": "web.*"}], []),
        ({"topic_whitelist": None, "topic_regex": "a{2,3}b|c"}, [{"regex": "a{2,3}b|c"}], []),
        ({"topic_regex": "(?!tmp-).*", "topic_blacklist": "x"}, ["orders", {"glob": "*"}], ["x", {"glob": "tmp-*"}]),
        ({"topic_whitelist": "a,b", "topic_blacklist": "b,c"}, ["a"], ["b", "c"]),
        ({"topic_whitelist": "a,__consumer_offsets,_schemas"}, ["a"], []),
    ],
)
def test_selection(config: dict[str, Any], include: list[Any], exclude: list[Any]) -> None:
    found = flow(**config)
    assert sorted(map(str, found.include)) == sorted(str(Selector.from_json(each)) for each in include)
    assert {each.kind for each in found.include} == {Selector.from_json(each).kind for each in include}
    assert sorted(map(str, found.exclude)) == sorted(str(Selector.from_json(each)) for each in exclude)


@pytest.mark.parametrize(
    ("config", "path", "value"),
    [
        ({"topic_config_sync": "false"}, "configs", {"mode": "once"}),
        ({"topic_config_sync": False, "topic_auto_create": False}, "configs", {"mode": "never"}),
        ({"offset_translator_tasks_max": 0}, "groups", {"mode": "never"}),
    ],
)
def test_what_is_synchronised(config: dict[str, Any], path: str, value: dict[str, Any]) -> None:
    assert flow(**config).settings["sync"][path] == value


@pytest.mark.parametrize(
    ("config", "section", "value"),
    [
        ({"tasks_max": 3, "topic_poll_interval_ms": 1500}, "workers", {"count": 3, "discovery": "1500ms"}),
        ({"dest_topic_replication_factor": "3"}, "replication_factor", 3),
        ({"topic_preserve_partitions": "false"}, "partitions", {"mode": "fixed", "mapping": "key"}),
        ({"provenance_header_enable": "true"}, "provenance", {"guard": "producer_id"}),
        ({"src_consumer_auto_offset_reset": "latest"}, "delivery", {"start": "latest"}),
    ],
)
def test_settings_of_the_flow(config: dict[str, Any], section: str, value: Any) -> None:
    assert flow(**config).settings[section] == value


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"topic_whitelist": None}, ["SYN012"]),
        ({"topic_whitelst": "a"}, ["SYN003"]),
        ({"topic_whitelist": "a.*"}, ["NAM302"]),
        ({"topic_regex": ".*"}, ["NAM307"]),
        ({"topic_regex": "a.b"}, ["NAM306"]),
        ({"tasks_max": "many"}, ["SYN011"]),
        ({"dest_topic_replication_factor": 1}, ["TPC405"]),
        ({"topic_timestamp_type": "LogAppendTime"}, ["TPC415"]),
        ({"topic_regex": "web-.*", "src_consumer_auto_offset_reset": "latest"}, ["TPC417"]),
        ({"topic_whitelist": "__consumer_offsets,a"}, ["TPC401"]),
        ({"dest_kafka_bootstrap_servers": "A.example.internal:9092"}, ["CLU107"]),
        ({"src_kafka_security_protocol": "SASL_PLAINTEXT", "src_kafka_sasl_mechanism": "PLAIN"}, ["SEC602"]),
        ({"src_kafka_ssl_truststore_password": "changeit"}, ["SEC601", "SEC603"]),
    ],
)
def test_what_is_wrong_is_said_with_its_place(config: dict[str, Any], expected: list[str]) -> None:
    result = imported(**config)
    assert sorted(problem.code for problem in result.problems if problem.severity != "info") == sorted(expected)
    for problem in result.problems:
        assert problem.labels[0].span.file == "copy.json"
        assert problem.labels[0].span.line > 1
    assert "changeit" not in repr(result.not_carried) + repr(result.problems)


def test_json_that_does_not_parse_names_its_line() -> None:
    text = '{"name": "x",\n "config": {"connector.class": "io.confluent.connect.replicator.ReplicatorSourceConnector"\n'
    with pytest.raises(UnreadableTopology, match=r"copy\.json: .*line"):
        import_text(text, "copy.json")


def test_a_file_without_such_a_connector_is_refused() -> None:
    with pytest.raises(UnreadableTopology, match="no connector of Replicator"):
        read((ForeignDocument("x.json", '{"connector.class": "FileStreamSource"}'),))


def test_properties_of_a_standalone_worker_are_read_as_well() -> None:
    text = "".join(f"{key}={value}\n" for key, value in (PLAIN | {"name": "alone"}).items())
    [found] = import_text(text, "replicator.properties").flows
    assert found.id == "alone-source-to-alone-target"
