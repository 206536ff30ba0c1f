"""Which references a topology file may use: whoever runs it says so, not whoever writes it.

A file that names `/proc/self/environ` or `AIRFLOW__…` and a broker of its author's own would carry the runner's secrets
there. So the runner's settings, read from the environment of this process, name what may be used:

    WATERSHED_ALLOW_ENV          variables, with `*` at the end of a prefix  default WATERSHED_SECRET_*
    WATERSHED_ALLOW_FILES        folders                                   default /run/secrets/watershed
    WATERSHED_ALLOW_CONNECTIONS  Airflow connections, with `*` as above   default watershed_*
    WATERSHED_ALLOW_PLAINTEXT    hosts that may be given credentials without TLS; this machine always may
    WATERSHED_ALLOW_IDENTITIES   token providers that may use this machine's own identity
    WATERSHED_ALLOW_BROKERS      hosts (`*.example.com`, `*`) that a running worker may log in at when a plan that was
                                 applied later names them; this machine always may

Each is a list with commas and replaces its default. Nothing lets in `/proc`, `/sys`, `/dev` or `AIRFLOW__…`.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from watershed.topology.secret_ref import SecretRef

ALLOW_ENV: Final = "WATERSHED_ALLOW_ENV"
ALLOW_FILES: Final = "WATERSHED_ALLOW_FILES"
ALLOW_CONNECTIONS: Final = "WATERSHED_ALLOW_CONNECTIONS"
ALLOW_PLAINTEXT: Final = "WATERSHED_ALLOW_PLAINTEXT"
ALLOW_IDENTITIES: Final = "WATERSHED_ALLOW_IDENTITIES"
ALLOW_BROKERS: Final = "WATERSHED_ALLOW_BROKERS"
ALLOWED_BY_DEFAULT: Final = {
    ALLOW_ENV: ("WATERSHED_SECRET_*",),
    ALLOW_FILES: ("/run/secrets/watershed",),
    ALLOW_CONNECTIONS: ("watershed_*",),
    ALLOW_PLAINTEXT: (),
    ALLOW_IDENTITIES: (),
    ALLOW_BROKERS: (),
}
_AUTHORITIES: Final = ("/etc/ssl", "/etc/pki", "/usr/share/ca-certificates")  # of the system; public, for `ca` only
_NEVER_FILES: Final = ("/proc", "/sys", "/dev")
_NEVER_ENV: Final = "AIRFLOW__"


def explain_reference_refusal(ref: SecretRef, *, authority: bool = False) -> str | None:
    """Why a reference may not be used, with the setting that would let it; None when it may be. authority: it names
    certificates of authorities, which may also be the system's."""
    if ref.kind == "env":
        if ref.name.upper().startswith(_NEVER_ENV):
            return f"may not be used: no topology may read variables that begin with {_NEVER_ENV}"
        return None if _matches(ref.name, _listed(ALLOW_ENV)) else _not_listed(ALLOW_ENV, ref.name)
    if ref.kind == "airflow_connection":
        listed = [each.lower() for each in _listed(ALLOW_CONNECTIONS)]
        return None if _matches(ref.name.lower(), listed) else _not_listed(ALLOW_CONNECTIONS, ref.name)
    return explain_file_refusal(ref.name, authority=authority)


def explain_file_refusal(path: str, *, authority: bool = False) -> str | None:
    """The same of a file, wherever its path came from. Links are followed first."""
    real = Path(os.path.realpath(path))
    if _within(real, _NEVER_FILES):
        return f"may not be used: no topology may read files in {', '.join(_NEVER_FILES)}"
    if _within(real, _listed(ALLOW_FILES)) or (authority and _within(real, _AUTHORITIES)):
        return None
    return _not_listed(ALLOW_FILES, str(real.parent))


def explain_plaintext_refusal(hosts: Iterable[str]) -> str | None:
    """Why credentials may not go to these hosts (`host` or `host:port`) without TLS; None when they may."""
    listed = {each.lower() for each in _listed(ALLOW_PLAINTEXT)}
    for host in hosts:
        name = _name(host)
        if not (_is_loopback(name) or name in listed or host.lower() in listed or "*" in listed):
            return (
                f"credentials would go to {name} without TLS. Use a protocol with TLS, or let whoever runs this say "
                f"that it may be: {ALLOW_PLAINTEXT}={','.join([*_listed(ALLOW_PLAINTEXT), name])}"
            )
    return None


def explain_identity_refusal(provider: str) -> str | None:
    """Why a token provider may not use the identity of this machine (its role, its variables), which no reference of
    the topology names; None when it may. Brokers of the author's choice would get a token of the runner's."""
    if _matches(provider, _listed(ALLOW_IDENTITIES)):
        return None
    listed = ",".join([*_listed(ALLOW_IDENTITIES), provider])
    return (
        f"provider {provider} without `credentials` would use this machine's own identity, which may not be used here: "
        f"whoever runs this lets it with {ALLOW_IDENTITIES}={listed}. Or name `credentials`"
    )


def explain_broker_refusal(hosts: Iterable[str], known: Iterable[str]) -> str | None:
    """Why a worker may not log in at these hosts (`host` or `host:port`), which it learned from a control topic; None
    when it may. known: the hosts of the same cluster that it was started with.

    Whoever may write to the topic could otherwise have the worker carry its credentials to brokers of his own.
    """
    familiar = {_name(each) for each in known}
    for host in hosts:
        name = _name(host)
        if not (_is_loopback(name) or name in familiar or _matches_host(name, _listed(ALLOW_BROKERS))):
            return (
                f"the applied plan has the worker log in at {name}, which it was not started with. Start it again with "
                "the new file, or let whoever runs it say that it may: "
                f"{ALLOW_BROKERS}={','.join([*_listed(ALLOW_BROKERS), name])}"
            )
    return None


def _matches_host(name: str, patterns: Iterable[str]) -> bool:
    return any(
        each == "*" or (name.endswith(each[1:].lower()) if each.startswith("*.") else name == each.lower())
        for each in patterns
    )


def _is_loopback(name: str) -> bool:
    """Whether a host is this machine, by its name or address alone: no name is looked up."""
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _listed(setting: str) -> tuple[str, ...]:
    """What the runner's setting lists, or its default."""
    text = os.environ.get(setting)
    return (
        ALLOWED_BY_DEFAULT[setting] if text is None else tuple(each for each in map(str.strip, text.split(",")) if each)
    )


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in patterns)


def _within(path: Path, folders: Iterable[str]) -> bool:
    return any(path.is_relative_to(os.path.realpath(folder)) for folder in folders)


def _not_listed(setting: str, entry: str) -> str:
    return f"may not be used here: whoever runs this lets it with {setting}={','.join([*_listed(setting), entry])}"


def _name(host: str) -> str:
    name, _, port = host.rpartition(":")
    bare = ":" in name and "[" not in name  # an IPv6 address without a port
    return (name if name and port.isdigit() and not bare else host).strip("[]").lower()
