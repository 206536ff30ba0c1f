"""Access tokens from an endpoint on this machine: when they are fetched, what is refused, what is never said."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from watershed.clusters import oauth_tokens
from watershed.clusters.connection_parameters import OAuthSettings
from watershed.clusters.errors import AuthenticationFailed, ClusterError, ProtocolError, Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.lab.certificates import CertificateAuthority, write_secret_file
from watershed.lab.identity_provider import IdentityProvider

SECRET = "c4n4ry: s3cr3t/+"


@pytest.fixture
def identity() -> Iterator[IdentityProvider]:
    with IdentityProvider({"ann": SECRET}) as found:
        yield found


def settings(endpoint: str, **more: object) -> ConnectionSettings:
    oauth = OAuthSettings(endpoint, **more)  # type: ignore[arg-type]
    return ConnectionSettings(
        "cloud", ("k:1",), None, "SASL_SSL", "OAUTHBEARER", username="ann", password=SECRET, oauth=oauth
    )


def test_one_token_serves_all(identity: IdentityProvider) -> None:
    asked = settings(identity.token_endpoint, scope="kafka")
    with ThreadPoolExecutor(8) as threads:
        found = {token.value for token in threads.map(lambda _: oauth_tokens.fetch_token(asked), range(32))}
    assert len(found) == 1
    assert (identity.issued, identity.scopes) == ({"ann": 1}, ["kafka"])
    value, _expires, principal, extensions = oauth_tokens.build_token_callback(asked)("")
    assert (found, principal, extensions) == ({value}, "ann", {})
    assert value not in repr(oauth_tokens.fetch_token(asked))


def test_a_refused_token_is_replaced(identity: IdentityProvider) -> None:
    asked = settings(identity.token_endpoint)
    first = oauth_tokens.fetch_token(asked).value
    assert oauth_tokens.fetch_token(asked, other_than="another").value == first
    assert oauth_tokens.fetch_token(asked, other_than=first).value != first
    assert identity.issued == {"ann": 2}


def test_a_token_is_fetched_again_before_it_ends() -> None:
    token = oauth_tokens.AccessToken("t", "ann", fetched=100.0, ends=200.0)
    assert [token.aged(now) for now in (100.0, 179.9, 180.0, 250.0)] == [False, False, True, True]


def test_an_old_token_serves_while_the_endpoint_is_away() -> None:
    with IdentityProvider({"ann": SECRET}, life_s=30.0) as identity:
        asked = settings(identity.token_endpoint)
        held = oauth_tokens.fetch_token(asked)
        source = oauth_tokens._find_source(asked)
        source._token = replace(held, fetched=held.fetched - 25)  # 25 s ago of 30
    assert oauth_tokens.fetch_token(asked).value == held.value
    source._token = replace(held, fetched=held.fetched - 31, ends=held.fetched - 1)
    with pytest.raises(Unreachable, match="does not answer"):
        oauth_tokens.fetch_token(asked)


def test_another_secret_is_another_token(identity: IdentityProvider) -> None:
    asked = settings(identity.token_endpoint)
    oauth_tokens.fetch_token(asked)
    identity.clients["ann"] = "new"
    with pytest.raises(AuthenticationFailed, match=r"refuses the client ann: HTTP 401 \(invalid_client"):
        oauth_tokens.fetch_token(replace(asked, password="old"))
    assert oauth_tokens.fetch_token(replace(asked, password="new")).principal == "ann"


@pytest.mark.parametrize(
    ("endpoint", "kind", "said"),
    [
        ("http://id.example.internal/token", AuthenticationFailed, "would travel readable"),
        ("http://127.0.0.1.example.internal/token", AuthenticationFailed, "would travel readable"),
        ("ftp://127.0.0.1/token", AuthenticationFailed, "Use https"),
        ("file:///etc/passwd", AuthenticationFailed, "Use https"),
        ("http://[::1/token", AuthenticationFailed, "is no address"),
    ],
)
def test_endpoints_that_are_not_asked(endpoint: str, kind: type[ClusterError], said: str) -> None:
    with pytest.raises(kind, match=said) as caught:
        oauth_tokens.fetch_token(settings(endpoint))
    assert SECRET not in str(caught.value)


def test_without_an_endpoint() -> None:
    with pytest.raises(AuthenticationFailed, match=r"clusters\.cloud\.security\.oauth\.token_endpoint"):
        oauth_tokens.fetch_token(replace(settings("https://i"), oauth=None))


class Odd:
    """A server that answers every request with one text."""

    def __init__(
        self, status: int, body: bytes, headers: dict[str, str], context: ssl.SSLContext | None = None
    ) -> None:
        odd = self
        self.asked = 0

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                odd.asked += 1
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Silent."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.address = f"127.0.0.1:{self.server.server_port}"


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (200, b"<html>", ProtocolError, "no JSON object"),
        (200, b"[]", ProtocolError, "no JSON object"),
        (200, b"{}", ProtocolError, "no `access_token`"),
        (200, b'{"access_token": "opaque"}', ProtocolError, "neither `expires_in`"),
        (200, b'{"access_token": "a.-.c", "expires_in": "soon"}', ProtocolError, "neither `expires_in`"),
        (200, b'{"access_token": "a\\u0001auth=b", "expires_in": 9}', ProtocolError, "RFC 6750"),
        (400, b'{"error": "invalid_scope"}', AuthenticationFailed, r"HTTP 400 \(invalid_scope\)"),
        (403, b"nothing", AuthenticationFailed, "HTTP 403"),
        (503, b"{}", Unreachable, "answers HTTP 503"),
    ],
)
def test_odd_answers(status: int, body: bytes, kind: type[ClusterError], said: str) -> None:
    odd = Odd(status, body, {})
    with pytest.raises(kind, match=said) as caught:
        oauth_tokens.fetch_token(settings(f"http://{odd.address}/token"))
    assert SECRET not in str(caught.value)
    odd.server.shutdown()


def test_no_token_is_kept_for_a_year() -> None:
    odd = Odd(200, b'{"access_token": "opaque", "expires_in": 31536000}', {})
    found = oauth_tokens.fetch_token(settings(f"http://{odd.address}/token"))
    assert found.ends - found.fetched == pytest.approx(
        24 * 3600
    )  # the clock of a machine that has run for long is coarse
    odd.server.shutdown()


def test_a_redirect_is_not_followed(identity: IdentityProvider) -> None:
    odd = Odd(307, b"", {"Location": identity.token_endpoint})
    with pytest.raises(Unreachable, match="HTTP 307"):
        oauth_tokens.fetch_token(settings(f"http://{odd.address}/token"))
    assert (odd.asked, identity.issued) == (1, {})
    odd.server.shutdown()


def test_an_endpoint_with_a_certificate_of_our_own(tmp_path: Path) -> None:
    authority = CertificateAuthority("Identity authority")
    served = write_secret_file(tmp_path / "served.pem", authority.issue("id", ("127.0.0.1",)).pem)
    ca = write_secret_file(tmp_path / "ca.pem", authority.chain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(served)
    odd = Odd(200, b'{"access_token": "opaque", "expires_in": 60}', {}, context)
    assert oauth_tokens.fetch_token(settings(f"https://{odd.address}/token", ca_file=str(ca))).value == "opaque"
    with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        oauth_tokens.fetch_token(settings(f"https://{odd.address}/token"))
    odd.server.shutdown()


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(Unreachable, match="Connection refused"):
            oauth_tokens.fetch_token(settings(f"http://127.0.0.1:{free.getsockname()[1]}/token"))
