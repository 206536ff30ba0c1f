"""A small identity provider on this machine: OAuth 2.0 client credentials and the keys to check its tokens with."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote_plus

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

_HOST = "127.0.0.1"
ISSUER, AUDIENCE = "https://identity.example.internal", "kafka"


class IdentityProvider:
    """clients: id → secret. Tokens are RS256 JWTs that live `life_s` seconds; `issued` counts them by client. What
    `wrong` holds replaces claims of the tokens that are issued, as a provider that is set up wrongly does it."""

    def __init__(self, clients: dict[str, str], life_s: float = 3600.0) -> None:
        self.clients, self.life_s = clients, life_s
        self.issued: dict[str, int] = {}
        self.scopes: list[str] = []
        self.wrong: dict[str, Any] = {}
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        identity = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._say(200, identity.keys())

            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
                self._say(*identity.answer(self.headers.get("Authorization", ""), form))

            def _say(self, status: int, value: dict[str, Any]) -> None:
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer((_HOST, 0), Handler)
        threading.Thread(target=self._server.serve_forever, name="identity", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def token_endpoint(self) -> str:
        """URL that issues tokens (OAuth 2.0 client credentials)."""
        return f"http://{_HOST}:{self._server.server_port}/token"

    @property
    def keys_endpoint(self) -> str:
        """URL of the key set that brokers check signatures with."""
        return f"http://{_HOST}:{self._server.server_port}/keys"

    def keys(self) -> dict[str, Any]:
        """The JSON Web Key Set (RFC 7517)."""
        own = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return {"keys": [own | {"kid": "lab", "use": "sig", "alg": "RS256"}]}

    def answer(self, authorization: str, form: str) -> tuple[int, dict[str, Any]]:
        """To a token request: HTTP status and JSON."""
        kind, _, encoded = authorization.partition(" ")
        account = base64.b64decode(encoded).decode() if kind == "Basic" else ""
        client, secret = (unquote_plus(part) for part in (account.partition(":")[0], account.partition(":")[2]))
        if self.clients.get(client) != secret:
            return 401, {"error": "invalid_client", "error_description": "unknown client or wrong secret"}
        asked = parse_qs(form)
        if asked.get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        self.scopes += asked.get("scope", [])
        self.issued[client] = self.issued.get(client, 0) + 1
        return 200, {
            "access_token": self.token(client, **self.wrong),
            "token_type": "Bearer",
            "expires_in": self.life_s,
        }

    def token(self, client: str, key: rsa.RSAPrivateKey | None = None, **other: Any) -> str:
        """A signed JWT for the client. key: sign with this one instead, as a forger would. other: claims instead of the
        right ones."""
        now = time.time()
        claims: dict[str, Any] = {"iss": ISSUER, "aud": AUDIENCE, "sub": client, "scope": "kafka"}
        claims |= {"iat": int(now), "exp": int(now + self.life_s), "jti": str(time.monotonic_ns())} | other
        return jwt.encode(claims, key or self._key, algorithm="RS256", headers={"kid": "lab"})
