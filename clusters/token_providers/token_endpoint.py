"""One request to a token endpoint (RFC 6749, section 4.4 and 5), with bounds, and what the answer means.

The endpoint must be https, or on this machine: the request carries a secret, and the answer a token.
"""

from __future__ import annotations

import http.client
import ipaddress
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from watershed.clusters.connection_parameters import ConnectionParameters
from watershed.clusters.deadline import run_with_deadline
from watershed.clusters.errors import AuthenticationFailed, ProtocolError, Unreachable
from watershed.clusters.token_providers.access_token import (
    AccessToken,
    compute_seconds_left,
    is_bearer_token,
    read_jwt_claims,
)
from watershed.topology.bounded_json import parse_json_object

_TIMEOUT_S = 10.0  # of a connect and of each read
_DEADLINE_S = 20.0  # of a whole answer, while all connections of the client wait
_LARGEST_ANSWER = 1 << 20
_LONGEST_LIFE_S = 24 * 3600.0  # clouds give less; an endpoint that says a year cannot have a token kept for so long


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A POST of `form`, or a GET without one. who: whom a refusal is about. remedy: what to check then. protocol: what
    the endpoint speaks, for the message about an answer that is none of it. metadata: it is a cloud's metadata server,
    which is asked without a secret, over http, at an address that does not leave the host."""

    url: str
    who: str
    remedy: str
    form: Mapping[str, str] | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    protocol: str = "OAuth 2.0 client credentials"
    metadata: bool = False


def request_access_token(settings: ConnectionParameters, request: TokenRequest) -> AccessToken:
    """Raises AuthenticationFailed when the endpoint refuses, or may not be asked; Unreachable when it does not answer;
    ProtocolError when what it answers is no token."""
    asked = time.monotonic()
    answer = request_answer(settings, request)
    value = answer.get("access_token")
    if not isinstance(value, str) or not value:
        raise _no_token(settings, request, "no `access_token`")
    if not is_bearer_token(value):
        raise _no_token(settings, request, "an `access_token` that is none (RFC 6750, section 2.1)")
    claims = read_jwt_claims(value)
    life = _life(answer, claims)
    if life is None:
        raise _no_token(settings, request, "neither `expires_in` nor a JWT with `exp`")
    principal = str(claims.get("sub") or settings.username or "unknown")
    return AccessToken(value, principal, asked, asked + life)


def is_loopback_name(host: str) -> bool:
    """Whether the name never leaves this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_metadata_server(host: str) -> bool:
    """Whether an address is link-local, as those of clouds are, or Google's name for its own."""
    try:
        return ipaddress.ip_address(host).is_link_local
    except ValueError:
        return host == "metadata.google.internal"


def request_answer(settings: ConnectionParameters, request: TokenRequest) -> dict[str, Any]:
    """What the endpoint says, as JSON. Raises as `request_access_token` does."""
    where = f"the token endpoint {request.url} of cluster {settings.alias}"
    try:
        opener = _opener(settings, request)
        body = None if request.form is None else urlencode(request.form).encode()
        sent = urllib.request.Request(request.url, body, {"Accept": "application/json", **request.headers})  # noqa: S310
        status, text = run_with_deadline(_DEADLINE_S, lambda: _asked(opener, sent))
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
            message = f"{where} refuses {request.who}: {why}. {request.remedy}"
            raise AuthenticationFailed(message, alias=settings.alias)
        raise Unreachable(f"{where} answers {why}. Try again, or look at that server.", alias=settings.alias)
    try:
        return parse_json_object(text)
    except ValueError:
        raise _no_token(settings, request, "no JSON object") from None


def _asked(opener: urllib.request.OpenerDirector, request: urllib.request.Request) -> tuple[int, bytes]:
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            return answer.status, answer.read(_LARGEST_ANSWER)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(_LARGEST_ANSWER)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the secret to an address that the topology does not name."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def is_local_endpoint(settings: ConnectionParameters, url: str, *, metadata: bool = False) -> bool:
    """Whether an endpoint is on this machine, or its host's metadata server. Raises AuthenticationFailed for one that
    may not be asked: secrets would travel readable."""
    key = f"clusters.{settings.alias}.security.oauth.token_endpoint"
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        local = is_loopback_name(host) or (metadata and is_metadata_server(host))
    except ValueError as error:
        raise AuthenticationFailed(f"{key} is no address: {error}", alias=settings.alias) from None
    if parts.scheme != "https" and not (parts.scheme == "http" and local):
        what = "the token" if metadata else "the client's secret"
        message = f"{key} is {url}: {what} would travel readable. Use https."
        raise AuthenticationFailed(message, alias=settings.alias)
    return local


def require_plain_endpoint(settings: ConnectionParameters, url: str) -> None:
    """For endpoints to which we add parameters of our own. Raises AuthenticationFailed for a query or a fragment: it
    could ask a metadata server for a token of something else."""
    if "?" in url or "#" in url:
        key = f"clusters.{settings.alias}.security.oauth.token_endpoint"
        message = f"{key} has a query (`?`) or a fragment (`#`): write the address without it"
        raise AuthenticationFailed(message, alias=settings.alias)


def _opener(settings: ConnectionParameters, request: TokenRequest) -> urllib.request.OpenerDirector:
    local = is_local_endpoint(settings, request.url, metadata=request.metadata)
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    handlers += [urllib.request.ProxyHandler({})] if local else []
    if urlsplit(request.url).scheme == "https":
        ca_file = settings.oauth.ca_file if settings.oauth is not None else None
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_file)))
    return urllib.request.build_opener(*handlers)


def _refusal(status: int, text: bytes) -> str:
    """RFC 6749, 5.2: `error` and `error_description`; nothing else of the answer is repeated."""
    try:
        said = parse_json_object(text)
        told = [str(said[key])[:200] for key in ("error", "error_description") if said.get(key)]
    except ValueError:
        told = []
    return f"HTTP {status}" + (f" ({': '.join(told)})" if told else "")


def _life(answer: dict[str, Any], claims: dict[str, Any]) -> float | None:
    """Seconds from the request. `expires_in` needs no clock that agrees with the server's."""
    for seconds in (answer.get("expires_in"), compute_seconds_left(claims)):
        try:
            if seconds is not None and float(seconds) > 0:
                return min(float(seconds), _LONGEST_LIFE_S)
        except (TypeError, ValueError, OverflowError):
            continue
    return None


def _no_token(settings: ConnectionParameters, request: TokenRequest, why: str) -> ProtocolError:
    return ProtocolError(
        f"the token endpoint {request.url} of cluster {settings.alias} answered, but with {why}; "
        f"is it the endpoint of {request.protocol}?",
        alias=settings.alias,
    )
