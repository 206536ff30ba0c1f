"""The client's side of SASL against the words of the RFCs, and against servers that lie. No broker."""

from __future__ import annotations

import sys

import pytest
import scramp

from watershed.clusters.connection_parameters import KerberosSettings, OAuthSettings
from watershed.clusters.errors import AuthenticationFailed, ProtocolError
from watershed.clusters.librdkafka import is_mechanism_supported
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import sasl


def test_plain() -> None:
    assert list(sasl.exchange_plain("ann", "a:b\u00fc")) == [b"\0ann\0a:b\xc3\xbc"]


def test_oauthbearer() -> None:
    steps = sasl.exchange_oauthbearer("tok", (("logicalCluster", "lkc-1"), ("b", "2")))
    assert next(steps) == b"n,,\x01auth=Bearer tok\x01logicalCluster=lkc-1\x01b=2\x01\x01"
    assert steps.send(b'{"status":"invalid_token"}') == b"\x01"
    accepted = sasl.exchange_oauthbearer("tok", ())
    assert next(accepted) == b"n,,\x01auth=Bearer tok\x01\x01"
    with pytest.raises(StopIteration):
        accepted.send(b"")


@pytest.mark.parametrize("mechanism", sasl.SASL_SCRAM_MECHANISMS)
def test_scram_with_a_server_that_knows_the_password(mechanism: str) -> None:
    server = _server(mechanism, "pa=ss,w\u00f6rd")
    steps = sasl.exchange_scram("cloud", mechanism, "a,n=n", "pa=ss,w\u00f6rd")
    server.set_client_first(next(steps).decode())
    server.set_client_final(steps.send(server.get_server_first().encode()).decode())
    with pytest.raises(StopIteration):
        steps.send(server.get_server_final().encode())


def test_scram_with_a_server_that_does_not() -> None:
    """It cannot prove that it knows the password, so it is not the cluster."""
    server = _server("SCRAM-SHA-256", "right")
    steps = sasl.exchange_scram("cloud", "SCRAM-SHA-256", "ann", "right")
    server.set_client_first(next(steps).decode())
    steps.send(server.get_server_first().encode())
    with pytest.raises(AuthenticationFailed, match="SCRAM-SHA-256 of user ann came to no end"):
        steps.send(b"v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")


@pytest.mark.parametrize("answer", [b"", b"\xff\xfe", b"r=another,s=QUFB,i=4096", b"e=unknown-user", b"s=QUFB,i=1"])
def test_scram_with_nonsense(answer: bytes) -> None:
    steps = sasl.exchange_scram("cloud", "SCRAM-SHA-512", "ann", "c4n4ry")
    next(steps)
    with pytest.raises(AuthenticationFailed) as caught:
        steps.send(answer)
    assert "c4n4ry" not in str(caught.value)


def test_kerberos_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    settings = ConnectionSettings(
        "cloud", ("k:1",), protocol="SASL_SSL", mechanism="GSSAPI", kerberos=KerberosSettings()
    )
    with pytest.raises(ProtocolError, match=r"the Python package gssapi is not installed.*libkrb5-dev"):
        next(sasl.start_sasl_exchange(settings, "k", lambda: ""))


def test_kerberos_in_librdkafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wheels of confluent-kafka are built without it; one built from source must never start a shell (kinit)."""
    kerberos = KerberosSettings("broker", "w@X", "/etc/w.keytab")
    settings = ConnectionSettings("cloud", ("k:1",), protocol="SASL_SSL", mechanism="GSSAPI", kerberos=kerberos)
    monkeypatch.setattr("watershed.clusters.librdkafka.is_mechanism_supported", lambda _: False)
    with pytest.raises(ProtocolError, match=r"built without it.*libsasl2"):
        settings.librdkafka()
    monkeypatch.setattr("watershed.clusters.librdkafka.is_mechanism_supported", lambda _: True)
    found = {key: value for key, value in settings.librdkafka().items() if key.startswith("sasl.kerberos")}
    assert found == {"sasl.kerberos.service.name": "broker", "sasl.kerberos.kinit.cmd": ""}


def test_what_this_librdkafka_knows() -> None:
    assert [is_mechanism_supported(each) for each in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")] == [
        True
    ] * 4


def test_a_token_is_asked_for_once() -> None:
    asked: list[str] = []
    settings = ConnectionSettings(
        "cloud", ("k:1",), mechanism="OAUTHBEARER", oauth=OAuthSettings("https://i", None, (("a", "b"),))
    )
    steps = sasl.start_sasl_exchange(settings, "k", lambda: asked.append("x") or "tok")  # type: ignore[func-returns-value]
    assert next(steps) == b"n,,\x01auth=Bearer tok\x01a=b\x01\x01"
    assert asked == ["x"]


def _server(mechanism: str, password: str) -> scramp.core.ScramServer:
    made = scramp.ScramMechanism(mechanism)
    stored = made.make_auth_info(password, iteration_count=4096)
    return made.make_server(lambda _user: stored)
