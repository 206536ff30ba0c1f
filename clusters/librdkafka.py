"""What librdkafka says, in our words: its errors as `ClusterError`s, its futures with a bound.

librdkafka tells *why* a cluster does not answer (refused, unknown host, TLS, wrong password) only through its
error callback; the call itself just times out. `LibrdkafkaErrors` keeps the latest of those texts for the message.
"""

from __future__ import annotations

import concurrent.futures
import functools
import re
import time
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from watershed.clusters.connection_parameters import ConnectionParameters
from watershed.clusters.errors import (
    AuthenticationFailed,
    ClusterError,
    GroupNotEmpty,
    RequestRefused,
    TopicMissing,
    Unauthorised,
)

_T = TypeVar("_T")

_NO_ANSWER = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._SSL,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._WAIT_COORD,
    KafkaError._DESTROY,
    KafkaError.NETWORK_EXCEPTION,
}
_UNKNOWN_TO_THEM = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
}
_NOT_ALLOWED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
UNKNOWN_TOPIC_CODES = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
_LIVE_GROUP = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP, KafkaError.ILLEGAL_GENERATION}


_LOOK_S = 3.0
_LOOK_AGAIN_S = 5.0


class LibrdkafkaErrors:
    """The client's error callback (`error_cb`): keeps the latest reason that means something to a person."""

    def __init__(self) -> None:
        self._latest: KafkaError | None = None
        self._at = 0.0
        self._refusal: Unauthorised | None = None
        self._looked = float("-inf")

    def __call__(self, error: KafkaError) -> None:
        """Called by librdkafka, on the thread that polls the client."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # it follows the reason and says less
            self._latest, self._at = error, time.monotonic()

    @property
    def latest(self) -> KafkaError | None:
        """None when the latest complaint is half a minute old: it does not explain what fails now."""
        return self._latest if time.monotonic() - self._at < 30 else None

    def refusal(self, settings: ConnectionParameters) -> Unauthorised | None:
        """Why a secured cluster and this client do not trust each other, as a raw connection of our own is told it:
        librdkafka keeps the certificate's subject and end, and what a token endpoint said, to itself. None when that
        is not it. Asks the bootstrap addresses, for about 3 s in all, and not again within 5 s."""
        now = time.monotonic()
        if settings.protocol == "PLAINTEXT" or now - self._looked < _LOOK_AGAIN_S:
            return self._refusal
        from watershed.clusters.wire.secured_transport import open_transport

        self._refusal = None
        until = now + _LOOK_S
        try:
            with suppress(ValueError):  # an address that is none
                for address in settings.bootstrap_addresses:
                    try:
                        left = max(until - time.monotonic(), 0.1)
                        open_transport(settings, address, timeout_s=left).transport.close()
                        break
                    except Unauthorised as error:
                        self._refusal = error
                        break
                    except ClusterError:  # this address tells nothing; the next may
                        if time.monotonic() > until:
                            break
        finally:
            self._looked = time.monotonic()
        return self._refusal


def build_cluster_error(
    settings: ConnectionParameters,
    error: KafkaError,
    complaints: LibrdkafkaErrors | None = None,
    *,
    doing: str,
    topic: str | None = None,
    partition: int | None = None,
    group: str | None = None,
) -> ClusterError:
    """`doing` completes "while ...", e.g. "committing offsets of group billing"."""
    code = error.code()
    complaint = complaints.latest if complaints is not None else None
    if code in _NO_ANSWER and complaint is not None:
        error, code = complaint, complaint.code()
    if code in _NO_ANSWER or code == KafkaError._AUTHENTICATION:
        refusal = (complaints or LibrdkafkaErrors()).refusal(settings)
        if refusal is not None:
            return refusal
    if complaint is error and code not in _NOT_ALLOWED | _UNKNOWN_TO_THEM:
        return settings.unreachable(_plain(error.str()))
    if code in _NO_ANSWER:
        return settings.unreachable(f"no answer in time while {doing} ({error.str()})")
    where: dict[str, Any] = {"alias": settings.alias, "topic": topic, "partition": partition, "group": group}
    if code in _NOT_ALLOWED | _UNKNOWN_TO_THEM:
        kind = AuthenticationFailed if code in _UNKNOWN_TO_THEM else Unauthorised
        who = f"user {settings.username}" if settings.username else "this client (without a user name)"
        return kind(
            f"cluster {settings.alias} refused {who} while {doing}: {error.str().rstrip('. ')}. "
            f"Check clusters.{settings.alias}.security and the ACLs granted there.",
            **where,
        )
    if code in UNKNOWN_TOPIC_CODES and topic is not None:
        name = topic if partition is None or partition < 0 else f"{topic} partition {partition}"
        return TopicMissing(
            f"cluster {settings.alias} has no topic {name} (while {doing}). "
            "Check the name, whether it was deleted, and whether this user may see it.",
            **where,
        )
    if code in _LIVE_GROUP:
        return build_group_not_empty_error(settings.alias, group or "?")
    refused = RequestRefused(
        f"cluster {settings.alias} answered {error.name()} ({code}) while {doing}: {error.str().rstrip('. ')}.",
        **where,
    )
    refused.code = code
    return refused


def _plain(text: str) -> str:
    """Without librdkafka's own coordinates: "host:port/bootstrap: Connection refused (after 0ms in state CONNECT)"."""
    return re.sub(r"^\S+/\w+: |\s*\(after \d+ms in state .*$", "", text)


def build_group_not_empty_error(alias: str, group: str) -> GroupNotEmpty:
    """The error for a commit into a group that has members."""
    return GroupNotEmpty(
        f"consumer group {group} on cluster {alias} still has members; its offsets were not touched. "
        "Stop every consumer of the group, wait until it has left (state Empty), and try again.",
        alias=alias,
        group=group,
    )


@functools.cache
def is_mechanism_supported(mechanism: str) -> bool:
    """Whether this build of librdkafka knows a SASL mechanism."""
    try:
        Producer({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "log_level": 0})
    except KafkaException as error:
        return "No provider for SASL mechanism" not in str(error)
    return True


def extract_kafka_error(error: Exception) -> KafkaError:
    """The KafkaError inside a KafkaException, or one made of any other exception a client call raised."""
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return error.args[0]
    return KafkaError(KafkaError._FAIL, str(error))


def wait_for_result(future: concurrent.futures.Future[_T], timeout: float) -> _T:
    """Wait for an admin future. Too long a wait raises KafkaException(_TIMED_OUT), as librdkafka would."""
    try:
        return future.result(timeout=timeout)
    except concurrent.futures.TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer")) from None
