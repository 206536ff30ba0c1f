"""A watch of several scans: what was missed is a gap, and brokers that are too old say so."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from watershed.clusters import client_scan
from watershed.clusters.client_scan import ClientScan, list_principal_rights, scan_clients
from watershed.clusters.client_watch import ClientWatch
from watershed.clusters.errors import RequestUnsupported, Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.versions import Api
from watershed.topology.client_inventory import BROKERS, ClientObservation, ClusterClients, SeenClient, SeenSpan
from watershed.topology.errors import UnreadableInventory
from watershed.topology.inventory import InventoryAcl


def scan(ms: int, client_id: str = "web", cluster_id: str = "one", *not_seen: str) -> ClientScan:
    observation = ClientObservation(BROKERS, "", SeenSpan(ms, ms), 1, not_seen=not_seen)
    client = SeenClient(None, client_id, SeenSpan(ms, ms))
    return ClientScan(ClusterClients("onprem", cluster_id, (client,), observations=(observation,)), {"id": "orders"})


def test_a_client_that_left_stays() -> None:
    watch = ClientWatch("onprem")
    watch.take(scan(1_000, "short"), 1_000)
    watch.take(scan(2_000, "web"), 2_000)
    found = watch.build_clients()
    assert found is not None
    assert {each.client_id: each.seen.last_ms for each in found.clients} == {"short": 1_000, "web": 2_000}
    assert found.observations == (ClientObservation(BROKERS, "", SeenSpan(1_000, 2_000), 2),)
    assert watch.topic_ids == {"id": "orders"}


def test_scans_without_an_answer_are_gaps() -> None:
    watch = ClientWatch("onprem")
    watch.miss(500)
    assert watch.build_clients() is None
    for ms, answered in ((1_000, True), (2_000, False), (3_000, False), (4_000, True), (5_000, True), (6_000, False)):
        watch.take(scan(ms), ms) if answered else watch.miss(ms)
    found = watch.build_clients()
    assert found is not None
    [observation] = found.observations
    assert (observation.used, observation.failed) == (3, 4)
    assert observation.gaps == (SeenSpan(1_000, 4_000), SeenSpan(5_000, 6_000))
    assert observation.seen == SeenSpan(1_000, 6_000)


def test_what_one_look_could_not_see_is_kept() -> None:
    watch = ClientWatch("onprem")
    watch.take(scan(1_000, "web", "one", "ACLs: refused"), 1_000)
    watch.take(scan(2_000), 2_000)
    found = watch.build_clients()
    assert found is not None
    assert found.observations[0].not_seen == ("ACLs: refused",)


def test_another_cluster_at_the_same_address_is_refused() -> None:
    watch = ClientWatch("onprem")
    watch.take(scan(1_000), 1_000)
    with pytest.raises(UnreadableInventory, match="is cluster two now"):
        watch.take(scan(2_000, "web", "two"), 2_000)


def test_rights() -> None:
    def acl(principal: str, operation: str, name: str, **more: str) -> InventoryAcl:
        usual = {"permission": "ALLOW", "resource": "TOPIC", "pattern": "LITERAL"} | more
        return InventoryAcl(principal, operation, name=name, **usual)

    found = list_principal_rights(
        (
            acl("User:a", "READ", "orders"),
            acl("User:a", "ALL", "shop.", pattern="PREFIXED"),
            acl("User:b", "WRITE", "orders", permission="DENY"),
            acl("User:c", "READ", "billing", resource="GROUP"),
        )
    )
    assert set(found) == {"User:a", "User:c"}
    assert (found["User:a"].reads, found["User:a"].writes) == (("orders", "shop.*"), ("shop.*",))
    assert (found["User:c"].reads, found["User:c"].writes) == ((), ())


# --- brokers that know less

NONE: dict[str, Any] = {"error_code": 0}


class OldBroker:
    """Kafka 2.4: no types and states of groups in a listing, no producer states, no list of transactions."""

    alias = "onprem"
    protocol_type, member_metadata = "connect", b""

    def metadata(self) -> Any:
        topic = SimpleNamespace(name="orders", topic_id=SimpleNamespace(int=0), partitions=(SimpleNamespace(node=1),))
        return SimpleNamespace(cluster_id="one", brokers={1: ("k1", 9092)}, topics=(topic,))

    def ask(self, api: int, **_: object) -> Any:
        if api == Api.LIST_GROUPS:
            return SimpleNamespace(groups=(SimpleNamespace(group_id="billing"),), **NONE)
        if api == Api.DESCRIBE_GROUPS:
            member = SimpleNamespace(client_id="b-1", client_host="/10.0.0.9", member_metadata=self.member_metadata)
            group = SimpleNamespace(
                group_id="billing",
                group_state="Stable",
                protocol_type=self.protocol_type,
                protocol_data="",
                members=(member,),
            )
            return SimpleNamespace(groups=(SimpleNamespace(**vars(group), **NONE),))
        if api == Api.DESCRIBE_ACLS:
            return SimpleNamespace(error_code=54)
        raise RequestUnsupported(f"too old to be asked {Api(api).name.lower()}", alias="onprem")

    def describe_producers_of(self, _: object) -> Any:
        return self.ask(Api.DESCRIBE_PRODUCERS)

    def knows(self, api: int, _version: int) -> bool:
        return api in (Api.LIST_GROUPS, Api.DESCRIBE_GROUPS)

    def check(self, code: int, _doing: str) -> None:
        assert code == 0

    def close(self) -> None:
        pass


def _connect(monkeypatch: pytest.MonkeyPatch, open_: Callable[..., Any]) -> ClusterClients:
    monkeypatch.setattr(client_scan, "open_connection", open_)
    return scan_clients(ConnectionSettings("onprem", ("k1:9092",))).clients


def test_an_old_broker_says_what_it_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _connect(monkeypatch, lambda *_, **__: OldBroker())
    [client] = found.clients
    assert (client.principal, client.client_id, client.hosts, client.groups) == (
        None,
        "b-1",
        ("10.0.0.9",),
        ("billing",),
    )
    assert found.producers == ()
    assert found.observations[0].not_seen == (
        "ACLs: the cluster has no authorizer",
        "client quotas: too old to be asked describe_client_quotas",
        "producers: too old to be asked describe_producers",
        "transactional ids of broker 1: too old to be asked list_transactions",
    )
    assert found.rights is not None
    assert found.rights.principals is None


def test_a_subscription_that_cannot_be_read_is_said_and_the_rest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(OldBroker):
        protocol_type, member_metadata = "consumer", b"\0\1\x7f\xff\xff\xff\xff\xfe"

    found = _connect(monkeypatch, lambda *_, **__: Odd())
    assert [each.client_id for each in found.clients] == ["b-1"]
    assert any(
        text.startswith("topics of some members of billing at broker 1") for text in found.observations[0].not_seen
    )


def test_a_broker_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(settings: ConnectionSettings, address: object = None, **_: object) -> Any:
        if address is not None:
            raise Unreachable.at("onprem", ("k1:9092",), "Connection refused")
        return OldBroker()

    found = _connect(monkeypatch, connect)
    assert found.clients == ()
    assert any(
        text.startswith("members of groups, producers and transactions at broker 1: cluster onprem does not answer")
        for text in found.observations[0].not_seen
    )


def test_groups_of_a_type_that_the_broker_cannot_describe_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Between(OldBroker):
        """Lists a group of the new protocol, and has no ConsumerGroupDescribe (before Kafka 3.7)."""

        def ask(self, api: int, **_: object) -> Any:
            if api == Api.LIST_GROUPS:
                group = SimpleNamespace(group_id="new", group_type="consumer", group_state="Stable")
                return SimpleNamespace(groups=(group,), **NONE)
            return super().ask(api)

    found = _connect(monkeypatch, lambda *_, **__: Between())
    assert any(text.startswith("members of 1 groups of broker 1: they need") for text in found.observations[0].not_seen)
