"""From an address to a connection that may be used: TCP, TLS, SASL; and SASL again before the session ends.

One settings object decides; its secrets are read anew for every connection (docs/replicator-cases.md, F28 to F30). A
login that fails is tried once more when the secrets have changed in the meantime.
"""

from __future__ import annotations

import ssl
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from watershed.clusters import oauth_tokens
from watershed.clusters.connection_parameters import ConnectionParameters
from watershed.clusters.errors import AuthenticationFailed, ClusterError, Unreachable
from watershed.clusters.token_providers.access_token import describe_token
from watershed.clusters.wire import error_codes, sasl
from watershed.clusters.wire.request_codec import RequestExchange
from watershed.clusters.wire.tls import TlsTransport
from watershed.clusters.wire.transport import MAX_ANSWER_BYTES, FramePiece, FrameTransport, ReceiveBuffer, Transport
from watershed.clusters.wire.versions import NEWEST_API_VERSIONS, Api, ApiVersions, read_api_versions

_GREETING_S = 10.0  # for the answer to ApiVersions, which a broker gives at once
_CLOSED = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError, ssl.SSLEOFError)
# A broker answers a second login within a second of the last as if it were none (KafkaChannel.java, KIP-368).
_SOONEST_S = 1.1
_RENEWED_AT = 0.85  # of the session's life, the early end of what Kafka's own client takes


class OpenedTransport(NamedTuple):
    """A connection ready for requests, and the versions that its broker takes."""

    transport: FrameTransport
    versions: ApiVersions


def open_transport(settings: ConnectionParameters, address: tuple[str, int], *, timeout_s: float) -> OpenedTransport:
    """Connects to one broker, asks it for its versions, and logs in where the protocol wants that.

    Raises Unreachable, UntrustedBroker (TLS), AuthenticationFailed (SASL, mutual TLS), SecretMissing; RequestRefused
    and ProtocolError for what is no answer to ApiVersions.
    """
    if settings.protocol == "PLAINTEXT":
        return _opened(settings, settings, address, timeout_s)
    now = settings.reread_secrets()
    try:
        return _opened(settings, now, address, timeout_s)
    except AuthenticationFailed:
        again = settings.reread_secrets()
        if again == now:
            raise
        return _opened(settings, again, address, timeout_s)


def _opened(
    settings: ConnectionParameters, now: ConnectionParameters, address: tuple[str, int], timeout_s: float
) -> OpenedTransport:
    transport, exchange, versions = _greet(now, address, timeout_s)
    try:
        transport.patient_for(timeout_s)
        if not now.protocol.startswith("SASL_"):
            transport.largest = MAX_ANSWER_BYTES
            return OpenedTransport(transport, versions)
        login = _SaslLogin(exchange, transport.address, address[0], versions)
        ends = login.perform(now)
        transport.largest = MAX_ANSWER_BYTES
    except BaseException:
        transport.close()
        raise
    return OpenedTransport(transport if ends is None else RenewedSession(transport, settings, login, ends), versions)


def _greet(
    now: ConnectionParameters, address: tuple[str, int], timeout_s: float
) -> tuple[Transport, RequestExchange, ApiVersions]:
    """Connects, and asks for the versions before the login, as every client does; also where a broker that refuses our
    certificate says so.

    Azure Event Hubs closes the connection on an ApiVersions that is newer than it knows, in place of the answer that
    KIP-511 asks for (seen by kafka-python, issue 2602). So whoever closes it is asked once more, in version 0.
    """
    try:
        return _ask_versions(now, address, timeout_s, NEWEST_API_VERSIONS)
    except Unreachable as error:
        if not isinstance(error.__cause__, _CLOSED):
            raise
        closed = error
    try:
        return _ask_versions(now, address, timeout_s, 0)
    except Unreachable:
        raise closed from closed.__cause__


def _ask_versions(
    now: ConnectionParameters, address: tuple[str, int], timeout_s: float, first: int
) -> tuple[Transport, RequestExchange, ApiVersions]:
    transport: Transport
    if now.protocol.endswith("SSL"):
        transport = TlsTransport(now, *address, timeout_s=timeout_s)
    else:
        transport = Transport(now.alias, *address, timeout_s=timeout_s, protocol=now.protocol)
    try:
        exchange = RequestExchange(transport, now.alias)
        transport.patient_for(min(timeout_s, _GREETING_S))
        return transport, exchange, read_api_versions(exchange, now.alias, transport.address, first)
    except BaseException:
        transport.close()
        raise


class _SaslLogin:
    """The SASL exchange on a connection whose requests are all answered."""

    def __init__(self, exchange: RequestExchange, address: str, host: str, versions: ApiVersions) -> None:
        self._exchange, self._address, self._host, self._versions = exchange, address, host, versions
        self._token = ""  # the one that was sent last, for what is said when it is refused

    def perform(self, settings: ConnectionParameters) -> float | None:
        """Log in (again). When to do so next, in monotonic seconds; None when the session does not end.

        Raises AuthenticationFailed, which names the user and the broker's own words.
        """
        began = time.monotonic()
        self._token = ""

        def fresh() -> str:
            self._token = oauth_tokens.fetch_token(settings).value
            return self._token

        try:
            return self._performed(settings, sasl.start_sasl_exchange(settings, self._host, fresh), began)
        except AuthenticationFailed:
            if self._token:  # next time another one: its keys or its client may have been changed
                with suppress(ClusterError):
                    oauth_tokens.fetch_token(settings, other_than=self._token)
            raise

    def _performed(self, settings: ConnectionParameters, steps: sasl.SaslExchange, began: float) -> float | None:
        message = next(steps)
        self._handshake(settings)
        lifetime_s = 0.0
        while True:
            answer = self._ask(Api.SASL_AUTHENTICATE, auth_bytes=message)
            if answer.error_code:
                raise self._refused(
                    settings, str(answer.error_message or error_codes.describe_error_code(int(answer.error_code)))
                )
            life = getattr(answer, "session_lifetime", None)
            lifetime_s = life.total_seconds() if life is not None else 0.0
            try:
                message = steps.send(bytes(answer.auth_bytes))
            except StopIteration:
                break
        return max(began + _RENEWED_AT * lifetime_s, time.monotonic() + _SOONEST_S) if lifetime_s > 0 else None

    def _handshake(self, settings: ConnectionParameters) -> None:
        answer = self._ask(Api.SASL_HANDSHAKE, mechanism=settings.mechanism or "GSSAPI")
        if int(answer.error_code) == error_codes.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(answer.mechanisms) or "none"
            raise AuthenticationFailed(
                f"cluster {settings.alias}: the broker at {self._address} does not take "
                f"{settings.mechanism}; it offers {offered}. Change clusters.{settings.alias}.security.mechanism.",
                alias=settings.alias,
            )
        if answer.error_code:
            raise self._refused(settings, error_codes.describe_error_code(int(answer.error_code)))

    def _refused(self, settings: ConnectionParameters, why: str) -> AuthenticationFailed:
        who = f"user {settings.username}" if settings.username else "this client"
        said = describe_token(self._token)
        shown = f"The token says: {said}. " if said else ""
        return AuthenticationFailed(
            f"cluster {settings.alias}: the broker at {self._address} refuses {who} ({settings.mechanism}): "
            f"{why.rstrip('. ')}. {shown}Check clusters.{settings.alias}.security.credentials; a changed secret is "
            "read again at the next connection.",
            alias=settings.alias,
        )

    def _ask(self, api: Api, **values: Any) -> Any:
        return self._exchange.ask(api.name.lower(), self._versions.pick(api), values)


class RenewedSession:
    """A connection whose login ends: it is done again between two requests (KIP-368), also after the end, when nothing
    was to be sent until then. Answers still on their way are taken in first."""

    def __init__(self, transport: Transport, settings: ConnectionParameters, login: _SaslLogin, due: float) -> None:
        self.address = transport.address
        self._transport, self._settings, self._login = transport, settings, login
        self._due: float | None = due
        self._expected = 0
        self._arrived: deque[memoryview] = deque()

    def send(self, pieces: Sequence[FramePiece]) -> None:
        """Send one frame; log in again before it when the session is about to end."""
        if self._due is not None and time.monotonic() >= self._due:
            self._renew()
        self._transport.send(pieces)
        self._expected += 1

    def receive(self, room: ReceiveBuffer | None = None, expected: int = 0) -> memoryview:
        """Returns the next frame; those that came before a login was renewed first, in buffers of their own."""
        if self._arrived:
            return self._arrived.popleft()
        frame = self._transport.receive(room, expected)
        self._expected -= 1
        return frame

    def patient_for(self, seconds: float) -> None:
        """Wait at most so long for bytes from now on."""
        self._transport.patient_for(seconds)

    def close(self) -> None:
        """Close the socket; twice is once."""
        self._transport.close()

    def ended(self) -> bool:
        """Whether the broker has closed the connection and no answer is left to read."""
        return not self._arrived and self._transport.ended()

    def fileno(self) -> int:
        """Returns the socket's number, for poll."""
        return self._transport.fileno()

    @property
    def buffered(self) -> bool:
        """Whether a frame is here already that poll does not see."""
        return bool(self._arrived) or self._transport.buffered

    def _renew(self) -> None:
        while self._expected:
            self._arrived.append(self._transport.receive())
            self._expected -= 1
        try:
            self._due = self._login.perform(self._settings.reread_secrets())
        except ClusterError:
            self.close()
            raise
