"""Where a cluster's schema registry is, with the secrets resolved."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from watershed.clusters import allowed_references, secrets
from watershed.clusters.errors import ClusterError, ProtocolError, SecretMissing
from watershed.clusters.settings import ConnectionSettings


class RegistryNotDeclared(ClusterError):
    """The topology declares no schema registry for a cluster whose schemas are to be carried over."""


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """url: the root of the API, without a slash at its end. *_file: paths of PEM files. alias: the cluster's."""

    alias: str
    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)


def resolve_registry_settings(settings: ConnectionSettings) -> RegistrySettings:
    """The registry that the topology declares for the cluster of `settings`; secrets are read now, so a cluster whose
    registry nobody asks needs none.

    Raises RegistryNotDeclared, SecretMissing, ProtocolError (an address that is none).
    """
    declared = settings.origin.cluster.registry if settings.origin is not None else None
    if settings.origin is None or declared is None:
        raise RegistryNotDeclared(
            f"cluster {settings.alias} has no schema registry in the topology: say where it is "
            f"(clusters.{settings.alias}.schema_registry.url), or carry no schemas (sync.schemas.mode: never)",
            alias=settings.alias,
        )
    url = urlsplit(declared.url)
    if url.scheme not in ("http", "https") or not url.hostname or url.username is not None:
        raise ProtocolError(
            f"clusters.{settings.alias}.schema_registry.url must be http:// or https:// with a host and without a user "
            "(that is what `credentials` is for)",
            alias=settings.alias,
        )
    environ = os.environ if settings.origin.environ is None else settings.origin.environ
    vault = secrets.SecretResolver(settings.alias, environ, "schema_registry")
    username = password = None
    if declared.credentials is not None:
        refused = allowed_references.explain_plaintext_refusal([url.hostname]) if url.scheme == "http" else None
        if refused is not None:
            raise SecretMissing(f"clusters.{settings.alias}.schema_registry: {refused}", alias=settings.alias)
        username, password = vault.account("credentials", declared.credentials)
    return RegistrySettings(
        settings.alias,
        declared.url.rstrip("/"),
        username,
        password,
        vault.path("ca", declared.ca) if declared.ca else None,
        vault.path("certificate", declared.certificate) if declared.certificate else None,
        vault.path("key", declared.key) if declared.key else None,
        vault.text("key_password", declared.key_password) if declared.key_password else None,
    )
