"""How to connect to one cluster: the plan's addresses plus resolved secrets.

Secrets live only in `ConnectionSettings`, whose repr masks them; they are resolved where a connection is made
and never written to a plan, a control topic, a log line or a command line. Settings made from a plan know where their
secrets came from, and every new connection reads them again (`renewed`), so that none needs a restart to be changed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from clusters import allowed_references, secrets
from clusters.errors import ProtocolError, SecretMissing, Unreachable

if TYPE_CHECKING:
    from topology.plan import PlanCluster


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """Where OAUTHBEARER gets its tokens (OIDC client credentials, RFC 6749 section 4.4); `username` and `password` of
    the settings are the client's id and secret. extensions: KIP-342, sorted; ca_file: PEM, for the endpoint only."""

    token_endpoint: str
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    ca_file: str | None = None


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """For GSSAPI. service: the first part of the brokers' principals; without a keytab the ticket cache is used.
    principal and keytab are for raw connections; librdkafka takes the environment's (`KRB5_CLIENT_KTNAME`)."""

    service: str = "kafka"
    principal: str | None = None
    keytab: str | None = None


@dataclass(frozen=True, slots=True)
class SettingsOrigin:
    """What the settings were resolved from. environ None: this process's own. aligning: as the role `align`."""

    cluster: PlanCluster
    environ: Mapping[str, str] | None = None
    aligning: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Everything a client needs. `protocol` is Kafka's security.protocol, `mechanism` its sasl.mechanism. rack: that we
    stand in, as the brokers call theirs.

    ca_file, certificate_file and key_file are paths to PEM files; certificate_file may hold the key as well;
    key_password is the key's passphrase. Without a ca_file the system's authorities count.
    """

    alias: str
    bootstrap: tuple[str, ...]
    cluster_id: str | None = None
    rack: str | None = None
    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    oauth: OAuthSettings | None = None
    kerberos: KerberosSettings | None = None
    origin: SettingsOrigin | None = field(default=None, repr=False, compare=False)

    def reread_secrets(self) -> ConnectionSettings:
        """The same settings with the secrets as they are now. Raises `SecretMissing`."""
        if self.origin is None:
            return self
        environ = os.environ if self.origin.environ is None else self.origin.environ
        return replace(self, **_resolved(self.origin.cluster, environ, aligning=self.origin.aligning))

    def aligning(self) -> ConnectionSettings:
        """The account that deletes records for `offsets: aligned`; without `align_credentials` the same one.

        Raises `SecretMissing`.
        """
        if self.origin is None or not self.has_aligner:
            return self
        return replace(self, origin=replace(self.origin, aligning=True)).reread_secrets()

    @property
    def has_aligner(self) -> bool:
        """Whether `offsets: aligned` deletes records with another account than this one."""
        origin = self.origin
        return origin is not None and not origin.aligning and origin.cluster.security.align_credentials is not None

    def librdkafka(self, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Configuration of a confluent-kafka client made now; `extra` (dotted keys) wins. Its own log is silent.

        A client that lives long is kept at the secrets of the day by `clusters.secret_rotation`. Raises
        `SecretMissing`; ProtocolError for a broker whose answers would end this process; with OAUTHBEARER also what
        `tokens.token` raises; with GSSAPI ProtocolError where librdkafka does not know it.
        """
        from clusters.broker_precheck import require_kafka_brokers

        now = self.reread_secrets()
        require_kafka_brokers(now)
        settings: dict[str, Any] = {
            "bootstrap.servers": ",".join(now.bootstrap),
            "security.protocol": now.protocol,
            "sasl.mechanism": now.mechanism,
            "ssl.ca.location": now.ca_file,
            "ssl.certificate.location": now.certificate_file,
            "ssl.key.location": now.key_file or now.certificate_file,
            "ssl.key.password": now.key_password,
            "client.id": "watershed",
            "reconnect.backoff.max.ms": 1000,  # its default of 10 s outlasts the restart of a broker
            "log_level": 0,
            **now._sasl(),
        }
        return {key: value for key, value in settings.items() if value is not None} | dict(extra or {})

    def _sasl(self) -> dict[str, Any]:
        if not self.protocol.startswith("SASL_"):
            return {}
        if self.mechanism == "OAUTHBEARER":
            from clusters import oauth_tokens

            oauth_tokens.fetch_token(
                self
            )  # a client waits 10 s for its first token, and never says what the endpoint said
            return {"oauth_cb": oauth_tokens.build_token_callback(self)}
        if self.mechanism == "GSSAPI":
            self._kerberos_is_there()
            # librdkafka would hand principal and keytab to a shell (kinit.cmd). The system's Kerberos library takes a
            # keytab from KRB5_CLIENT_KTNAME, or a ticket cache that somebody else keeps.
            return {
                "sasl.kerberos.service.name": (self.kerberos or KerberosSettings()).service,
                "sasl.kerberos.kinit.cmd": "",
            }
        return {"sasl.username": self.username, "sasl.password": self.password}

    def _kerberos_is_there(self) -> None:
        from clusters.librdkafka import is_mechanism_supported

        if not is_mechanism_supported("GSSAPI"):
            raise ProtocolError(
                f"cluster {self.alias} takes GSSAPI, and the librdkafka inside this confluent-kafka was built without "
                "it (as in its wheels). Install librdkafka with libsasl2 (Debian: librdkafka-dev, "
                "libsasl2-modules-gssapi-mit) and confluent-kafka from source (pip install --no-binary "
                "confluent-kafka), or use another mechanism.",
                alias=self.alias,
            )

    def unreachable(self, reason: str) -> Unreachable:
        """The error for `this cluster does not answer`, with the addresses and what to check."""
        return Unreachable.at(self.alias, self.bootstrap, reason, protocol=self.protocol)


def resolve_connection_settings(cluster: PlanCluster, environ: Mapping[str, str] | None = None) -> ConnectionSettings:
    """Resolve a plan's cluster. Raises `SecretMissing`, which names the reference and never its content.

    Credentials are `user:password` or a JSON object with `username` and `password`, in an environment variable or
    a file; an Airflow connection is read from `AIRFLOW_CONN_<ID>` (URI or JSON), where Airflow looks first.
    With protocol SSL, credentials are the path of a PEM file holding the client's certificate and key; with
    OAUTHBEARER they are the client's id and secret.
    """
    return ConnectionSettings(
        alias=cluster.alias,
        bootstrap=tuple(cluster.bootstrap),
        cluster_id=cluster.cluster_id,
        rack=cluster.rack,
        protocol=cluster.security.protocol,
        mechanism=cluster.security.mechanism,
        origin=SettingsOrigin(cluster, environ),
        **_resolved(cluster, os.environ if environ is None else environ),
    )


def _resolved(cluster: PlanCluster, environ: Mapping[str, str], *, aligning: bool = False) -> dict[str, Any]:
    """The fields that come from references. aligning: the account is that of `align_credentials`."""
    security = cluster.security
    what, credentials = "credentials", security.credentials
    if aligning and security.align_credentials is not None:
        what, credentials = "align_credentials", security.align_credentials
        if security.protocol == "SSL":  # the account is the certificate, and its file holds the key as well
            security = replace(security, certificate=None, key=None, key_password=None)
    vault = secrets.SecretResolver(cluster.alias, environ)
    if security.protocol == "SASL_PLAINTEXT" and credentials is not None:
        refused = allowed_references.explain_plaintext_refusal(cluster.bootstrap)
        if refused is not None:
            raise SecretMissing(f"clusters.{cluster.alias}.security: {refused}", alias=cluster.alias)
    username = password = certificate = None
    if credentials is not None:
        if security.protocol == "SSL":
            certificate = vault.path(what, credentials)
        else:
            username, password = vault.account(what, credentials)
    if security.certificate is not None:
        certificate = vault.path("certificate", security.certificate)
    oauth, kerberos = security.oauth, security.kerberos
    return {
        "username": username,
        "password": password,
        "ca_file": vault.path("ca", security.ca) if security.ca else None,
        "certificate_file": certificate,
        "key_file": vault.path("key", security.key) if security.key else None,
        "key_password": vault.text("key_password", security.key_password) if security.key_password else None,
        "oauth": oauth
        and OAuthSettings(
            oauth.token_endpoint,
            oauth.scope,
            oauth.extensions,
            vault.path("oauth.ca", oauth.ca) if oauth.ca else None,
        ),
        "kerberos": kerberos
        and KerberosSettings(
            kerberos.service,
            kerberos.principal,
            vault.path("kerberos.keytab", kerberos.keytab) if kerberos.keytab else None,
        ),
    }
