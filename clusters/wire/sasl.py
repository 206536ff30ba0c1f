"""The client's side of SASL mechanisms, without any I/O: each is a generator that yields what to send and is sent what
the server answered. It returns when it has nothing more to say."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

import scramp

from watershed.clusters.connection_parameters import ConnectionParameters, KerberosSettings
from watershed.clusters.errors import AuthenticationFailed, ProtocolError

SaslExchange = Generator[bytes, bytes, None]

SASL_SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def start_sasl_exchange(settings: ConnectionParameters, host: str, token: Callable[[], str]) -> SaslExchange:
    """For the mechanism of the settings. `token` is asked for with OAUTHBEARER.

    Raises AuthenticationFailed when the server cannot prove that it knows the password too, ProtocolError for a
    mechanism that is not there or an answer that makes no sense.
    """
    mechanism = settings.mechanism or "GSSAPI"  # Kafka's default
    username, password = settings.username or "", settings.password or ""
    if mechanism == "PLAIN":
        return exchange_plain(username, password)
    if mechanism in SASL_SCRAM_MECHANISMS:
        return exchange_scram(settings.alias, mechanism, username, password)
    if mechanism == "OAUTHBEARER":
        return exchange_oauthbearer(token(), settings.oauth.extensions if settings.oauth else ())
    if mechanism == "GSSAPI":
        return exchange_gssapi(settings.alias, settings.kerberos or KerberosSettings(), host)
    raise ProtocolError(f"cluster {settings.alias} asks for an unknown mechanism {mechanism}", alias=settings.alias)


def exchange_plain(username: str, password: str) -> SaslExchange:
    """RFC 4616."""
    yield b"\0" + username.encode() + b"\0" + password.encode()


def exchange_scram(alias: str, mechanism: str, username: str, password: str) -> SaslExchange:
    """RFC 5802 and 7677, by scramp; the server's proof is checked."""
    try:
        client = scramp.ScramClient([mechanism], username, password)
        client.set_server_first((yield client.get_client_first().encode()).decode())
        final = yield client.get_client_final().encode()
        client.set_server_final(final.decode())
    except (scramp.ScramException, UnicodeDecodeError) as error:
        raise AuthenticationFailed(
            f"cluster {alias}: {mechanism} of user {username} came to no end: {error}. "
            f"Check clusters.{alias}.security, and whether these addresses belong to that cluster.",
            alias=alias,
        ) from None


def exchange_oauthbearer(token: str, extensions: Iterable[tuple[str, str]]) -> SaslExchange:
    """RFC 7628, with KIP-342's extensions."""
    pairs = "".join(f"{key}={value}\x01" for key, value in extensions)
    refusal = yield f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()
    if refusal:  # a JSON object that says why; after this the server says it as an error
        yield b"\x01"


def exchange_gssapi(alias: str, kerberos: KerberosSettings, host: str) -> SaslExchange:
    """RFC 4752 by the gssapi package (the system's Kerberos); authentication only, as Kafka's brokers do it."""
    try:
        import gssapi as gss
    except ImportError as error:
        raise ProtocolError(
            f"cluster {alias} takes GSSAPI, and the Python package gssapi is not installed here ({error}); install "
            "watershed[gssapi] (it needs the system's Kerberos library, Debian: libkrb5-dev, libgssapi-krb5-2)",
            alias=alias,
        ) from None
    try:
        service = gss.Name(f"{kerberos.service}@{host}", gss.NameType.hostbased_service)
        user = gss.Name(kerberos.principal, gss.NameType.kerberos_principal) if kerberos.principal else None
        store = {"client_keytab": kerberos.keytab} if kerberos.keytab else None
        credentials = gss.Credentials(name=user, usage="initiate", store=store) if user or store else None
        context = gss.SecurityContext(
            name=service,
            creds=credentials,
            usage="initiate",
            mech=gss.MechType.kerberos,
            flags=gss.RequirementFlag.mutual_authentication,
        )
        answer = None
        while not context.complete:
            answer = yield context.step(answer) or b""  # after the last step: nothing, and the layers come back
        limits = context.unwrap(answer).message  # octet 0: the layers it offers, then its buffer size
        authorization = str(context.initiator_name).encode()
        yield context.wrap(b"\x01" + limits[1:4] + authorization, False).message
    except gss.exceptions.GSSError as error:
        raise AuthenticationFailed(
            f"cluster {alias}: Kerberos as {kerberos.principal or 'the default principal'} "
            f"for {kerberos.service}@{host} failed: {error}. "
            "Check the keytab or ticket cache (klist), the broker's principal, and the clocks.",
            alias=alias,
        ) from None
