"""Long-lived librdkafka clients follow secrets that change: what can be changed inside a client is changed there."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from confluent_kafka import KafkaException

from clusters.errors import ClusterError, SecretMissing
from clusters.secrets import read_file_stamp
from clusters.settings import ConnectionSettings

log = logging.getLogger("watershed.rotation")

_LOOK_EVERY_S = 1.0


class _RotatedClient(Protocol):
    """A confluent-kafka client."""

    def set_sasl_credentials(self, username: str, password: str, /) -> None: ...


Made = TypeVar("Made", bound=_RotatedClient)


class SecretRotation:
    """The secrets that one client was made with. Make it before the client; a new client gets a new one.

    Whatever was logged in stays connected; new secrets count at the client's next connection to a broker. OAUTHBEARER
    needs none of this: librdkafka asks for tokens by itself (`clusters.oauth_tokens`).
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._fixed = settings.protocol == "PLAINTEXT" or settings.origin is None
        self._looked = time.monotonic()
        self._known = settings if self._fixed else settings.reread_secrets()
        self._stamps = _stamps(self._known)

    def spent(self, client: _RotatedClient) -> bool:
        """Call it before each use: cheap, it looks once a second. True: certificate files (or anything but user and
        password) have changed, which librdkafka reads at the start only, so the client should be made again."""
        now = time.monotonic()
        if now - self._looked < _LOOK_EVERY_S:
            return False
        self._looked = now
        try:
            fresh = self._known if self._fixed else self._settings.reread_secrets()
        except SecretMissing as error:  # in the middle of a change, perhaps; the client still works as it is
            log.warning("secret missing", extra={"cluster": self._settings.alias, "reason": str(error)})
            return False
        if (fresh.username, fresh.password) != (self._known.username, self._known.password):
            if fresh.mechanism != "OAUTHBEARER" and fresh.username is not None and fresh.password is not None:
                client.set_sasl_credentials(fresh.username, fresh.password)
                log.info("credentials changed", extra={"cluster": fresh.alias})
            self._known = fresh
        if _stamps(fresh) == self._stamps:
            return False
        self._looked -= _LOOK_EVERY_S  # so that the next call says it again, until somebody could act
        return True

    def replace_client(self, make: Callable[[], Made]) -> tuple[SecretRotation, Made] | None:
        """Builds a new client, and its rotation, while the old one still works.

        None when that fails, for example because the certificate's file was replaced and the key's file not yet. The
        old client stays, and `spent` answers True again a second later.
        """
        try:
            return SecretRotation(self._settings), make()
        except (ClusterError, KafkaException, OSError, RuntimeError, TypeError, ValueError) as error:
            log.warning(
                "client not renewed",
                extra={"cluster": self._settings.alias, "reason": f"{type(error).__name__}: {error}",
                       "remedy": "the old one is kept; it is tried again every second until all files fit together"},
            )  # fmt: skip
            self._looked = time.monotonic()
            return None


def _stamps(settings: ConnectionSettings) -> tuple[object, ...]:
    if not settings.protocol.endswith("SSL"):
        return ()
    files = (settings.ca_file, settings.certificate_file, settings.key_file)
    return (settings.key_password, *files, *map(read_file_stamp, files))
