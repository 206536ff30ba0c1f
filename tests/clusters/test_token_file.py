"""A token in a file that something else renews: read anew, judged before it is sent, never shown."""

from __future__ import annotations

import time
from pathlib import Path

import jwt
import pytest

from watershed.clusters import oauth_tokens
from watershed.clusters.errors import AuthenticationFailed, ClusterError, SecretMissing
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.lab.certificates import write_secret_file
from watershed.topology.plan import PlanCluster, PlanOAuth, PlanSecurity
from watershed.topology.secret_ref import SecretRef

CANARY = "c4n4ry-0f-4-t0k3n"


def settings(path: Path) -> ConnectionSettings:
    security = PlanSecurity("SASL_SSL", "OAUTHBEARER", SecretRef("file", str(path)), oauth=PlanOAuth(provider="file"))
    return resolve_connection_settings(PlanCluster("cloud", ("k:1",), None, security))


def signed(**claims: object) -> str:
    return jwt.encode({"sub": "sidecar", "jti": CANARY, **claims}, "k" * 32, algorithm="HS256")


def test_the_file_is_read_for_each_login(tmp_path: Path) -> None:
    path = write_secret_file(tmp_path / "token", signed(exp=time.time() + 3600) + "\n")
    asked = settings(path)
    callback = oauth_tokens.build_token_callback(asked)
    for _ in range(2):
        token = signed(exp=time.time() + 3600, n=time.monotonic_ns())
        write_secret_file(path, f"{token}\n")
        assert oauth_tokens.fetch_token(asked).value == token
        value, expires, principal, extensions = callback("")
        assert (value, principal, extensions) == (token, "sidecar", {})
        assert expires <= time.time() + 60, "a client that keeps it looks into the file again soon"


@pytest.mark.parametrize("claims", [{}, {"exp": 1e12}])
def test_a_projected_token_is_a_link(tmp_path: Path, claims: dict[str, float]) -> None:
    """Kubernetes replaces the folder behind a link; a token may also say nothing of its end."""
    real = write_secret_file(tmp_path / "..data" / "token", signed(**claims))
    (tmp_path / "token").symlink_to(real)
    assert oauth_tokens.fetch_token(settings(tmp_path / "token")).value == real.read_text()


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (signed(exp=1_700_000_000), AuthenticationFailed, r"ended at 2023-11-14T22:13:20Z\. Look at what renews"),
        (signed(exp=-1e300), AuthenticationFailed, r"ended\. Look at what renews"),
        ("", SecretMissing, "does not hold one token"),
        (f"user: {CANARY}", SecretMissing, "does not hold one token"),
        (f'{{"access_token": "{CANARY}"}}', SecretMissing, "does not hold one token"),
        (f"{CANARY}\x01auth=x", SecretMissing, "does not hold one token"),
        (CANARY * 5000, SecretMissing, "at most 65536 bytes"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, content: str, kind: type[ClusterError], said: str) -> None:
    path = write_secret_file(tmp_path / "token", content)
    with pytest.raises(kind, match=said) as caught:
        oauth_tokens.fetch_token(settings(path))
    assert str(path) in str(caught.value)
    assert CANARY not in str(caught.value)


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    path = write_secret_file(tmp_path / "token", signed())
    asked = settings(path)
    path.unlink()
    with pytest.raises(SecretMissing, match="cannot be read"):
        oauth_tokens.fetch_token(asked)
    with pytest.raises(SecretMissing, match="names no readable file"):
        settings(path)


def test_tokens_go_over_tls_or_where_the_runner_allows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATERSHED_ALLOW_PLAINTEXT")
    path = write_secret_file(tmp_path / "token", signed())
    security = PlanSecurity(
        "SASL_PLAINTEXT", "OAUTHBEARER", SecretRef("file", str(path)), oauth=PlanOAuth(provider="file")
    )
    with pytest.raises(SecretMissing, match="without TLS"):
        resolve_connection_settings(PlanCluster("cloud", ("k.example.internal:1",), None, security))
