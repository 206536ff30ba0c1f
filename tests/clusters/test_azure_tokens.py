"""Tokens of Entra: an endpoint and a metadata server on this machine, and a broker that checks as Event Hubs does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace

import jwt
import pytest
from confluent_kafka import Producer
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.clusters.vendor_servers import TokenBroker, VendorEndpoint
from watershed.clusters import oauth_tokens
from watershed.clusters.errors import AuthenticationFailed, SecretMissing, Unreachable
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.clusters.token_providers import azure
from watershed.clusters.wire.secured_transport import open_transport
from watershed.topology.plan import PlanCluster, PlanOAuth, PlanSecurity
from watershed.topology.secret_ref import SecretRef

APPLICATION, SECRET = "0ab12c34-5d6e-7f89-a0b1-c2d3e4f5a6b7", "c4n4ry~s3cr3t/+"
AUDIENCE = "https://127.0.0.1"  # of a namespace: the first bootstrap address
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Entra:
    """Issues tokens to one application, and to the machine's managed identities. `wrong` replaces claims."""

    def __init__(self) -> None:
        self.wrong: dict[str, object] = {}
        self.key = KEY

    def __call__(self, method: str, path: str, headers: Mapping[str, str], form: dict[str, str]) -> tuple[int, str]:
        if path == "/metadata/identity/oauth2/token":
            return self._metadata(method, headers, form)
        if (form["client_id"], form["client_secret"]) != (APPLICATION, SECRET):
            return self._refused(401, "invalid_client", "AADSTS7000215: Invalid client secret provided.")
        if form["scope"] != f"{AUDIENCE}/.default":
            return self._refused(400, "invalid_scope", f"AADSTS70011: The provided value for scope {form['scope']}")
        return 200, json.dumps({"access_token": self._token(APPLICATION), "expires_in": 3599, "token_type": "Bearer"})

    def _metadata(self, method: str, headers: Mapping[str, str], form: dict[str, str]) -> tuple[int, str]:
        right = (method, headers.get("Metadata"), form.get("api-version")) == ("GET", "true", "2018-02-01")
        if not right or form["resource"] != AUDIENCE:
            return self._refused(400, "invalid_resource", "AADSTS500011: The resource principal was not found.")
        if form.get("client_id", APPLICATION) != APPLICATION:
            return self._refused(400, "invalid_request", "Identity not found")
        return 200, json.dumps({"access_token": self._token("machine"), "expires_in": "86399"})

    def _token(self, subject: str) -> str:
        claims = {"aud": AUDIENCE, "sub": subject, "exp": int(time.time() + 3599)} | self.wrong
        return jwt.encode(claims, self.key, algorithm="RS256")

    def _refused(self, status: int, error: str, words: str) -> tuple[int, str]:
        return status, json.dumps({"error": error, "error_description": words})


def check_event_hubs_token(token: str) -> str | None:
    """Signature, audience and end, as Event Hubs checks a token of Entra."""
    try:
        jwt.decode(token, KEY.public_key(), algorithms=["RS256"], audience=AUDIENCE)
    except jwt.InvalidTokenError as error:
        return f"Invalid credentials: {error}"
    return None


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth_tokens, "_sources", {})


@pytest.fixture
def entra() -> Entra:
    return Entra()


@pytest.fixture
def endpoint(entra: Entra) -> Iterator[VendorEndpoint]:
    with VendorEndpoint(entra) as found:
        yield found


@pytest.fixture
def hub() -> Iterator[TokenBroker]:
    with TokenBroker(check_event_hubs_token) as found:
        yield found


def settings(address: str, account: str | None = f"{APPLICATION}:{SECRET}", **oauth: str) -> ConnectionSettings:
    security = PlanSecurity(
        "SASL_PLAINTEXT",
        "OAUTHBEARER",
        SecretRef("env", "APPLICATION") if account is not None else None,
        oauth=PlanOAuth(provider="azure", **oauth),  # type: ignore[arg-type]
    )
    return resolve_connection_settings(PlanCluster("hub", (address,), None, security), {"APPLICATION": account or ""})


def connect(asked: ConnectionSettings) -> None:
    with closing(open_transport(asked, asked.bootstrap_addresses[0], timeout_s=10.0).transport):
        pass


def test_an_application_raw_and_by_librdkafka(hub: TokenBroker, endpoint: VendorEndpoint) -> None:
    asked = settings(hub.address, token_endpoint=f"{endpoint.address}/tenant/oauth2/v2.0/token")
    connect(asked)
    assert Producer(asked.librdkafka()).list_topics(timeout=30).brokers
    assert len(set(hub.seen)) == 1, "one token serves all"
    assert hub.accepted >= 2
    assert SECRET not in repr(asked)


@pytest.mark.parametrize("client_id", [None, APPLICATION])
def test_a_managed_identity(hub: TokenBroker, endpoint: VendorEndpoint, client_id: str | None) -> None:
    more = {"client_id": client_id} if client_id else {}
    asked = settings(hub.address, None, token_endpoint=f"{endpoint.address}/metadata/identity/oauth2/token", **more)
    connect(asked)
    assert hub.accepted == 1
    assert endpoint.asked[0][2].get("client_id") == client_id


@pytest.mark.parametrize(
    ("account", "more", "said"),
    [
        (f"{APPLICATION}:wrong", {}, rf"refuses the application {APPLICATION}: HTTP 401 .*AADSTS7000215"),
        (f"{APPLICATION}:{SECRET}", {"scope": "https://other.example.internal/.default"}, "AADSTS70011.*Check its id"),
        (None, {"client_id": "00000000-0000-0000-0000-000000000000"}, "identity 0000.*Identity not found"),
    ],
)
def test_what_entra_refuses_is_said_in_its_words(
    hub: TokenBroker, endpoint: VendorEndpoint, account: str | None, more: dict[str, str], said: str
) -> None:
    path = "/t/oauth2/v2.0/token" if account else "/metadata/identity/oauth2/token"
    with pytest.raises(AuthenticationFailed, match=said) as caught:
        connect(settings(hub.address, account, token_endpoint=endpoint.address + path, **more))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "forged", "said"),
    [
        ({"aud": "https://other.example.internal"}, False, "Audience doesn't match.*audience https://other"),
        ({"exp": 1_700_000_000}, False, "Signature has expired.*valid until 2023-11-14"),
        ({}, True, "Signature verification failed"),
    ],
)
def test_what_event_hubs_refuses_is_said_in_its_words(
    hub: TokenBroker, entra: Entra, endpoint: VendorEndpoint, wrong: dict[str, object], forged: bool, said: str
) -> None:
    entra.wrong = wrong
    entra.key = rsa.generate_private_key(public_exponent=65537, key_size=2048) if forged else KEY
    with pytest.raises(AuthenticationFailed, match=said):
        connect(settings(hub.address, token_endpoint=f"{endpoint.address}/t/oauth2/v2.0/token"))
    assert hub.accepted == 0


def test_endpoints_that_are_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def keep(_settings: object, request: azure.TokenRequest) -> object:
        asked.append(request.url)
        raise Unreachable("nobody is asked here")

    monkeypatch.setattr(azure, "request_access_token", keep)
    for found in (settings("ns.example.internal:9093", tenant="t.example"), settings("ns.example.internal:9093", None)):
        with pytest.raises(Unreachable):
            oauth_tokens.fetch_token(found)
    assert asked == [
        "https://login.microsoftonline.com/t.example/oauth2/v2.0/token",
        "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01"
        "&resource=https%3A%2F%2Fns.example.internal",
    ]


@pytest.mark.parametrize(
    ("address", "oauth", "said"),
    [
        ("evil.example.internal:9093", {"scope": "https://management.azure.com/.default"}, "only for https://evil"),
        ("evil.example.internal:9093", {"scope": "https://evil.example.internal.other"}, "only for https://evil"),
        ("h:1", {"token_endpoint": "http://169.254.169.254/t?resource=https://management.azure.com&x="}, "a query"),
    ],
)
def test_a_managed_identity_asks_for_its_namespace_only(address: str, oauth: dict[str, str], said: str) -> None:
    with pytest.raises(AuthenticationFailed, match=said):
        oauth_tokens.fetch_token(settings(address, None, **oauth))


def test_a_managed_identity_s_token_is_for_one_host(hub: TokenBroker, endpoint: VendorEndpoint) -> None:
    asked = settings(hub.address, None, token_endpoint=f"{endpoint.address}/metadata/identity/oauth2/token")
    with pytest.raises(AuthenticationFailed, match="for one namespace only"):
        oauth_tokens.fetch_token(replace(asked, bootstrap=("evil.example.internal:9093", hub.address)))
    for scope in (AUDIENCE, f"{AUDIENCE}/.default"):
        assert asked.oauth is not None
        connect(replace(asked, oauth=replace(asked.oauth, scope=scope), origin=None))
    assert {form["resource"] for _, _, form in endpoint.asked} == {AUDIENCE}


@pytest.mark.parametrize("account", [None, f"{APPLICATION}:{SECRET}"])
def test_addresses_that_are_not_asked(account: str | None) -> None:
    """A metadata server is inside the host; elsewhere the token would travel readable. A secret always would."""
    with pytest.raises(AuthenticationFailed, match="would travel readable"):
        oauth_tokens.fetch_token(settings("h:1", account, token_endpoint="http://imds.example.internal/token"))
    if account:
        with pytest.raises(AuthenticationFailed, match="secret would travel readable"):
            oauth_tokens.fetch_token(settings("h:1", account, token_endpoint="http://169.254.169.254/token"))


def test_the_machines_identity_must_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATERSHED_ALLOW_IDENTITIES", "aws_msk_iam")
    with pytest.raises(SecretMissing, match="WATERSHED_ALLOW_IDENTITIES=aws_msk_iam,azure"):
        settings("h:1", None)


def test_without_a_tenant() -> None:
    with pytest.raises(AuthenticationFailed, match=r"clusters\.hub\.security\.oauth\.tenant is missing"):
        oauth_tokens.fetch_token(settings("h:1"))
