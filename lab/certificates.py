"""A throw-away certificate authority for secured clusters of the lab: keys and certificates in PEM."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)
EXPIRED_ON = datetime.datetime(2024, 1, 2, 12, tzinfo=datetime.UTC)  # what is issued as expired was valid until then


@dataclass(frozen=True, slots=True)
class CertificateWithKey:
    """A certificate with its key. `pem` is both in one text, key first, which brokers and OpenSSL read."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def chain(self) -> str:
        """The certificate as PEM, without its key."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def pem(self) -> str:
        """Key and certificate in one PEM text, as librdkafka and Kafka's PEM key stores take them."""
        return self.key_pem() + self.chain

    def key_pem(self, password: str | None = None) -> str:
        """PKCS#8, encrypted with a password."""
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        kind = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, kind, encryption).decode()

    def public_key_pem(self) -> str:
        """The public half of the key, for whoever checks what it signed."""
        kind = serialization.PublicFormat.SubjectPublicKeyInfo
        return self.key.public_key().public_bytes(serialization.Encoding.PEM, kind).decode()


class CertificateAuthority:
    """Signs certificates that end tomorrow, or ended yesterday."""

    def __init__(self, name: str) -> None:
        self._own = _signed(name, None, hosts=(), expired=False)

    @property
    def chain(self) -> str:
        """The authority's certificate, PEM."""
        return self._own.chain

    def issue(self, name: str, hosts: tuple[str, ...] = (), *, expired: bool = False) -> CertificateWithKey:
        """For a server known under `hosts` (names or addresses), or a client."""
        return _signed(name, self._own, hosts=hosts, expired=expired)


def write_secret_file(path: Path, text: str) -> Path:
    """The file, replaced as a whole and for its owner only, as a secret manager does it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(path.name + ".new")
    scratch.touch(mode=0o600)
    scratch.write_text(text)
    scratch.replace(path)
    return path


def _signed(
    name: str, issuer: CertificateWithKey | None, *, hosts: tuple[str, ...], expired: bool
) -> CertificateWithKey:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = EXPIRED_ON - _DAY if expired else datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 3 * _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer is not None:
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
    return CertificateWithKey(builder.sign((issuer.key if issuer else key), hashes.SHA256()), key)


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
