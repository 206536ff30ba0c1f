"""How to connect to one cluster: the plan's addresses plus resolved secrets.

Secrets live only in `ConnectionSettings`, whose repr masks them; they are resolved where a connection is made
and never written to a plan, a control topic, a log line or a command line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from clusters.errors import SecretMissing, Unreachable

if TYPE_CHECKING:
    from topology.plan import PlanCluster, SecretRef


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Everything a client needs. `protocol` is Kafka's security.protocol, `mechanism` its sasl.mechanism.

    ca_file, certificate_file and key_file are paths to PEM files; certificate_file may hold the key as well.
    """

    alias: str
    bootstrap: tuple[str, ...]
    cluster_id: str | None = None
    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    def librdkafka(self, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Configuration of a confluent-kafka client; `extra` (dotted keys) wins. Its own log is silent."""
        settings: dict[str, Any] = {
            "bootstrap.servers": ",".join(self.bootstrap),
            "security.protocol": self.protocol,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.username,
            "sasl.password": self.password,
            "ssl.ca.location": self.ca_file,
            "ssl.certificate.location": self.certificate_file,
            "ssl.key.location": self.key_file or self.certificate_file,
            "client.id": "watershed",
            "reconnect.backoff.max.ms": 1000,  # its default of 10 s outlasts the restart of a broker
            "log_level": 0,
        }
        return {key: value for key, value in settings.items() if value is not None} | dict(extra or {})

    def unreachable(self, reason: str) -> Unreachable:
        """The error for `this cluster does not answer`, with the addresses and what to check."""
        return Unreachable.at(self.alias, self.bootstrap, reason, protocol=self.protocol)


def connection_settings(cluster: PlanCluster, environ: Mapping[str, str] = os.environ) -> ConnectionSettings:
    """Resolve a plan's cluster. Raises `SecretMissing`, which names the reference and never its content.

    Credentials are `user:password` or a JSON object with `username` and `password`, in an environment variable or
    a file; an Airflow connection is read from `AIRFLOW_CONN_<ID>` (URI or JSON), where Airflow looks first.
    With protocol SSL, credentials are the path of a PEM file holding the client's certificate and key.
    """
    security = cluster.security
    username = password = certificate = None
    if security.credentials is not None:
        if security.protocol == "SSL":
            certificate = _path(cluster.alias, "credentials", security.credentials, environ)
        else:
            username, password = _account(cluster.alias, security.credentials, environ)
    if security.certificate is not None:
        certificate = _path(cluster.alias, "certificate", security.certificate, environ)
    return ConnectionSettings(
        alias=cluster.alias,
        bootstrap=tuple(cluster.bootstrap),
        cluster_id=cluster.cluster_id,
        protocol=security.protocol,
        mechanism=security.mechanism,
        username=username,
        password=password,
        ca_file=_path(cluster.alias, "ca", security.ca, environ) if security.ca else None,
        certificate_file=certificate,
        key_file=_path(cluster.alias, "key", security.key, environ) if security.key else None,
    )


def _account(alias: str, ref: SecretRef, environ: Mapping[str, str]) -> tuple[str, str]:
    text = _text(alias, "credentials", ref, environ).strip()
    if text.startswith("{"):
        try:
            fields = json.loads(text)
            return str(fields.get("username") or fields["login"]), str(fields["password"])
        except (ValueError, KeyError, AttributeError):
            raise _missing(alias, "credentials", ref, "is JSON without username and password") from None
    if ref.kind == "airflow_connection":
        uri = urlsplit(text)
        if uri.username is not None and uri.password is not None:
            return unquote(uri.username), unquote(uri.password)
    elif ":" in text:
        username, _, password = text.partition(":")
        return username, password
    raise _missing(alias, "credentials", ref, "holds no user name and password (`user:password` or JSON)")


def _path(alias: str, what: str, ref: SecretRef, environ: Mapping[str, str]) -> str:
    """A file reference names the file; any other reference holds its path."""
    path = ref.name if ref.kind == "file" else _text(alias, what, ref, environ).strip()
    if not os.access(path, os.R_OK):
        raise _missing(alias, what, ref, "names no readable file")
    return path


def _text(alias: str, what: str, ref: SecretRef, environ: Mapping[str, str]) -> str:
    if ref.kind == "file":
        try:
            return Path(ref.name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
            raise _missing(alias, what, ref, f"cannot be read ({reason})") from None
    name = ref.name if ref.kind == "env" else f"AIRFLOW_CONN_{ref.name.upper()}"
    value = environ.get(name)
    if not value:
        raise _missing(alias, what, ref, f"is not set: export {name}")
    return value


def _missing(alias: str, what: str, ref: SecretRef, why: str) -> SecretMissing:
    return SecretMissing(
        f"clusters.{alias}.security.{what}: secret {{{ref.kind}: {ref.name}}} {why}. "
        "Provide it where this command runs; secrets are never part of the topology file.",
        alias=alias,
    )
