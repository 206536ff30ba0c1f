"""One question to a server of metrics: bounded in time and size, asked again when the server is busy, never for ever.

Credentials go over https, to this machine, or to hosts that whoever runs this allows; no redirect is followed.
"""

from __future__ import annotations

import base64
import json
import math
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from watershed.clusters import allowed_references
from watershed.clusters.bounded_http import HttpAnswer, NoHttpAnswer, call_http
from watershed.clusters.errors import AuthenticationFailed, ClusterError, RequestRefused, SecretMissing, Unreachable
from watershed.clusters.secrets import SecretResolver
from watershed.topology.bounded_json import MAX_JSON_BYTES
from watershed.topology.usage.sources_file import HttpLogin

_REQUEST_S = 60.0  # a query over a day of thousands of series takes seconds
_ATTEMPTS = 6
_LONGEST_WAIT_S = 120.0  # of all waits for one question; a server that asks for more is not waited for
_BUSY = frozenset({429, 502, 503, 504})
_WORDS = 300  # characters of a server's own words


class UsageThrottled(ClusterError):
    """A source answers only that it is asked too often, or that it is busy."""


class UsageAnswerTooLarge(ClusterError):
    """An answer was longer than may be read: ask for less at once."""


@dataclass(frozen=True, slots=True)
class RequestPace:
    """sleep: waits so many seconds. wall: seconds since 1970. request_s: longest time of one request."""

    sleep: Callable[[float], None] = time.sleep
    wall: Callable[[], float] = time.time
    attempts: int = _ATTEMPTS
    longest_wait_s: float = _LONGEST_WAIT_S
    request_s: float = _REQUEST_S


@dataclass(frozen=True, slots=True)
class UsageServer:
    """what: for messages, as `Prometheus of cluster onprem`. where: the section of the file of sources."""

    alias: str
    what: str
    where: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = None


def resolve_usage_server(
    alias: str, section: str, what: str, url: str, login: HttpLogin, environ: Mapping[str, str]
) -> UsageServer:
    """The server with its secrets. section: `prometheus`, `exporters` or `confluent`. Raises SecretMissing, also where
    credentials would travel readable."""
    where = f"clusters.{alias}.{section}"
    vault = SecretResolver(alias, environ, where=where)
    headers: dict[str, str] = {}
    if login.bearer is not None or login.credentials is not None:
        parts = urlsplit(url)
        refused = allowed_references.explain_plaintext_refusal([parts.netloc]) if parts.scheme == "http" else None
        if refused is not None:
            raise SecretMissing(f"{where}: {refused}", alias=alias)
    if login.bearer is not None:
        token = vault.text("bearer", login.bearer)
        if not (token.isascii() and token.isprintable()):
            message = f"{where}.bearer: the token has line breaks or other characters that no HTTP header can carry"
            raise SecretMissing(f"{message}; store the token alone", alias=alias)
        headers["authorization"] = f"Bearer {token}"
    if login.credentials is not None:
        pair = ":".join(vault.account("credentials", login.credentials))
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    tls = None
    if login.ca is not None:
        path = vault.path("ca", login.ca)
        try:
            tls = ssl.create_default_context(cafile=path)
        except (ssl.SSLError, OSError):
            raise SecretMissing(f"{where}.ca: {path} holds no certificates in PEM form", alias=alias) from None
    return UsageServer(alias, f"{what} of cluster {alias}", where, url, headers, tls)


def ask_usage_server(
    server: UsageServer,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    pace: RequestPace,
    largest: int = MAX_JSON_BYTES,
) -> bytes:
    """The body of a good answer. A busy server (429, 502, 503, 504) or one that is silent for a moment is asked
    again, at the time that it names (`Retry-After`, `rateLimit-reset`), else after 1, 2, 4… s.

    Raises AuthenticationFailed (401, 403), UsageThrottled, UsageAnswerTooLarge, Unreachable, RequestRefused (`code` is
    the HTTP status).
    """
    waited = 0.0
    for attempt in range(1, pace.attempts + 1):
        wait: float | None = float(2 ** (attempt - 1))
        try:
            answer = call_http(
                method, server.url + path, body, {**server.headers, **(headers or {})}, pace.request_s,
                tls=server.tls, largest=largest,
            )  # fmt: skip
        except NoHttpAnswer as silence:
            problem: ClusterError = _describe_silence(server, silence)
            wait = wait if silence.transient else None
        else:
            if 200 <= answer.status < 300 and not answer.is_cut:
                return answer.body
            problem = _describe_refusal(server, answer, largest)
            wait = _read_wait(answer, pace, wait) if answer.status in _BUSY else None
        if wait is None or attempt == pace.attempts or waited + wait > pace.longest_wait_s:
            raise problem
        pace.sleep(wait)
        waited += wait
    raise AssertionError("the last attempt returns or raises")


def _read_wait(answer: HttpAnswer, pace: RequestPace, otherwise: float | None) -> float | None:
    """Seconds that the server asks us to wait: RFC 9110, 10.2.3, or Confluent's `rateLimit-reset`."""
    for name in ("retry-after", "ratelimit-reset"):
        text = answer.headers.get(name, "").strip()
        if not text:
            continue
        try:
            seconds = float(text)
        except ValueError:
            try:
                seconds = parsedate_to_datetime(text).timestamp() - pace.wall()
            except (ValueError, TypeError, OverflowError):
                continue
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    return otherwise


def _describe_silence(server: UsageServer, silence: NoHttpAnswer) -> ClusterError:
    return Unreachable(
        f"{server.what} does not answer at {server.url}: {str(silence).rstrip('. ')}. Check {server.where}.",
        alias=server.alias,
    )


def _describe_refusal(server: UsageServer, answer: HttpAnswer, largest: int) -> ClusterError:
    if 200 <= answer.status < 300:
        what = f"{server.what} gives more than {largest >> 20} MiB for one question"
        return UsageAnswerTooLarge(f"{what}. Take a longer --interval.", alias=server.alias)
    said = read_server_words(answer)
    heard = f"HTTP {answer.status}" + (f" ({said})" if said else "")
    if answer.status in (401, 403):
        message = (
            f"{server.what} refuses who we are: {heard}. Check the secret of {server.where}, and what it may read."
        )
        return AuthenticationFailed(message, alias=server.alias)
    if answer.status in _BUSY:
        later = answer.headers.get("retry-after") or answer.headers.get("ratelimit-reset")
        wait = f" It asks to wait for {later[:40]} s." if later else ""
        message = f"{server.what} is asked too often, or busy: {heard}.{wait} Try again later, with a shorter --since."
        return UsageThrottled(message, alias=server.alias)
    error = RequestRefused(
        f"{server.what} does not answer the question: {heard}. Check {server.where}.", alias=server.alias
    )
    error.code = answer.status
    return error


def read_server_words(answer: HttpAnswer) -> str:
    """What the server says of an error, in the forms of Prometheus (`error`) and Confluent (`errors[].detail`);
    nothing of a page in another form."""
    try:
        said = json.loads(answer.body[:64_000])
        words = said.get("error") or "; ".join(str(each["detail"]) for each in said["errors"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    return " ".join(str(words).split())[:_WORDS]
