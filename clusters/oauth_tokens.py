"""OAuth 2.0 access tokens by client credentials (RFC 6749, section 4.4), shared by every connection of the process.

A token is fetched when it is first asked for and again at 80 % of its life; when that fails, the old one serves until
it ends. The endpoint must be https, or on this machine: the request carries the client's secret.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import ipaddress
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode, urlsplit

from clusters.deadline import run_with_deadline
from clusters.errors import AuthenticationFailed, ProtocolError, Unreachable
from topology.bounded_json import parse_json_object

if TYPE_CHECKING:
    from clusters.connection_parameters import ConnectionParameters, OAuthSettings

_TIMEOUT_S = 10.0  # of a connect and of each read
_DEADLINE_S = 20.0  # of a whole answer, while all connections of the client wait
_LARGEST_ANSWER = 1 << 20
_RENEWED_AT = 0.8  # of its life, as librdkafka and Kafka's own client do


@dataclass(frozen=True, slots=True)
class AccessToken:
    """fetched and ends are monotonic seconds; principal is the JWT's `sub`, or the client id of an opaque token."""

    value: str = field(repr=False)
    principal: str
    fetched: float
    ends: float

    def aged(self, now: float) -> bool:
        """Whether 80 % of the token's life are over, so that the next one should be fetched."""
        return now >= self.fetched + _RENEWED_AT * (self.ends - self.fetched)


def fetch_token(settings: ConnectionParameters, *, other_than: str | None = None) -> AccessToken:
    """A valid token for these settings; other_than: a value that a broker has just refused.

    Raises AuthenticationFailed when the endpoint refuses the client, Unreachable when it does not answer,
    ProtocolError when what it answers is no token.
    """
    key = (settings.alias, settings.oauth, settings.username, settings.password)
    with _lock:
        source = _sources.setdefault(key, _Source(settings))
    return source.token(other_than)


def build_token_callback(settings: ConnectionParameters) -> Callable[[str], tuple[str, float, str, dict[str, str]]]:
    """The `oauth_cb` of a confluent-kafka client; it reads the client's secret anew each time."""

    def fetch(_config: str) -> tuple[str, float, str, dict[str, str]]:
        now = settings.reread_secrets()
        found = fetch_token(now)
        expires = time.time() + found.ends - time.monotonic()
        return found.value, expires, found.principal, dict(now.oauth.extensions if now.oauth else ())

    return fetch


class _Source:
    """One client at one endpoint. One fetch at a time; the others wait for it."""

    def __init__(self, settings: ConnectionParameters) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._token: AccessToken | None = None

    def token(self, refused: str | None) -> AccessToken:
        with self._lock:
            now, held = time.monotonic(), self._token
            usable = held is not None and held.value != refused and now < held.ends
            if held is None or not usable or held.aged(now):
                try:
                    held = self._token = _fetched(self._settings)
                except (Unreachable, ProtocolError):
                    if held is None or not usable:
                        raise
            return held


_sources: dict[tuple[object, ...], _Source] = {}
_lock = threading.Lock()


def _fetched(settings: ConnectionParameters) -> AccessToken:
    oauth = settings.oauth
    if oauth is None:
        raise AuthenticationFailed(
            f"cluster {settings.alias} takes OAUTHBEARER, and nothing says where tokens come from: "
            f"set clusters.{settings.alias}.security.oauth.token_endpoint",
            alias=settings.alias,
        )
    asked = time.monotonic()
    answer = _answer(settings, oauth)
    value = answer.get("access_token")
    if not isinstance(value, str) or not value:
        raise _no_token(settings, oauth, "no `access_token`")
    claims = _claims(value)
    life = _life(answer, claims)
    if life is None:
        raise _no_token(settings, oauth, "neither `expires_in` nor a JWT with `exp`")
    principal = str(claims.get("sub") or settings.username or "unknown")
    return AccessToken(value, principal, asked, asked + life)


def _answer(settings: ConnectionParameters, oauth: OAuthSettings) -> dict[str, Any]:
    """What the endpoint says, as JSON."""
    where = f"the token endpoint {oauth.token_endpoint} of cluster {settings.alias}"
    try:
        opener, request = _opener(settings, oauth), _request(settings, oauth)
        status, text = run_with_deadline(_DEADLINE_S, lambda: _asked(opener, request))
    except (OSError, http.client.HTTPException) as error:
        why = str(getattr(error, "reason", "") or error) or type(error).__name__
        if isinstance(error, TimeoutError):
            why = "no answer in time"
        raise Unreachable(
            f"{where} does not answer: {why}. Check clusters.{settings.alias}.security.oauth.", alias=settings.alias
        ) from None
    if not 200 <= status < 300:
        why = _refusal(status, text)
        if status in (400, 401, 403):
            raise AuthenticationFailed(
                f"{where} refuses the client {settings.username}: {why}. Check the client's id and secret "
                f"(clusters.{settings.alias}.security.credentials) and the scope.",
                alias=settings.alias,
            )
        raise Unreachable(f"{where} answers {why}. Try again, or look at that server.", alias=settings.alias)
    try:
        return parse_json_object(text)
    except ValueError:
        raise _no_token(settings, oauth, "no JSON object") from None


def _asked(opener: urllib.request.OpenerDirector, request: urllib.request.Request) -> tuple[int, bytes]:
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            return answer.status, answer.read(_LARGEST_ANSWER)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(_LARGEST_ANSWER)


def _request(settings: ConnectionParameters, oauth: OAuthSettings) -> urllib.request.Request:
    form = {"grant_type": "client_credentials"} | ({"scope": oauth.scope} if oauth.scope else {})
    account = f"{quote_plus(settings.username or '')}:{quote_plus(settings.password or '')}"  # RFC 6749, 2.3.1
    headers = {
        "Authorization": "Basic " + base64.b64encode(account.encode()).decode(),
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    return urllib.request.Request(oauth.token_endpoint, urlencode(form).encode(), headers, method="POST")  # noqa: S310


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the secret to an address that the topology does not name."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _opener(settings: ConnectionParameters, oauth: OAuthSettings) -> urllib.request.OpenerDirector:
    try:
        url = urlsplit(oauth.token_endpoint)
        local = is_loopback_name(url.hostname or "")
    except ValueError as error:
        text = f"clusters.{settings.alias}.security.oauth.token_endpoint is no address: {error}"
        raise AuthenticationFailed(text, alias=settings.alias) from None
    if url.scheme != "https" and not (url.scheme == "http" and local):
        raise AuthenticationFailed(
            f"clusters.{settings.alias}.security.oauth.token_endpoint is {oauth.token_endpoint}: the client's secret "
            "would travel readable. Use https.",
            alias=settings.alias,
        )
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    handlers += [urllib.request.ProxyHandler({})] if local else []
    if url.scheme == "https":
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=oauth.ca_file)))
    return urllib.request.build_opener(*handlers)


def is_loopback_name(host: str) -> bool:
    """Whether the name never leaves this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refusal(status: int, text: bytes) -> str:
    """RFC 6749, 5.2: `error` and `error_description`; nothing else of the answer is repeated."""
    try:
        said = parse_json_object(text)
        told = [str(said[key])[:200] for key in ("error", "error_description") if said.get(key)]
    except ValueError:
        told = []
    return f"HTTP {status}" + (f" ({': '.join(told)})" if told else "")


def _claims(value: str) -> dict[str, Any]:
    """The claims of a JWT, unverified (the broker verifies); {} of an opaque token."""
    parts = value.split(".")
    if len(parts) != 3:
        return {}
    try:
        return parse_json_object(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return {}


def _life(answer: dict[str, Any], claims: dict[str, Any]) -> float | None:
    """Seconds from the request. `expires_in` needs no clock that agrees with the server's."""
    for seconds in (answer.get("expires_in"), _left(claims.get("exp"))):
        try:
            if seconds is not None and float(seconds) > 0:
                return float(seconds)
        except (TypeError, ValueError, OverflowError):
            continue
    return None


def _left(exp: Any) -> float | None:
    return float(exp) - time.time() if isinstance(exp, int | float) else None


def _no_token(settings: ConnectionParameters, oauth: OAuthSettings, why: str) -> ProtocolError:
    return ProtocolError(
        f"the token endpoint {oauth.token_endpoint} of cluster {settings.alias} answered, but with {why}; "
        "is it the endpoint of OAuth 2.0 client credentials?",
        alias=settings.alias,
    )
