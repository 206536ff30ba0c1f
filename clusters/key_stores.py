"""JKS and PKCS#12 stores as the PEM files that raw connections and librdkafka take.

The PEM files lie in a folder of this process alone, which it removes when it ends. A private key in them is encrypted
with a passphrase that only this process knows: a file that is left behind after a crash is of no use to anybody.
"""

from __future__ import annotations

import atexit
import itertools
import os
import secrets
import shutil
import ssl
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from watershed.clusters.errors import ProtocolError, SecretMissing
from watershed.clusters.java_key_store import (
    JCEKS_MAGIC,
    JKS_MAGIC,
    KeyStoreError,
    open_protected_key,
    parse_java_key_store,
)
from watershed.clusters.private_files import replace_file
from watershed.clusters.secrets import read_file_stamp

_LARGEST_STORE: Final = 16 << 20
_MOST_KEPT: Final = 64  # files of stores that were replaced since; the oldest is removed beyond that


@dataclass(frozen=True, slots=True)
class PemStore:
    """path: the certificates, and the key if it is a key store. passphrase: of that key."""

    path: str
    passphrase: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class StorePasswords:
    """store: of the whole; key: of the private key in a JKS, where it has one of its own."""

    store: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)


def is_key_store(path: str) -> bool:
    """Whether a file is a JKS, JCEKS or PKCS#12 store, by its content. What cannot be read is none."""
    try:
        with open(path, "rb") as file:
            head = file.read(16)
    except OSError:
        return False
    return head[:4] in (JKS_MAGIC, JCEKS_MAGIC) or _is_pkcs12(head)


def convert_trust_store(alias: str, key: str, path: str, password: str | None) -> PemStore:
    """All certificates of the store as one PEM file. key: where the topology names it, for messages.

    Raises SecretMissing for a wrong password or a store without a certificate, ProtocolError without `cryptography`.
    """
    return _convert(alias, key, path, StorePasswords(password), _read_trusted)


def convert_key_store(alias: str, key: str, path: str, passwords: StorePasswords) -> PemStore:
    """The store's one private key, encrypted anew, and its certificates as one PEM file. Raises as above, also for a
    store with no key or several."""
    return _convert(alias, key, path, passwords, _read_key)


_Read = Callable[[bytes, StorePasswords], str]
_lock = threading.Lock()
_converted: dict[tuple[object, ...], PemStore] = {}
_numbers = itertools.count(1)
_passphrase: Final = secrets.token_urlsafe(32)
_folders: dict[int, str] = {}  # by process: a child that was forked makes its own


def _convert(alias: str, key: str, path: str, passwords: StorePasswords, read: _Read) -> PemStore:
    known = (path, read_file_stamp(path), passwords, read, os.getpid())
    with _lock:
        found = _converted.get(known)
        if found is not None and _is_own_folder(os.path.dirname(found.path)) and os.path.exists(found.path):
            return found
        try:
            with open(path, "rb") as file:
                data = file.read(_LARGEST_STORE + 1)
            if len(data) > _LARGEST_STORE:
                raise KeyStoreError(f"it has more than {_LARGEST_STORE} bytes")
            text = read(data, passwords)
        except ImportError as error:
            raise ProtocolError(
                f"{key}: {path} is a key store, and the package cryptography is not installed here ({error}); install "
                "watershed[keystores], or convert it to PEM",
                alias=alias,
            ) from None
        except (OSError, KeyStoreError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            names = "ca_password" if read is _read_trusted else "certificate_password (and key_password)"
            remedy = f"Passwords belong into {names}."
            message = f"{key}: the key store {path} cannot be used: {why}. {remedy}"
            raise SecretMissing(message, alias=alias) from None
        made = Path(_own_folder(), f"store-{next(_numbers)}.pem")
        replace_file(made, text.encode())
        while len(_converted) >= _MOST_KEPT:
            Path(_converted.pop(next(iter(_converted))).path).unlink(missing_ok=True)
        _converted[known] = PemStore(str(made), _passphrase if read is _read_key else None)
        return _converted[known]


def _own_folder() -> str:
    process = os.getpid()
    if process not in _folders or not _is_own_folder(_folders[process]):
        folder = _folders[process] = tempfile.mkdtemp(prefix="watershed-stores-")  # for its owner only
        atexit.register(_remove_folder, process, folder)
    return _folders[process]


def _is_own_folder(path: str) -> bool:
    """Whether nobody else can write into it: after a clean-up of /tmp, anybody may make a folder of that name."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o700


def _remove_folder(process: int, folder: str) -> None:
    if os.getpid() == process:  # not in a child that was forked from the one whose folder it is
        shutil.rmtree(folder, ignore_errors=True)


def _is_pkcs12(head: bytes) -> bool:
    """A SEQUENCE that begins with version 3 (RFC 7292, section 4); a certificate in DER begins with a SEQUENCE."""
    if len(head) < 2 or head[0] != 0x30:
        return False
    lengths = head[1] & 0x7F if head[1] & 0x80 else 0
    return head[2 + lengths : 5 + lengths] == b"\x02\x01\x03"


def _read_trusted(data: bytes, passwords: StorePasswords) -> str:
    if data[:4] == JCEKS_MAGIC:
        raise KeyStoreError("it is a JCEKS; `keytool -importkeystore -deststoretype pkcs12` converts it")
    if data[:4] == JKS_MAGIC:
        store = parse_java_key_store(data, passwords.store)
        found = [*store.trusted, *(each for key in store.keys for each in key.chain[-1:])]
    else:
        opened = _open_pkcs12(data, passwords.store)
        own = [opened.cert] if opened.cert is not None else []
        found = [_to_der(each.certificate) for each in (*own, *opened.additional_certs)]
    if not found:
        raise KeyStoreError("it holds no certificate")
    return _to_pem(found)


def _read_key(data: bytes, passwords: StorePasswords) -> str:
    if data[:4] == JCEKS_MAGIC:
        raise KeyStoreError("it is a JCEKS; `keytool -importkeystore -deststoretype pkcs12` converts it")
    from cryptography.hazmat.primitives import serialization

    if data[:4] == JKS_MAGIC:
        key, chain = _read_jks_key(data, passwords)
    else:
        opened = _open_pkcs12(data, passwords.store if passwords.store is not None else passwords.key)
        if opened.key is None or opened.cert is None:
            raise KeyStoreError("it holds no private key with its certificate")
        _require_one_key(data)
        key = opened.key
        chain = [_to_der(each.certificate) for each in (opened.cert, *opened.additional_certs)]
    encryption = serialization.BestAvailableEncryption(_passphrase.encode())
    pkcs8 = serialization.PrivateFormat.PKCS8
    return str(key.private_bytes(serialization.Encoding.PEM, pkcs8, encryption).decode()) + _to_pem(chain)


def _read_jks_key(data: bytes, passwords: StorePasswords) -> tuple[Any, list[bytes]]:
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    store = parse_java_key_store(data, passwords.store)
    password = passwords.key if passwords.key is not None else passwords.store
    if len(store.keys) != 1:
        names = ", ".join(each.alias for each in store.keys) or "none"
        raise KeyStoreError(f"it should hold one private key, and it holds {len(store.keys)} ({names})")
    if password is None:
        raise KeyStoreError("its key needs a password")
    try:
        return load_der_private_key(open_protected_key(store.keys[0], password), None), [*store.keys[0].chain]
    except (ValueError, TypeError) as error:
        raise error if isinstance(error, KeyStoreError) else KeyStoreError("its key is of no known kind") from None


def _open_pkcs12(data: bytes, password: str | None) -> Any:
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        return pkcs12.load_pkcs12(data, password.encode() if password is not None else None)
    except (ValueError, TypeError):
        raise KeyStoreError("the password is wrong, or it is damaged") from None


def _require_one_key(data: bytes) -> None:
    """`cryptography` takes the first key and does not tell of others, so the bags are counted (RFC 7292, section 4.2).

    Keys are bags in the open part, each encrypted by itself, as Java and OpenSSL write them. A key inside an encrypted
    part is not counted.
    """
    from asn1crypto import pkcs12

    try:
        safes = pkcs12.Pfx.load(data).authenticated_safe
        open_ = [each["content"].native for each in safes if each["content_type"].native == "data"]
        kinds = [bag["bag_id"].native for each in open_ for bag in pkcs12.SafeContents.load(each)]
    except (ValueError, TypeError, KeyError):
        raise KeyStoreError("its keys cannot be counted") from None
    count = sum(kind in ("key_bag", "pkcs8_shrouded_key_bag") for kind in kinds)
    if count > 1:
        raise KeyStoreError(f"it should hold one private key, and it holds {count}")


def _to_der(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return bytes(certificate.public_bytes(Encoding.DER))


def _to_pem(certificates: Iterable[bytes]) -> str:
    return "".join(ssl.DER_cert_to_PEM_cert(each) for each in dict.fromkeys(certificates))
