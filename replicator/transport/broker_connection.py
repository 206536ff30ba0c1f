"""What fetchers and senders share: a thread with one connection to one broker, that sleeps, wakes and reconnects.

A broker is served by two threads, each with a connection of its own. The *live* thread has the partitions whose copy is
at the end of the log, the *bulk* thread those that have much to catch up. So a new record never waits behind megabytes
of older ones, in no buffer and no queue.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from contextlib import suppress
from typing import Final, Literal

from watershed.clusters.errors import ClusterError, ProtocolError
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.replicator.recovery.log_inspection import BrokerAddress

log = logging.getLogger("watershed.links")

# A broker is far away if no round trip takes less (decision 0103). Two brokers of one site answer within 2 ms.
FAR_S: Final = 0.02
LONGEST_SLEEP_S: Final = 0.25  # how long a thread sleeps at most when nothing wakes it
_AFTER_A_LOSS_S: Final = 0.1
TrafficClass = Literal["live", "bulk"]


class BrokerConnectionThread(threading.Thread):
    """A subclass does its work in `_round`, and says in `_dropped` what the loss of the connection means."""

    def __init__(self, what: str, kind: TrafficClass, settings: ConnectionSettings, address: BrokerAddress) -> None:
        super().__init__(name=f"{what}-{settings.alias}-{address.port}-{kind}", daemon=True)
        self.kind, self.settings, self.address = kind, settings, address
        self.throttled_s = 0.0  # what the broker has asked this thread to wait, in all (KIP-219)
        self._round_trip_s = 0.0  # the shortest that this connection has seen; to connect takes one at least
        self._ending = False
        self._connection: Connection | None = None
        self._asleep = False
        self._waking, self._wake = os.pipe()
        self._pipe = threading.Lock()  # held while its ends are used or closed by others than this thread
        os.set_blocking(self._wake, False)
        os.set_blocking(self._waking, False)
        self._not_before = 0.0  # monotonic; the broker does not want to hear from us earlier

    def wake(self) -> None:
        """Tell the thread that there may be work. Cheap while it is at work; any thread may call it."""
        if self._asleep:
            self._asleep = False
            with self._pipe, suppress(BlockingIOError):
                if self._wake >= 0:  # its number may be another file's once it is closed
                    os.write(self._wake, b"\0")

    def end(self) -> None:
        """Ask the thread to end; it closes its connection and pipe itself."""
        self._ending = self._asleep = True
        self.wake()

    def run(self) -> None:
        """Fetch or send in rounds until `end`. A failure costs the connection, never the thread."""
        while not self._ending:
            try:
                self._round()
            except ClusterError as error:
                self._lost(error)
            except Exception as error:
                log.exception("link failed", extra={"link": self.name})
                self._lost(ProtocolError(f"{type(error).__name__}: {error}", alias=self.settings.alias))
        self._disconnect()
        with self._pipe:
            os.close(self._wake)
            os.close(self._waking)
            self._wake = self._waking = -1

    def _round(self) -> None:
        """Do something, or sleep until there may be something to do."""
        raise AssertionError("a subclass fetches or sends")

    def _dropped(self, reason: str, closed: bool) -> None:
        """The connection is lost, and with it every answer that was awaited on it. `closed`: it was there, and the
        broker ended it rather than being silent; so it may well take another one."""
        raise AssertionError("a subclass fetches or sends")

    def _sleep(self, seconds: float, *, until_answer: bool = False) -> bool:
        """Until `wake`, or with `until_answer` until the connection has something to read (then True).

        Call with `_asleep` set before the last look at what there is to do, so that no wake-up gets lost in between.
        """
        if not self._asleep:
            return False
        poll = select.poll()
        poll.register(self._waking, select.POLLIN)
        answers = -1
        if self._connection is not None:  # where no answer is awaited: the broker closes it
            answers = self._connection.fileno()
            poll.register(answers, select.POLLIN)
        found = [descriptor for descriptor, _event in poll.poll(max(seconds, 0.0) * 1000)]
        self._asleep = False
        if self._waking in found:
            with suppress(BlockingIOError):
                os.read(self._waking, 4096)
        if answers not in found:
            return False
        if not until_answer:
            self._check_connection()
        return until_answer

    def _apply_throttle(self, throttle_ms: int) -> None:
        """The broker's quota for us is spent: say nothing on this connection for that long."""
        if throttle_ms > 0:
            self.throttled_s += throttle_ms / 1000
            self._not_before = max(self._not_before, time.monotonic() + throttle_ms / 1000)

    def _check_connection(self) -> None:
        """No answer is awaited: a connection that the broker has closed is given up now, before anything is sent on it
        whose outcome nobody would know (an idle one is closed after the broker's connections.max.idle.ms)."""
        if self._connection is not None and self._connection.ended():
            log.info("link closed by the broker", extra={"link": self.name})
            self._disconnect()

    def _lost(self, error: ClusterError) -> None:
        log.warning("link lost", extra={"link": self.name, "reason": str(error)})
        closed = self._connection is not None and not isinstance(error.__cause__, TimeoutError)
        self._disconnect()
        self._dropped(str(error), closed)
        self._asleep = True
        self._sleep(_AFTER_A_LOSS_S)

    def _connected(self) -> Connection:
        if self._connection is None:
            began = time.monotonic()
            self._connection = open_connection(self.settings, self.address)
            self._round_trip_s = time.monotonic() - began
        return self._connection

    @property
    def is_far(self) -> bool:
        """Whether the broker is far away, as far as this connection knows."""
        return self._round_trip_s >= FAR_S

    def _note_answer(self, took_s: float) -> None:
        """An answer that did not wait for anything has taken so many seconds."""
        self._round_trip_s = min(self._round_trip_s, took_s)

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
            self._connection = None
