"""Reads Java's own key store format (JKS), as `sun.security.provider.JavaKeyStore` of OpenJDK writes it. No I/O.

Certificates are not encrypted in it; a private key is, by a key stream of SHA-1 (`sun.security.provider.KeyProtector`).
The password is also what the store's checksum is made with.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

JKS_MAGIC, JCEKS_MAGIC = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"
_PRIVATE_KEY, _TRUSTED_CERTIFICATE = 1, 2
_DIGEST_BYTES = 20
_MOST_ENTRIES = 10_000
_PROTECTOR = "1.3.6.1.4.1.42.2.17.1.1"  # the object identifier of this protection of keys


class KeyStoreError(ValueError):
    """A store that cannot be read; the text never holds a password."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """protected: the key as it is stored, EncryptedPrivateKeyInfo in DER. chain: certificates in DER, its own first."""

    alias: str
    protected: bytes = field(repr=False)
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class JavaKeyStore:
    """trusted: certificates in DER."""

    keys: tuple[KeyEntry, ...]
    trusted: tuple[bytes, ...]


def parse_java_key_store(data: bytes, password: str | None) -> JavaKeyStore:
    """Without a password the checksum is not verified, as Java does it for trust stores.

    Raises KeyStoreError for a wrong password, and for anything that is no JKS.
    """
    if data[:4] != JKS_MAGIC:
        raise KeyStoreError("it is no Java key store (JKS)")
    body, checksum = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None and not hmac.compare_digest(_checksum(body, password), checksum):
        raise KeyStoreError("the password is wrong, or the store is damaged")
    reader = _Reader(body, 4)
    version, count = reader.number(4), reader.number(4)
    if version not in (1, 2) or count > _MOST_ENTRIES:
        raise KeyStoreError(f"it says version {version} with {count} entries; versions 1 and 2 are known")
    keys: list[KeyEntry] = []
    trusted: list[bytes] = []
    for _ in range(count):
        kind, alias = reader.number(4), reader.text()
        reader.number(8)  # when it was created
        if kind == _PRIVATE_KEY:
            protected = reader.block()
            chain = tuple(reader.certificate(version) for _ in range(min(reader.number(4), _MOST_ENTRIES)))
            keys.append(KeyEntry(alias, protected, chain))
        elif kind == _TRUSTED_CERTIFICATE:
            trusted.append(reader.certificate(version))
        else:
            raise KeyStoreError(f"it has an entry of the unknown kind {kind}")
    return JavaKeyStore(tuple(keys), tuple(trusted))


def open_protected_key(entry: KeyEntry, password: str) -> bytes:
    """The private key, PKCS#8 in DER. Raises KeyStoreError for a wrong password or another protection."""
    from asn1crypto.keys import EncryptedPrivateKeyInfo

    try:
        info = EncryptedPrivateKeyInfo.load(entry.protected)
        protection = str(info["encryption_algorithm"]["algorithm"].dotted)
        sealed = bytes(info["encrypted_data"].native)
    except (ValueError, TypeError):
        raise KeyStoreError(f"the key {entry.alias} is stored in no known way") from None
    if protection != _PROTECTOR or len(sealed) < 2 * _DIGEST_BYTES:
        raise KeyStoreError(f"the key {entry.alias} is protected in another way than JKS does it ({protection})")
    secret, digest = _encode_password(password), sealed[:_DIGEST_BYTES]
    stream = bytearray()
    length = len(sealed) - 2 * _DIGEST_BYTES
    while len(stream) < length:
        digest = hashlib.sha1(secret + digest, usedforsecurity=False).digest()
        stream += digest
    opened = bytes(a ^ b for a, b in zip(sealed[_DIGEST_BYTES:-_DIGEST_BYTES], stream, strict=False))
    right = hashlib.sha1(secret + opened, usedforsecurity=False).digest()
    if not hmac.compare_digest(right, sealed[-_DIGEST_BYTES:]):
        raise KeyStoreError(f"the password of the key {entry.alias} is wrong")
    return opened


def _encode_password(password: str) -> bytes:
    """Java's char array; half of a surrogate pair (a byte of a variable that is no UTF-8) is a char as well."""
    return password.encode("utf-16-be", "surrogatepass")


def _checksum(body: bytes, password: str) -> bytes:
    salted = _encode_password(password) + b"Mighty Aphrodite" + body
    return hashlib.sha1(salted, usedforsecurity=False).digest()


class _Reader:
    """Java's DataInputStream over bytes. Raises KeyStoreError beyond their end."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def text(self) -> str:
        return self._take(self.number(2)).decode("utf-8", "replace")

    def block(self) -> bytes:
        return self._take(self.number(4))

    def certificate(self, version: int) -> bytes:
        kind = self.text() if version == 2 else "X.509"
        if kind != "X.509":
            raise KeyStoreError("it has a certificate that is not X.509")
        return self.block()

    def _take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise KeyStoreError("it ends before its last entry")
        self._at += size
        return found
