"""What people find in the files of others: one small file of our own for each kind of remark that was wrong,
misleading, missing or repeated in thirty files of public repositories (decision 0115)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from watershed.topology.interop.import_formats import import_path, import_text
from watershed.topology.interop.import_report import (
    ImportReport,
    build_import_report,
    render_import_findings,
    render_lint_findings,
    render_not_carried,
)

ENDS = """clusters = a, b
a.bootstrap.servers = k1.a.example.internal:9092
b.bootstrap.servers = k1.b.example.internal:9092
"""
RUNS = ENDS + "a->b.enabled = true\na->b.topics = orders\n"


def imported(text: str, file: str = "mm2.properties") -> ImportReport:
    return build_import_report(import_text(text, file))


def wrong(report: ImportReport, code: str) -> list[str]:
    return [each.message for each in report.source if each.rule == code]


def linted(report: ImportReport) -> set[str]:
    return {each.rule for each in report.result if each.severity == "error"}


def left(report: ImportReport, what: str) -> list[str]:
    return [each.why for each in report.not_carried if what in each.what]


def connectors(*configs: dict[str, Any], **more: Any) -> ImportReport:
    plain = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": "a",
        "target.cluster.alias": "b",
        "source.cluster.bootstrap.servers": "k1.a.example.internal:9092",
        "target.cluster.bootstrap.servers": "k1.b.example.internal:9092",
        "topics": "orders",
    }
    return imported(json.dumps([plain | more, *(plain | each for each in configs)], indent=1), "c.json")


def strimzi(mirror: str, clusters: str = "", kind: str = "v1beta2") -> ImportReport:
    return imported(
        f"""apiVersion: kafka.strimzi.io/{kind}
kind: KafkaMirrorMaker2
metadata: {{name: mm}}
spec:
  connectCluster: b
  clusters:
    - {{alias: a, bootstrapServers: "k1.a.example.internal:9092"}}
    - alias: b
      bootstrapServers: k1.b.example.internal:9092
{clusters}
  mirrors:
    - sourceCluster: a
      targetCluster: b
      topicsPattern: orders
{mirror}
""",
        "mm2.yaml",
    )


# --- pairs that copy nothing


@pytest.mark.parametrize("back", ["", "b->a.topics = c\n", "b->a.groups = .*\nb->a.sync.topic.acls.enabled = true\n"])
def test_a_pair_that_is_switched_off_is_no_flow_whatever_else_is_said_of_it(back: str) -> None:
    report = imported(RUNS + f"topics = .*\nb->a.enabled = false\n{back}")
    assert report.text.count("- source:") == 1
    assert len(left(report, "switched off: b->a")) == 1
    assert linted(report) == set()


def test_a_pair_that_only_sends_checkpoints_is_no_flow_whose_names_grow() -> None:
    """It failed with GRF203, for a flow that nobody had asked for."""
    report = imported(RUNS + "topics = .*\nb->a.emit.heartbeats.enabled = true\nb->a.emit.checkpoints.enabled = true\n")
    assert report.text.count("- source:") == 1
    assert linted(report) == set()
    assert wrong(report, "GRF216") == []


def test_a_mirror_without_a_source_connector_and_one_that_is_not_enabled_are_no_flows() -> None:
    for mirror in ("", "      sourceConnector: {config: {enabled: false}}"):
        assert "- source:" not in strimzi(mirror).text
    assert "state: paused" in strimzi("      sourceConnector: {state: paused}").text


@pytest.mark.parametrize(
    ("more", "flows"), [("", 1), ("emit.heartbeats.enabled = true\n", 1), ("emit.heartbeats.enabled = false\n", 0)]
)
def test_a_blank_behind_true_counts_when_pairs_are_started_and_nowhere_else(more: str, flows: int) -> None:
    report = imported(ENDS + f"a->b.topics = orders\na->b.enabled = true \n{more}")
    assert report.text.count("- source:") == flows
    assert any("a blank follows `true`" in each for each in wrong(report, "SYN011")) == (flows == 0)


def test_a_blank_behind_true_is_one_finding_and_not_two_that_disagree() -> None:
    report = imported(ENDS + "a->b.topics = orders\na->b.enabled = true \nemit.heartbeats.enabled = false\n")
    assert not any("has settings but no" in each for each in wrong(report, "GRF216"))


def test_enabled_beside_the_config_of_a_strimzi_connector_is_dropped_by_strimzi() -> None:
    report = strimzi("      sourceConnector: {enabled: false, taskMax: 2}")
    assert report.text.count("- source:") == 1
    dropped, unknown = sorted(wrong(report, "SYN003"), key=lambda each: "has no `" in each)
    assert dropped.startswith("`sourceConnector.enabled` has no effect")
    assert unknown == "`sourceConnector` has no `taskMax`"


def test_a_blank_behind_a_setting_of_a_connector_changes_nothing() -> None:
    report = imported(RUNS + "sync.topic.configs.enabled = true \nsync.topic.acls.enabled = false \n")
    assert "configs: {mode: continuous}" in report.text
    assert "acls: {mode: never}" in report.text


# --- names


@pytest.mark.parametrize("level", ["", "a->b."])
def test_an_empty_alias_and_an_empty_separator_keep_names(level: str) -> None:
    """How it was done before Kafka 3.0; at top level and for a pair (MirrorMakerConfig.connectorBaseConfig)."""
    report = imported(
        RUNS + f"{level}source.cluster.alias =\n{level}target.cluster.alias =\n{level}replication.policy.separator =\n"
    )
    assert "naming: {policy: identity}" in report.text
    assert wrong(report, "SYN003") == []


def test_an_alias_at_top_level_is_what_stands_before_names_also_of_clusters_that_are_called_source() -> None:
    text = RUNS.replace("a->b", "source->target").replace("a, b", "source, target")
    text = text.replace("a.bootstrap", "source.bootstrap").replace("b.bootstrap", "target.bootstrap")
    report = imported(text + "source.cluster.alias = london\n")
    assert 'naming: {policy: template, template: "london.{topic}"}' in report.text
    assert wrong(report, "SYN003") == []


def test_an_empty_alias_with_a_separator_keeps_the_separator() -> None:
    assert 'template: ".{topic}"' in imported(RUNS + "source.cluster.alias =\n").text


def test_same_names_both_ways_by_empty_aliases_are_a_loop() -> None:
    report = imported(
        RUNS + "b->a.enabled = true\nb->a.topics = orders\nsource.cluster.alias =\nreplication.policy.separator =\n"
    )
    assert len(wrong(report, "GRF201")) == 1


def test_a_class_that_names_topics_is_to_be_filled_in_and_runs_under_no_guess() -> None:
    report = imported(RUNS + "replication.policy.class = com.example.SitePolicy\n")
    assert "# fill in: template" in report.text
    assert "state: paused" in report.text
    assert linted(report) == {"NAM305"}


def test_a_constant_rename_is_refused_by_lint_too() -> None:
    config = {
        "connector.class": "io.confluent.connect.replicator.ReplicatorSourceConnector",
        "src.kafka.bootstrap.servers": "k1.a.example.internal:9092",
        "dest.kafka.bootstrap.servers": "k1.b.example.internal:9092",
        "topic.regex": "unit.*",
        "topic.rename.format": "events",
    }
    report = imported(json.dumps({"name": "r", "config": config}), "r.json")
    assert len(wrong(report, "NAM304")) == 1
    assert [each.message for each in report.result if each.rule == "NAM305"] == [
        "`flows[0].naming`: all topics would get one name: a template names {topic} exactly once"
    ]


# --- addresses


@pytest.mark.parametrize(
    "address", ["${env:SERVERS}", "<broker>:9092", "{BROKERS}", "b.{{ name_space }}.svc:9092", "$(HOST):9092", ""]
)
def test_what_stands_for_an_address_is_filled_in_before_lint_passes(address: str) -> None:
    report = imported(RUNS.replace("k1.a.example.internal:9092", address))
    assert "bootstrap: [a.example.invalid:9092]" in report.text
    assert linted(report) == {"SYN016"}
    assert wrong(report, "SYN011") == []


def test_two_equal_signs_are_told() -> None:
    report = imported(RUNS.replace("servers = k1.b", "servers == k1.b"))
    [finding] = [each for each in report.source if each.rule == "SYN011"]
    assert "second `=`" in finding.help


@pytest.mark.parametrize(
    ("security", "told"), [("", 2), ("security.protocol = SSL\n", 0), ("a.security.protocol = PLAINTEXT\n", 2)]
)
def test_plaintext_is_said(security: str, told: int) -> None:
    assert len(wrong(imported(RUNS + security), "SEC603")) == told


def test_plaintext_on_this_machine_is_not_said() -> None:
    assert wrong(imported(RUNS.replace("k1.a.example.internal", "localhost")), "SEC603") == [
        "cluster b speaks PLAINTEXT: whoever is on the way reads and changes every record"
    ]


def test_name_spaces_of_one_kubernetes_are_not_two_sites() -> None:
    report = imported(
        RUNS.replace("k1.a.example.internal", "k1.ns1.svc").replace("k1.b.example.internal", "k1.ns2.svc")
    )
    assert "SEC603" not in linted(report)


@pytest.mark.parametrize(("servers", "told"), [("k1:1", 0), ("k1:1,k2:1", 1), ("k1:1,k2:1,k3:1", 0)])
def test_more_replicas_than_listed_brokers_are_said(servers: str, told: int) -> None:
    report = imported(RUNS.replace("k1.b.example.internal:9092", servers) + "replication.factor = 3\n")
    assert len(wrong(report, "TPC403")) == told


# --- secrets


@pytest.mark.parametrize(
    ("password", "told"),
    [
        ("${env:PW}", 0),
        ("${PW}", 0),
        ("<password>", 0),
        ("{{ password }}", 0),
        ("hunter2", 1),
        ("$ecret", 1),
        ("<a>b", 1),
    ],
)
def test_placeholders_are_no_secrets(password: str, told: int) -> None:
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="x" password="{password}";'
    report = imported(RUNS + f"a.security.protocol = SASL_SSL\na.sasl.mechanism = PLAIN\na.sasl.jaas.config = {jaas}\n")
    assert len(wrong(report, "SEC601")) == told


def test_msk_keeps_its_mechanism_as_a_provider() -> None:
    address = "b-1.x.abc.c1.kafka.eu-west-1.amazonaws.com:9098"
    report = connectors(
        **{
            "source.cluster.bootstrap.servers": address,
            "source.cluster.security.protocol": "SASL_SSL",
            "source.cluster.sasl.mechanism": "AWS_MSK_IAM",
            "source.cluster.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        }
    )
    assert "mechanism: OAUTHBEARER, provider: aws_msk_iam, oauth: {region: eu-west-1}" in report.text


def test_msk_of_a_custom_authentication_of_strimzi_has_the_region_of_its_brokers() -> None:
    cluster = """    - alias: c
      bootstrapServers: b-1.x.abc.c1.kafka.eu-west-1.amazonaws.com:9098
      tls: {}
      authentication:
        type: custom
        sasl: true
        config:
          sasl.mechanism: AWS_MSK_IAM
          sasl.jaas.config: software.amazon.msk.auth.iam.IAMLoginModule required;
"""
    report = strimzi("      sourceConnector: {}", cluster)
    assert "mechanism: OAUTHBEARER, provider: aws_msk_iam, oauth: {region: eu-west-1}" in report.text


def test_a_trust_store_that_is_the_key_store_is_said() -> None:
    stores = "".join(
        f"a.ssl.{each}store.location = /x.jks\na.ssl.{each}store.password = ${{env:P}}\n" for each in ("trust", "key")
    )
    report = imported(RUNS + f"a.security.protocol = SSL\n{stores}")
    assert "SEC612" in {each.rule for each in report.result}


# --- settings


def test_max_tasks_is_meant_as_tasks_max() -> None:
    [finding] = [each for each in connectors(**{"max.tasks": "4"}).source if each.rule == "SYN003"]
    assert finding.help == "did you mean `tasks.max`?"


def test_addresses_of_a_connector_stand_under_cluster() -> None:
    [finding] = [each for each in connectors(**{"source.bootstrap.servers": "k:1"}).source if each.rule == "SYN003"]
    assert finding.help == "did you mean `source.cluster.bootstrap.servers`?"


def test_a_router_is_told_apart_from_what_changes_records() -> None:
    transform = {"transforms": "r", "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter"}
    [why] = left(connectors(**transform), "transforms.r.type")
    assert "say their names in `naming`" in why


def test_words_of_the_properties_file_in_a_connector_are_told_apart_from_unknown_ones() -> None:
    report = connectors(**{"clusters": "a, b", "a->b.enabled": "true"})
    assert wrong(report, "SYN003") == []
    assert all(
        "own properties file" in why for each in ("clusters", "a->b.enabled") for why in left(report, f"`{each}`")
    )


@pytest.mark.parametrize("regex", ["<topic-regex>", "a/b.*"])
def test_a_regex_of_replicator_that_no_topic_matches_is_filled_in(regex: str) -> None:
    config = {
        "connector.class": "io.confluent.connect.replicator.ReplicatorSourceConnector",
        "src.kafka.bootstrap.servers": "k1.a.example.internal:9092",
        "dest.kafka.bootstrap.servers": "k1.b.example.internal:9092",
        "topic.regex": regex,
    }
    report = imported(json.dumps({"name": "r", "config": config}), "r.json")
    assert "# fill in: topics" in report.text
    assert left(report, "topic.regex") == ["no topic can match it"]


def test_refresh_that_is_off_is_told_apart_from_refresh_that_is_on() -> None:
    assert left(imported(RUNS + "refresh.topics.enabled = true\n"), "refresh.topics.enabled") == []
    [why] = left(imported(RUNS + "refresh.topics.enabled = false\n"), "refresh.topics.enabled")
    assert "finds no new topics" in why


def test_an_interval_of_days_is_taken_for_milliseconds() -> None:
    [finding] = [
        each for each in imported(RUNS + "refresh.topics.interval.seconds = 600000\n").source if each.rule == "SYC516"
    ]
    assert finding.message.startswith("`refresh.topics.interval.seconds` is 6 days or more")
    assert finding.help == "for 600000 ms write 600"
    assert wrong(imported(RUNS + "refresh.topics.interval.seconds = 3600\n"), "SYC516") == []
    [day] = wrong(imported(RUNS + "refresh.topics.interval.seconds = 86400\n"), "SYC516")
    assert "is a day or more" in day


def test_the_poll_interval_of_replicator_is_asked_for_the_same() -> None:
    config = {
        "connector.class": "io.confluent.connect.replicator.ReplicatorSourceConnector",
        "src.kafka.bootstrap.servers": "k1.a.example.internal:9092",
        "dest.kafka.bootstrap.servers": "k1.b.example.internal:9092",
        "topic.whitelist": "orders",
        "topic.poll.interval.ms": "432000000",
        "max.tasks": "3",
    }
    report = imported(json.dumps({"name": "r", "config": config}, indent=1), "r.json")
    [slow] = wrong(report, "SYC516")
    assert "is 5 days or more" in slow
    assert "in milliseconds" in slow
    [turned] = [each for each in report.source if each.rule == "SYN003"]
    assert turned.help == "did you mean `tasks.max`?"


def test_exactly_once_of_a_connector_is_helped_by_the_words_that_a_connector_reads() -> None:
    for report, layer in (
        (imported(RUNS + "b.exactly.once.source.support = enabled\n"), "a"),
        (connectors(**{"exactly.once.support": "required"}), "source"),
    ):
        [finding] = [each for each in report.source if each.rule == "SYC515"]
        assert finding.help == f"set `{layer}.consumer.isolation.level = read_committed`"


def test_consumer_overrides_of_a_source_connector_have_no_effect() -> None:
    key = "consumer.override.auto.offset.reset"
    for report, meant in (
        (connectors(**{key: "latest"}), "source.consumer.auto.offset.reset"),
        (imported(RUNS + f"{key} = latest\n"), "CLUSTER.consumer.auto.offset.reset"),
        (strimzi(f"      sourceConnector: {{config: {{{key}: latest}}}}"), "source.consumer.auto.offset.reset"),
    ):
        [finding] = [each for each in report.source if each.rule == "SYN003"]
        assert "has no effect" in finding.message
        assert meant in finding.help
        assert "start:" not in report.text


def test_the_tuning_of_clients_is_known_without_their_prefix() -> None:
    report = imported(RUNS + "a.max.poll.records = 5\nb.batch.size = 7\nb.compression.type = gzip\n")
    assert wrong(report, "SYN003") == []


@pytest.mark.parametrize(
    ("entry", "told"),
    [('"tmp"', 1), ("'tmp.*'", 1), (".*/tmp", 1), ("__.*", 0), ("__consumer_offsets", 0), ("tmp-.*", 0), ("^tmp$", 0)],
)
def test_excludes_that_match_no_topic_are_said(entry: str, told: int) -> None:
    assert len(wrong(imported(RUNS + f"topics.exclude = {entry}\n"), "NAM302")) == told


def test_an_alternative_that_matches_no_topic_is_said_by_itself() -> None:
    [message] = wrong(imported(RUNS.replace("orders", 'orders|"payments"|x\\\\..*')), "NAM302")
    assert message.startswith('`a->b.topics`: `"payments"` matches no topic')


@pytest.mark.parametrize(
    ("topics", "exclude", "include", "unread"),
    [
        (".*", "^(?!orders).*$", '[{glob: "orders*"}]', 0),
        (".*", "(?!orders$).*", "[{regex: '(?:orders)'}]", 0),
        ("pay.*", "(?!orders).*", '[{glob: "pay*"}]', 1),
        (".*", "(?!orders)x.*", '[{glob: "*"}]', 1),
        (".*", "(?!orders).*, tmp.*", '[{glob: "*"}]', 1),
    ],
)
def test_an_exclude_of_all_but_some_is_what_is_left(topics: str, exclude: str, include: str, unread: int) -> None:
    """It came out as an exclude of everything, and the flow selected nothing."""
    report = imported(ENDS + f"a->b.enabled = true\ntopics = {topics}\ntopics.exclude = {exclude}\n")
    assert f"include: {include}" in report.text
    assert len(left(report, "topics.exclude")) == unread
    groups = imported(RUNS + f"sync.group.offsets.enabled = true\ngroups = {topics}\ngroups.exclude = {exclude}\n")
    assert f"include: {include}" in groups.text
    assert len(left(groups, "groups.exclude")) == unread


def test_groups_in_quotes_are_said() -> None:
    groups = 'sync.group.offsets.enabled = true\ngroups = "billing", app\n'
    assert wrong(imported(RUNS + groups), "NAM302") == [
        '`groups`: `"billing"` matches groups with these quotes in their names'
    ]


def test_a_class_that_misses_dots_is_said() -> None:
    report = connectors(topics=r"^Example[\w]*")
    assert "NAM313" in {each.rule for each in report.result if each.severity == "warning"}


# --- groups and access


def test_groups_are_not_missed_where_no_checkpoint_connector_runs() -> None:
    checkpoint = {"connector.class": "org.apache.kafka.connect.mirror.MirrorCheckpointConnector"}
    assert wrong(connectors(), "SYC508") == []
    assert len(wrong(connectors(checkpoint), "SYC508")) == 1
    assert wrong(strimzi("      sourceConnector: {}"), "SYC508") == []
    assert len(wrong(strimzi("      sourceConnector: {}\n      checkpointConnector: {}"), "SYC508")) == 1


@pytest.mark.parametrize(
    ("source", "checkpoint", "harm"),
    [
        ("org.example.IdentityReplicationPolicy", "org.example.IdentityReplicationPolicy", "offset syncs in a topic"),
        ("org.example.IdentityReplicationPolicy", "", "topics that have other names"),
    ],
)
def test_separators_under_names_that_stay_say_the_true_reason(source: str, checkpoint: str, harm: str) -> None:
    policy = f", replication.policy.class: {checkpoint}" if checkpoint else ""
    report = strimzi(
        f'      sourceConnector: {{config: {{replication.policy.class: {source}, replication.policy.separator: ""}}}}\n'
        f"      checkpointConnector: {{config: {{sync.group.offsets.enabled: true{policy}}}}}"
    )
    [message] = [each for each in wrong(report, "NAM310") if "separator" in each]
    assert harm in message


def test_replicator_syncs_no_group_that_nobody_names() -> None:
    config = {
        "connector.class": "io.confluent.connect.replicator.ReplicatorSourceConnector",
        "src.kafka.bootstrap.servers": "k1.a.example.internal:9092",
        "dest.kafka.bootstrap.servers": "k1.b.example.internal:9092",
        "topic.whitelist": "orders",
    }
    report = imported(json.dumps({"name": "r", "config": config}), "r.json")
    assert "groups: {mode: never}" in report.text
    [why] = left(report, "offset translation")
    assert "timestamp interceptor" in why


def test_acls_of_a_link_without_filters_are_asked_for() -> None:
    link = "link.mode=DESTINATION\nbootstrap.servers=k1.a.example.internal:9092\nacl.sync.enable=true\n"
    report = imported(link, "link.properties")
    assert "acls: {mode: never}" in report.text
    [message] = wrong(report, "SYN010")
    assert "no filter says for which ACLs" in message


# --- documents


def test_settings_of_the_worker_have_an_effect_in_v1beta2_and_not_in_v1() -> None:
    worker = "      config: {group.id: mm2, status.storage.topic: x}"
    assert wrong(strimzi("      sourceConnector: {}", worker), "SYN003") == []
    text = """apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
metadata: {name: mm}
spec:
  target: {alias: b, bootstrapServers: "k1.b.example.internal:9092", config: {group.id: mm2}}
  mirrors:
    - source: {alias: a, bootstrapServers: "k1.a.example.internal:9092"}
      sourceConnector: {}
      topicsPattern: orders
"""
    [finding] = [each for each in imported(text, "mm2.yaml").source if each.rule == "SYN003"]
    assert finding.help == "write `spec.target.groupId`"


def test_documents_of_other_kinds_are_listed() -> None:
    text = "kind: Kafka\nmetadata: {name: k}\n---\nkind: KafkaTopic\nmetadata: {name: t}\n---\n"
    more = "kind: KafkaMirrorMaker2\nmetadata: {name: mm}\nspec: {clusters: [], mirrors: []}\n"
    report = imported(text + more, "all.yaml")
    assert [line.split(": ", 1)[1] for line in render_not_carried(report.not_carried)] == [
        "a resource of kind `Kafka`: only KafkaMirrorMaker2 is imported; the same in line 4 (`KafkaTopic`)"
    ]


@pytest.mark.parametrize(("other", "told"), [(False, 1), (True, 0)])
def test_the_missing_half_of_an_inbound_link_is_said(other: bool, told: int) -> None:
    ends = 'source_kafka_cluster { id = "lkc-1" }\n  destination_kafka_cluster { id = "lkc-2" }\n'
    text = f'resource "confluent_cluster_link" "in" {{\n  link_name = "x"\n  connection_mode = "INBOUND"\n  {ends}}}\n'
    if other:
        text += f'resource "confluent_cluster_link" "out" {{\n  link_name = "x"\n  link_mode = "SOURCE"\n  {ends}}}\n'
    assert len(left(imported(text, "link.tf"), "the other half")) == told


# --- one line for each kind


def test_remarks_of_one_kind_are_one_line_with_the_places() -> None:
    text = RUNS + "".join(f"{each}.storage.replication.factor = 3\n" for each in ("config", "offset", "status"))
    [line] = [each for each in render_not_carried(imported(text).not_carried) if "Connect worker" in each]
    assert line == (
        "mm2.properties:6: `config.storage.replication.factor`: a setting of the Connect worker; Watershed has none; "
        "the same in lines 7 (`offset.storage.replication.factor`), 8 (`status.storage.replication.factor`)"
    )


def test_findings_of_one_kind_are_one_line_with_what_each_is_about() -> None:
    stores = "".join(f"a.ssl.{each}.password = x\n" for each in ("truststore", "keystore", "key"))
    lines = render_import_findings(imported(RUNS + f"a.security.protocol = SSL\n{stores}").source)
    [line] = [each for each in lines if "SEC601" in each]
    assert line.startswith("mm2.properties:7:1: error[SEC601] `a.ssl.truststore.password` holds a secret")
    assert line.endswith("the same in lines 8 (`a.ssl.keystore.password`), 9 (`a.ssl.key.password`)")


def test_findings_that_say_different_things_stay_lines_of_their_own() -> None:
    lines = render_import_findings(imported(RUNS + "one.two.three = 1\ntasks.max = many\n").source)
    assert len([each for each in lines if "SYN" in each]) == 2


def test_what_the_linter_would_say_again_is_said_once() -> None:
    text = (
        RUNS.replace("a->b", "primary->b")
        .replace("clusters = a", "clusters = primary")
        .replace("a.boot", "primary.boot")
    )
    report = imported(text)
    assert len(wrong(report, "CLU103")) == 1
    assert [each for each in render_lint_findings(report, "t.yaml") if "CLU103" in each] == []


def test_remarks_of_the_linter_are_one_line() -> None:
    lines = render_lint_findings(imported(RUNS), "t.yaml")
    [line] = [each for each in lines if "OPS901" in each]
    assert line.endswith("(`topology lint --profile strict t.yaml` says more)")


def test_json_has_every_remark_by_itself() -> None:
    text = RUNS + "".join(f"{each}.storage.replication.factor = 3\n" for each in ("config", "offset", "status"))
    listed = json.loads(imported(text).to_json())["not_carried"]
    assert [each["line"] for each in listed if "Connect worker" in each["why"]] == [6, 7, 8]


RACK = "consumer.client.rack"


@pytest.mark.parametrize(
    "report",
    [
        imported(RUNS + f"a.{RACK} = eu-1a\n"),
        imported(RUNS + f"a->b.source.{RACK} = eu-1a\n"),
        connectors(**{f"source.{RACK}": "eu-1a"}),
        strimzi(f"      sourceConnector: {{config: {{source.{RACK}: eu-1a}}}}"),
    ],
    ids=["cluster", "flow", "connect", "strimzi"],
)
def test_the_rack_of_the_consumer_is_where_workers_read(report) -> None:
    assert "near:" in report.text
    assert "rack: eu-1a" in report.text
    assert left(report, RACK) == []


def test_a_file_of_a_directory_that_nobody_reads_is_listed(tmp_path: Path) -> None:
    (tmp_path / "a.properties").write_text(RUNS, encoding="utf-8")
    (tmp_path / "kustomization.yaml").write_text("kind: Kustomization\n", encoding="utf-8")
    (tmp_path / "empty.properties").write_text("\n", encoding="utf-8")
    report = build_import_report(import_path(tmp_path))
    empty, other = left(report, "the whole file")
    assert empty.startswith("nothing in it is read: the file is empty; the other files are MirrorMaker 2 properties")
    assert "this is a Kustomization" in other
