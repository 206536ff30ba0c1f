"""Addresses of hooks and applications against the list of hosts that may be called.

The first line of an input is the list (WATERSHED_HOOK_HOSTS), the rest is the address. The oracle is the socket: what
is allowed is called as a migration calls it, with a socket that writes down host and port and goes nowhere; both must
stand on the list as another parser reads it.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import httpx

from tests.fuzz.target import OracleViolated, Target
from watershed.clusters.bounded_http import NoHttpAnswer, call_http
from watershed.cutover.hooks.http_hook import HttpHook
from watershed.cutover.live.allowed_hosts import (
    ALLOWED_HOSTS_VARIABLE,
    find_host_refusal,
    is_loopback_url_host,
    parse_host,
)

_LISTS = (
    "api.internal", "api.internal:8080", "loopback", "10.1.2.3", "[2001:db8::1]", "[2001:db8::1]:81",
    "api.internal:443",
    "localhost", "127.0.0.1:80", "a.b,c.d:99", "xn--bcher-kva.example", "bücher.example", "*", "*.internal", "", " , ,",
    "api.internal,loopback,10.1.2.3:8080",
)  # fmt: skip
_ADDRESSES = (
    "http://api.internal/", "https://api.internal/hook?a=b#c", "http://api.internal:8080/x", "http://api.internal@evil/",
    "http://evil@api.internal/", "http://api.internal:80@evil/", "http://api.internal#@evil/", "http://api.internal\\@evil/",
    "http://evil\\@api.internal/", "http:///api.internal", "http:api.internal", "//api.internal/", "http://127.0.0.1/",
    "http://127.1/", "http://2130706433/", "http://0x7f.1/", "http://[::1]/", "http://[::ffff:127.0.0.1]/",
    "http://[::1%25lo]/", "http://localhost./", "http://LOCALHOST/", "http://api。internal/", "http://ａpi.internal/",
    "http://api.internal%2eevil/", "http://api.internal%00.evil/", "http://api.internal\t.evil/", "http://a\nb/",
    "http://api.internal:0/", "http://api.internal:99999/", "http://api.internal:+80/", "http://api.internal:８０/",
    "http://api.internal:/", "http://[2001:db8::1]:81/", "http://[2001:DB8::1]/",
    "ftp://api.internal/", "file:///etc/passwd",
    "http://bücher.example/", "http://xn--bcher-kva.example/", "http://10.1.2.3:80/", "http://[v1.a]/", "http://a:b:c/",
    "http://[::1]evil/", "http://evil[::1]/", "http://api.internal,evil/", "HTTP://API.INTERNAL/",
    "http://user:pa ss@c.d:99/",
)  # fmt: skip
_WORDS = (
    *(
        "http://",
        "https://",
        "@",
        "\\",
        "#",
        "?",
        "/",
        ":",
        "//",
        "[",
        "]",
        "%2f",
        "%40",
        "%23",
        "\t",
        "\r",
        "\n",
        ",",
        ";",
    ),
    *(
        "api.internal",
        "evil",
        "127.0.0.1",
        "::1",
        "localhost",
        ".",
        "。",
        "｡",
        "ａ",
        "loopback",
        ":80",
        ":443",
        "\u200b",
    ),
)
_PORTS = {"http": 80, "https": 443}
_called: list[tuple[str, int]] = []


class _Nowhere(OSError):
    """The socket that goes nowhere."""


def target() -> Target:
    socket.create_connection = _noted  # type: ignore[assignment]  # in this process nothing else is called
    seeds = [f"{hosts}\n{address}".encode() for hosts in _LISTS for address in _ADDRESSES]
    return Target("hooks", seeds, _attempt, (NoHttpAnswer,), [word.encode() for word in _WORDS])


def _noted(address: tuple[str, int], *_args: Any, **_options: Any) -> Any:
    _called.append(address)
    raise _Nowhere("nowhere")


def _attempt(data: bytes) -> str:
    hosts, _, url = data[:4096].decode("utf-8", "replace").partition("\n")
    environ = {ALLOWED_HOSTS_VARIABLE: hosts}
    hook = HttpHook(url, None, 0.2, environ, float, lambda _: None, float)
    hook.problems()  # must not raise
    refusal = find_host_refusal(url, environ)
    if refusal is not None:
        if not refusal.strip():
            raise OracleViolated("refused without a word")
        return f"not on the list: {refusal.replace(url, '')[:12]}"
    _called.clear()
    try:
        call_http("POST", url, b"{}", {}, 10.0)
    except NoHttpAnswer:
        if not _called:
            raise
    if not _called:
        raise OracleViolated(f"{url!r} was answered and nothing was called")
    for host, port in _called:
        if not _is_on(hosts, host, port, url):
            raise OracleViolated(f"{url!r} connects to {host!r} port {port}, and the list is {hosts!r}")
        if is_loopback_url_host(parse_host(url)) and not _is_this_machine(host):
            raise OracleViolated(f"{url!r} is called unsigned, and connects to {host!r}")
    return f"called: {_by_httpx(url)}"


def _is_on(hosts: str, host: str, port: int, url: str) -> bool:
    implied = _PORTS.get(url.lstrip().partition(":")[0].lower())
    for entry in hosts.split(","):
        name, listed = _entry(entry.strip().lower())
        if name == "loopback" and listed is None and _is_this_machine(host):
            return True
        if _same(name, host) and port == (implied if listed is None else listed):
            return True
    return False


def _entry(text: str) -> tuple[str, int | None]:
    if text.startswith("["):
        name, _, rest = text[1:].partition("]")
        return name, int(rest[1:]) if rest[1:].isdecimal() else None
    name, colon, port = text.rpartition(":")
    return (name, int(port)) if colon and port.isdecimal() else (text, None)


def _same(name: str, host: str) -> bool:
    return _resolved(name) == _resolved(host)


def _resolved(host: str) -> str:
    """The name as the resolver gets it."""
    host = host.strip("[]").lower()
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return host.encode("idna").decode().lower()
    except UnicodeError:
        return host


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _by_httpx(url: str) -> str:
    """What a third reader makes of it: told apart, not judged."""
    try:
        return httpx.URL(url).scheme
    except (httpx.InvalidURL, ValueError, TypeError):
        return "not for httpx"
