"""What a connection to one cluster needs: the plan's addresses and the resolved secrets.

Secrets live only in these objects, whose repr masks them. They are resolved where a connection is made and never
written to a plan, a control topic, a log line or a command line. Parameters made from a plan know where their secrets
came from, and every new connection reads them again (`reread_secrets`): no restart is needed after a change.

The modules below `clusters.settings` (TLS, SASL, tokens, the precheck) take these parameters; everybody else takes
`clusters.settings.ConnectionSettings`, which adds the configuration of librdkafka clients.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from watershed.clusters import allowed_references, key_stores, secrets
from watershed.clusters.errors import SecretMissing, Unreachable
from watershed.topology.token_providers import DEFAULT_TOKEN_PROVIDER, PROVIDER_KEYS, TokenProvider

if TYPE_CHECKING:
    from watershed.topology.plan import PlanCluster, PlanSecurity
    from watershed.topology.secret_ref import SecretRef

_PROVIDERS_WITH_FILE = ("file", "google")  # their credentials are the path of a file, which is read for each token


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """Where OAUTHBEARER gets its tokens. With client credentials (RFC 6749, section 4.4), `username` and `password` of
    the settings are the client's id and secret.

    extensions: KIP-342, sorted. ca_file: PEM, for the endpoint only. provider: `topology.token_providers`.
    credentials_file: with provider `file` the token's, with `google` a service account's key. region, role (an ARN): at
    AWS. tenant, client_id: at Entra.
    """

    token_endpoint: str | None = None
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    ca_file: str | None = None
    provider: TokenProvider = DEFAULT_TOKEN_PROVIDER
    credentials_file: str | None = None
    region: str | None = None
    role: str | None = None
    tenant: str | None = None
    client_id: str | None = None


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
class ConnectionParameters:
    """Addresses, protocol and resolved secrets.

    `protocol` is Kafka's security.protocol, `mechanism` its sasl.mechanism. rack: ours, as brokers call it.

    ca_file, certificate_file and key_file are paths to PEM files; certificate_file may hold the key as well;
    key_password is the key's passphrase. Without a ca_file the system's authorities count. Of JKS and PKCS#12 stores
    they are what `clusters.key_stores` made.
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

    def reread_secrets(self) -> Self:
        """The same settings with the secrets as they are now. Raises `SecretMissing`."""
        if self.origin is None:
            return self
        environ = os.environ if self.origin.environ is None else self.origin.environ
        return replace(self, **resolve_fields(self.origin.cluster, environ, aligning=self.origin.aligning))

    def aligning(self) -> Self:
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

    @property
    def bootstrap_addresses(self) -> list[tuple[str, int]]:
        """Host and port of every bootstrap address; IPv6 hosts without their brackets. Raises ValueError."""
        return [(host.strip("[]"), int(port)) for host, _, port in (each.rpartition(":") for each in self.bootstrap)]

    def unreachable(self, reason: str) -> Unreachable:
        """The error for `this cluster does not answer`, with the addresses and what to check."""
        return Unreachable.at(self.alias, self.bootstrap, reason, protocol=self.protocol)


def resolve_fields(cluster: PlanCluster, environ: Mapping[str, str], *, aligning: bool = False) -> dict[str, Any]:
    """The fields of `ConnectionParameters` that come from references. aligning: take the account `align_credentials`.

    Raises `SecretMissing`.
    """
    security = cluster.security
    what, credentials = "credentials", security.credentials
    if aligning and security.align_credentials is not None:
        what, credentials = "align_credentials", security.align_credentials
        if security.protocol == "SSL":  # the account is the certificate, and its file holds the key as well
            security = replace(security, certificate=None, key=None, key_password=None, certificate_password=None)
    vault = secrets.SecretResolver(cluster.alias, environ)
    _check_permissions(cluster)
    username = password = token_file = None
    if credentials is not None and security.protocol != "SSL":
        if security.oauth is not None and security.oauth.provider in _PROVIDERS_WITH_FILE:
            token_file = vault.path(what, credentials)
        else:
            username, password = vault.account(what, credentials)
    oauth, kerberos = security.oauth, security.kerberos
    return {
        "username": username,
        "password": password,
        **_resolve_tls(vault, security, what, credentials if security.protocol == "SSL" else None),
        "oauth": oauth
        and OAuthSettings(
            oauth.token_endpoint,
            oauth.scope,
            oauth.extensions,
            vault.path("oauth.ca", oauth.ca) if oauth.ca else None,
            oauth.provider,
            token_file,
            oauth.region,
            oauth.role,
            oauth.tenant,
            oauth.client_id,
        ),
        "kerberos": kerberos
        and KerberosSettings(
            kerberos.service,
            kerberos.principal,
            vault.path("kerberos.keytab", kerberos.keytab) if kerberos.keytab else None,
        ),
    }


def _resolve_tls(
    vault: secrets.SecretResolver, security: PlanSecurity, what: str, credentials: SecretRef | None
) -> dict[str, Any]:
    """Paths of PEM files and the key's passphrase. Key stores are converted (`clusters.key_stores`). credentials: the
    certificate, where the account is one, under the key `what`."""

    def text(key: str, ref: SecretRef | None) -> str | None:
        return vault.text(key, ref) if ref is not None else None

    what, certificate = ("certificate", security.certificate) if security.certificate else (what, credentials)
    ca_file = vault.path("ca", security.ca) if security.ca else None
    certificate_file = vault.path(what, certificate) if certificate else None
    key_file = vault.path("key", security.key) if security.key else None
    key_password = text("key_password", security.key_password)
    about = f"clusters.{vault.alias}.security"
    if ca_file is not None and key_stores.is_key_store(ca_file):
        password = text("ca_password", security.ca_password)
        ca_file = key_stores.convert_trust_store(vault.alias, f"{about}.ca", ca_file, password).path
    if certificate_file is not None and key_stores.is_key_store(certificate_file):
        passwords = key_stores.StorePasswords(text("certificate_password", security.certificate_password), key_password)
        store = key_stores.convert_key_store(vault.alias, f"{about}.{what}", certificate_file, passwords)
        certificate_file = store.path
        key_password = store.passphrase if key_file is None else key_password
    return {
        "ca_file": ca_file,
        "certificate_file": certificate_file,
        "key_file": key_file,
        "key_password": key_password,
    }


def _check_permissions(cluster: PlanCluster) -> None:
    """Passwords and tokens go without TLS, and this machine's own identity is used, only where whoever runs this
    allows it. Raises SecretMissing."""
    security, refused = cluster.security, None
    if security.protocol == "SASL_PLAINTEXT" and (security.credentials or security.mechanism == "OAUTHBEARER"):
        refused = allowed_references.explain_plaintext_refusal(cluster.bootstrap)
    oauth = security.oauth
    ambient = oauth is not None and security.credentials is None and PROVIDER_KEYS[oauth.provider].ambient
    if refused is None and oauth is not None and ambient:
        refused = allowed_references.explain_identity_refusal(oauth.provider)
    if refused is not None:
        raise SecretMissing(f"clusters.{cluster.alias}.security: {refused}", alias=cluster.alias)
