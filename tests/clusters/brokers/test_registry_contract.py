"""What the client may count on: the same of the registry in memory and of a real one."""

from __future__ import annotations

import json
import ssl
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from watershed.clusters.errors import (
    AuthenticationFailed,
    ProtocolError,
    RequestRefused,
    Unauthorised,
    Unreachable,
    UntrustedBroker,
)
from watershed.clusters.fake_registry import FAKE_REGISTRY_HOST, FakeRegistry
from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.registry_settings import RegistrySettings
from watershed.clusters.registry.schema import Schema, SchemaReference, is_same_schema
from watershed.lab.certificates import CertificateAuthority, write_secret_file

ADDRESS = {"type": "record", "name": "Address", "namespace": "x", "fields": [{"name": "street", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "x",
    "fields": [{"name": "id", "type": "string"}, {"name": "to", "type": "x.Address"}],
}
WIDER = ORDER | {"fields": [*ORDER["fields"], {"name": "n", "type": "int", "default": 0}]}


def asking(url: str, username: str | None = None, password: str | None = None) -> RegistryClient:
    return RegistryClient(RegistrySettings("a", url, username, password))


@pytest.fixture(params=["in memory", pytest.param("real", marks=pytest.mark.slow)])
def client(request: pytest.FixtureRequest) -> Iterator[RegistryClient]:
    if request.param == "real":
        with asking(request.getfixturevalue("registry_pair")[0].url) as found:
            yield found
    else:
        with FakeRegistry() as fake, asking(fake.url) as found:
            yield found


@pytest.fixture
def name() -> str:
    return f"s{uuid.uuid4().hex[:8]}"


def avro(value: object, *references: SchemaReference) -> Schema:
    return Schema(json.dumps(value), references=references)


def test_versions_ids_and_references(client: RegistryClient, name: str) -> None:
    address, orders = f"{name}-address", f"{name}-orders-value"
    at = SchemaReference("x.Address", address, 1)
    base = client.register(address, avro(ADDRESS | {"doc": name}))
    first = client.register(orders, avro(ORDER, at))
    second = client.register(orders, avro(WIDER, at))
    assert client.register(orders, avro(WIDER, at)) == second, "registered twice, there once"
    assert len({base, first, second}) == 3
    assert client.versions(orders) == [1, 2]
    assert {address, orders} <= set(client.subjects())
    found = client.version(orders, 1)
    assert found is not None
    assert (found.id, found.version, found.subject) == (first, 1, orders)
    assert is_same_schema(found.schema, avro(ORDER, at))
    assert found.schema.references == (at,)
    by_id = client.schema(second)
    assert by_id is not None
    assert is_same_schema(by_id, avro(WIDER, at))
    looked_up = client.lookup(orders, avro(ORDER, at))
    assert looked_up is not None
    assert (looked_up.id, looked_up.version) == (first, 1)


def test_what_is_not_there_is_none(client: RegistryClient, name: str) -> None:
    client.register(name, avro("string"))
    assert client.versions(f"{name}-none") == []
    assert client.history(f"{name}-none") == []
    assert client.version(name, 77) is None
    assert client.version(f"{name}-none", 1) is None
    assert client.schema(987_654_321) is None
    assert client.lookup(name, avro("int")) is None
    assert client.lookup(f"{name}-none", avro("int")) is None


def test_one_content_has_one_id(client: RegistryClient, name: str) -> None:
    content = avro(ADDRESS | {"doc": name})
    assert client.register(f"{name}-1", content) == client.register(f"{name}-2", content)


def test_compatibility_of_one_subject(client: RegistryClient, name: str) -> None:
    client.register(name, avro("string"))
    everybodys = client.compatibility()
    assert client.compatibility(name, effective=True) == everybodys
    client.set_compatibility(name, "FULL_TRANSITIVE")
    assert client.compatibility(name) == client.compatibility(name, effective=True) == "FULL_TRANSITIVE"
    assert client.compatibility() == everybodys


@pytest.mark.parametrize(
    ("type", "text"),
    [
        ("PROTOBUF", 'syntax = "proto3";\npackage x;\nmessage M { string a = 1; }\n'),
        ("JSON", '{"type":"object","properties":{"a":{"type":"string"}}}'),
        ("AVRO", '"string"'),
    ],
)
def test_types(client: RegistryClient, name: str, type: str, text: str) -> None:
    id = client.register(name, Schema(text, type))
    found = client.version(name, 1)
    assert found is not None
    assert found.id == id
    assert is_same_schema(found.schema, Schema(text, type))


def test_a_name_in_a_context_is_a_name(client: RegistryClient, name: str) -> None:
    subject = f":.{name}:orders-value"
    client.register(subject, avro("double"))
    assert subject in client.subjects()
    assert client.versions(subject) == [1]


def test_what_is_no_schema_is_refused(client: RegistryClient, name: str) -> None:
    with pytest.raises(RequestRefused, match=f"refuses POST /subjects/{name}/versions"):
        client.register(name, Schema('{"type":"recor'))


def test_a_wrong_path_is_told_from_an_empty_registry(client: RegistryClient) -> None:
    with (
        asking(f"{client.settings.url}/nothing") as elsewhere,
        pytest.raises(ProtocolError, match="Is the path right"),
    ):
        elsewhere.subjects()


def test_soft_deletion_leaves_the_id(name: str) -> None:
    with FakeRegistry() as fake, asking(fake.url) as client:
        id = client.register(name, avro("string"))
        client.register(name, avro("int"))
        fake.answer("DELETE", f"/subjects/{name}/versions/1", None)
        assert client.versions(name) == [2]
        assert [(each.version, each.deleted) for each in client.history(name)] == [(1, True), (2, False)]
        assert client.schema(id) is not None


def test_import_needs_its_mode_and_an_empty_subject(name: str) -> None:
    with FakeRegistry() as fake, asking(fake.url) as client:
        with pytest.raises(RequestRefused, match="not in import mode"):
            client.register(name, avro("string"), id=100, version=3)
        client.set_mode(name, "IMPORT")
        assert client.register(name, avro("string"), id=100, version=3) == 100
        assert client.clear_mode(name)
        assert client.mode(name) is None
        assert client.mode(name, effective=True) == client.mode() == "READWRITE"
        assert client.versions(name) == [3]
        with pytest.raises(RequestRefused, match="existing subjects"):
            client.set_mode(name, "IMPORT")
        client.set_mode(name, "IMPORT", force=True)
        with pytest.raises(RequestRefused, match="Overwrite"):
            client.register(name, avro("int"), id=100, version=4)


def test_who_may_not(name: str) -> None:
    with FakeRegistry(accounts={"app": "secret"}, read_only=frozenset({"app"})) as fake:
        with asking(fake.url) as nobody, pytest.raises(AuthenticationFailed, match="without a user name"):
            nobody.subjects()
        with asking(fake.url, "app", "wrong") as stranger, pytest.raises(AuthenticationFailed) as refused:
            stranger.subjects()
        assert "wrong" not in str(refused.value)
        with asking(fake.url, "app", "secret") as app:
            assert app.subjects() == []
            with pytest.raises(Unauthorised, match="refuses POST"):
                app.register(name, avro("string"))


def test_nobody_there() -> None:
    with FakeRegistry() as fake:
        url = fake.url
    with asking(url) as client, pytest.raises(Unreachable, match=r"does not answer: .*clusters\.a\.schema_registry"):
        client.subjects()


def test_certificates_on_both_sides(tmp_path: Path) -> None:
    authority = CertificateAuthority("registries")
    server, client = authority.issue("registry", (FAKE_REGISTRY_HOST,)), authority.issue("watershed")
    ca = write_secret_file(tmp_path / "ca.pem", authority.chain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write_secret_file(tmp_path / "server.pem", server.pem))
    context.load_verify_locations(ca)
    context.verify_mode = ssl.CERT_REQUIRED
    with FakeRegistry() as fake:
        fake.over(context)
        key = write_secret_file(tmp_path / "key.pem", client.key_pem("secret"))
        certificate = write_secret_file(tmp_path / "client.pem", client.chain)
        whole = RegistrySettings("a", fake.url, None, None, str(ca), str(certificate), str(key), "secret")
        with RegistryClient(whole) as known:
            assert known.subjects() == []
        with asking(fake.url) as stranger, pytest.raises(UntrustedBroker, match=r"clusters\.a\.schema_registry\.ca"):
            stranger.subjects()


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ({"type": "string"}, "string", True),
        (ADDRESS, {"name": "x.Address", "type": "record", "fields": ADDRESS["fields"]}, True),
        (ADDRESS, ADDRESS | {"doc": "where"}, False),
        (ORDER, WIDER, False),
        (
            {"type": "record", "name": "x.A", "fields": [{"name": "b", "type": ["null", "B"], "default": None}]},
            {"type": "record", "name": "A", "namespace": "x", "fields": [{"name": "b", "type": ["null", "x.B"], "default": None}]},  # noqa: E501
            True,
        ),
    ],
)  # fmt: skip
def test_the_same_schema_in_another_layout(one: object, other: object, equal: bool) -> None:
    assert is_same_schema(avro(one), avro(other)) is equal


def test_comments_and_white_space_of_protobuf_mean_nothing() -> None:
    one = Schema('syntax = "proto3";\n// old\nmessage M {\n  string a = 1; /* b */\n}\n', "PROTOBUF")
    assert is_same_schema(one, Schema('syntax="proto3"; message M { string a = 1; }', "PROTOBUF"))
    assert not is_same_schema(one, Schema('syntax="proto3"; message M { string a = 2; }', "PROTOBUF"))


@pytest.mark.parametrize("answer", [b"", b'{"error_code": 429, "message": "Too many requests"}'])
def test_a_registry_that_asks_for_patience_is_one(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    """Hosted ones allow so many requests a second."""
    client = asking("http://127.0.0.1:1")
    monkeypatch.setattr(client, "_answer", lambda *_: (429, answer))
    with pytest.raises(Unreachable, match="cannot answer GET /subjects now"):
        client.subjects()
