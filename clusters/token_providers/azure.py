"""Tokens of Microsoft Entra for Azure Event Hubs: as an application with a secret, or as a managed identity.

The token is for one namespace: the host name of the first bootstrap address, unless `scope` says otherwise (Event Hubs
documentation, "Authenticate an application with Microsoft Entra ID": for Kafka clients https://NAMESPACE.HOST).
"""

from __future__ import annotations

from urllib.parse import urlencode

from clusters.connection_parameters import ConnectionParameters, OAuthSettings
from clusters.errors import AuthenticationFailed
from clusters.token_providers.access_token import AccessToken
from clusters.token_providers.token_endpoint import TokenRequest, request_access_token

_ENTRA = "https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token"
_METADATA = "http://169.254.169.254/metadata/identity/oauth2/token"  # Azure Instance Metadata Service
_METADATA_VERSION = "2018-02-01"
_DEFAULT_SCOPE = "/.default"  # Entra: all that the application may do at the resource


def request_azure_token(settings: ConnectionParameters, oauth: OAuthSettings) -> AccessToken:
    """As the application in the cluster's credentials, else as this machine's managed identity.

    Raises what `request_access_token` raises; AuthenticationFailed if the tenant of the application is not named.
    """
    scope = oauth.scope or f"https://{settings.bootstrap_addresses[0][0]}{_DEFAULT_SCOPE}"
    about = f"clusters.{settings.alias}.security"
    if settings.username is None:
        return request_access_token(settings, _ask_metadata(oauth, scope, about))
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


def _ask_metadata(oauth: OAuthSettings, scope: str, about: str) -> TokenRequest:
    asked = {"api-version": _METADATA_VERSION, "resource": scope.removesuffix(_DEFAULT_SCOPE)}
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
