"""Servers on this machine that check of a token what a cloud vendor checks, and refuse in the vendor's words.

None of them uses the library that makes the token: AWS's signature is computed here by its specification.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, parse_qsl, quote, urlsplit

from watershed.lab.hostile_broker import build_friendly_answer

_API_VERSIONS, _METADATA, _HANDSHAKE, _AUTHENTICATE = 18, 3, 17, 36
_SASL_AUTHENTICATION_FAILED = 58
TokenCheck = Callable[[str], str | None]
"""Why a token is refused, in the vendor's words; None when it is good."""


class TokenBroker:
    """A broker that takes OAUTHBEARER (RFC 7628), as the vendor's check says, and then answers Metadata. `seen` are the
    tokens that came."""

    def __init__(self, check: TokenCheck) -> None:
        self._check, self.seen, self.accepted = check, [], 0  # type: ignore[var-annotated]
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        self._metadata = build_friendly_answer(lambda: [self.port])
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        refusal: str | None = None
        with connection, connection.makefile("rb") as stream:
            while head := stream.read(4):
                request = stream.read(struct.unpack(">i", head)[0])
                key, version, correlation = struct.unpack_from(">hhi", request)
                body, refusal = self._answer(key, version, request, refusal)
                try:
                    connection.sendall(struct.pack(">ii", 4 + len(body), correlation) + body)
                except OSError:
                    return

    def _answer(self, key: int, version: int, request: bytes, refusal: str | None) -> tuple[bytes, str | None]:
        if key == _API_VERSIONS:
            ranges = ((_API_VERSIONS, 0, 3), (_METADATA, 0, 7), (_HANDSHAKE, 0, 1), (_AUTHENTICATE, 0, 1))
            if version < 3:
                throttle = b"\0\0\0\0" if version else b""
                return b"\0\0\0\0\0\4" + b"".join(struct.pack(">hhh", *each) for each in ranges) + throttle, refusal
            tagged = b"".join(struct.pack(">hhh", *each) + b"\0" for each in ranges)
            return b"\0\0\5" + tagged + b"\0\0\0\0\0", refusal
        if key == _HANDSHAKE:
            return b"\0\0\0\0\0\1\0\x0bOAUTHBEARER", refusal
        if key == _AUTHENTICATE:
            return self._authenticated(version, _sasl_bytes(request), refusal)
        return self._metadata(key, version) or b"", refusal

    def _authenticated(self, version: int, sent: bytes, refusal: str | None) -> tuple[bytes, str | None]:
        life = struct.pack(">q", 0) if version >= 1 else b""
        if sent == b"\x01" and refusal is not None:  # the client has read why, and ends the exchange
            words = refusal.encode()
            return (
                struct.pack(">hh", _SASL_AUTHENTICATION_FAILED, len(words)) + words + b"\0\0\0\0" + life,
                None,
            )
        token = sent.decode().partition("auth=Bearer ")[2].partition("\x01")[0]
        self.seen.append(token)
        refusal = self._check(token)
        said = b"" if refusal is None else json.dumps({"status": "invalid_token"}).encode()
        self.accepted += refusal is None
        return struct.pack(">hhi", 0, -1, len(said)) + said + life, refusal


def _sasl_bytes(request: bytes) -> bytes:
    [client] = struct.unpack_from(">h", request, 8)
    at = 10 + max(client, 0)
    [length] = struct.unpack_from(">i", request, at)
    return request[at + 4 : at + 4 + length]


def check_msk_token(token: str, region: str, secrets: Mapping[str, str], now: float | None = None) -> str | None:
    """As an MSK broker: the signature of AWS's version 4 over the query (documentation "Create a signed AWS API
    request"), the action, the region, and the end. secrets: secret access key by access key id."""
    try:
        url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    except ValueError:
        return "Invalid authentication payload"
    said = dict(parse_qsl(url.query))
    if (url.scheme, url.hostname, url.path) != ("https", f"kafka.{region}.amazonaws.com", "/"):
        return "Invalid authentication payload: another endpoint"
    if said.get("Action") != "kafka-cluster:Connect" or "User-Agent" not in said:
        return "Invalid authentication payload: another action"
    identity, date, scoped, service, kind = said["X-Amz-Credential"].split("/")
    if (scoped, service, kind) != (region, "kafka-cluster", "aws4_request") or identity not in secrets:
        return "Access denied"
    signed = datetime.strptime(said["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    life = int(said["X-Amz-Expires"])
    if life > 900 or not signed - 300 <= (time.time() if now is None else now) < signed + life:
        return "Signature expired"
    given = said.pop("X-Amz-Signature")
    del said["User-Agent"]  # the client adds it to the signed address
    query = "&".join(f"{quote(key, safe='-_.~')}={quote(said[key], safe='-_.~')}" for key in sorted(said))
    canonical = f"GET\n/\n{query}\nhost:{url.hostname}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    scope = f"{date}/{region}/kafka-cluster/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{said['X-Amz-Date']}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{secrets[identity]}".encode()
    for part in (date, region, "kafka-cluster", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    right = hmac.compare_digest(hmac.new(key, text.encode(), "sha256").hexdigest(), given)
    return None if right else "Access denied"


class VendorEndpoint:
    """An HTTP server: `answer(method, path, headers, form)` gives status and body. `asked` are the requests."""

    def __init__(self, answer: Callable[[str, str, Mapping[str, str], dict[str, str]], tuple[int, str]]) -> None:
        endpoint = self
        self.asked: list[tuple[str, str, dict[str, str]]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._say("GET", dict(parse_qsl(urlsplit(self.path).query)))

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
                self._say("POST", {key: values[0] for key, values in parse_qs(text).items()})

            def _say(self, method: str, form: dict[str, str]) -> None:
                path = urlsplit(self.path).path
                endpoint.asked.append((method, path, form))
                status, body = answer(method, path, dict(self.headers.items()), form)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *args: Any) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
