"""Whether a cluster with `mechanism: OAUTHBEARER` says what its token provider needs, and nothing that it ignores."""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.model import CheckedValue
from watershed.topology.token_providers import DEFAULT_TOKEN_PROVIDER, PROVIDER_KEYS, TOKEN_PROVIDERS


def find_token_problems(path: str, security: CheckedValue, mechanism: CheckedValue) -> Iterator[Problem]:
    """What is missing or superfluous beside `mechanism: OAUTHBEARER`. path: of the section `security`."""
    provider = security.get("provider", default=DEFAULT_TOKEN_PROVIDER)
    keys, oauth = PROVIDER_KEYS[provider], security.at("oauth")
    here = security.at("provider") or mechanism
    if not keys.ambient and security.at("credentials") is None:
        message = f"`{path}`: OAUTHBEARER with provider {provider} needs `credentials`: {keys.credentials}"
        help_ = "say where they are: {env: NAME}, {file: path}"
        yield Problem("SYN012", message, (Label(here.span),), path, help=help_)
    if oauth is None and keys.required:
        shown = ", ".join(f"{name}: …" for name in keys.required)
        message = f"`{path}`: OAUTHBEARER needs `oauth`, which says where tokens come from (provider {provider})"
        help_ = f"oauth: {{{shown}}}, or another `provider`: {', '.join(TOKEN_PROVIDERS)}"
        yield Problem("SYN012", message, (Label(here.span),), path, help=help_)
    if (
        keys.endpoints
        and security.at("credentials") is not None
        and not any(oauth and oauth.at(n) for n in keys.endpoints)
    ):
        message = f"`{path}`: provider {provider} with `credentials` needs `oauth.{keys.endpoints[0]}`"
        yield Problem("SYN012", message, (Label(here.span),), path, help=f"or {' or '.join(keys.endpoints[1:])}")
    if oauth is None:
        return
    yield from _find_shared_role(path, security, oauth)
    for name in keys.required:
        if oauth.at(name) is None:
            message = f"`{path}.oauth` has no `{name}`, which provider {provider} needs"
            yield Problem("SYN012", message, (Label(oauth.span),), f"{path}.oauth", help=f"add `{name}`")
    for name, value in oauth.fields.items():
        if name not in (*keys.required, *keys.optional, "extensions"):
            takes = ", ".join((*keys.required, *keys.optional, "extensions"))
            message = f"`{path}.oauth.{name}` means nothing to provider {provider}; it takes {takes}"
            help_ = f"drop `{name}`, or name the provider that it is for"
            yield Problem("SYN009", message, (Label(value.key or value.span),), f"{path}.oauth.{name}", help=help_)


def _find_shared_role(path: str, security: CheckedValue, oauth: CheckedValue) -> Iterator[Problem]:
    """The account of `align_credentials` would take on the role, too: brokers see one principal, with the rights of
    both accounts."""
    aligner, role = security.at("align_credentials"), oauth.at("role")
    if aligner is None or role is None:
        return
    message = f"`{path}.align_credentials` names no account of its own: both access keys assume `oauth.role`"
    why = "brokers see the role, so each account may do what the other may, and DELETE on topics is not apart"
    help_ = "drop `oauth.role`, so that each access key acts for itself, or drop `align_credentials`"
    where = f"{path}.align_credentials"
    labels = (Label(aligner.key or aligner.span), Label(role.key or role.span, "the role of both"))
    yield Problem("SYN009", message, labels, where, notes=(why,), help=help_)
