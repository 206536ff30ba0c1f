"""TLS under a raw connection: the context, the connection, and what is said when a certificate is refused.

The broker's certificate and name are always verified; there is no way to turn that off.
"""

from __future__ import annotations

import functools
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress

from watershed.clusters.connection_parameters import ConnectionParameters
from watershed.clusters.errors import AuthenticationFailed, ClusterError, SecretMissing, UntrustedBroker
from watershed.clusters.secrets import read_file_stamp
from watershed.clusters.wire.certificate import describe_certificate, describe_certificate_file
from watershed.clusters.wire.transport import FRAME_LENGTH, SENDING, FramePiece, Transport

_SMALL = 16 << 10  # one TLS record: pieces below it are joined, since each call costs at least a record
_LOOK_S = 3.0
# Alerts of the broker about our certificate, as OpenSSL names them (RFC 8446, section 6.2).
_ABOUT_US = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED", "DECRYPT_ERROR")


class TlsTransport(Transport):
    """A blocking connection with TLS. Raises UntrustedBroker when the broker's certificate does not verify,
    AuthenticationFailed when the broker refuses ours (with TLS 1.3 that shows at the first answer)."""

    def __init__(self, settings: ConnectionParameters, host: str, port: int, *, timeout_s: float) -> None:
        self._settings = settings
        super().__init__(settings.alias, host, port, timeout_s=timeout_s, protocol=settings.protocol)
        plain = self._socket
        try:
            plain.settimeout(min(timeout_s, 10.0))  # a listener without TLS may wait for us for ever
            self._socket = load_tls_context(settings).wrap_socket(plain, server_hostname=host)
            self._socket.settimeout(timeout_s)
        except ssl.SSLCertVerificationError as error:
            plain.close()
            raise _build_untrusted_error(settings, host, port, error) from None
        except OSError as error:
            plain.close()
            raise self._lost("no TLS connection", error) from error
        except BaseException:
            plain.close()
            raise

    def send(self, pieces: Sequence[FramePiece]) -> None:
        """Send one frame made of `pieces`. A TLS socket gathers nothing itself: small pieces go together, large ones
        as they are."""
        small = bytearray(FRAME_LENGTH.pack(sum(map(len, pieces))))
        try:
            for piece in pieces:
                if len(piece) >= _SMALL:
                    self._socket.sendall(small)
                    self._socket.sendall(piece)
                    small = bytearray()
                else:
                    small += piece
                    if len(small) >= _SMALL:
                        self._socket.sendall(small)
                        small = bytearray()
            if small:
                self._socket.sendall(small)
        except OSError as error:
            self.close()
            raise self._lost(SENDING, error) from error

    @property
    def buffered(self) -> bool:
        """Whether OpenSSL holds decrypted bytes, which poll does not see."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _lost(self, what: str, error: OSError) -> ClusterError:
        reason = str(getattr(error, "reason", None) or "")
        if "ALERT" in reason and any(word in reason for word in _ABOUT_US):
            return build_refused_error(self._settings, self.address, reason)
        if isinstance(error, ssl.SSLError):
            error = OSError(f"TLS said {reason or error}")
        return super()._lost(what, error)


def load_tls_context(settings: ConnectionParameters) -> ssl.SSLContext:
    """For a connection made now: files that changed are read again. Raises SecretMissing for unusable files."""
    files = (settings.ca_file, settings.certificate_file, settings.key_file)
    return _context(settings.alias, *files, settings.key_password, tuple(map(read_file_stamp, files)))


@functools.lru_cache(maxsize=32)
def _context(
    alias: str, ca: str | None, certificate: str | None, key: str | None, password: str | None, _stamps: object
) -> ssl.SSLContext:
    """TLS 1.2 or newer with Python's default ciphers; verification and host names are on by default."""
    about = f"clusters.{alias}.security"
    try:
        made = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise SecretMissing(f"{about}.ca: {ca} holds no certificate authority in PEM ({error})", alias=alias) from None
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        try:
            # without a passphrase OpenSSL would ask on the terminal
            made.load_cert_chain(certificate, key, password=password if password is not None else lambda: b"")
        except (OSError, ValueError) as error:
            raise SecretMissing(
                f"{about}: {certificate} and {key or 'the key in it'} are no pair of certificate and private key "
                f"in PEM ({getattr(error, 'reason', None) or error}); a key with a passphrase needs key_password",
                alias=alias,
            ) from None
    return made


def _build_untrusted_error(
    settings: ConnectionParameters, host: str, port: int, error: ssl.SSLCertVerificationError
) -> UntrustedBroker:
    """Names the certificate that was refused, the reason, and what to do about it."""
    shown = _shown(host, port)
    what = f"its certificate ({describe_certificate(shown)})" if shown else "its certificate"
    why = str(error.verify_message).rstrip(".")
    if "expired" in why or "not yet valid" in why:
        remedy = "Renew the broker's certificate, or look at this machine's clock."
    elif error.verify_code in (62, 64):  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
        remedy = f"Use the name in the certificate for clusters.{settings.alias}.bootstrap and in the broker's "
        remedy += "advertised.listeners, or put this name into the certificate."
    else:
        trusted = settings.ca_file or "the system's authorities (no `ca` is set)"
        remedy = f"Put the authority that signed it into clusters.{settings.alias}.security.ca; trusted now: {trusted}."
    return UntrustedBroker(
        f"cluster {settings.alias}: the broker at {host}:{port} is not trusted, {what} does not verify: {why}. "
        f"{remedy}",
        alias=settings.alias,
    )


def build_refused_error(settings: ConnectionParameters, address: str, reason: str) -> AuthenticationFailed:
    """The broker does not take our certificate, or wants one and got none."""
    about = f"clusters.{settings.alias}.security.certificate"
    if settings.certificate_file is None:
        what, remedy = "a client without a certificate", f"Set {about} and key (mutual TLS)."
    else:
        what = f"our certificate ({describe_certificate_file(settings.certificate_file)})"
        remedy = f"Renew it, or have the broker trust its issuer; then put the files where {about} says."
    return AuthenticationFailed(
        f"cluster {settings.alias}: the broker at {address} refuses {what}: TLS alert {reason}. {remedy}",
        alias=settings.alias,
    )


def _shown(host: str, port: int) -> bytes | None:
    """The certificate a broker shows, DER, for a message only: nothing is sent on this connection, and it is closed."""
    look = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    look.check_hostname = False
    look.verify_mode = ssl.CERT_NONE
    with (
        suppress(OSError),
        socket.create_connection((host, port), timeout=_LOOK_S) as plain,
        look.wrap_socket(plain, server_hostname=host) as found,
    ):
        return found.getpeercert(binary_form=True)
    return None
