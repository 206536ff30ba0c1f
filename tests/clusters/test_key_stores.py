"""JKS and PKCS#12 stores, made by Java's own keytool, as PEM for both clients. No broker."""

from __future__ import annotations

import os
import shutil
import ssl
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from hypothesis import given
from hypothesis import strategies as st

from watershed.clusters import key_stores
from watershed.clusters.errors import ProtocolError, SecretMissing
from watershed.clusters.java_key_store import KeyStoreError, parse_java_key_store
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.clusters.wire.tls import load_tls_context
from watershed.lab.certificates import CertificateAuthority, CertificateWithKey, write_secret_file
from watershed.topology.plan import PlanCluster, PlanSecurity
from watershed.topology.secret_ref import SecretRef

STORE, KEY = "ch4ng3it-st0re", "4n0th3r-k3y"


def keytool(*arguments: object) -> None:
    command = ["keytool", "-J-XX:TieredStopAtLevel=1", *map(str, arguments), "-noprompt"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class Stores:
    """Made once: a trust store and a key store of each kind, with the certificates that are in them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.authority, self.other = CertificateAuthority("First authority"), CertificateAuthority("Second authority")
        self.client: CertificateWithKey = self.authority.issue("worker-1")
        pfx = pkcs12.serialize_key_and_certificates(
            b"client",
            self.client.key,
            self.client.certificate,
            [x509.load_pem_x509_certificate(self.authority.chain.encode())],
            serialization.BestAvailableEncryption(STORE.encode()),
        )
        (home / "openssl.p12").write_bytes(pfx)
        for kind, password in (("jks", KEY), ("pkcs12", STORE)):
            source = ("-srckeystore", home / "openssl.p12", "-srcstoretype", "pkcs12", "-srcstorepass", STORE)
            entry = ("-srcalias", "client", "-srckeypass", STORE, "-destkeypass", password)
            to = ("-destkeystore", home / f"key.{kind}", "-deststoretype", kind, "-deststorepass", STORE)
            keytool("-importkeystore", *source, *to, *entry)
            for number, each in enumerate((self.authority, self.other)):
                pem = write_secret_file(home / f"{number}.pem", each.chain)
                store = ("-keystore", home / f"trust.{kind}", "-storetype", kind, "-storepass", STORE)
                keytool("-importcert", "-alias", f"ca{number}", "-file", pem, *store)

    def settings(self, environ: dict[str, str] | None = None, **security: SecretRef) -> ConnectionSettings:
        plan = PlanCluster("cloud", ("k:1",), None, PlanSecurity("SSL", **security))  # type: ignore[arg-type]
        return resolve_connection_settings(plan, {"STORE": STORE, "KEY": KEY, "WRONG": "wr0ng"} | (environ or {}))

    def file(self, name: str) -> SecretRef:
        return SecretRef("file", str(self.home / name))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


ENV = {name: SecretRef("env", name) for name in ("STORE", "KEY", "WRONG")}


@pytest.mark.parametrize("name", ["trust.jks", "trust.pkcs12"])
def test_trust_stores(stores: Stores, name: str) -> None:
    found = stores.settings(ca=stores.file(name), ca_password=ENV["STORE"])
    subjects = {str(each["subject"]) for each in load_tls_context(found).get_ca_certs()}
    assert {"First authority" in each or "Second authority" in each for each in subjects} == {True}
    assert len(subjects) == 2
    assert found.ca_file == found.reread_secrets().ca_file, "the same store is the same file: no client is made again"


def test_a_trust_store_in_jks_needs_no_password(stores: Stores) -> None:
    assert len(load_tls_context(stores.settings(ca=stores.file("trust.jks"))).get_ca_certs()) == 2


@pytest.mark.parametrize(
    ("name", "more"), [("key.jks", {"key_password": "KEY"}), ("key.pkcs12", {}), ("openssl.p12", {})]
)
@pytest.mark.parametrize("where", ["certificate", "credentials"])
def test_key_stores(stores: Stores, name: str, more: dict[str, str], where: str) -> None:
    passwords = {key: ENV[each] for key, each in more.items()}
    found = stores.settings(**{where: stores.file(name)}, certificate_password=ENV["STORE"], **passwords)
    load_tls_context(found)  # raises when certificate and key do not fit
    assert found.certificate_file is not None
    pem = Path(found.certificate_file)
    certificates = x509.load_pem_x509_certificates(pem.read_bytes())
    assert certificates[0] == stores.client.certificate
    assert len(certificates) == 2, "the chain goes along"
    opened = serialization.load_pem_private_key(pem.read_bytes(), str(found.key_password).encode())
    assert opened.private_numbers() == stores.client.key.private_numbers()  # type: ignore[union-attr]
    with pytest.raises(TypeError, match="encrypted"):
        serialization.load_pem_private_key(pem.read_bytes(), None)
    assert stat.S_IMODE(pem.parent.stat().st_mode) == 0o700
    assert str(found.key_password) not in repr(found)
    ssl.create_default_context().load_cert_chain(pem, password=found.key_password)
    librdkafka = replace(found, origin=None, bootstrap=())  # what a client is given; nobody is asked
    assert librdkafka.librdkafka()["ssl.key.location"] == str(pem)


@pytest.mark.parametrize(
    ("security", "said"),
    [
        ({"ca": "trust.jks", "ca_password": "WRONG"}, "security.ca: .* the password is wrong.*ca_password"),
        ({"ca": "trust.pkcs12", "ca_password": "WRONG"}, "security.ca: .* the password is wrong.*ca_password"),
        ({"certificate": "key.jks", "certificate_password": "WRONG"}, "the password is wrong.*certificate_password"),
        ({"certificate": "key.jks", "certificate_password": "STORE"}, "the password of the key client is wrong"),
        ({"certificate": "key.pkcs12"}, "the password is wrong.*certificate_password"),
        ({"certificate": "trust.jks", "certificate_password": "STORE"}, "holds 0 .none."),
        ({"certificate": "trust.pkcs12", "certificate_password": "STORE"}, "no private key"),
    ],
)
def test_stores_that_do_not_open(stores: Stores, security: dict[str, str], said: str) -> None:
    references = {key: ENV[name] if name in ENV else stores.file(name) for key, name in security.items()}
    with pytest.raises(SecretMissing, match=said) as caught:
        stores.settings(**references)
    for secret in (STORE, KEY, "wr0ng"):
        assert secret not in str(caught.value)


def test_two_private_keys_in_pkcs12_are_refused(stores: Stores) -> None:
    """`cryptography` would take the first one and say nothing."""
    path = stores.home / "two.p12"
    for alias in ("one", "two"):
        source = ("-srckeystore", stores.home / "openssl.p12", "-srcstoretype", "pkcs12", "-srcstorepass", STORE)
        to = ("-destkeystore", path, "-deststoretype", "pkcs12", "-deststorepass", STORE)
        keytool("-importkeystore", *source, *to, "-srcalias", "client", "-destalias", alias)
    with pytest.raises(SecretMissing, match="should hold one private key, and it holds 2"):
        stores.settings(certificate=stores.file("two.p12"), certificate_password=ENV["STORE"])


def test_a_password_that_is_no_text_is_wrong(stores: Stores) -> None:
    """A variable's byte that is no UTF-8 is half of a surrogate pair in Python."""
    for name in ("key.jks", "key.pkcs12"):
        with pytest.raises(SecretMissing, match="the password is wrong"):
            stores.settings(
                {"WRONG": "\udcff"}, certificate=stores.file(name), certificate_password=SecretRef("env", "WRONG")
            )


@pytest.mark.parametrize("how", ["mode", "link"])
def test_a_folder_that_somebody_else_made_is_not_used(stores: Stores, tmp_path: Path, how: str) -> None:
    found = stores.settings(ca=stores.file("trust.jks"))
    assert found.ca_file is not None
    folder, other = Path(found.ca_file).parent, tmp_path / "others"
    folder.rename(other)
    if how == "link":
        folder.symlink_to(other)
    else:
        shutil.copytree(other, folder)
        folder.chmod(0o777)
    again = stores.settings(ca=stores.file("trust.jks")).ca_file
    assert again is not None
    assert Path(again).parent != folder
    folder.unlink() if how == "link" else shutil.rmtree(folder)


def test_a_store_that_is_replaced_is_another_file(stores: Stores, tmp_path: Path) -> None:
    shutil.copy(stores.home / "trust.jks", tmp_path / "ca")
    found = stores.settings(ca=SecretRef("file", str(tmp_path / "ca")))
    shutil.copy(stores.home / "trust.pkcs12", tmp_path / "new")
    os.replace(tmp_path / "new", tmp_path / "ca")
    with pytest.raises(SecretMissing, match="the password is wrong"):
        found.reread_secrets()
    shutil.copy(stores.home / "trust.jks", tmp_path / "new")
    os.replace(tmp_path / "new", tmp_path / "ca")
    assert found.reread_secrets().ca_file != found.ca_file


def test_a_file_that_was_cleaned_away_is_made_again(stores: Stores) -> None:
    found = stores.settings(ca=stores.file("trust.jks"))
    assert found.ca_file is not None
    shutil.rmtree(Path(found.ca_file).parent)
    load_tls_context(found.reread_secrets())


def test_pem_files_stay_what_they_are(stores: Stores) -> None:
    found = stores.settings(ca=stores.file("0.pem"))
    assert found.ca_file == str(stores.home / "0.pem")
    der = stores.home / "0.der"
    der.write_bytes(stores.client.certificate.public_bytes(serialization.Encoding.DER))
    assert not key_stores.is_key_store(str(der))
    assert not key_stores.is_key_store(str(stores.home / "none"))


def test_jceks_is_refused_with_the_way_out(stores: Stores) -> None:
    path = stores.home / "old.jceks"
    path.write_bytes(b"\xce\xce\xce\xce" + bytes(40))
    with pytest.raises(SecretMissing, match="keytool -importkeystore"):
        stores.settings(ca=stores.file("old.jceks"))


def test_without_the_package(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_stores, "_converted", {})
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(ProtocolError, match=r"install watershed\[keystores\], or convert it to PEM"):
        stores.settings(certificate=stores.file("key.pkcs12"), certificate_password=ENV["STORE"])
    assert stores.settings(ca=stores.file("trust.jks")).ca_file, "certificates of a JKS need no package"


def test_the_folder_goes_with_its_process(stores: Stores) -> None:
    code = (
        "import sys; from watershed.clusters.key_stores import convert_trust_store as c; "
        "print(c('cloud', 'clusters.cloud.security.ca', sys.argv[1], None).path)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, stores.home / "trust.jks"], capture_output=True, text=True, check=True, timeout=60
    )
    assert not Path(done.stdout.strip()).parent.exists()


@given(st.binary(max_size=200), st.integers(0, 3000))
def test_damaged_stores_are_refused(stores: Stores, noise: bytes, at: int) -> None:
    """Whatever the bytes: a store, or KeyStoreError."""
    good = (stores.home / "key.jks").read_bytes()
    for data in (b"\xfe\xed\xfe\xed\0\0\0\2" + noise, good[:at] + noise + good[at + len(noise) :], good[:at]):
        try:
            parse_java_key_store(data, None)
        except KeyStoreError:
            continue
        assert data[:4] == good[:4]
