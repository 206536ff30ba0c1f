"""Tokens for Amazon MSK with IAM: a signed URL of the action kafka-cluster:Connect, good for 15 minutes.

The vendor's own signer makes the token (aws-msk-iam-sasl-signer-python); botocore, which it brings, finds the identity
and assumes the role.
"""

from __future__ import annotations

import time
from typing import Any

from watershed.clusters.connection_parameters import ConnectionParameters, OAuthSettings
from watershed.clusters.deadline import run_with_deadline
from watershed.clusters.errors import AuthenticationFailed, ClusterError, ProtocolError, SecretMissing, Unreachable
from watershed.clusters.token_providers.access_token import AccessToken
from watershed.clusters.token_providers.token_endpoint import is_local_endpoint

_DEADLINE_S = 20.0  # to find an identity and assume a role, while all connections wait
_SESSION_NAME = "watershed"  # of an assumed role, as CloudTrail shows it


def sign_msk_token(settings: ConnectionParameters, oauth: OAuthSettings) -> AccessToken:
    """Signed as the access key in the cluster's credentials, else as the identity that this machine has at AWS.

    With `role`, that role is assumed first. Raises ProtocolError without the vendor's package, AuthenticationFailed
    when AWS refuses the identity or the role, SecretMissing for a file of the identity that cannot be read,
    Unreachable when AWS does not answer; so, too, when this machine shows no identity: botocore says the same when the
    metadata server is slow.
    """
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        from botocore import exceptions
    except ImportError as error:
        raise ProtocolError(
            f"cluster {settings.alias} takes tokens of AWS, and the vendor's package aws-msk-iam-sasl-signer-python is "
            f"not installed here ({error}); install watershed[aws]",
            alias=settings.alias,
        ) from None
    asked, region = time.monotonic(), oauth.region or ""
    try:
        credentials = run_with_deadline(_DEADLINE_S, lambda: _find_credentials(settings, oauth))
        value, ends_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(region, _hold(credentials))
    except (exceptions.ClientError, exceptions.BotoCoreError, OSError, ValueError, KeyError) as error:
        raise _explain_failure(settings, oauth, error) from None
    ends = asked + ends_ms / 1000 - time.time()
    return AccessToken(value, oauth.role or str(credentials.access_key), asked, ends)


def _find_credentials(settings: ConnectionParameters, oauth: OAuthSettings) -> Any:
    """botocore's frozen credentials. Without an access key of ours: its default chain (variables, files, web identity,
    container, instance)."""
    from botocore import credentials, session

    found: Any = session.Session()
    if settings.username is not None:
        own = credentials.Credentials(settings.username, settings.password)
    else:
        own = found.get_credentials()
        if own is None:
            raise Unreachable(
                f"cluster {settings.alias}: this machine shows no identity at AWS, or its metadata server does not "
                f"answer. {_where(settings)}",
                alias=settings.alias,
            )
    frozen = own.get_frozen_credentials()
    return frozen if oauth.role is None else _assume_role(settings, oauth, found, frozen)


def _assume_role(settings: ConnectionParameters, oauth: OAuthSettings, session: Any, own: Any) -> Any:
    from botocore import config, credentials

    endpoint = oauth.token_endpoint
    local = endpoint is not None and is_local_endpoint(settings, endpoint)
    options: dict[str, Any] = {"connect_timeout": 5, "read_timeout": 10, "retries": {"total_max_attempts": 2}}
    client = session.create_client(
        "sts",
        region_name=oauth.region,
        endpoint_url=endpoint,
        verify=oauth.ca_file,
        aws_access_key_id=own.access_key,
        aws_secret_access_key=own.secret_key,
        aws_session_token=own.token,
        config=config.Config(**options, **({"proxies": {}} if local else {})),
    )
    answer = client.assume_role(RoleArn=oauth.role, RoleSessionName=_SESSION_NAME)["Credentials"]
    return credentials.Credentials(answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"])


def _hold(credentials: Any) -> Any:
    """What the vendor's signer takes its credentials from."""
    from botocore.credentials import CredentialProvider

    class Held(CredentialProvider):  # type: ignore[misc]  # botocore has no types
        def load(self) -> Any:
            return credentials

    return Held()


def _explain_failure(settings: ConnectionParameters, oauth: OAuthSettings, error: Exception) -> ClusterError:
    from botocore import exceptions

    if isinstance(error, exceptions.ClientError):
        return _refused(settings, oauth, error.response)
    if isinstance(error, TimeoutError):
        return _no_answer(settings, "no answer in time")
    if isinstance(error, exceptions.HTTPClientError) and isinstance(error.kwargs.get("error"), ValueError):
        error = ValueError("a key or a token of it has a character that no HTTP header takes, such as a line break")
    silent = (exceptions.HTTPClientError, exceptions.ConnectionError)
    if isinstance(error, (*silent, exceptions.CredentialRetrievalError, exceptions.MetadataRetrievalError)):
        return _no_answer(settings, str(error))
    if isinstance(error, OSError):
        if error.filename is None:
            return _no_answer(settings, str(error))
        # AWS_WEB_IDENTITY_TOKEN_FILE or AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE
        why = f"the file {error.filename} of the identity at AWS cannot be read ({error.strerror})"
        return SecretMissing(f"cluster {settings.alias}: {why}. {_where(settings)}", alias=settings.alias)
    why = f"its answer has no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
    return AuthenticationFailed(
        f"cluster {settings.alias}: no identity at AWS to sign a token with: {why.rstrip('. ')}. {_where(settings)}",
        alias=settings.alias,
    )


def _refused(settings: ConnectionParameters, oauth: OAuthSettings, answer: dict[str, Any]) -> ClusterError:
    error = answer.get("Error", {})
    said = f"{error.get('Code', 'an error')}: {str(error.get('Message', '')).rstrip('. ')[:400]}"
    if int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) >= 500:
        return _no_answer(settings, said)
    what = f"let this identity assume {oauth.role}" if oauth.role else "give this identity credentials"
    return AuthenticationFailed(
        f"cluster {settings.alias}: AWS does not {what}: {said}. Check the role's trust policy. {_where(settings)}",
        alias=settings.alias,
    )


def _no_answer(settings: ConnectionParameters, why: str) -> Unreachable:
    return Unreachable(
        f"cluster {settings.alias}: AWS gives no credentials for a token: {why.rstrip('. ')}. Check the network, and "
        f"clusters.{settings.alias}.security.oauth.",
        alias=settings.alias,
    )


def _where(settings: ConnectionParameters) -> str:
    if settings.username is not None:
        return f"The access key is that of clusters.{settings.alias}.security.credentials."
    return (
        "Give this process a role (instance, container, web identity) or the variables of AWS, or name an access key "
        f"in clusters.{settings.alias}.security.credentials."
    )
