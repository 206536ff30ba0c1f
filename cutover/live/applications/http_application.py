"""An application's own switch, by HTTP.

`GET /` → {"state", "cluster", …}, `POST /stop`, `POST /start` with {"cluster", "bootstrap"}; both posts are idempotent
and answer when it is done, or with the state `stopping` or `starting`, and are then asked by `GET /`. A refusal says
why in {"error"}. Only addresses from the topology file are called, and of those only hosts that the environment
allows; redirects are not followed, and an answer is waited for as long as the timeout in all.
"""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from watershed.clusters.bounded_http import HttpAnswer, NoHttpAnswer, call_http
from watershed.clusters.errors import SecretMissing
from watershed.clusters.secrets import SecretResolver
from watershed.cutover.live.allowed_hosts import find_host_refusal
from watershed.cutover.live.applications.application_adapter import (
    APPLICATION_STATES,
    ApplicationControlFailed,
    ApplicationOrder,
    ApplicationState,
)
from watershed.cutover.live.signed_request import build_request_signature_headers
from watershed.topology.application_controls import HttpAuthentication

_MOST_WORDS = 300  # characters of an application's own words
_A_STATE = 20  # characters of a word for a state, such as `starting`
_LOOK_S = 10.0  # what an application says of itself, it says at once


@dataclass(frozen=True, slots=True)
class HttpApplication:
    """timeout in seconds. environ: says which hosts may be called (`cutover.live.allowed_hosts`), and holds secrets.
    wall: seconds since 1970, for signatures."""

    name: str
    url: str
    timeout: float = 60.0
    authentication: HttpAuthentication | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    wall: Callable[[], float] = time.time

    def read(self) -> ApplicationState:
        """What the application says of itself."""
        return parse_application_state(self.name, self._call("GET", "", None, min(self.timeout, _LOOK_S)), "endpoint")

    def tell(self, order: ApplicationOrder) -> ApplicationState:
        """`POST /stop`, or `POST /start` with alias and bootstrap."""
        body = {"cluster": order.alias, "bootstrap": ",".join(order.bootstrap)} if order.verb == "start" else {}
        return parse_application_state(
            self.name, self._call("POST", f"/{order.verb}", body, self.timeout, order.key), "endpoint"
        )

    def follow(self, order: ApplicationOrder) -> ApplicationState:
        """What the application says of itself by now."""
        return self.read()

    def _call(
        self, method: str, path: str, body: dict[str, Any] | None, seconds: float, key: str = ""
    ) -> dict[str, Any]:
        url = f"{self.url.rstrip('/')}{path}" if path else self.url
        data = None if body is None else json.dumps(body).encode()
        try:
            self._refuse(url)
            headers, tls = self._prove(method, url, data or b"")
            headers |= {"content-type": "application/json"} | ({"idempotency-key": key} if key else {})
            answer = call_http(method, url, data, headers, seconds, tls=tls)
        except NoHttpAnswer as silence:
            raise self._describe_silence(url, silence) from None
        except ValueError as error:  # a malformed address
            raise self._describe_uncallable(url, error) from None
        return self._read(method, url, answer)

    def _refuse(self, url: str) -> None:
        """Raises ApplicationControlFailed for an address that is not called."""
        if urlsplit(url).scheme not in ("http", "https"):
            raise ApplicationControlFailed(
                f"application {self.name}: {url} is not an http address; correct {self._at}", transient=False
            )
        refused = find_host_refusal(url, self.environ)
        if refused is not None:
            raise ApplicationControlFailed(f"application {self.name}: {refused} ({self._at})", transient=False)

    def _prove(self, method: str, url: str, body: bytes) -> tuple[dict[str, str], ssl.SSLContext | None]:
        """Headers and TLS settings by which the switch knows us. Raises ApplicationControlFailed."""
        proof = self.authentication
        if proof is None:
            return {}, None
        vault = SecretResolver("", self.environ, where=f"migration.applications.{self.name}.authentication")
        try:
            if proof.bearer is not None:
                return {"authorization": f"Bearer {self._require_header(vault.text('bearer', proof.bearer))}"}, None
            if proof.hmac is not None:
                secret = vault.text("hmac", proof.hmac)
                return build_request_signature_headers(secret, method, url, body, self.wall()), None
            assert proof.certificate is not None
            assert proof.key is not None
            tls = ssl.create_default_context(cafile=None if proof.ca is None else vault.path("mtls.ca", proof.ca))
            tls.load_cert_chain(
                vault.path("mtls.certificate", proof.certificate), vault.path("mtls.key", proof.key), _refuse_password
            )
        except SecretMissing as error:
            raise ApplicationControlFailed(f"application {self.name}: {error}", transient=False) from None
        except (ssl.SSLError, OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
            raise ApplicationControlFailed(
                f"application {self.name}: certificate and key of {self._at.rpartition('.')[0]}.authentication.mtls "
                f"cannot be used ({why}): PEM files that belong together are expected, the key not encrypted",
                transient=False,
            ) from None
        return {}, tls

    def _require_header(self, token: str) -> str:
        """Raises ApplicationControlFailed for a token that no header can carry: `http.client` would quote it."""
        if token.isascii() and token.isprintable():
            return token
        raise ApplicationControlFailed(
            f"application {self.name}: the secret of {self._at.rpartition('.')[0]}.authentication.bearer has line "
            "breaks or other characters that no HTTP header can carry; store the token alone",
            transient=False,
        )

    def _read(self, method: str, url: str, answer: HttpAnswer) -> dict[str, Any]:
        value = parse_answer_object(answer.body)
        if not 200 <= answer.status < 300:
            # Only what it says as an application: any other page behind this address is nobody's business here.
            detail = str(value.get("error", "")).strip()[:_MOST_WORDS] if value else ""
            if answer.status == 401 and not detail:
                detail = f"it does not accept our `authentication` ({self._at.rpartition('.')[0]}.authentication)"
            message = f"application {self.name}: {method} {url} answered {answer.status}"
            raise ApplicationControlFailed(message + (f": {detail}" if detail else ""), transient=answer.status >= 500)
        if value is None:
            raise ApplicationControlFailed(f"application {self.name}: {url} answered no JSON object", transient=False)
        return value

    @property
    def _at(self) -> str:
        return f"migration.applications.{self.name}.http"

    def _describe_silence(self, url: str, silence: NoHttpAnswer) -> ApplicationControlFailed:
        if not silence.transient or silence.garbled:
            return self._describe_uncallable(url, silence)
        return ApplicationControlFailed(
            f"application {self.name} does not answer at {url} ({silence}); check that it runs and that {self._at} is "
            "its control address",
            transient=True,
        )

    def _describe_uncallable(self, url: str, error: Exception) -> ApplicationControlFailed:
        return ApplicationControlFailed(
            f"application {self.name} cannot be called at {url} ({str(error) or type(error).__name__}); correct "
            f"{self._at}, its control address",
            transient=False,
        )


def _refuse_password() -> str:
    raise ValueError("the key is encrypted")


def parse_answer_object(content: bytes | str) -> dict[str, Any] | None:
    """The JSON object that a text is; None for anything else."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def parse_application_state(name: str, value: Mapping[str, Any], by: str) -> ApplicationState:
    """What an application, or a program that speaks for it, says in `state` and `cluster`. Raises
    ApplicationControlFailed, transient: an application that starts may say something else soon."""
    state = value.get("state")
    if state not in APPLICATION_STATES:
        raise ApplicationControlFailed(
            f"application {name} is {_describe_state(state)}, expected running or stopped", transient=True
        )
    cluster = value.get("cluster")
    return ApplicationState(str(state), None if cluster is None else str(cluster), by)


def _describe_state(state: object) -> str:
    """A state as an application would name one; anything else behind this address is not repeated."""
    return repr(state) if isinstance(state, str) and state.isalpha() and len(state) <= _A_STATE else "in no known state"
