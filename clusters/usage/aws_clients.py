"""Clients of AWS for the history of an MSK cluster, by boto3 (extra `watershed[aws]`), and what their errors mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from watershed.clusters import allowed_references
from watershed.clusters.errors import (
    AuthenticationFailed,
    ClusterError,
    ProtocolError,
    RequestRefused,
    SecretMissing,
    Unreachable,
)
from watershed.clusters.secrets import SecretResolver
from watershed.clusters.usage.usage_requests import UsageThrottled
from watershed.topology.usage.sources_file import CloudWatchSource

_T = TypeVar("_T")
_ATTEMPTS = 6  # botocore waits between them, up to 20 s, longer each time
_THROTTLED = frozenset({"Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException"})
_THROTTLED |= {"LimitExceededException", "RequestThrottled", "RequestThrottledException", "SlowDown"}
_UNKNOWN = frozenset({"AccessDenied", "AccessDeniedException", "UnrecognizedClientException", "InvalidClientTokenId"})
_UNKNOWN |= {"SignatureDoesNotMatch", "ExpiredToken", "ExpiredTokenException", "AuthFailure", "NotAuthorized"}
_UNKNOWN |= {"InvalidSignatureException", "IncompleteSignature", "MissingAuthenticationToken", "OptInRequired"}


def build_aws_client(
    alias: str, service: str, source: CloudWatchSource, environ: Mapping[str, str], endpoint: str | None
) -> Any:
    """A client of `cloudwatch` or `ce` (Cost Explorer). Raises ProtocolError without boto3, SecretMissing for an access
    key that cannot be read, or where this machine's identity would be used and may not be; and as `call_aws` does,
    where this machine's settings of AWS cannot be used."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise ProtocolError(
            f"cluster {alias}: CloudWatch is asked by boto3, which is not installed here ({error}); "
            "install watershed[aws]",
            alias=alias,
        ) from None
    where = f"clusters.{alias}.cloudwatch"
    key: dict[str, str] = {}
    if source.credentials is None:
        refused = allowed_references.explain_identity_refusal("aws")
        if refused is not None:
            raise SecretMissing(f"{where}: {refused}", alias=alias)
    else:
        vault = SecretResolver(alias, environ, where=where)
        names = ("aws_access_key_id", "aws_secret_access_key")
        key = dict(zip(names, vault.account("credentials", source.credentials), strict=True))
    options: dict[str, Any] = {"connect_timeout": 10, "read_timeout": 60}
    options["retries"] = {"mode": "standard", "total_max_attempts": _ATTEMPTS}
    if endpoint is not None:
        _require_private(alias, where, endpoint)
        options["proxies"] = {}
    what = "CloudWatch" if service == "cloudwatch" else "Cost Explorer"
    config = Config(**options)
    make = partial(boto3.client, service, region_name=source.region, endpoint_url=endpoint, config=config, **key)
    return call_aws(alias, what, make)


def call_aws(alias: str, what: str, work: Callable[[], _T]) -> _T:
    """Does the work, with botocore's errors as ours. what: `CloudWatch` or `Cost Explorer`. Raises
    AuthenticationFailed, UsageThrottled, Unreachable, RequestRefused, ProtocolError."""
    from botocore import exceptions

    try:
        return work()
    except exceptions.ClientError as error:
        raise _describe_client_error(alias, what, error.response) from None
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as error:
        remedy = f"Say clusters.{alias}.cloudwatch.credentials, or give this process a role."
        message = f"cluster {alias}: no identity at AWS to ask {what} with: {error}. {remedy}"
        raise AuthenticationFailed(message, alias=alias) from None
    except (exceptions.HTTPClientError, exceptions.ConnectionError, exceptions.CredentialRetrievalError) as error:
        message = f"{what} does not answer for cluster {alias}: {str(error).rstrip('. ')}. Check region and network."
        raise Unreachable(message, alias=alias) from None
    except exceptions.BotoCoreError as error:
        raise ProtocolError(f"{what} cannot be asked for cluster {alias}: {error}.", alias=alias) from None


def _describe_client_error(alias: str, what: str, answer: Mapping[str, Any]) -> ClusterError:
    error = answer.get("Error", {})
    code = str(error.get("Code", "an error"))
    said = f"{code}: {str(error.get('Message', '')).rstrip('. ')[:300]}"
    if code in _THROTTLED:
        message = f"{what} is asked too often for cluster {alias}: {said}. Try again later, with a longer --interval."
        return UsageThrottled(message, alias=alias)
    if code in _UNKNOWN:
        rights = "cloudwatch:ListMetrics and cloudwatch:GetMetricData" if what == "CloudWatch" else "ce:GetCostAndUsage"
        message = f"{what} refuses who we are, for cluster {alias}: {said}. The identity needs {rights}."
        return AuthenticationFailed(message, alias=alias)
    if int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) >= 500:
        return Unreachable(f"{what} does not answer for cluster {alias}: {said}. Try again later.", alias=alias)
    return RequestRefused(f"{what} does not answer the question about cluster {alias}: {said}.", alias=alias)


def _require_private(alias: str, where: str, endpoint: str) -> None:
    parts = urlsplit(endpoint)
    refused = allowed_references.explain_plaintext_refusal([parts.netloc]) if parts.scheme == "http" else None
    if refused is not None:
        raise SecretMissing(f"{where}: {refused}", alias=alias)
