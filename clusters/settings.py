"""How to connect to one cluster, for raw connections and librdkafka clients alike.

`ConnectionSettings` are the addresses and secrets of `clusters.connection_parameters` and the configuration of a
librdkafka client made from them. What needs confluent-kafka is imported where it is used: lint and the parsing of DAGs
resolve settings without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from watershed.clusters.connection_parameters import (
    ConnectionParameters,
    KerberosSettings,
    SettingsOrigin,
    resolve_fields,
)
from watershed.clusters.errors import ProtocolError, WrongCluster

if TYPE_CHECKING:
    from watershed.topology.plan import PlanCluster


@dataclass(frozen=True, slots=True)
class ConnectionSettings(ConnectionParameters):
    """Everything a client needs; see `ConnectionParameters` for the fields."""

    def librdkafka(self, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Returns the configuration of a confluent-kafka client made now; `extra` (dotted keys) wins.

        librdkafka's own log is off. `clusters.secret_rotation` gives changed secrets to a client that lives long.
        Raises `SecretMissing`; ProtocolError for a broker whose answers would end this process, or with GSSAPI where
        librdkafka does not know it; with OAUTHBEARER also what `oauth_tokens.fetch_token` raises.
        """
        from watershed.clusters.broker_precheck import require_kafka_brokers

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
            from watershed.clusters import oauth_tokens

            # A client waits 10 s for its first token and never says what the endpoint answered: we ask first.
            oauth_tokens.fetch_token(self)
            return {"oauth_cb": oauth_tokens.build_token_callback(self)}
        if self.mechanism == "GSSAPI":
            self._require_kerberos()
            # librdkafka would hand principal and keytab to a shell (kinit.cmd). The system's Kerberos library takes a
            # keytab from KRB5_CLIENT_KTNAME, or a ticket cache that somebody else keeps.
            return {
                "sasl.kerberos.service.name": (self.kerberos or KerberosSettings()).service,
                "sasl.kerberos.kinit.cmd": "",
            }
        return {"sasl.username": self.username, "sasl.password": self.password}

    def _require_kerberos(self) -> None:
        from watershed.clusters import librdkafka

        if not librdkafka.is_mechanism_supported("GSSAPI"):
            raise ProtocolError(
                f"cluster {self.alias} takes GSSAPI, and the librdkafka inside this confluent-kafka was built without "
                "it (as in its wheels). Install librdkafka with libsasl2 (Debian: librdkafka-dev, "
                "libsasl2-modules-gssapi-mit) and confluent-kafka from source (pip install --no-binary "
                "confluent-kafka), or use another mechanism.",
                alias=self.alias,
            )


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
        **resolve_fields(cluster, os.environ if environ is None else environ),
    )


SettingsLookup = Callable[[str], ConnectionSettings]
"""The settings of a cluster by its alias; raises what resolving them raises."""


def build_wrong_cluster_error(settings: ConnectionSettings, actual: str) -> WrongCluster:
    """The error for brokers that report another cluster id (`actual`) than the settings pin."""
    return WrongCluster(
        f"the brokers at {', '.join(settings.bootstrap)} belong to cluster {actual}, but "
        f"clusters.{settings.alias}.cluster_id pins {settings.cluster_id}. "
        "Correct the addresses, or the pinned id if the cluster was really replaced.",
        alias=settings.alias,
    )
