"""Mutual TLS with Java's own stores on a real broker, raw and by librdkafka, also when the stores are replaced."""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from watershed.clusters.admin import Admin
from watershed.clusters.errors import AuthenticationFailed
from watershed.clusters.settings import resolve_connection_settings
from watershed.clusters.wire.connection import open_connection
from watershed.lab.certificates import CertificateAuthority, write_secret_file
from watershed.lab.secured_cluster import SecuredCluster
from watershed.topology.plan import PlanCluster, PlanSecurity
from watershed.topology.secret_ref import SecretRef

pytestmark = pytest.mark.kafka
PASSWORD = "ch4ng3it"


def write_stores(home: Path, trusted: CertificateAuthority, issuer: CertificateAuthority, kind: str) -> None:
    """`trust` and `key` below home, of this kind; those that are there are replaced."""
    pair = issuer.issue("worker-1")
    pfx = pkcs12.serialize_key_and_certificates(
        b"client", pair.key, pair.certificate, None, BestAvailableEncryption(PASSWORD.encode())
    )
    (home / "made.p12").write_bytes(pfx)
    pem = write_secret_file(home / "made.pem", trusted.chain)
    source = ("-srckeystore", home / "made.p12", "-srcstoretype", "pkcs12", "-srcstorepass", PASSWORD)
    for name, verb in (("trust", ("-importcert", "-alias", "ca", "-file", pem)), ("key", ("-importkeystore", *source))):
        store, password = ("-keystore", "-storepass") if name == "trust" else ("-destkeystore", "-deststorepass")
        type_ = "-storetype" if name == "trust" else "-deststoretype"
        (home / f"{name}.new").unlink(missing_ok=True)
        command = [
            "keytool",
            *map(str, verb),
            store,
            home / f"{name}.new",
            type_,
            kind,
            password,
            PASSWORD,
            "-noprompt",
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        (home / f"{name}.new").replace(home / name)


@pytest.mark.parametrize("kind", [pytest.param("jks", marks=pytest.mark.soak), "pkcs12"])
def test_mutual_tls(secured_cluster: SecuredCluster, tmp_path: Path, kind: str) -> None:
    write_stores(tmp_path, secured_cluster.authority, secured_cluster.authority, kind)
    trust, key, password = (SecretRef("file", str(tmp_path / name)) for name in ("trust", "key", "password"))
    write_secret_file(tmp_path / "password", PASSWORD)
    security = PlanSecurity("SSL", ca=trust, certificate=key, ca_password=password, certificate_password=password)
    settings = resolve_connection_settings(PlanCluster("cloud", (secured_cluster.address("MUTUAL"),), None, security))
    with Admin(settings) as admin:
        assert admin.brokers() == 1
        with closing(open_connection(settings)) as wire:
            assert wire.metadata(()).brokers
        write_stores(tmp_path, secured_cluster.authority, CertificateAuthority("Nobody's authority"), kind)
        with pytest.raises(AuthenticationFailed, match=r"worker-1.*Nobody's authority"):
            open_connection(settings)
        write_stores(tmp_path, secured_cluster.authority, secured_cluster.authority, kind)
        with closing(open_connection(settings)) as wire:
            assert wire.metadata(()).brokers
        assert admin.brokers() == 1
