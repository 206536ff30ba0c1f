"""Tokens of AWS against a broker that checks the signature as the vendor specifies it, and an STS on this machine."""

from __future__ import annotations

import base64
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.clusters.vendor_servers import TokenBroker, VendorEndpoint, check_msk_token
from watershed.clusters import oauth_tokens
from watershed.clusters.errors import AuthenticationFailed, ClusterError, ProtocolError, SecretMissing, Unreachable
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.clusters.wire.secured_transport import open_transport
from watershed.topology.plan import PlanCluster, PlanOAuth, PlanSecurity
from watershed.topology.secret_ref import SecretRef

REGION, KEY, SECRET = "eu-central-1", "AKIDEXAMPLE", "wJalr/c4n4ry+EXAMPLEKEY"
ROLE = "arn:aws:iam::123456789012:role/watershed"
ASSUMED, ASSUMED_SECRET = "ASIDASSUMED", "assumed/s3cr3t"


@pytest.fixture(autouse=True)
def nowhere_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """No identity of the machine that runs the tests, and no address of AWS is asked."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setattr(oauth_tokens, "_sources", {})


@pytest.fixture
def broker() -> Iterator[TokenBroker]:
    secrets = {KEY: SECRET, ASSUMED: ASSUMED_SECRET}
    with TokenBroker(lambda token: check_msk_token(token, REGION, secrets)) as found:
        yield found


def settings(address: str, account: str | None = f"{KEY}:{SECRET}", **oauth: str) -> ConnectionSettings:
    security = PlanSecurity(
        "SASL_PLAINTEXT",
        "OAUTHBEARER",
        SecretRef("env", "KEY") if account is not None else None,
        oauth=PlanOAuth(provider="aws_msk_iam", **{"region": REGION, **oauth}),
    )
    return resolve_connection_settings(PlanCluster("msk", (address,), None, security), {"KEY": account or ""})


def connect(asked: ConnectionSettings) -> None:
    with closing(open_transport(asked, asked.bootstrap_addresses[0], timeout_s=10.0).transport):
        pass


def test_a_broker_takes_the_token_raw_and_by_librdkafka(broker: TokenBroker) -> None:
    asked = settings(broker.address)
    connect(asked)
    assert Producer(asked.librdkafka()).list_topics(timeout=30).brokers
    assert len(set(broker.seen)) == 1, "one token serves all"
    token = oauth_tokens.fetch_token(asked)
    assert 880 < token.ends - time.monotonic() <= 900
    assert SECRET not in repr(token) + repr(asked)


@pytest.mark.parametrize(
    ("account", "region", "words"),
    [
        (f"{KEY}:wrong", REGION, "Access denied"),
        (f"AKIDNOBODY:{SECRET}", REGION, "Access denied"),
        (f"{KEY}:{SECRET}", "us-east-1", "Invalid authentication payload: another endpoint"),
    ],
)
def test_wrong_ones_are_refused_in_the_vendors_words(
    broker: TokenBroker, account: str, region: str, words: str
) -> None:
    with pytest.raises(AuthenticationFailed, match=rf"refuses user AKID\w+ \(OAUTHBEARER\): {words}\.") as caught:
        connect(settings(broker.address, account, region=region))
    assert SECRET not in str(caught.value)
    assert broker.accepted == 0


def test_an_old_one_is_refused_in_the_vendors_words() -> None:
    later = time.time() + 901
    with (
        TokenBroker(lambda token: check_msk_token(token, REGION, {KEY: SECRET}, later)) as broker,
        pytest.raises(AuthenticationFailed, match="Signature expired"),
    ):
        connect(settings(broker.address))


def test_a_changed_address_does_not_fit_its_signature(broker: TokenBroker) -> None:
    token = oauth_tokens.fetch_token(settings(broker.address)).value
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    longer = base64.urlsafe_b64encode(url.replace("Expires=900", "Expires=899").encode()).decode().rstrip("=")
    assert check_msk_token(token, REGION, {KEY: SECRET}) is None
    assert check_msk_token(longer, REGION, {KEY: SECRET}) == "Access denied"


def sts(method: str, path: str, headers: Mapping[str, str], form: dict[str, str]) -> tuple[int, str]:
    """AssumeRole: for this key and this role."""
    asked = (form["Action"], form["RoleArn"], form["RoleSessionName"])
    if f"Credential={KEY}/" not in headers["Authorization"] or asked != ("AssumeRole", ROLE, "watershed"):
        denied = "<Error><Code>AccessDenied</Code><Message>User is not authorized to perform: sts:AssumeRole</Message>"
        return 403, f"<ErrorResponse>{denied}</Error></ErrorResponse>"
    given = f"<AccessKeyId>{ASSUMED}</AccessKeyId><SecretAccessKey>{ASSUMED_SECRET}</SecretAccessKey>"
    given += "<SessionToken>session</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration>"
    result = f"<AssumeRoleResult><Credentials>{given}</Credentials></AssumeRoleResult>"
    return 200, f'<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">{result}</AssumeRoleResponse>'


def test_a_role_is_assumed(broker: TokenBroker) -> None:
    with VendorEndpoint(sts) as endpoint:
        asked = settings(broker.address, role=ROLE, token_endpoint=endpoint.address)
        connect(asked)
        assert broker.accepted == 1
        assert ASSUMED.encode() in base64.urlsafe_b64decode(broker.seen[0] + "==")
        with pytest.raises(AuthenticationFailed, match=r"assume .*other: AccessDenied: User is not authorized"):
            connect(settings(broker.address, role=f"{ROLE}other", token_endpoint=endpoint.address))
    with pytest.raises(Unreachable, match="AWS gives no credentials for a token"):
        oauth_tokens.fetch_token(settings(broker.address, role=f"{ROLE}2", token_endpoint=endpoint.address))
    with pytest.raises(AuthenticationFailed, match="would travel readable"):
        oauth_tokens.fetch_token(settings(broker.address, role=ROLE, token_endpoint="http://sts.example.internal"))


def test_this_machines_own_identity(broker: TokenBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unreachable, match="this machine shows no identity at AWS"):
        connect(settings(broker.address, None))
    monkeypatch.setattr(oauth_tokens, "_sources", {})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    connect(settings(broker.address, None))
    assert broker.accepted == 1
    monkeypatch.delenv("WATERSHED_ALLOW_IDENTITIES")
    with pytest.raises(SecretMissing, match="WATERSHED_ALLOW_IDENTITIES=aws_msk_iam"):
        settings(broker.address, None)
    monkeypatch.setenv("WATERSHED_ALLOW_IDENTITIES", "aws_msk_iam")
    assert settings(broker.address, None).username is None


WEB = {"AWS_ROLE_ARN": ROLE, "AWS_WEB_IDENTITY_TOKEN_FILE": "/nonexistent/web"}
FULL = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
CONTAINER = {FULL: "http://127.0.0.1:1/", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/nonexistent/container"}


@pytest.mark.parametrize(
    ("environ", "kind", "said"),
    [
        (WEB, SecretMissing, r"the file /nonexistent/web of the identity at AWS cannot be read \(No such file"),
        (CONTAINER, SecretMissing, "the file /nonexistent/container of the identity at AWS cannot be read"),
        ({FULL: "http://evil.example.internal/"}, AuthenticationFailed, "Unsupported host 'evil.example.internal'"),
        ({"AWS_PROFILE": "none"}, AuthenticationFailed, r"config profile \(none\) could not be found"),
    ],
)
def test_identities_of_the_machine_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], kind: type[ClusterError], said: str
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(kind, match=said):
        oauth_tokens.fetch_token(settings("k:1", None))


def test_a_container_s_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv(FULL, f"http://127.0.0.1:{free.getsockname()[1]}/")
        with pytest.raises(Unreachable, match=r"AWS gives no credentials for a token: .*Could not connect"):
            oauth_tokens.fetch_token(settings("k:1", None))


def test_a_session_token_with_a_line_break_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "SESSION_TOKEN": "c4n4ry\nx"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with pytest.raises(AuthenticationFailed, match="such as a line break") as caught:
        oauth_tokens.fetch_token(settings("127.0.0.1:1", None, role=ROLE, token_endpoint="http://127.0.0.1:1"))
    assert "c4n4ry" not in str(caught.value)


def test_a_web_identity_that_aws_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> tuple[int, str]:
        denied = "<Error><Code>InvalidIdentityToken</Code><Message>No such provider</Message></Error>"
        return 400, f"<ErrorResponse>{denied}</ErrorResponse>"

    token = tmp_path / "web"
    token.write_text("token")
    with VendorEndpoint(refuse) as endpoint:
        for name, value in {
            **WEB,
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL_STS": endpoint.address,
        }.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(AuthenticationFailed, match="AWS does not give this identity credentials: InvalidIdentity"):
            oauth_tokens.fetch_token(settings("k:1", None))


def test_without_the_vendors_package(broker: TokenBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ProtocolError, match=r"install watershed\[aws\]"):
        oauth_tokens.fetch_token(settings(broker.address))
