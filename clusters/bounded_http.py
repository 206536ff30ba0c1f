"""One HTTP request as Watershed makes it: the address that was given and no other (no redirect, no proxy), an answer
of bounded size, within a bounded time however slowly it drips."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from watershed.clusters.deadline import run_with_deadline

MAX_HTTP_ANSWER_BYTES = 64 * 1024  # of an answer, where the caller says nothing else; the rest is not read


class NoHttpAnswer(Exception):
    """Nothing that could be understood came back. transient: worth asking again. garbled: it was no HTTP."""

    def __init__(self, why: str, *, transient: bool = True, garbled: bool = False) -> None:
        self.transient = transient
        self.garbled = garbled
        super().__init__(why)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back, whatever its status; `text` for people, cut short. headers: names in small letters. is_cut: the
    body was longer than may be read."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    is_cut: bool = False

    @property
    def text(self) -> str:
        """The first 300 characters of the body on one line, for messages."""
        return " ".join(self.body[:2000].decode(errors="replace").split())[:300]


def call_http(
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    seconds: float,
    *,
    tls: ssl.SSLContext | None = None,
    largest: int = MAX_HTTP_ANSWER_BYTES,
) -> HttpAnswer:
    """One request, one answer. tls: whom to trust, and a certificate of ours; None means the system's authorities and
    no certificate. largest: bytes of a body that are read. Raises NoHttpAnswer."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise NoHttpAnswer(f"{url} is not an http address", transient=False)

    def asked() -> HttpAnswer:
        request = urllib.request.Request(url, data=body, method=method, headers=dict(headers))  # noqa: S310 -- checked
        try:
            with _build_opener(tls).open(request, timeout=seconds) as answer:
                return _read_answer(answer.status, answer, largest)
        except urllib.error.HTTPError as error:
            with error:
                return _read_answer(error.code, error, largest)

    try:
        return run_with_deadline(seconds, asked)
    except TimeoutError:
        raise NoHttpAnswer(f"no answer in {seconds:.3g} s") from None
    except (OSError, http.client.HTTPException) as error:
        why = str(getattr(error, "reason", None) or error) or type(error).__name__
        garbled = isinstance(error, http.client.HTTPException) and not isinstance(error, OSError)
        raise NoHttpAnswer("no answer in time" if "timed out" in why else why, garbled=garbled) from None
    except ValueError as error:
        raise NoHttpAnswer(f"{url} cannot be called: {error}", transient=False) from None


def _read_answer(status: int, answer: Any, largest: int) -> HttpAnswer:
    body = answer.read(largest + 1)
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return HttpAnswer(status, body[:largest], headers, len(body) > largest)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


def _build_opener(tls: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    return (
        _OPENER
        if tls is None
        else urllib.request.build_opener(
            urllib.request.ProxyHandler({}), _NoRedirects, urllib.request.HTTPSHandler(context=tls)
        )
    )


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)
