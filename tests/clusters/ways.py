"""How tests connect to the secured cluster: a plan's cluster with references, as a topology file gives it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.lab.certificates import write_secret_file
from watershed.lab.secured_cluster import CLIENT, PASSWORD, SECRET, SECURED_LISTENERS, USER, SecuredCluster
from watershed.topology.plan import PlanCluster, PlanOAuth, PlanSecurity
from watershed.topology.secret_ref import SecretRef
from watershed.topology.token_providers import TokenProvider

ALIAS = "cloud"


@dataclass(frozen=True, slots=True)
class Way:
    """A listener of the secured cluster and a mechanism on it; the secrets stand in files below `home`. provider: of
    tokens; with `file`, a test renews the token itself (`write_token`)."""

    cluster: SecuredCluster
    home: Path
    listener: str
    mechanism: str | None = None
    provider: TokenProvider = "client_credentials"

    @property
    def account(self) -> Path:
        return self.home / "account"

    @property
    def certificate(self) -> Path:
        return self.home / "client.pem"

    @property
    def ca(self) -> Path:
        return self.home / "ca.pem"

    def write_token(self, **other: object) -> str:
        """Another token, as whatever renews the file writes it. other: wrong claims."""
        token = self.cluster.identity.token("sidecar", **other)
        write_secret_file(self.account, token)
        return token

    def settings(self) -> ConnectionSettings:
        """With the right secrets, unless a test has put others there already."""
        tls = SECURED_LISTENERS[self.listener][0].endswith("SSL")
        if self.provider == "file" and not self.account.exists():
            self.write_token()
        if self.mechanism is not None and not self.account.exists():
            bearer = self.mechanism == "OAUTHBEARER"
            write_secret_file(self.account, f"{CLIENT}:{SECRET}" if bearer else f"{USER}:{PASSWORD}")
        if tls and not self.ca.exists():
            write_secret_file(self.ca, self.cluster.ca.read_text())
        if self.listener == "MUTUAL" and not self.certificate.exists():
            write_secret_file(self.certificate, self.cluster.authority.issue("worker-1").pem)
        return resolve_connection_settings(
            PlanCluster(ALIAS, (self.cluster.address(self.listener),), None, self._security(tls))
        )

    def _security(self, tls: bool) -> PlanSecurity:
        def file(path: Path) -> SecretRef:
            return SecretRef("file", str(path))

        return PlanSecurity(
            protocol=SECURED_LISTENERS[self.listener][0],  # type: ignore[arg-type]  # one of the four, by that table
            mechanism=self.mechanism,
            credentials=file(self.account) if self.mechanism else None,
            ca=file(self.ca) if tls else None,
            certificate=file(self.certificate) if self.listener == "MUTUAL" else None,
            oauth=self._oauth() if self.mechanism == "OAUTHBEARER" else None,
        )

    def _oauth(self) -> PlanOAuth:
        if self.provider == "file":
            return PlanOAuth(provider="file")
        return PlanOAuth(self.cluster.identity.token_endpoint, "kafka")
