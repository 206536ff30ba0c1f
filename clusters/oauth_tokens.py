"""Access tokens for OAUTHBEARER, shared by every connection of the process, whichever provider gives them.

A token is fetched when it is first asked for and again at 80 % of its life; when that fails, the old one serves until
it ends. A token in a file is read anew each time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from clusters.connection_parameters import ConnectionParameters, OAuthSettings
from clusters.errors import AuthenticationFailed, ProtocolError, Unreachable
from clusters.token_providers.access_token import AccessToken
from clusters.token_providers.aws_msk_iam import sign_msk_token
from clusters.token_providers.azure import request_azure_token
from clusters.token_providers.client_credentials import request_client_credentials_token
from clusters.token_providers.google import request_google_token
from clusters.token_providers.token_file import read_token_file

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
    it answers is no token or its package is missing, SecretMissing when its file holds none.
    """
    if settings.oauth is not None and settings.oauth.provider == "file":
        return read_token_file(settings, settings.oauth)
    key = (settings.alias, settings.oauth, settings.username, settings.password)
    with _lock:
        source = _sources.setdefault(key, _Source(settings))
    return source.token(other_than)


def build_token_callback(settings: ConnectionParameters) -> Callable[[str], tuple[str, float, str, dict[str, str]]]:
    """The `oauth_cb` of a confluent-kafka client; it reads the client's secret anew each time."""

    def fetch(_config: str) -> tuple[str, float, str, dict[str, str]]:
        now = settings.reread_secrets()
        found = fetch_token(now)
        expires = time.time() + found.ends - time.monotonic()
        return found.value, expires, found.principal, dict(now.oauth.extensions if now.oauth else ())

    return fetch


class _Source:
    """One identity at one provider. One fetch at a time; the others wait for it."""

    def __init__(self, settings: ConnectionParameters) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._token: AccessToken | None = None

    def token(self, refused: str | None) -> AccessToken:
        with self._lock:
            now, held = time.monotonic(), self._token
            usable = held is not None and held.value != refused and now < held.ends
            if held is None or not usable or held.aged(now):
                try:
                    held = self._token = _fetched(self._settings)
                except (Unreachable, ProtocolError):
                    if held is None or not usable:
                        raise
            return held


_sources: dict[tuple[object, ...], _Source] = {}
_lock = threading.Lock()


def _fetched(settings: ConnectionParameters) -> AccessToken:
    oauth = settings.oauth
    if oauth is None:
        raise AuthenticationFailed(
            f"cluster {settings.alias} takes OAUTHBEARER, and nothing says where tokens come from: "
            f"set clusters.{settings.alias}.security.oauth.token_endpoint, or another provider",
            alias=settings.alias,
        )
    return _PROVIDERS[oauth.provider](settings, oauth)
