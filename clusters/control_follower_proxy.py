"""A `ControlFollower` whose Kafka client is in a process apart (`clusters.crash_isolated_client`).

Below the class: what is called in that process. Records cross as they came, a byte a character, and are read by whoever
reads those of brokers: a process that was taken over can say no more than a broker can.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from watershed.clusters.control_follower import ControlFollower, FollowedRecord
from watershed.clusters.crash_isolated_client import ClientProcess, ClientProcessEnded, ClientProcesses
from watershed.clusters.errors import ClusterError
from watershed.clusters.settings import resolve_connection_settings
from watershed.topology.bounded_json import MAX_JSON_BYTES
from watershed.topology.plan import PlanCluster

_PIECE = 1 << 20  # bytes of records in one answer, or one record
_HERE = f"{__name__}:"


class ControlFollowerProxy:
    """As `ControlFollower`, of which it is the other end. Not thread-safe."""

    def __init__(self, apart: ClientProcesses, cluster: PlanCluster) -> None:
        """Raises CallFailed for a secret that is missing and the like, ProcessEnded."""
        self.complete = False
        self._apart, self._cluster, self._name = apart, cluster, f"cluster {cluster.alias}"
        self._child: ClientProcess = apart.enter(cluster, self._name)
        try:
            self._number = _number(self._call("begin", cluster=cluster.to_json()))
        except BaseException:
            apart.leave(cluster, self._child)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, timeout: float) -> None:
        """Raises ClusterError."""
        self.complete = self._call("ask", number=self._number, timeout=timeout) is True
        self._apart.hear(self._cluster, self._child)

    def read(self, wait: float) -> list[FollowedRecord]:
        """Raises ClusterError."""
        told = self._call("read", number=self._number, wait=wait)
        try:
            self.complete = told["complete"] is True
            return [_seen(each) for each in told["records"]]
        except (TypeError, ValueError, LookupError) as error:
            self._child.end(why := f"its answer is none: {error}"[:300])
            raise ClientProcessEnded(f"the process was ended ({why})") from None

    def close(self) -> None:
        """End the follower in the child; a child that died is no error."""
        with suppress(ClusterError):
            self._call("close", number=self._number)
        self._apart.leave(self._cluster, self._child)

    def _call(self, function: str, **arguments: Any) -> Any:
        try:
            return self._child.call(_HERE + function, arguments)
        except ClientProcessEnded as ended:
            raise ClientProcessEnded(self._apart.why(self._cluster, self._name) or str(ended)) from None


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError(f"a number was expected, not {value!r:.100}")
    return value


def _seen(value: Any) -> FollowedRecord:
    """Raises ValueError."""
    topic, offset, key, payload = value
    if not (isinstance(topic, str) and isinstance(key, str) and isinstance(payload, str | None)):
        raise ValueError(f"a record was expected, not {value!r:.100}")
    return FollowedRecord(topic, _number(offset), key, None if payload is None else payload.encode("latin-1"))


# -- in the process apart ---------------------------------------------------------------------------------------


class _Followed:
    def __init__(self, following: ControlFollower) -> None:
        self.following = following
        self.left: list[FollowedRecord] = []


_followed: dict[int, _Followed] = {}
_numbers = itertools.count()


def begin(cluster: dict[str, Any]) -> int:
    """Begins to follow a plan's cluster (as JSON), in the child. Returns the follower's number."""
    number = next(_numbers)
    _followed[number] = _Followed(ControlFollower(resolve_connection_settings(PlanCluster.from_json(cluster))))
    return number


def ask(number: int, timeout: float) -> bool:
    """Whether everything has been read, after the cluster answered. Raises ClusterError."""
    found = _followed[number]
    found.following.ask(timeout)
    return found.following.complete and not found.left


def read(number: int, wait: float) -> dict[str, Any]:
    """Returns the next records, as many as fit into one answer, and whether that is all for now."""
    found = _followed[number]
    if not found.left:
        found.left = found.following.read(wait)
    piece: list[list[Any]] = []
    size = 0
    for each in found.left:
        size += len(each.payload or b"") + len(each.key)
        if piece and size > _PIECE:
            break
        piece.append(_plain(each))
    del found.left[: len(piece)]
    return {"records": piece, "complete": found.following.complete and not found.left}


def close(number: int) -> None:
    """Ends the follower of this number."""
    _followed.pop(number).following.close()


def _plain(record: FollowedRecord) -> list[Any]:
    """A payload that is longer than what Watershed writes is no record of it: nobody reads it, and it is not passed."""
    payload = record.payload if record.payload is None or len(record.payload) <= MAX_JSON_BYTES else b""
    return [record.topic, record.offset, record.key, None if payload is None else payload.decode("latin-1")]
