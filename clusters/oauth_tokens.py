"""Access tokens for OAUTHBEARER, shared by every connection of the process, whichever provider gives them.

A token is fetched when it is first asked for and again at 80 % of its life; when that fails, the old one serves until
it ends, and nobody asks again for ten seconds. A token in a file is read anew each time.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from watershed.clusters.connection_parameters import ConnectionParameters, OAuthSettings
from watershed.clusters.errors import AuthenticationFailed, ClusterError
from watershed.clusters.token_providers.access_token import AccessToken
from watershed.clusters.token_providers.aws_msk_iam import sign_msk_token
from watershed.clusters.token_providers.azure import request_azure_token
from watershed.clusters.token_providers.client_credentials import request_client_credentials_token
from watershed.clusters.token_providers.google import request_google_token
from watershed.clusters.token_providers.token_file import read_token_file

log = logging.getLogger("watershed.tokens")

_PAUSE_S = 10.0  # after a failure: half of what one fetch may take (20 s), so that a dead endpoint costs few waits
_PROVIDERS: Mapping[str, Callable[[ConnectionParameters, OAuthSettings], AccessToken]] = MappingProxyType(
    {
        "client_credentials": request_client_credentials_token,
        "file": read_token_file,
        "aws_msk_iam": sign_msk_token,
        "azure": request_azure_token,
        "google": request_google_token,
    }
)


def fetch_token(settings: ConnectionParameters, *, other_than: str | None = None) -> AccessToken:
    """A valid token for these settings; other_than: a value that a broker has just refused.

    Raises AuthenticationFailed when the provider refuses, Unreachable when it does not answer, ProtocolError when what
    it answers is no token or its package is missing, SecretMissing when its file holds none. For ten seconds after
    that the same error is raised again, and the provider is not asked.
    """
    if settings.oauth is not None and settings.oauth.provider == "file":
        return read_token_file(settings, settings.oauth)
    return _find_source(settings).token(other_than)


def build_token_callback(settings: ConnectionParameters) -> Callable[[str], tuple[str, float, str, dict[str, str]]]:
    """The `oauth_cb` of a confluent-kafka client; it reads the client's secret anew each time."""

    def fetch(_config: str) -> tuple[str, float, str, dict[str, str]]:
        now = settings.reread_secrets()
        found = fetch_token(now)
        expires = time.time() + found.ends - time.monotonic()
        return found.value, expires, found.principal, dict(now.oauth.extensions if now.oauth else ())

    return fetch


@dataclass(frozen=True, slots=True)
class _Failure:
    """until: monotonic seconds; the provider is not asked before."""

    error: ClusterError
    until: float


class _Source:
    """One identity at one provider. One fetch at a time; the others take the held token, or wait for the result."""

    def __init__(self, settings: ConnectionParameters) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._token: AccessToken | None = None
        self._failure: _Failure | None = None

    def token(self, refused: str | None) -> AccessToken:
        """A token that is valid and not `refused`. Raises ClusterError: why the last fetch gave none."""
        held = self._find_usable(refused)
        if not self._lock.acquire(blocking=held is None):
            assert held is not None, "without a token we wait"
            return held
        try:
            held, now = self._find_usable(refused), time.monotonic()
            if held is not None and not held.aged(now):
                return held
            if self._failure is None or now >= self._failure.until:
                return self._fetch(held)
            if held is None:
                raise copy.copy(self._failure.error)  # each thread adds its own traceback
            return held
        finally:
            self._lock.release()

    def _find_usable(self, refused: str | None) -> AccessToken | None:
        held = self._token
        return held if held is not None and held.value != refused and time.monotonic() < held.ends else None

    def _fetch(self, held: AccessToken | None) -> AccessToken:
        try:
            self._token = _fetched(self._settings)
        except ClusterError as error:
            first, self._failure = self._failure is None, _Failure(error, time.monotonic() + _PAUSE_S)
            if held is None:
                raise
            if first:
                left = held.ends - time.monotonic()
                log.warning("no new token; the held one serves for %.0f s more: %s", left, error)
            return held
        self._failure = None
        return self._token


_sources: dict[tuple[object, ...], _Source] = {}
_lock = threading.Lock()


def _find_source(settings: ConnectionParameters) -> _Source:
    """The bootstrap is in the key: provider azure derives the token's audience from it."""
    key = (settings.alias, settings.bootstrap, settings.oauth, settings.username, settings.password)
    with _lock:
        return _sources.setdefault(key, _Source(settings))


def _fetched(settings: ConnectionParameters) -> AccessToken:
    oauth = settings.oauth
    if oauth is None:
        raise AuthenticationFailed(
            f"cluster {settings.alias} takes OAUTHBEARER, and nothing says where tokens come from: "
            f"set clusters.{settings.alias}.security.oauth.token_endpoint, or another provider",
            alias=settings.alias,
        )
    return _PROVIDERS[oauth.provider](settings, oauth)
