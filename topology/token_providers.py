"""Where OAUTHBEARER gets its tokens: the providers that a topology file may name, and which keys each of them takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

TokenProvider = Literal["client_credentials", "file", "aws_msk_iam", "azure", "google"]
TOKEN_PROVIDERS: tuple[TokenProvider, ...] = get_args(TokenProvider)
DEFAULT_TOKEN_PROVIDER: TokenProvider = "client_credentials"  # noqa: S105 (no password)


@dataclass(frozen=True, slots=True)
class ProviderKeys:
    """What a provider takes. credentials: what the reference holds. required, optional: keys of `oauth`; `extensions`
    goes with every provider. ambient: without `credentials` the machine's own identity is used. endpoints: with
    `credentials` one of these keys is needed, if any are named."""

    credentials: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    ambient: bool = False
    endpoints: tuple[str, ...] = ()


PROVIDER_KEYS: Mapping[str, ProviderKeys] = MappingProxyType(
    {
        "client_credentials": ProviderKeys("the client's id and secret", ("token_endpoint",), ("scope", "ca")),
        "file": ProviderKeys("the path of the token's file"),
        "aws_msk_iam": ProviderKeys(
            "the id and the secret of an access key", ("region",), ("role", "token_endpoint", "ca"), ambient=True
        ),
        "azure": ProviderKeys(
            "the id and the secret of an application",
            optional=("tenant", "scope", "client_id", "token_endpoint", "ca"),
            ambient=True,
            endpoints=("tenant", "token_endpoint"),
        ),
        "google": ProviderKeys(
            "the path of a service account's key (JSON)", optional=("scope", "token_endpoint", "ca"), ambient=True
        ),
    }
)
