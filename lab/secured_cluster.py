"""A cluster whose broker listens in every way that Kafka knows, beside the lab's own PLAINTEXT listener.

Its certificates, users and tokens are thrown away with it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from watershed.lab import clusters
from watershed.lab.certificates import CertificateAuthority, write_secret_file
from watershed.lab.clusters import LabCluster
from watershed.lab.errors import LabError
from watershed.lab.free_ports import LOOPBACK_HOST, find_free_ports
from watershed.lab.identity_provider import AUDIENCE, ISSUER, IdentityProvider

USER, PASSWORD = "ann", "a-p455w0rd: with 'quotes', ünicode"
CLIENT, SECRET = "watershed-lab", "client s3cr3t/+:"
SECURED_SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_SASL = "org.apache.kafka.common.security"
# listener → (protocol, the certificate it shows)
SECURED_LISTENERS = {
    "TLS": ("SSL", "broker"),
    "MUTUAL": ("SSL", "broker"),
    "OPENSASL": ("SASL_PLAINTEXT", None),
    "TLSSASL": ("SASL_SSL", "broker"),
    "SHORT": ("SASL_PLAINTEXT", None),  # sessions of SHORT_SESSION_S seconds, without PLAIN
    "EXPIRED": ("SSL", "expired"),
    "STRANGER": ("SSL", "stranger"),  # of an authority that nobody trusts
    "ELSEWHERE": ("SSL", "elsewhere"),  # for another host name
}
SHORT_SESSION_S = 2


@dataclass(frozen=True, slots=True)
class SecuredCluster:
    """ports: of the listeners by name. home holds `ca.pem` and what tests put there."""

    cluster: LabCluster
    ports: Mapping[str, int]
    home: Path
    authority: CertificateAuthority
    identity: IdentityProvider = field(repr=False)

    def address(self, listener: str) -> str:
        """`host:port` of one listener, by its name."""
        return f"{LOOPBACK_HOST}:{self.ports[listener]}"

    @property
    def ca(self) -> Path:
        """The certificate of the authority that signed the broker's, as PEM."""
        return self.home / "ca.pem"


@contextlib.contextmanager
def run_secured_cluster(directory: Path, alias: str = "secured") -> Iterator[SecuredCluster]:
    """One broker, ended (and its data removed) on leaving. SCRAM users are yours to make
    (`lab.secured_cluster.create_scram_user`).
    """
    home = directory / "secrets"
    authority = CertificateAuthority("Watershed lab authority")
    shown = {
        "broker": authority.issue("broker.lab", (LOOPBACK_HOST, "localhost")),
        "expired": authority.issue("expired.lab", (LOOPBACK_HOST,), expired=True),
        "stranger": CertificateAuthority("Stranger authority").issue("stranger.lab", (LOOPBACK_HOST,)),
        "elsewhere": authority.issue("elsewhere.lab", ("elsewhere.example.internal",)),
    }
    for name, pair in shown.items():
        write_secret_file(home / f"{name}.pem", pair.pem)
    write_secret_file(home / "ca.pem", authority.chain)
    ports = dict(zip(SECURED_LISTENERS, find_free_ports(len(SECURED_LISTENERS)), strict=True))
    with IdentityProvider({CLIENT: SECRET}) as identity:
        try:
            with _allowed(identity.keys_endpoint):
                lab = clusters.start_clusters(directory / "lab", [alias], settings=_properties(ports, home, identity))
            yield SecuredCluster(lab.cluster(alias), ports, home, authority, identity)
        finally:
            with contextlib.suppress(LabError):  # there is none when it could not be started
                clusters.kill_lab_broker(
                    directory / "lab", alias
                )  # its data goes away, so it need not end in good order
            clusters.end_clusters(directory / "lab")


def create_scram_user(secured: SecuredCluster, user: str, password: str) -> None:
    """Make the user, or give it this password, for both SCRAM mechanisms; returns when the broker has heard of it."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    quiet = {"log_level": 0, "reconnect.backoff.max.ms": 200}  # it knocks until the broker has heard of the user
    admin = AdminClient({"bootstrap.servers": secured.cluster.bootstrap, **quiet})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(timeout=30)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
    account = {"sasl.username": user, "sasl.password": password}
    AdminClient({"bootstrap.servers": secured.address("OPENSASL"), **login, **account, **quiet}).list_topics(timeout=30)


@contextlib.contextmanager
def _allowed(url: str) -> Iterator[None]:
    """Kafka asks only the token and key URLs that the JVM was told of (KIP-1121); this tells the broker's."""
    before = os.environ.get("JAVA_TOOL_OPTIONS")
    os.environ["JAVA_TOOL_OPTIONS"] = f"{before or ''} -Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}".strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAVA_TOOL_OPTIONS"]
        else:
            os.environ["JAVA_TOOL_OPTIONS"] = before


def _properties(ports: Mapping[str, int], home: Path, identity: IdentityProvider) -> dict[str, str]:
    """Server properties; braces are doubled, since the lab fills in {port} and the like."""
    listening = ["PLAINTEXT://{host}:{port}"] + [f"{name}://{LOOPBACK_HOST}:{port}" for name, port in ports.items()]
    protocols = ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"]
    protocols += [f"{name}:{protocol}" for name, (protocol, _) in SECURED_LISTENERS.items()]
    made = {
        "listeners": ",".join([*listening, "CONTROLLER://{host}:{controller_port}"]),
        "advertised.listeners": ",".join(listening),
        "listener.security.protocol.map": ",".join(protocols),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(home / "ca.pem"),
        "sasl.enabled.mechanisms": ",".join(SECURED_SASL_MECHANISMS),
        "connection.failed.authentication.delay.ms": "20",
    }
    for name, (protocol, shown) in SECURED_LISTENERS.items():
        own = f"listener.name.{name.lower()}"
        if shown is not None:
            made[f"{own}.ssl.keystore.type"] = "PEM"
            made[f"{own}.ssl.keystore.location"] = str(home / f"{shown}.pem")
            made[f"{own}.ssl.client.auth"] = "required" if name == "MUTUAL" else "none"
        if protocol.startswith("SASL"):
            made |= {f"{own}.{key}": value.replace("{", "{{") for key, value in _mechanisms(identity).items()}
    made["listener.name.short.sasl.enabled.mechanisms"] = ",".join(SECURED_SASL_MECHANISMS[1:])
    for mechanism in SECURED_SASL_MECHANISMS[1:]:
        made[f"listener.name.short.{mechanism.lower()}.connections.max.reauth.ms"] = str(SHORT_SESSION_S * 1000)
    return made


def _mechanisms(identity: IdentityProvider) -> dict[str, str]:
    quoted = json.dumps(PASSWORD)[1:-1]  # \uXXXX is what properties files know
    scram = f"{_SASL}.scram.ScramLoginModule required;"
    bearer = f"{_SASL}.oauthbearer"
    return {
        "plain.sasl.jaas.config": f'{_SASL}.plain.PlainLoginModule required user_{USER}="{quoted}";',
        "scram-sha-256.sasl.jaas.config": scram,
        "scram-sha-512.sasl.jaas.config": scram,
        "oauthbearer.sasl.jaas.config": f"{bearer}.OAuthBearerLoginModule required;",
        "oauthbearer.sasl.server.callback.handler.class": f"{bearer}.OAuthBearerValidatorCallbackHandler",
        "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": identity.keys_endpoint,
        "oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
        "oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
    }
