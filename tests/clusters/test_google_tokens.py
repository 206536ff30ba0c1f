"""Tokens of Google: a token endpoint and a metadata server on this machine, and a broker that checks the envelope."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import jwt
import pytest
from confluent_kafka import Producer
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.clusters.vendor_servers import TokenBroker, VendorEndpoint
from watershed.clusters import oauth_tokens
from watershed.clusters.errors import AuthenticationFailed, ClusterError, ProtocolError, SecretMissing
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.clusters.wire.secured_transport import open_transport
from watershed.lab.certificates import write_secret_file
from watershed.topology.plan import PlanCluster, PlanOAuth, PlanSecurity
from watershed.topology.secret_ref import SecretRef

EMAIL, MACHINE = "watershed@project.example.internal", "123-compute@project.example.internal"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class Google:
    """Issues access tokens for signed assertions and to the machine; remembers whose each is, and until when."""

    def __init__(self) -> None:
        self.issued: dict[str, tuple[str, float]] = {}
        self.life_s = 3599.0
        self.email = MACHINE
        self.scopes: list[str | None] = []  # asked of the metadata server
        self.address = ""

    def __call__(self, method: str, path: str, headers: Mapping[str, str], form: dict[str, str]) -> tuple[int, str]:
        if path.startswith("/computeMetadata/v1/instance/service-accounts/default/"):
            if headers.get("Metadata-Flavor") != "Google":
                return 403, "Missing Metadata-Flavor:Google header."
            if not path.endswith("/token"):
                return 200, json.dumps({"email": self.email})
            self.scopes.append(form.get("scopes"))
            return 200, self._issue(MACHINE)
        try:
            claims = jwt.decode(
                form["assertion"], KEY.public_key(), algorithms=["RS256"], audience=f"{self.address}/token"
            )
        except jwt.InvalidSignatureError:
            return 400, json.dumps({"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
        right = form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer" and claims["scope"] == SCOPE
        if not right or claims["exp"] - claims["iat"] > 3600:
            return 400, json.dumps({"error": "invalid_scope", "error_description": "Invalid OAuth scope."})
        return 200, self._issue(claims["iss"])

    def _issue(self, email: str) -> str:
        token = f"ya29.{len(self.issued)}-{time.monotonic_ns()}"
        self.issued[token] = email, time.time() + self.life_s
        return json.dumps({"access_token": token, "expires_in": int(self.life_s), "token_type": "Bearer"})

    def check(self, token: str) -> str | None:
        """As Google's broker: the envelope, the access token in it, whose it is and its end."""
        try:
            header, claims, access = (base64.urlsafe_b64decode(each + "==") for each in token.split("."))
        except ValueError:
            return "Authentication failed: invalid credentials with SASL mechanism OAUTHBEARER"
        kind, said = json.loads(header), json.loads(claims)
        email, ends = self.issued.get(access.decode(), ("", 0.0))
        if kind != {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"} or said["sub"] != email or said["scope"] != "kafka":
            return "Authentication failed: invalid credentials with SASL mechanism OAUTHBEARER"
        return (
            None if said["iat"] <= time.time() < min(ends, said["exp"] + 5) else "Authentication failed: token expired"
        )


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth_tokens, "_sources", {})


@pytest.fixture
def google() -> Iterator[Google]:
    found = Google()
    with VendorEndpoint(found) as endpoint:
        found.address = endpoint.address
        yield found


@pytest.fixture
def broker(google: Google) -> Iterator[TokenBroker]:
    with TokenBroker(google.check) as found:
        yield found


def write_key(path: Path, google: Google, key: rsa.RSAPrivateKey = KEY, **other: object) -> Path:
    """A service account's key as Google's console makes it."""
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    said = {"type": "service_account", "client_email": EMAIL, "private_key_id": "k1", "private_key": pem}
    return write_secret_file(path, json.dumps(said | {"token_uri": f"{google.address}/token"} | other))


def settings(address: str, key: Path | None = None, **oauth: str) -> ConnectionSettings:
    security = PlanSecurity(
        "SASL_PLAINTEXT",
        "OAUTHBEARER",
        SecretRef("file", str(key)) if key is not None else None,
        oauth=PlanOAuth(provider="google", **oauth),  # type: ignore[arg-type]
    )
    return resolve_connection_settings(PlanCluster("gmk", (address,), None, security))


def connect(asked: ConnectionSettings) -> None:
    with closing(open_transport(asked, asked.bootstrap_addresses[0], timeout_s=10.0).transport):
        pass


def test_a_service_account_raw_and_by_librdkafka(google: Google, broker: TokenBroker, tmp_path: Path) -> None:
    asked = settings(broker.address, write_key(tmp_path / "key.json", google))
    connect(asked)
    assert Producer(asked.librdkafka()).list_topics(timeout=30).brokers
    assert len(google.issued) == 1, "one token serves all"
    assert broker.accepted >= 2
    assert oauth_tokens.fetch_token(asked).principal == EMAIL


def test_this_machines_own_account(google: Google, broker: TokenBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = settings(broker.address, token_endpoint=google.address)
    connect(asked)
    assert oauth_tokens.fetch_token(asked).principal == MACHINE
    google.email = ""
    with pytest.raises(ProtocolError, match="names no e-mail"):
        oauth_tokens.fetch_token(settings(broker.address, token_endpoint=f"{google.address}/"))
    monkeypatch.delenv("WATERSHED_ALLOW_IDENTITIES")
    with pytest.raises(SecretMissing, match="WATERSHED_ALLOW_IDENTITIES=google"):
        settings(broker.address)


def test_the_scope_is_asked_of_the_metadata_server(google: Google) -> None:
    for scope in ({}, {"scope": f"{SCOPE} openid"}):
        oauth_tokens.fetch_token(settings("k:1", token_endpoint=google.address, **scope))
    assert google.scopes == [None, f"{SCOPE},openid"]
    with pytest.raises(AuthenticationFailed, match="has a query"):
        oauth_tokens.fetch_token(settings("k:1", token_endpoint=f"{google.address}/other/token?x="))


def test_wrong_ones_are_refused_in_googles_words(google: Google, broker: TokenBroker, tmp_path: Path) -> None:
    other = write_key(tmp_path / "other", google, rsa.generate_private_key(public_exponent=65537, key_size=2048))
    with pytest.raises(AuthenticationFailed, match=rf"service account {EMAIL}: .*Invalid JWT Signature"):
        connect(settings(broker.address, other))
    scoped = settings(broker.address, write_key(tmp_path / "scoped", google), scope="https://example.internal/other")
    with pytest.raises(AuthenticationFailed, match="Invalid OAuth scope"):
        connect(scoped)
    good = settings(broker.address, write_key(tmp_path / "good", google))
    oauth_tokens.fetch_token(good)
    google.issued.update({token: ("somebody@else", ends) for token, (_, ends) in google.issued.items()})
    with pytest.raises(AuthenticationFailed, match=f"invalid credentials with SASL mechanism.*subject {EMAIL}"):
        connect(good)
    connect(good)  # a refused token was replaced
    google.issued.update({token: (email, 1.0) for token, (email, _) in google.issued.items()})
    with pytest.raises(AuthenticationFailed, match="token expired"):
        connect(good)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"type": "authorized_user"}, "is no key of a service account"),
        ({"private_key": None}, "is no key of a service account"),
        ({"private_key": "c4n4ry"}, "no RSA key in PEM"),
    ],
)
def test_files_that_are_no_key(google: Google, tmp_path: Path, other: dict[str, object], said: str) -> None:
    with pytest.raises(SecretMissing, match=said) as caught:
        oauth_tokens.fetch_token(settings("k:1", write_key(tmp_path / "key", google, **other)))
    assert "c4n4ry" not in str(caught.value)


@pytest.mark.parametrize("uri", ["http://oauth2.example.internal/token", "http://169.254.169.254/token"])
def test_an_endpoint_in_the_key_file_is_asked_by_https_only(google: Google, tmp_path: Path, uri: str) -> None:
    with pytest.raises(AuthenticationFailed, match="Use https"):
        oauth_tokens.fetch_token(settings("k:1", write_key(tmp_path / "key", google, token_uri=uri)))


def test_without_the_package(google: Google, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = settings("k:1", write_key(tmp_path / "key", google))
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(ClusterError, match=r"install watershed\[keystores\]"):
        oauth_tokens.fetch_token(asked)
