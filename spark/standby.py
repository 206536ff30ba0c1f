"""A proof process that stays after its first proof, ready to prove what has come since.

While producers are fenced nobody writes, and an application takes fifteen seconds until it reads. So the one that has
proven the history keeps its session and its executors' Python. Orders come on standard input, one a line: the arguments
of `python -m watershed.spark.verify` as a JSON list. When that ends, whoever could order is gone, and so are we.
"""

from __future__ import annotations

import contextlib
import json
import select
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from io import FileIO
from types import TracebackType
from typing import TYPE_CHECKING, Self

from watershed.clusters.control_topics import SLOT_COUNT
from watershed.clusters.errors import ClusterError
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.ledger.ledger_follower import LedgerFollower
from watershed.spark.judging.flow_observation import PartitionAlignment
from watershed.spark.proof_session import start_proof_session
from watershed.spark.session import end_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PULSE_S = 20.0  # Spark ends a Python worker that had nothing to do for a minute (PythonWorkerFactory)
_PULSE_TASK_S = 0.05  # long enough that no worker takes two tasks of a pulse


@dataclass(slots=True)
class WarmSession:
    """A Spark session and followed ledgers, shared by the proofs of one process. say: told where the session waits for
    cores. topology: the name in the session's own, set before the first proof."""

    say: Callable[[str], None]
    topology: str = ""
    _ledgers: dict[tuple[str, str], LedgerFollower] = field(init=False, default_factory=dict)
    _session: SparkSession | None = field(init=False, default=None)

    def session(self) -> SparkSession:
        """The session, started by the first call."""
        if self._session is None:
            self._session = start_proof_session(self.topology, self.say)
        return self._session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            end_session(self._session)

    def alignment(self, target: ConnectionSettings, flow: str) -> dict[tuple[str, int], PartitionAlignment]:
        """As `spark.judging.flow_observation.read_ledger_alignment`."""
        place = (target.alias, flow)
        if place not in self._ledgers:
            self._ledgers[place] = LedgerFollower(target, flow, range(SLOT_COUNT))
        copies = self._ledgers[place].read().copies()
        return {
            (key.topic, key.partition): PartitionAlignment(*found) for key, found in copies.items() if key.flow == flow
        }

    def pulse(self) -> None:
        """Runs a short task on every core, so that Spark keeps its Python workers. Raises SparkError; a cluster that
        does not answer is asked again by the proof.
        """
        for ledger in self._ledgers.values():
            with contextlib.suppress(ClusterError):
                ledger.read()
        from watershed.spark.failure_text import raise_as_spark_error

        with raise_as_spark_error(
            "the application that waits has lost its session", "A new one proves what this would have"
        ):
            context = self.session().sparkContext
            cores = context.defaultParallelism
            context.parallelize(range(cores), cores).foreachPartition(warm_executor)


def warm_executor(_rows: Iterable[int]) -> None:
    """Loads what a proof's tasks load, and keeps the worker process busy for a moment."""
    import watershed.spark.spark_range_readers  # noqa: F401

    time.sleep(_PULSE_TASK_S)


def serve_proof_requests(
    orders: FileIO,
    prove: Callable[[list[str]], float | None],
    pulse: Callable[[], None],
    bound: float,
    every: float = _PULSE_S,
) -> None:
    """Makes the proofs that are requested until `orders` ends, or for `bound` seconds; calls `pulse` every `every`
    seconds. prove: returns for how many seconds to stay after this proof, at least; None changes nothing.
    """
    ends = time.monotonic() + bound
    pulse()
    while (left := ends - time.monotonic()) > 0:
        if not select.select([orders], [], [], min(every, left))[0]:
            pulse()
            continue
        line = orders.readline()
        if not line.endswith(b"\n"):
            return
        stay = prove([str(word) for word in json.loads(line)])
        ends = max(ends, time.monotonic() + (stay or 0.0))
