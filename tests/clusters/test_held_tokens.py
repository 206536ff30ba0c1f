"""One source of tokens under failures: what is served, who asks, what is said. The provider is a function here."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from watershed.clusters import oauth_tokens
from watershed.clusters.connection_parameters import ConnectionParameters, OAuthSettings
from watershed.clusters.errors import AuthenticationFailed, ClusterError, ProtocolError, SecretMissing, Unreachable
from watershed.clusters.token_providers.access_token import AccessToken

SETTINGS = ConnectionParameters(
    "hub", ("one.example.internal:9093",), None, None, "SASL_SSL", "OAUTHBEARER", oauth=OAuthSettings(provider="azure")
)


class Provider:
    """Gives tokens named for the bootstrap, which are to be renewed at once; raises `error` while it is set."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: ClusterError | None = None
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Event()

    def __call__(self, settings: ConnectionParameters, _oauth: OAuthSettings) -> AccessToken:
        self.asked += 1
        self.entered.set()
        assert self.open.wait(30)
        if self.error is not None:
            raise self.error
        now = time.monotonic()
        return AccessToken(f"{settings.bootstrap[0]}-{self.asked}", "app", now - 900, now + 100)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    found = Provider()
    monkeypatch.setattr(oauth_tokens, "_sources", {})
    monkeypatch.setattr(oauth_tokens, "_PROVIDERS", {"azure": found})
    return found


def test_two_namespaces_under_one_alias_have_two_tokens(provider: Provider) -> None:
    other = replace(SETTINGS, bootstrap=("two.example.internal:9093",))
    values = [oauth_tokens.fetch_token(each).value for each in (SETTINGS, other)]
    assert values == ["one.example.internal:9093-1", "two.example.internal:9093-2"]


@pytest.mark.parametrize("kind", [Unreachable, ProtocolError, AuthenticationFailed, SecretMissing])
def test_a_held_token_serves_whatever_the_provider_says(
    provider: Provider, kind: type[ClusterError], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = oauth_tokens.fetch_token(SETTINGS).value
    provider.error = kind("it has moved")
    with caplog.at_level(logging.WARNING, "watershed.tokens"):
        assert {oauth_tokens.fetch_token(SETTINGS).value for _ in range(5)} == {held}
        assert provider.asked == 2, "a pause after the failure"
        monkeypatch.setattr(oauth_tokens, "_PAUSE_S", 0.0)
        oauth_tokens._find_source(SETTINGS)._failure = None
        caplog.clear()
        assert {oauth_tokens.fetch_token(SETTINGS).value for _ in range(3)} == {held}
    assert provider.asked == 5, "no pause any more"
    [record] = caplog.records
    assert "the held one serves for 99 s more: it has moved" in record.getMessage().replace("100 s", "99 s")
    assert held not in record.getMessage()
    provider.error = None
    assert oauth_tokens.fetch_token(SETTINGS).value != held


def test_a_refused_token_is_not_served(provider: Provider) -> None:
    held = oauth_tokens.fetch_token(SETTINGS).value
    provider.error = AuthenticationFailed("no")
    for _ in range(2):
        with pytest.raises(AuthenticationFailed, match="no"):
            oauth_tokens.fetch_token(SETTINGS, other_than=held)
    assert provider.asked == 2


def test_all_who_wait_take_the_failure_of_one_fetch(provider: Provider) -> None:
    provider.error = Unreachable("nobody is there", alias="hub")
    provider.open.clear()

    def ask(_: int) -> ClusterError:
        with pytest.raises(Unreachable, match="nobody is there") as caught:
            oauth_tokens.fetch_token(SETTINGS)
        return caught.value

    with ThreadPoolExecutor(20) as threads:
        waiting = threads.map(ask, range(50))
        assert provider.entered.wait(30)
        provider.open.set()
        found = list(waiting)
    assert provider.asked == 1
    assert {each.alias for each in found} == {"hub"}


def test_nobody_waits_while_a_token_is_held(provider: Provider) -> None:
    held = oauth_tokens.fetch_token(SETTINGS).value
    provider.open.clear()
    provider.entered.clear()
    with ThreadPoolExecutor(1) as threads:
        renewed = threads.submit(oauth_tokens.fetch_token, SETTINGS)
        assert provider.entered.wait(30)
        assert {oauth_tokens.fetch_token(SETTINGS).value for _ in range(50)} == {held}
        provider.open.set()
        assert renewed.result(30).value != held
    assert provider.asked == 2
