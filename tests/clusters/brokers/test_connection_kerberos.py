"""GSSAPI with a real KDC, where Debian's krb5-kdc and the package gssapi are installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from watershed.clusters.connection_parameters import KerberosSettings
from watershed.clusters.errors import AuthenticationFailed
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import open_connection
from watershed.lab import clusters, kerberos
from watershed.lab.free_ports import find_free_ports

pytest.importorskip(
    "gssapi", reason="the Python package gssapi is not installed (watershed[gssapi])", exc_type=ImportError
)
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(
        bool(kerberos.find_missing_kerberos_programs()),
        reason=f"no {', '.join(kerberos.find_missing_kerberos_programs())}: Debian's krb5-kdc",
    ),
]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectionSettings]:
    directory = tmp_path_factory.mktemp("kerberos")
    with kerberos.run_kerberos_realm(directory / "realm") as realm, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(realm.conf))
        patch.setenv("KRB5CCNAME", f"FILE:{directory}/cache")
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={realm.conf}")
        [port] = find_free_ports(1)
        try:
            clusters.start_clusters(directory / "lab", ["kerberised"], settings=_properties(port, realm))
            yield ConnectionSettings(
                "kerberised",
                (f"localhost:{port}",),
                protocol="SASL_PLAINTEXT",
                mechanism="GSSAPI",
                kerberos=KerberosSettings("broker", f"ann@{kerberos.KERBEROS_REALM}", str(realm.keytab("ann"))),
            )
        finally:
            clusters.end_clusters(directory / "lab")


def _properties(port: int, realm: kerberos.KerberosRealm) -> dict[str, str]:
    keytab = realm.keytab("broker/localhost")
    login = f'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="{keytab}" '
    login += f'principal="broker/localhost@{kerberos.KERBEROS_REALM}";'
    listening = f"PLAINTEXT://{{host}}:{{port}},KERBEROS://localhost:{port}"
    return {
        "listeners": listening + ",CONTROLLER://{host}:{controller_port}",
        "advertised.listeners": listening,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,KERBEROS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "broker",
        "listener.name.kerberos.gssapi.sasl.jaas.config": login,
    }


def test_a_raw_connection(settings: ConnectionSettings) -> None:
    with closing(open_connection(settings)) as wire:
        assert wire.metadata(()).brokers == {1: ("localhost", int(settings.bootstrap[0].rpartition(":")[2]))}


def test_another_service_or_user_than_there_is(settings: ConnectionSettings) -> None:
    assert settings.kerberos is not None
    other = replace(settings, kerberos=replace(settings.kerberos, service="another"))
    with pytest.raises(AuthenticationFailed, match=r"Kerberos as ann@.* for another@localhost failed.*keytab"):
        open_connection(other)
    nobody = replace(settings, kerberos=replace(settings.kerberos, principal=f"bea@{kerberos.KERBEROS_REALM}"))
    with pytest.raises(AuthenticationFailed, match=r"Kerberos as bea@"):
        open_connection(nobody)
