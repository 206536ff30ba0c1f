"""Which hosts a migration may call: whoever runs it says so, in its environment, never the topology file."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

ALLOWED_HOSTS_VARIABLE = "WATERSHED_HOOK_HOSTS"
_LOOPBACK = "loopback"  # an entry: this machine's own addresses, at every port
_PORTS = {"http": 80, "https": 443}
# Of `[::1]x` and `x@host` the parser of addresses and what connects take different parts for the host.
_PLAIN = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s\\@:\[\]]+)(:[0-9]*)?")


def find_host_refusal(url: str, environ: Mapping[str, str]) -> str | None:
    """Why this address is not called; None when it is allowed."""
    host, port, implied = _split(url)
    if not host:
        return f"{url} names no host"
    if _PLAIN.fullmatch(urlsplit(url).netloc) is None:
        return f"{url} is not read alike by all programs: between // and / write nothing but host or host:port"
    where = f"[{host}]" if ":" in host else host
    entry = where if port == implied else f"{where}:{port}"
    allowed = [each.strip().lower() for each in environ.get(ALLOWED_HOSTS_VARIABLE, "").split(",") if each.strip()]
    wild = [each for each in allowed if "*" in each]
    if wild:
        return f"{ALLOWED_HOSTS_VARIABLE} holds {wild[0]}; name each host, there is no pattern"
    if {f"{where}:{port}", entry} & set(allowed) or (_LOOPBACK in allowed and is_loopback_url_host(host)):
        return None
    return (
        f"{url} is not allowed: whoever runs the migration lets hooks and applications be called by host, with "
        f"{ALLOWED_HOSTS_VARIABLE}={','.join([*allowed, entry])}"
    )


def parse_host(url: str) -> str:
    """In lower case; empty for an address that has none."""
    return _split(url)[0]


def is_loopback_url_host(host: str) -> bool:
    """Whether a URL's host is this machine: 127.0.0.0/8, ::1 or localhost. Other names are not resolved."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _split(url: str) -> tuple[str, int, int]:
    """Host, port, and the port that the scheme implies."""
    host, implied = "", 0
    try:
        parts = urlsplit(url)
        host, implied = (parts.hostname or "").lower(), _PORTS.get(parts.scheme, 0)
        return host, implied if parts.port is None else parts.port, implied
    except ValueError:  # no address, or a port that is none
        return host, 0, implied
