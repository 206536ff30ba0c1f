"""When cluster and client do not trust each other: each failure says who, where, why and what to do, raw and through
librdkafka alike; no message holds a secret."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.clusters.ways import Way
from watershed.clusters import librdkafka
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.errors import (
    AuthenticationFailed,
    ClusterError,
    SecretMissing,
    Unauthorised,
    Unreachable,
    UntrustedBroker,
)
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import open_connection
from watershed.lab.certificates import EXPIRED_ON, CertificateAuthority, write_secret_file
from watershed.lab.secured_cluster import PASSWORD, SECRET, SecuredCluster

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handshake on a busy machine may take longer than the look that tells why librdkafka was refused."""
    monkeypatch.setattr(librdkafka, "_LOOK_S", 30.0)


def failures(settings: ConnectionSettings) -> list[ClusterError]:
    """Of a raw connection, and of an administrative one."""
    found: list[ClusterError] = []
    for attempt in (_raw, _administrative):
        with pytest.raises(ClusterError) as caught:
            attempt(settings)
        assert caught.value.__cause__ is None or PASSWORD not in repr(caught.value.__cause__)
        found.append(caught.value)
    for error in found:
        assert settings.alias == error.alias
        assert PASSWORD not in str(error)
        assert SECRET not in str(error)
    return found


def _raw(settings: ConnectionSettings) -> None:
    with closing(open_connection(settings)) as wire:
        wire.metadata(())


def _administrative(settings: ConnectionSettings) -> None:
    with Admin(settings, timeout=2.0) as admin:
        admin.brokers()


UNTIL = f"valid until {EXPIRED_ON:%Y-%m-%d}"


@pytest.mark.parametrize(
    ("listener", "said"),
    [
        ("EXPIRED", ["expired.lab", "Watershed lab authority", UNTIL, "has expired", "Renew"]),
        ("STRANGER", ["stranger.lab", "Stranger authority", "security.ca", "issuer"]),
        ("ELSEWHERE", ["for elsewhere.example.internal", "not valid for '127.0.0.1'", "clusters.cloud.bootstrap"]),
    ],
)
def test_brokers_that_are_not_trusted(
    secured_cluster: SecuredCluster, tmp_path: Path, listener: str, said: list[str]
) -> None:
    way = Way(secured_cluster, tmp_path, listener)
    for error in failures(way.settings()):
        assert isinstance(error, UntrustedBroker)
        assert secured_cluster.address(listener) in str(error)
        assert [each for each in said if each not in str(error)] == []


def test_the_systems_authorities_count_without_a_ca(secured_cluster: SecuredCluster, tmp_path: Path) -> None:
    settings = replace(Way(secured_cluster, tmp_path, "TLS").settings(), ca_file=None, origin=None)
    for error in failures(settings):
        assert isinstance(error, UntrustedBroker)
        assert "the system's authorities (no `ca` is set)" in str(error)


def test_a_client_certificate_is_wanted(secured_cluster: SecuredCluster, tmp_path: Path) -> None:
    settings = replace(Way(secured_cluster, tmp_path, "MUTUAL").settings(), certificate_file=None, origin=None)
    for error in failures(settings):
        assert isinstance(error, AuthenticationFailed)
        assert "refuses a client without a certificate" in str(error)
        assert "clusters.cloud.security.certificate" in str(error)


@pytest.mark.parametrize("flaw", ["expired", "stranger"])
def test_client_certificates_that_are_refused(secured_cluster: SecuredCluster, tmp_path: Path, flaw: str) -> None:
    way = Way(secured_cluster, tmp_path, "MUTUAL")
    authority = CertificateAuthority("Another authority") if flaw == "stranger" else secured_cluster.authority
    write_secret_file(way.certificate, authority.issue("worker-9", expired=flaw == "expired").pem)
    for error in failures(way.settings()):
        assert isinstance(error, AuthenticationFailed)
        assert "worker-9" in str(error)
        assert (UNTIL if flaw == "expired" else "Another authority") in str(error)


@pytest.mark.parametrize(
    ("mechanism", "account"),
    [("PLAIN", "ann:wrong"), ("SCRAM-SHA-256", "nobody:wrong"), ("SCRAM-SHA-512", "ann:wrong")],
)
def test_a_wrong_password(secured_cluster: SecuredCluster, tmp_path: Path, mechanism: str, account: str) -> None:
    way = Way(secured_cluster, tmp_path, "TLSSASL", mechanism)
    write_secret_file(way.account, account)
    for error in failures(way.settings()):
        assert isinstance(error, AuthenticationFailed)
        assert f"user {account.partition(':')[0]}" in str(error)
        assert mechanism in str(error)
        assert "clusters.cloud.security.credentials" in str(error)


def test_a_wrong_client_secret(secured_cluster: SecuredCluster, tmp_path: Path) -> None:
    way = Way(secured_cluster, tmp_path, "TLSSASL", "OAUTHBEARER")
    write_secret_file(way.account, "watershed-lab:wrong")
    for error in failures(way.settings()):
        assert isinstance(error, AuthenticationFailed)
        assert secured_cluster.identity.token_endpoint in str(error)
        assert "HTTP 401 (invalid_client" in str(error)


def test_a_mechanism_that_the_broker_does_not_take(secured_cluster: SecuredCluster, tmp_path: Path) -> None:
    with pytest.raises(AuthenticationFailed, match=r"does not take PLAIN; it offers .*SCRAM-SHA-512.*mechanism"):
        _raw(Way(secured_cluster, tmp_path, "SHORT", "PLAIN").settings())


@pytest.mark.parametrize(
    ("listener", "protocol"), [("TLS", "PLAINTEXT"), ("OPENSASL", "SSL"), ("TLS", "SASL_PLAINTEXT")]
)
def test_another_protocol_than_the_listeners(
    secured_cluster: SecuredCluster, tmp_path: Path, listener: str, protocol: str
) -> None:
    settings = replace(Way(secured_cluster, tmp_path, listener).settings(), protocol=protocol, origin=None)
    with pytest.raises(Unreachable, match=f"that they speak {protocol} there"):
        _raw(settings)


def test_a_control_writer_says_it_too(secured_cluster: SecuredCluster, tmp_path: Path, topic_name: str) -> None:
    way = Way(secured_cluster, tmp_path, "TLSSASL", "SCRAM-SHA-512")
    write_secret_file(way.account, "ann:wrong")
    writer = ControlWriter(way.settings(), timeout=3.0)
    with pytest.raises(Unauthorised, match=r"user ann .*SCRAM-SHA-512"):
        writer.put(topic_name, "key", None)


def test_keys_with_a_passphrase(secured_cluster: SecuredCluster, tmp_path: Path) -> None:
    pair = secured_cluster.authority.issue("worker-2")
    write_secret_file(tmp_path / "key.pem", pair.key_pem("open sesame"))
    write_secret_file(tmp_path / "client.pem", pair.chain)
    settings = replace(
        Way(secured_cluster, tmp_path, "MUTUAL").settings(),
        key_file=str(tmp_path / "key.pem"),
        key_password="open sesame",
        origin=None,
    )
    assert "open sesame" not in repr(settings)
    _raw(settings)
    _administrative(settings)
    for passphrase in (None, "wrong"):
        with pytest.raises(SecretMissing, match="key_password") as caught:
            _raw(replace(settings, key_password=passphrase))
        assert "sesame" not in str(caught.value)
