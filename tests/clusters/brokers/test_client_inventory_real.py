"""Who uses two real clusters: applications with principals of their own, as the brokers tell it, and as their request
logs do, which are switched on for this."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AclOperation, AdminClient
from confluent_kafka.admin._acl import AclBinding, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from kio.static.primitive import i8

from tests.replicator.guarded import PASSWORD, Guarded, guarded
from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.versions import Api
from watershed.lab.clusters import end_clusters, start_clusters
from watershed.topology.client_inventory import ClusterClients
from watershed.topology.client_inventory_json import decode_client_inventory

__all__ = ["guarded"]

pytestmark = pytest.mark.kafka
_BROKER_LOGGER, _SET, _DELETE = i8(8), i8(0), i8(1)
HOSTILE = "web-<b>&\"'"


@pytest.fixture(scope="module")
def logged(guarded: Guarded) -> Iterator[Guarded]:
    """Both brokers write a line for each request."""
    for settings in guarded.admin.values():
        _log_requests(settings, _SET)
    yield guarded
    for settings in guarded.admin.values():
        _log_requests(settings, _DELETE)


def _log_requests(settings: ConnectionSettings, operation: Any) -> None:
    entry = {"name": "kafka.request.logger", "config_operation": operation, "value": "DEBUG"}
    resource = {"resource_type": _BROKER_LOGGER, "resource_name": "1", "configs": [entry]}
    with open_connection(settings) as connection:
        answer = connection.ask(Api.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False)
    assert [int(each.error_code) for each in answer.responses] == [0]


def _allow(settings: ConnectionSettings, user: str, kind: ResourceType, name: str, *operations: str) -> None:
    bindings = [
        AclBinding(
            kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", AclOperation[each], AclPermissionType.ALLOW
        )
        for each in operations
    ]
    client = AdminClient(settings.librdkafka())
    for future in client.create_acls(bindings).values():
        future.result(60)


def _produce(settings: ConnectionSettings, topic: str, client_id: str, *, idempotent: bool = True) -> Producer:
    producer = Producer(settings.librdkafka({"client.id": client_id, "enable.idempotence": idempotent}))
    failed: list[Any] = []
    producer.produce(topic, b"v", on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert not failed
    return producer


def _join(settings: ConnectionSettings, group: str, topic: str, client_id: str) -> Consumer:
    more = {"client.id": client_id, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(settings.librdkafka(more))
    consumer.subscribe([topic])
    until = time.monotonic() + 120
    while consumer.poll(0.1) is None:
        assert time.monotonic() < until, "the consumer got no record"
    return consumer


def _file(tmp_path: Path, logged: Guarded, topic: str, lost: str = "") -> Path:
    clusters = "".join(f"  {alias}: {{bootstrap: ['{each.bootstrap[0]}']}}\n" for alias, each in logged.admin.items())
    path = tmp_path / "shop.yaml"
    path.write_text(
        "apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {name: shop}\nclusters:\n"
        f"{clusters}{lost}flows:\n"
        "  - {source: onprem, target: cloud, topics: {include: [" + topic + "]}, naming: {policy: identity}}\n"
        "migration:\n  flow: onprem-to-cloud\n"
        "  applications: {shop: {http: 'http://shop.example.internal/switch', principal: 'User:worker'}}\n"
        f"  waves: [{{name: first, topics: [{topic}], consumers: [{topic}-group], producers: [shop]}}]\n"
    )
    return path


def _read(path: Path, alias: str = "onprem") -> ClusterClients:
    return decode_client_inventory(path.read_text()).clusters[alias]


@pytest.mark.usefixtures("logged")
def test_who_uses_two_clusters(
    guarded: Guarded, tmp_path: Path, topic_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, group = topic_name, f"{topic_name}-group"
    users = {
        alias: {user: guarded.settings(user)[alias] for user in ("worker", "verify", "migrate")}
        for alias in guarded.ports
    }
    for alias, admin in guarded.admin.items():
        Admin(admin).create_topic(topic, 2)
        _allow(admin, "worker", ResourceType.TOPIC, topic, "WRITE")
        _allow(admin, "verify", ResourceType.TOPIC, topic, "READ")
        _allow(admin, "verify", ResourceType.GROUP, group, "READ")
        _allow(admin, "migrate", ResourceType.TOPIC, topic, "WRITE")
        _allow(admin, "observe", ResourceType.TOPIC, topic, "READ")  # may, and never comes
        _wait_for_right(lambda here=users[alias]["worker"]: _produce(here, topic, HOSTILE))
    onprem = users["onprem"]
    _wait_for_right(lambda: _produce(onprem["migrate"], topic, "stray"))
    _produce(onprem["migrate"], topic, "plain", idempotent=False)
    consumer = _join(onprem["verify"], group, topic, "billing-1")
    file, listed = _file(tmp_path, guarded, topic), tmp_path / "clients.json"
    try:
        assert main(["clients", str(file), "-o", str(listed)]) == 0  # the brokers' own view
        assert main(["scan", str(file), "-o", str(tmp_path / "inventory.json"), "--sample", "0s"]) == 0
    finally:
        consumer.close()
    told = _read(listed)
    [member] = [each for each in told.clients if each.client_id == "billing-1"]
    assert (member.principal, member.groups, member.hosts) == (None, (group,), ("127.0.0.1",))
    assert set(member.reads) == {topic}
    writers = [each for each in told.producers if topic in each.writes]
    assert len(writers) == 2  # one without idempotence leaves no state
    assert told.rights is not None
    assert told.rights.principals is not None
    assert told.rights.principals["User:observe"].reads == (topic,)
    assert "producers without a name" in capsys.readouterr().err

    logs = tmp_path / "logs"
    logs.mkdir()
    for alias, log in guarded.logs.items():
        shutil.copy(log, logs / f"{alias}.log")
    options = [part for alias in guarded.ports for part in ("--request-log", f"{alias}={logs / alias}.log")]
    assert main(["clients", str(file), "-o", str(listed), *options]) == 0
    seen = {(each.principal, each.client_id): each for each in _read(listed).clients}
    shop, stray, reader = seen["User:worker", HOSTILE], seen["User:migrate", "stray"], seen["User:verify", "billing-1"]
    assert (set(shop.writes), set(stray.writes), set(reader.reads)) == ({topic}, {topic}, {topic})
    assert {*shop.producer_ids, *stray.producer_ids} >= {each.producer_id for each in writers}
    assert shop.software[0].startswith("confluent-kafka-python")
    assert reader.groups == (group,)
    assert set(seen["User:migrate", "plain"].writes) == {topic}
    assert ("User:worker", HOSTILE) in {(each.principal, each.client_id) for each in _read(listed, "cloud").clients}

    inventory, page, document = tmp_path / "inventory.json", tmp_path / "report.html", tmp_path / "report.json"
    for output in (page, document):
        assert main(["report", str(inventory), str(file), "--clients", str(listed), "-o", str(output)]) == 0
    told_json = json.loads(document.read_text())
    wave = {each["client_id"]: each for each in told_json["waves"]["first"]["clients"]}
    assert wave[HOSTILE]["application"] == "shop"
    assert wave["billing-1"]["moves_with"] == ["first"]
    assert wave["stray"]["stranger"]
    assert "User:observe" in told_json["clients"]["onprem"]["never_seen"]
    assert topic not in {
        name for each in told_json["clients"]["onprem"]["unknown_producers"] for name in each["writes"]
    }
    html = page.read_text()
    assert "web-&lt;b&gt;&amp;" in html
    assert "web-<b>" not in html


@pytest.mark.soak
@pytest.mark.usefixtures("logged")
def test_short_lived_clients_and_a_cluster_that_is_away(
    guarded: Guarded, tmp_path: Path, topic_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A transactional producer that is gone is still known by its transactional id; a reader that ended stays in the
    list."""
    admin = guarded.admin["onprem"]
    Admin(admin).create_topic(topic_name, 1)
    transactional = Producer(admin.librdkafka({"client.id": "batch", "transactional.id": f"{topic_name}-tx"}))
    transactional.init_transactions(60)
    transactional.begin_transaction()
    transactional.produce(topic_name, b"v")
    transactional.commit_transaction(60)
    consumer = _join(admin, f"{topic_name}-group", topic_name, f"{topic_name}-reader")
    listed = tmp_path / "clients.json"
    file = _file(tmp_path, guarded, topic_name, lost="  lost: {bootstrap: ['127.0.0.1:9']}\n")
    command = ["clients", str(file), "-o", str(listed), "--timeout", "5s"]
    assert main([*command, "--watch", "2s", "--every", "1s"]) == 3
    assert "missing: cluster lost does not answer" in capsys.readouterr().err
    consumer.close()
    assert main([*command, "--cluster", "onprem"]) == 0
    seen = _read(listed)
    [reader] = [each for each in seen.clients if each.client_id == f"{topic_name}-reader"]
    [producer] = [each for each in seen.producers if topic_name in each.writes]
    assert producer.transactional_id == f"{topic_name}-tx"
    first, last = sorted(seen.observations, key=lambda each: each.seen.first_ms)[-2:]
    assert first.used >= 2
    assert first.seen.first_ms <= reader.seen.last_ms <= first.seen.last_ms < last.seen.first_ms
    assert main([*command, "--all"]) == 2


@pytest.mark.usefixtures("logged")
def test_what_an_account_may_not_see_is_said(guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`nobody` has no rights at all: the cluster answers, and tells of nobody."""
    monkeypatch.setenv("CLIENTS_OF_NOBODY", json.dumps({"username": "nobody", "password": PASSWORD}))
    address = guarded.settings("nobody")["onprem"].bootstrap[0]
    file, listed = tmp_path / "estate.yaml", tmp_path / "clients.json"
    file.write_text(
        "apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {name: estate}\nclusters:\n"
        f"  onprem: {{bootstrap: ['{address}'], security: {{protocol: SASL_PLAINTEXT, mechanism: PLAIN, "
        "credentials: {env: CLIENTS_OF_NOBODY}}}\n"
    )
    assert main(["clients", str(file), "-o", str(listed)]) == 0
    seen = _read(listed)
    assert seen.clients == seen.producers == ()
    [observation] = seen.observations
    assert any(text.startswith("ACLs: cluster onprem refused reading ACLs") for text in observation.not_seen)
    assert seen.rights is not None
    assert seen.rights.principals is None


def _wait_for_right(act: Callable[[], object]) -> None:
    """Rights travel by the metadata log."""
    until = time.monotonic() + 60
    while True:
        try:
            act()
        except AssertionError:
            assert time.monotonic() < until
            time.sleep(0.3)
        else:
            return


@pytest.mark.soak
def test_a_broker_of_2_4(tmp_path: Path) -> None:
    """It has no producer states and no list of transactions, which is said; its log is text, and names the writer."""
    home = tmp_path / "lab"
    try:
        lab = start_clusters(home, ["onprem"], kafka="2.4.1")
        settings = ConnectionSettings("onprem", (lab.cluster("onprem").bootstrap,))
        _log_requests(settings, _SET)
        Admin(settings).create_topic("orders", 1)
        _produce(settings, "orders", HOSTILE)
        consumer = _join(settings, "billing", "orders", "billing-1")
        file, listed = tmp_path / "estate.yaml", tmp_path / "clients.json"
        file.write_text(
            "apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {name: estate}\nclusters:\n"
            f"  onprem: {{bootstrap: ['{settings.bootstrap[0]}']}}\n"
        )
        log = lab.cluster("onprem").brokers[0].log
        assert main(["clients", str(file), "-o", str(listed)]) == 0
        told = _read(listed)
        consumer.close()
        assert main(["clients", str(file), "-o", str(listed), "--request-log", f"onprem={log}"]) == 0
    finally:
        end_clusters(home)
    not_seen = told.observations[0].not_seen
    assert any(text.startswith("producers: ") and "too old to be asked describe_producers" in text for text in not_seen)
    assert any("too old to be asked list_transactions" in text for text in not_seen)
    assert told.producers == ()
    assert [(each.client_id, set(each.reads)) for each in told.clients] == [("billing-1", {"orders"})]
    seen = {(each.principal, each.client_id): each for each in _read(listed).clients}
    assert set(seen["User:ANONYMOUS", HOSTILE].writes) == {"orders"}
    assert seen["User:ANONYMOUS", "billing-1"].groups == ("billing",)
