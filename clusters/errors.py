"""Everything that can go wrong with a cluster, as one tree.

::

    ClusterError                 alias, topic, partition, group: the coordinates, as far as they are known
    ├── SecretMissing            a secret reference that leads nowhere (before any connection)
    ├── Unreachable              no broker answered in time; the outcome of what was under way is unknown
    │   └── Unanswered           a broker answers, and leaves out what it was asked about (a quota is used up)
    ├── Unauthorised             the cluster answered, and refused who we are or what we may do
    │   ├── AuthenticationFailed refused who we are: password, token, client certificate
    │   └── UntrustedBroker      the broker's certificate does not prove that it is the broker we meant
    ├── WrongCluster             the cluster at these addresses is not the one the topology pins
    ├── TopicMissing             a topic (or partition) that should be there is not
    ├── TopicExists              a topic of that name is there already, with another shape
    ├── GroupNotEmpty            a consumer group that still has members; its offsets are never touched
    ├── RequestRefused           the broker answered with an error code we have no better name for (`code`)
    │   └── RequestUnsupported   the broker is too old (or too new) for a request: nothing was sent
    ├── ProcessEnded, CallFailed (`clusters.crash_isolated_client`) the process that asks for us ended; what it raised
    └── ProtocolError            an answer, a batch or a control record that cannot be understood

Every one of them is a message for people (`str()` says what is wrong, where, and what to do) and ends a
command with `exit_code` 2. They can be pickled, so that Spark tasks and Airflow workers may raise them.
"""

from __future__ import annotations

from collections.abc import Sequence


class ClusterError(Exception):
    """Root of the tree. The message is complete in itself; the attributes repeat its coordinates."""

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        alias: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
    ) -> None:
        super().__init__(message)
        self.alias = alias
        self.topic = topic
        self.partition = partition
        self.group = group


class SecretMissing(ClusterError):
    """A secret reference (environment variable, file, Airflow connection) that cannot be resolved."""


class Unreachable(ClusterError):
    """No answer in time. Build it with `Unreachable.at`, so that the message is the same everywhere."""

    bootstrap: tuple[str, ...] = ()

    @classmethod
    def at(cls, alias: str, bootstrap: Sequence[str], reason: str, *, protocol: str = "PLAINTEXT") -> Unreachable:
        """`reason` is what the network or librdkafka said, e.g. "Connection refused"."""
        error = cls(
            f"cluster {alias} does not answer at {', '.join(bootstrap)}: {reason.rstrip('. ')}. "
            f"Check that its brokers run, that clusters.{alias}.bootstrap names addresses this machine can "
            f"reach, and that they speak {protocol} there.",
            alias=alias,
        )
        error.bootstrap = tuple(bootstrap)
        return error


class Unanswered(Unreachable):
    """The broker answers, but leaves out the partition that it was asked about, as it does over a quota (KIP-219)."""


class Unauthorised(ClusterError):
    """Authentication failed, or an ACL is missing."""


class AuthenticationFailed(Unauthorised):
    """The cluster does not know us: wrong password, refused token, refused (or missing) client certificate.

    The next connection reads the secrets again, so a credential that was changed meanwhile works by itself.
    """


class UntrustedBroker(Unauthorised):
    """The broker's certificate is expired, of an unknown authority, or of another host. Nothing was sent to it."""


class WrongCluster(ClusterError):
    """The pinned `cluster_id` differs from the one the brokers report."""


class TopicMissing(ClusterError):
    """The topic or partition does not exist (any more)."""


class TopicExists(ClusterError):
    """A topic of that name exists with other partitions or another cleanup policy than asked for."""


class GroupNotEmpty(ClusterError):
    """The consumer group has members, so the broker refuses foreign commits; so do we."""


class CannotFence(ClusterError):
    """A fence that would not hold, or would shut out others (`clusters.producer_fence`)."""


class RequestRefused(ClusterError):
    """The broker's own error, with its number in `code` (https://kafka.apache.org/protocol#protocol_error_codes)."""

    code: int = -1


class RequestUnsupported(RequestRefused):
    """The broker does not take a request, or not in a version that says what is meant. release: the first Kafka that
    has it, where that is known."""

    release: str | None = None


class ProtocolError(ClusterError):
    """Bytes that do not mean what they should: an answer, a record batch, a control record."""


class UnreadableControlRecord(ProtocolError, ValueError):
    """A value of a control topic that is no record of its kind. key: of the record, empty where it is not known.
    field: which one is wrong, empty where it is none of them alone. is_newer: a newer version wrote it, as it says."""

    def __init__(
        self, message: str, *, topic: str | None = None, key: str = "", field: str = "", is_newer: bool = False
    ) -> None:
        super().__init__(message, topic=topic)
        self.key = key
        self.field = field
        self.is_newer = is_newer
