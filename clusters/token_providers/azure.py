"""Tokens of Microsoft Entra for Azure Event Hubs: as an application with a secret, or as a managed identity.

The token is for one namespace: the host name of the first bootstrap address, unless an application's `scope` says
otherwise (Event Hubs documentation, "Authenticate an application with Microsoft Entra ID": for Kafka clients
https://NAMESPACE.HOST).
"""

from __future__ import annotations

from urllib.parse import urlencode

from watershed.clusters.connection_parameters import ConnectionParameters, OAuthSettings
from watershed.clusters.errors import AuthenticationFailed
from watershed.clusters.token_providers.access_token import AccessToken
from watershed.clusters.token_providers.token_endpoint import TokenRequest, request_access_token, require_plain_endpoint

_ENTRA = "https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token"
_METADATA = "http://169.254.169.254/metadata/identity/oauth2/token"  # Azure Instance Metadata Service
_METADATA_VERSION = "2018-02-01"
_DEFAULT_SCOPE = "/.default"  # Entra: all that the application may do at the resource


def request_azure_token(settings: ConnectionParameters, oauth: OAuthSettings) -> AccessToken:
    """As the application in the cluster's credentials, else as this machine's managed identity.

    Raises what `request_access_token` raises; AuthenticationFailed if the tenant of the application is not named, or
    if a managed identity is asked for a token of anything but the one namespace in `bootstrap`.
    """
    resource = f"https://{settings.bootstrap_addresses[0][0]}"
    scope = oauth.scope or f"{resource}{_DEFAULT_SCOPE}"
    about = f"clusters.{settings.alias}.security"
    if settings.username is None:
        _require_own_namespace(settings, oauth)
        return request_access_token(settings, _ask_metadata(oauth, resource, about))
    if oauth.token_endpoint is None and oauth.tenant is None:
        message = f"{about}.oauth.tenant is missing: provider azure asks the tenant of the application for tokens"
        raise AuthenticationFailed(message, alias=settings.alias)
    form = {"grant_type": "client_credentials", "client_id": settings.username, "scope": scope}
    request = TokenRequest(
        oauth.token_endpoint or _ENTRA.format(tenant=oauth.tenant),
        f"the application {settings.username}",
        f"Check its id and secret ({about}.credentials), the tenant, and the scope {scope}.",
        form | {"client_secret": settings.password or ""},
    )
    return request_access_token(settings, request)


def _require_own_namespace(settings: ConnectionParameters, oauth: OAuthSettings) -> None:
    """Who writes the file chooses the brokers: they get no token of the machine's that another service takes."""
    hosts = sorted({host.lower() for host, _ in settings.bootstrap_addresses})
    key = f"clusters.{settings.alias}"
    if len(hosts) > 1:
        message = f"{key}.bootstrap names {', '.join(hosts)}: a managed identity's token is for one namespace only. "
        raise AuthenticationFailed(f"{message}Name one host, or an application in `credentials`.", alias=settings.alias)
    if (
        oauth.scope is not None
        and oauth.scope.lower().removesuffix(_DEFAULT_SCOPE).rstrip("/") != f"https://{hosts[0]}"
    ):
        raise AuthenticationFailed(
            f"{key}.security.oauth.scope is {oauth.scope}: a managed identity asks only for https://{hosts[0]}, the "
            "host of `bootstrap`. Drop `scope`, or name an application in `credentials`.",
            alias=settings.alias,
        )
    if oauth.token_endpoint is not None:
        require_plain_endpoint(settings, oauth.token_endpoint)


def _ask_metadata(oauth: OAuthSettings, resource: str, about: str) -> TokenRequest:
    asked = {"api-version": _METADATA_VERSION, "resource": resource}
    if oauth.client_id is not None:
        asked["client_id"] = oauth.client_id
    return TokenRequest(
        f"{oauth.token_endpoint or _METADATA}?{urlencode(asked)}",
        f"the managed identity {oauth.client_id or 'of this machine'}",
        f"Give this machine that identity, or name an application in {about}.credentials.",
        headers={"Metadata": "true"},
        protocol="Azure's instance metadata",
        metadata=True,
    )
