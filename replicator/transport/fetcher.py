"""The threads that fetch: all partitions of a thread in one Fetch, as far as buffers, quotas and memory have room.

The live partitions of a broker have two threads, for the *busy* and the *quiet* ones. The broker goes through all
partitions of a session for each question and each answer (20 ms and more for 10,000): a record of a busy partition
would wait for thousands of quiet ones.

A thread has a session with its broker (KIP-227), and each of its partitions is either asked for or left out. What an
answer names, and what other threads tell (`put`, `remove`), is looked at again; a quiet partition costs nothing in a
round. So a round costs what has happened, however many partitions there are.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable
from contextlib import closing
from typing import Final

from watershed.clusters.errors import ClusterError
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.fetch_session import FetchSession
from watershed.clusters.wire.messages import FetchedPartition, FetchPartition
from watershed.replicator.partition_states import Reinspect
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.replicator.transport.active_copy import ActiveCopy, SessionClock
from watershed.replicator.transport.answer_delivery import cut_overlap, deliver_answer
from watershed.replicator.transport.broker_connection import LONGEST_SLEEP_S, BrokerConnectionThread, TrafficClass
from watershed.replicator.transport.confirmation import confirm_sources, needs_confirmation
from watershed.replicator.transport.fetch_turns import FetchTurns
from watershed.replicator.transport.rate_limit import MIN_ALLOWANCE_BYTES
from watershed.replicator.transport.replica_choice import READ_LEADER, ReplicaChoice, choose_replica, leave_follower

log = logging.getLogger("watershed.links")

_FETCH_BYTES: Final[dict[TrafficClass, int]] = {"live": 512 << 10, "bulk": 4 << 20}  # a partition and Fetch
_ANSWER_BYTES: Final[dict[TrafficClass, int]] = {"live": 2 << 20, "bulk": 16 << 20}
_LEAST_ANSWER: Final = 1 << 20  # a single batch may be larger; the broker sends it all the same (KIP-74)
# A broker with a quota for us answers with nothing where an answer would exceed what is left of the quota's window, and
# cuts answers only to the whole of it (KafkaApis, KIP-219). A fetcher that keeps asking for more than what is left
# never gets data while others of the same client id read. After an empty answer it therefore asks, for 60 s, for one
# eighth of its largest earlier answer, at least _SMALLEST_ANSWER. A window has ten seconds; small answers fill it as
# well.
_SMALLEST_ANSWER: Final = 128 << 10
_CAREFUL_S: Final = 60.0
_TICK_S: Final = 0.001
# What the live thread may hold beyond the memory that there is for all: backlogs fill that, and are no reason to wait.
RESERVED_BYTES: Final[dict[TrafficClass, int]] = {"live": 4 << 20, "bulk": 0}
_LONG_POLL_S: Final = 0.1
# A live thread's, while partitions have room again soon: what is new in one would wait out the poll.
ROOM_SOON_S: Final = 0.01
_LOOK_FOR_QUIET_S: Final = 1.0
_SOON_S: Final = 0.005  # between two looks whether there may be asked again, while answers are under way
# A Fetch that brings something is answered at once, however long it may wait. The broker goes through all partitions of
# the session for each, so one that brings nothing may wait the longer the more there are.
_WAIT_A_PARTITION_S: Final = 0.1 / 2_000
_LONGEST_POLL_S: Final = 0.5
_CHOICES_S: Final = 1.0  # how often a thread looks whether a leader is to be asked again which replica serves
_BROKERS_S: Final = 10.0  # how long it is believed where brokers listen: many partitions are named one follower
FetchPlace = tuple[uuid.UUID, int]  # topic id and partition


class Fetcher(BrokerConnectionThread):
    """`memory`: the bytes that the worker may still hold. is_busy: whether it has the busy ones of the live partitions;
    of no meaning for bulk. coming_s: how long a question may wait at most, because another fetcher of the broker may
    hand over a partition meanwhile."""

    def __init__(
        self,
        kind: TrafficClass,
        settings: ConnectionSettings,
        address: BrokerAddress,
        memory: Callable[[], int],
        is_busy: bool = False,
        coming_s: Callable[[], float] = lambda: math.inf,
    ) -> None:
        super().__init__("fetch-busy" if is_busy else "fetch", kind, settings, address)
        self._memory, self._is_busy, self._coming_s = memory, is_busy, coming_s
        self._session, self._clock = FetchSession(), SessionClock()
        self._news: deque[tuple[ActiveCopy, bool]] = deque()  # what other threads tell: it is ours (or not any more)
        self._served: dict[int, ActiveCopy] = {}  # ours: asked for, or left out
        self._places: dict[FetchPlace, ActiveCopy] = {}  # the same by their places
        self._asked: dict[FetchPlace, ActiveCopy] = {}
        self._left_out: dict[int, ActiveCopy] = {}  # full, or in trouble, or beyond its quota
        self._limited: dict[str, dict[int, ActiveCopy]] = {}  # those with a quota, by flow
        self._weights: Counter[int] = Counter()
        self._heaviest = 1
        self._holders: dict[int, ActiveCopy] = {}  # may hold bytes
        self._fits = _ANSWER_BYTES[kind]  # what an answer may have, as the broker's quota for us goes
        self._largest = 0  # bytes of an answer
        self._look_for_quiet_at = 0.0  # monotonic
        self._turns: FetchTurns | None = None  # of busy partitions, while the broker is far away
        self._no_room = 0.0  # when the quota last left no room for one, on the monotonic clock
        self._choices_at = 0.0  # when the choices of replicas were looked at last, on the monotonic clock
        self._brokers: dict[int, tuple[str, int]] = {}  # where they listen, by id, when somebody last asked
        self._brokers_at = 0.0
        self.follower_bytes = 0  # bytes of records that followers sent

    @property
    def is_used(self) -> bool:
        """Whether there are partitions to fetch."""
        return bool(self._served or self._news)

    def put(self, active: ActiveCopy) -> None:
        """The partition is this thread's, or has room again. Any thread may call it."""
        self._news.append((active, True))
        self.wake()

    def remove(self, active: ActiveCopy) -> None:
        """The partition is nobody's any more. Any thread may call it."""
        self._news.append((active, False))
        self.wake()

    def list_holders(self) -> list[ActiveCopy]:
        """Those that may hold bytes. Any thread may call it."""
        return list(self._holders.values())

    def _round(self) -> None:
        self._asleep = True
        now = time.monotonic()
        early = self._review_changed(now)
        memory = self._memory() + RESERVED_BYTES[self.kind]
        pause = max(self._not_before - now, early if not self._asked else 0.0, 0.0)
        can_ask = bool(self._asked) and memory > 0 and pause <= 0
        if not can_ask and (self._turns is None or not self._turns.is_waiting):
            self._sleep(min(pause, LONGEST_SLEEP_S) if pause else LONGEST_SLEEP_S)
            return
        self._asleep = False
        max_bytes = min(max(min(_ANSWER_BYTES[self.kind], memory), _LEAST_ANSWER), self._fits)
        if self._turns is None:
            self._fetch(max_bytes, self._find_wait(early))
        else:
            self._take_turns(self._turns, can_ask, max_bytes, self._find_wait(early))

    def _find_wait(self, early: float) -> float:
        """For how many seconds a question may wait for news."""
        wait_s = max(_LONG_POLL_S, min(len(self._asked) * _WAIT_A_PARTITION_S, _LONGEST_POLL_S))
        if self._left_out:
            wait_s = min(_LONG_POLL_S, early)
        if self.kind == "live" and any(map(_waits_for_room, self._left_out.values())):
            wait_s = min(wait_s, ROOM_SOON_S)
        return min(wait_s, self._coming_s())

    # -- which partitions are asked for --------------------------------------------------------------------------------

    def _review_changed(self, now: float) -> float:
        """Ask for what can be fetched now, and leave out what cannot. Returns the seconds until a flow that is beyond
        its quota may be asked for again, at most _LONG_POLL_S."""
        again = {**self._left_out, **self._take_news()}
        for active in self._ask_leaders_again(now):
            again.pop(id(active), None)
        if self._is_busy and now >= self._look_for_quiet_at:
            self._look_for_quiet_at = now + _LOOK_FOR_QUIET_S
            self._give_up_quiet(now)
        for active in list(self._holders.values()):
            if not active.copy.queue.buffered:
                del self._holders[id(active)]
        early = _LONG_POLL_S
        shares: dict[str, int | None] = {}
        for flow, limited in self._limited.items():
            rate = next(iter(limited.values())).rate
            allowance = rate.allowance(now)
            shares[flow] = allowance and max(allowance // len(limited), min(MIN_ALLOWANCE_BYTES, allowance))
            if allowance == 0:
                early = min(early, max(rate.wait(now), _TICK_S))
            again.update(limited)
        for active in again.values():
            self._review(active, shares.get(active.flow))
        return early

    def _take_news(self) -> dict[int, ActiveCopy]:
        """Serve what has come and forget what has gone. Returns what is to be looked at again."""
        changed: dict[int, ActiveCopy] = {}
        while self._news:
            active, is_ours = self._news.popleft()
            if not is_ours or not self._is_ours(active):
                self._drop(active)
                changed.pop(id(active), None)
            else:
                self._serve(active)
                changed[id(active)] = active
        heaviest = max((weight for weight, number in self._weights.items() if number), default=1)
        if heaviest != self._heaviest:
            self._heaviest = heaviest
            changed.update(self._served)
        return changed

    def _is_ours(self, active: ActiveCopy) -> bool:
        return active.kind == self.kind and (active.kind == "bulk" or active.is_busy == self._is_busy)

    def _give_up_quiet(self, now: float) -> None:
        for active in list(self._served.values()):
            if active.become_quiet(now):
                self._drop(active)

    def _serve(self, active: ActiveCopy) -> None:
        if id(active) not in self._served:
            self._served[id(active)] = self._places[find_fetch_place(active)] = active
            active.served_since = time.monotonic()
            self._weights[active.weight] += 1
            if active.rate.quota is not None:
                self._limited.setdefault(active.flow, {})[id(active)] = active
        self._holders[id(active)] = active

    def _drop(self, active: ActiveCopy) -> None:
        self._holders.pop(id(active), None)
        if self._served.pop(id(active), None) is None:
            return
        if self._places.get(find_fetch_place(active)) is active:  # not another copy of the same partition
            del self._places[find_fetch_place(active)]
        self._weights[active.weight] -= 1
        limited = self._limited.get(active.flow)
        if limited is not None and limited.pop(id(active), None) is not None and not limited:
            del self._limited[active.flow]
        self._left_out.pop(id(active), None)
        self._leave_session(active)

    def _leave_session(self, active: ActiveCopy) -> None:
        place = find_fetch_place(active)
        if self._asked.get(place) is active:  # not another copy of the same partition
            del self._asked[place]
            (self._turns or self._session).leave_out(place)

    def _review(self, active: ActiveCopy, share: int | None = None) -> None:
        """share: bytes that its quota allows; None without one."""
        if not self._is_ours(active):
            self._drop(active)
        elif id(active) not in self._served:
            return
        elif share == 0 or not _can_fetch(active):
            active.leave_session()
            self._leave_session(active)
            self._left_out[id(active)] = active
        else:
            self._left_out.pop(id(active), None)
            self._ask(active, _FETCH_BYTES["bulk"] if share is None else share)

    def _ask(self, active: ActiveCopy, share: int) -> None:
        copy, most = active.copy, _FETCH_BYTES[self.kind] * active.weight // self._heaviest
        place = find_fetch_place(active)
        before = self._asked.get(place)
        if before is not active:
            if before is not None:  # has ended, its removal is on its way: two that live are never here (`can_add`)
                self._leave_session(before)
            self._asked[place] = active
        position, epoch = copy.source.position, copy.source.leader_epoch
        (self._turns or self._session).ask(FetchPartition(*place, position, epoch, min(share, most)))

    # -- asking --------------------------------------------------------------------------------------------------------

    def _fetch(self, max_bytes: int, wait_s: float) -> None:
        self._check_connection()
        connection = self._connected()
        sent = time.monotonic()
        answers = connection.fetch(
            self._session, max_wait_ms=int(wait_s * 1000), max_bytes=max_bytes, rack=self.settings.rack or ""
        )
        self._note_fits(answers, sent, leaves_out := self._session.is_incremental and connection.throttle_ms == 0)
        arrived = time.monotonic()
        if leaves_out:
            self._clock.at = arrived
        held_back = self._find_held_back(connection, answers, arrived)
        named = [(self._asked[answer.topic_id, answer.partition], answer) for answer in answers]
        for active, answer in named:
            if (answer.topic_id, answer.partition) not in held_back:
                active.copy.source.asked_at, active.copy.source.received_at = sent, arrived
                self._take(active, answer)
        if leaves_out and self.kind == "bulk":
            self._pass_over({id(active) for active, _ in named})
        self._apply_throttle(connection.throttle_ms)
        if self._is_busy and self.is_far and self._session.is_incremental:
            settings, address = self.settings, self.address
            self._turns = FetchTurns(self._session, lambda: open_connection(settings, address), settings.rack or "")

    def _note_fits(self, answers: list[FetchedPartition], sent: float, leaves_out: bool) -> None:
        """What the broker's quota for us lets into an answer, as the last one shows. leaves_out: whether partitions
        that are not in it have nothing new."""
        if answers:
            self._note_answer(time.monotonic() - sent)
        if not answers and not leaves_out:
            self._no_room = time.monotonic()
            self._fits = min(self._fits, max(self._largest // 8, _SMALLEST_ANSWER))
        elif time.monotonic() - self._no_room > _CAREFUL_S:
            self._fits = _ANSWER_BYTES[self.kind]
        self._largest = max(self._largest, sum(len(answer.records) for answer in answers))

    def _take_turns(self, turns: FetchTurns, can_ask: bool, max_bytes: int, wait_s: float) -> None:
        """Take answers as they come, while further questions are under way."""
        if can_ask:
            turns.send_due(time.monotonic(), self._round_trip_s, wait_s, max_bytes)
        for turn in turns.receive_ready(LONGEST_SLEEP_S if can_ask else _SOON_S, can_ask=can_ask):
            arrived = time.monotonic()
            leaves_out = turn.is_incremental and turn.throttle_ms == 0
            self._note_fits(turn.partitions, turn.sent, leaves_out)
            if leaves_out:
                self._clock.at = arrived
            for answer in turn.partitions:
                active = self._places.get((answer.topic_id, answer.partition))
                # Else it was handed over meanwhile, or the question was of another copy, at another position. One that
                # is left out for a moment, such as by its quota, is asked for by questions that are under way.
                if active is not None and self._is_ours(active) and turn.sent >= active.served_since:
                    active.copy.source.asked_at, active.copy.source.received_at = turn.sent, arrived
                    self._take(active, cut_overlap(active, answer))
            self._apply_throttle(turn.throttle_ms)

    def _disconnect(self) -> None:
        super()._disconnect()
        if self._turns is not None:
            self._turns.close()
            self._turns = None

    def _take(self, active: ActiveCopy, answer: FetchedPartition) -> None:
        if active.copy.trouble is None:  # else what is fetched would be dropped
            self._holders[id(active)] = active
            active.leave_session()  # the other fetcher may have it as soon as it is delivered
            if self._follow_answer(active, answer):
                return
            if active.replica.follower is not None:
                self.follower_bytes += len(answer.records)
            deliver_answer(active, answer)
            self._enter_session(active)
        if active.rate.quota is None or not self._is_ours(active):  # the others are looked at in each round
            self._review(active)

    # -- which replica is read (KIP-392) -------------------------------------------------------------------------------

    def _follow_answer(self, active: ActiveCopy, answer: FetchedPartition) -> bool:
        """Whether the answer sends the partition to another broker. It is another thread's then."""
        choice = choose_replica(active.replica, answer, time.monotonic())
        if choice == active.replica:
            return False
        if choice.follower is not None:  # the leader has told where its log ends
            active.copy.source.note_log_end(answer.last_stable, answer.high_watermark)
            active.copy.source.seen_at = time.monotonic()
        self._turn(active, choice)
        return True

    def _ask_leaders_again(self, now: float) -> list[ActiveCopy]:
        """Give back to their leaders the partitions whose choice of a replica has ended. Returns them."""
        if now - self._choices_at < _CHOICES_S:
            return []
        self._choices_at = now
        due = [active for active in self._served.values() if now >= active.replica.until]
        for active in due:
            self._turn(active, READ_LEADER)
        return due

    def _turn(self, active: ActiveCopy, choice: ReplicaChoice) -> None:
        """Hand the partition to the threads of the broker that is chosen. An answer that is under way for it is not
        used any more: nobody asks for the partition here."""
        address: BrokerAddress | None = active.source
        if choice.follower is not None:
            try:
                address = self._find_broker(choice.follower)
            except ClusterError as error:  # of a connection beside the one that asks: no reason to inspect anything
                log.warning("follower not found", extra={"link": self.name, "reason": str(error)})
                address = None
        if address is None:
            choice, address = leave_follower(time.monotonic()), active.source
        active.leave_session()
        self._drop(active)
        key, before, active.replica = active.copy.key, active.replica.follower, choice
        if not choice.tells_rack:
            log.info("follower left", extra={"flow": key.flow, "topic": key.topic, "partition": key.partition,
                                             "broker": before})  # fmt: skip
        try:
            active.turn(address)
        except Exception as error:  # no thread or file descriptor is left, say: nobody else serves it now
            log.exception("not handed over", extra={"link": self.name})
            active.copy.stop(Reinspect(f"it could not be handed to the threads of another broker: {error}"))

    def _find_broker(self, node: int) -> BrokerAddress | None:
        """Where a broker listens that the leader has named; None: it is gone. Raises ClusterError."""
        now = time.monotonic()
        if node not in self._brokers or now - self._brokers_at > _BROKERS_S:
            with closing(open_connection(self.settings, self.address)) as asking:  # answers are under way on others
                self._brokers, self._brokers_at = asking.brokers(), now
        found = self._brokers.get(node)
        return None if found is None else BrokerAddress(*found)

    def _pass_over(self, named: set[int]) -> None:
        """Of these the broker had nothing new to say: they end where they did."""
        for active in list(self._asked.values()):
            if id(active) not in named:
                active.leave_session()
                active.fetched(0)
                self._enter_session(active)
                if not self._is_ours(active):
                    self._drop(active)

    def _enter_session(self, active: ActiveCopy) -> None:
        if self._is_ours(active) and self._session.is_incremental:
            active.clock = self._clock

    def _find_held_back(
        self, connection: Connection, answers: list[FetchedPartition], arrived: float
    ) -> set[FetchPlace]:
        """Whose answer must not be used: the topic has no id, and may be another one by now."""
        copies = {(each.topic_id, each.partition): self._asked[each.topic_id, each.partition].copy for each in answers}
        doubted = {
            (each.topic_id, each.partition): copies[each.topic_id, each.partition]
            for each in answers
            if needs_confirmation(copies[each.topic_id, each.partition], each, arrived)
        }
        return doubted.keys() - confirm_sources(connection, doubted) if doubted else set()

    def _dropped(self, reason: str, closed: bool) -> None:
        self._session.begin_anew()
        self._take_news()
        for active in list(self._served.values()):
            if active.replica.follower is not None and active.copy.trouble is None:
                self._turn(active, leave_follower(time.monotonic()))  # the leader has all that the follower has
            else:
                active.copy.stop(Reinspect(reason))


def find_fetch_place(active: ActiveCopy) -> FetchPlace:
    """What it is called in a fetch session."""
    return active.copy.source_id, active.copy.key.partition


def _waits_for_room(active: ActiveCopy) -> bool:
    """Whether a partition that is left out comes back as soon as the target has answered."""
    return active.copy.trouble is None and active.rate.quota is None


def _can_fetch(active: ActiveCopy) -> bool:
    copy = active.copy
    return (
        copy.trouble is None
        and copy.refusals.batch is None
        and not copy.is_full
        and not copy.is_crowded
        and not copy.source.is_at_limit
    )
