"""Tokens by OAuth 2.0 client credentials (RFC 6749, section 4.4)."""

from __future__ import annotations

import base64
from urllib.parse import quote_plus

from watershed.clusters.connection_parameters import ConnectionParameters, OAuthSettings
from watershed.clusters.errors import AuthenticationFailed
from watershed.clusters.token_providers.access_token import AccessToken
from watershed.clusters.token_providers.token_endpoint import TokenRequest, request_access_token


def request_client_credentials_token(settings: ConnectionParameters, oauth: OAuthSettings) -> AccessToken:
    """Raises what `request_access_token` raises; AuthenticationFailed without an endpoint."""
    if oauth.token_endpoint is None:
        raise AuthenticationFailed(
            f"clusters.{settings.alias}.security.oauth.token_endpoint is missing: provider client_credentials asks it "
            "for tokens",
            alias=settings.alias,
        )
    return ask_for_client_token(settings, oauth.token_endpoint, oauth.scope)


def ask_for_client_token(settings: ConnectionParameters, endpoint: str, scope: str | None) -> AccessToken:
    """As the client whose id and secret are the cluster's credentials, who log in by HTTP Basic (RFC 6749, 2.3.1)."""
    account = f"{quote_plus(settings.username or '')}:{quote_plus(settings.password or '')}"
    request = TokenRequest(
        endpoint,
        f"the client {settings.username}",
        f"Check the client's id and secret (clusters.{settings.alias}.security.credentials) and the scope.",
        {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {}),
        {"Authorization": "Basic " + base64.b64encode(account.encode()).decode()},
    )
    return request_access_token(settings, request)
