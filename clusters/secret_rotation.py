"""Applies changed secrets to long-lived librdkafka clients: in the running client if possible, else by a new one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from confluent_kafka import KafkaException

from watershed.clusters.errors import ClusterError, SecretMissing
from watershed.clusters.secrets import read_file_stamp
from watershed.clusters.settings import ConnectionSettings

log = logging.getLogger("watershed.rotation")

_LOOK_EVERY_S = 1.0


class _RotatedClient(Protocol):
    """A confluent-kafka client."""

    def set_sasl_credentials(self, username: str, password: str, /) -> None: ...


Made = TypeVar("Made", bound=_RotatedClient)


class SecretRotation:
    """The secrets that one client was created with. Create it before the client, and a new one for each new client.

    Open connections stay authenticated. The client uses new secrets at its next connection to a broker. OAUTHBEARER
    needs no new credentials from here: librdkafka asks for tokens by itself (`clusters.oauth_tokens`).
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._fixed = settings.protocol == "PLAINTEXT" or settings.origin is None
        self._looked = time.monotonic()
        self._known = settings if self._fixed else settings.reread_secrets()
        self._stamps = _stamps(self._known)

    def spent(self, client: _RotatedClient) -> bool:
        """Whether a new client must replace this one. Call it before each use: it looks once a second.

        True if certificate files or the key's password changed, because librdkafka reads them only when a client
        starts. A changed user or password is set in the running client.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK_EVERY_S:
            return False
        self._looked = now
        try:
            fresh = self._known if self._fixed else self._settings.reread_secrets()
        except SecretMissing as error:  # the secret may just be changing; the client still works with the old one
            log.warning("secret missing", extra={"cluster": self._settings.alias, "reason": str(error)})
            return False
        if (fresh.username, fresh.password) != (self._known.username, self._known.password):
            if fresh.mechanism != "OAUTHBEARER" and fresh.username is not None and fresh.password is not None:
                client.set_sasl_credentials(fresh.username, fresh.password)
                log.info("credentials changed", extra={"cluster": fresh.alias})
            self._known = fresh
        if _stamps(fresh) == self._stamps:
            return False
        self._looked -= _LOOK_EVERY_S  # the next call checks again at once, until the caller replaces the client
        return True

    def replace_client(self, make: Callable[[], Made]) -> tuple[SecretRotation, Made] | None:
        """Builds a new client, and its rotation, while the old one still works.

        None if that fails, for example if the certificate file is already replaced and the key file is not. The old
        client stays in use, and `spent` returns True again a second later.
        """
        try:
            return SecretRotation(self._settings), make()
        except (ClusterError, KafkaException, OSError, RuntimeError, TypeError, ValueError) as error:
            log.warning(
                "client not renewed",
                extra={"cluster": self._settings.alias, "reason": f"{type(error).__name__}: {error}",
                       "remedy": "the old client is kept; a new one is tried every second until all files match"},
            )  # fmt: skip
            self._looked = time.monotonic()
            return None


def _stamps(settings: ConnectionSettings) -> tuple[object, ...]:
    if not settings.protocol.endswith("SSL"):
        return ()
    files = (settings.ca_file, settings.certificate_file, settings.key_file)
    return (settings.key_password, *files, *map(read_file_stamp, files))
