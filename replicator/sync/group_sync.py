"""Looking at the groups of one flow on both sides, and committing what `group_decisions` decided."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from watershed.clusters.control_topics import FLOWS_TOPIC, SLOT_COUNT, ControlWriter
from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition, GroupOffsets, ListedGroup
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.transaction_requests import TransactionWire
from watershed.replicator.copy.transactions.produce_answers import SessionLost, is_fenced
from watershed.replicator.ledger.ledger_follower import LedgerFollower
from watershed.replicator.partition_states import Halt
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.replicator.sync.group_control_records import (
    FlowsFollower,
    GroupResetDecision,
    SyncedPositions,
    close_group_reset,
)
from watershed.replicator.sync.group_decisions import (
    GroupObservation,
    PositionDecision,
    PositionMark,
    TranslatedPosition,
    decide_positions,
    defer_commit,
)
from watershed.replicator.sync.group_translation import CopiedLogs, CopyDirections, collect_offset_maps
from watershed.replicator.sync.position_transaction import PositionTransaction, wait_until_settled
from watershed.replicator.sync.streams_state import StreamsPositions, StreamsReading
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology.kafka_streams import find_streams_topics, is_streams_internal_topic
from watershed.topology.plan import PlanFlow
from watershed.topology.sync_settings import GroupSync, is_tool_group

_AT_ONCE = 50  # groups between an inspection of the target and the commit, at most
# A worker that stood still between its last look and the commit (a zombie) must not set back a group that moved
# meanwhile. Where brokers keep positions in the order of their appends this is so at any age; but share groups have no
# transactions, and not every server has them, or keeps them in Kafka's order.
_FRESH_S = 5.0
# After so long no more groups are added to a transaction: at some 100 ms a request 50 of them would take longer than it
# may be open, and consumers that begin at the target wait for its end.
_APPENDING_S = 3.0
_APART_S = 1.0  # before what another worker has fenced is tried again: its transaction has ended by then
_TOPICS_S = 60.0
_STATE_S = 1.0  # for copies that are live: so long a round waits until they hold what its positions need


@dataclass(slots=True)
class GroupSyncer:
    """Not thread-safe. Follows the ledger and `watershed.flows` from one inspection to the next. named: groups at the
    source that count as selected, whatever the file says. retries: how often `carry` tries again what another worker of
    the flow has fenced; a worker has its next round for that."""

    flow: PlanFlow
    sides: SyncClusters
    named: frozenset[str] = frozenset()
    retries: int = 0
    _retries_left: int = field(init=False, default=0)
    _ledger: LedgerFollower = field(init=False)
    _here: FlowsFollower = field(init=False)
    _there: FlowsFollower = field(init=False)
    _back: dict[str, LedgerFollower] = field(default_factory=dict)
    _topics: tuple[float, list[str]] = (0.0, [])
    _streams: StreamsPositions = field(init=False)

    def __post_init__(self) -> None:
        self._ledger = LedgerFollower(self.sides.target, self.flow.id, range(SLOT_COUNT))
        self._here, self._there = FlowsFollower(self.sides.source), FlowsFollower(self.sides.target)
        self._streams = StreamsPositions(self.sides)

    def observe(self, only: Collection[str] | None = None) -> list[GroupObservation]:
        """The groups that are selected, and hold a position in a topic that the flow copies (or are refused as a
        whole), by their ids at the source. only: ids at the source. Reads only. Raises ClusterError."""
        with GroupOffsets(self.sides.source) as source, GroupOffsets(self.sides.target) as target:
            return self._look(source, target, only)

    def carry(
        self, sights: Sequence[GroupObservation], places: Collection[TopicPartition] | None = None
    ) -> dict[str, list[PositionDecision]]:
        """Commit what may be; by group id at the source, what became of each partition. places: of the target, all
        others are left. Raises ClusterError."""
        found: dict[str, list[PositionDecision]] = {sight.group: decide_positions(sight) for sight in sights}
        writing = [sight for sight in sights if any(move.write for move in found[sight.group])]
        decided_positions = [sight for sight in sights if sight.decided_positions and not sight.refusal]
        if writing or decided_positions:
            found |= self._carry(writing, decided_positions, found, places)
        self._streams.record(sights, found)
        return found

    def _carry(
        self,
        writing: list[GroupObservation],
        decided_positions: list[GroupObservation],
        found: dict[str, list[PositionDecision]],
        places: Collection[TopicPartition] | None,
    ) -> dict[str, list[PositionDecision]]:
        self._retries_left = self.retries
        with GroupOffsets(self.sides.target) as target:
            while writing:
                done = self._commit(target, writing[:_AT_ONCE], places)
                found |= done
                writing = [sight for sight in writing if sight.group not in done]
        for sight in decided_positions:
            self._close(sight, found[sight.group])
        return found

    def _commit(
        self, target: GroupOffsets, some: Sequence[GroupObservation], places: Collection[TopicPartition] | None
    ) -> dict[str, list[PositionDecision]]:
        """Look at the target once more, and commit what may still be. Groups that it has not got to are not in the
        answer. Groups without transactions are refused by their coordinator while they live, and between our look and
        our commit lie milliseconds: see `_FRESH_S`. The empty id has none, too: brokers take it in plain commits only.
        """
        observed_at = time.monotonic()
        fresh = self._target_held(target, some)
        now = [_with_target(sight, fresh[sight.target_group]) for sight in some]
        decided = {sight.group: [_within(move, places) for move in decide_positions(sight)] for sight in now}
        self._remember([(sight, decided[sight.group]) for sight in now])
        found: dict[str, list[PositionDecision]] = {}
        conditional: list[GroupObservation] = []
        transactions = target.has_transactions()
        for sight in now:
            if sight.refusal:
                held = next(each for each in some if each.group == sight.group)
                found[sight.group] = [_refused(move, sight.refusal) for move in decide_positions(held)]
            elif transactions and sight.here.type != "share" and sight.target_group:
                conditional.append(sight)
            elif time.monotonic() - observed_at > _FRESH_S:
                found[sight.group] = [_late(move) for move in decided[sight.group]]
            else:
                found[sight.group] = _written(target, sight, decided[sight.group])
        return found | self._commit_unless_moved(target, conditional, decided, places)

    def _commit_unless_moved(
        self,
        target: GroupOffsets,
        sights: Sequence[GroupObservation],
        decided: Mapping[str, list[PositionDecision]],
        places: Collection[TopicPartition] | None,
    ) -> dict[str, list[PositionDecision]]:
        """Of those that one transaction has time for: all, or none where one of the groups has moved or come alive
        meanwhile (`position_transaction`)."""
        found = {sight.group: decided[sight.group] for sight in sights if not _list_writes(decided[sight.group])}
        writing = [sight for sight in sights if sight.group not in found]
        if not writing:
            return found
        transaction = PositionTransaction(target, self.flow.id, self._connect)
        try:
            with closing(transaction):
                return found | self._transact(transaction, target, writing, decided, places)
        except SessionLost as lost:
            if self._retries_left and is_fenced(lost):
                self._retries_left -= 1
                time.sleep(_APART_S)
                return found
            refuse = _refused if isinstance(lost.trouble, Halt) else _late
            why = transaction.explain(lost)
            return found | {
                sight.group: [move if move.write is None else refuse(move, why) for move in decided[sight.group]]
                for sight in writing
            }

    def _transact(
        self,
        transaction: PositionTransaction,
        target: GroupOffsets,
        sights: Sequence[GroupObservation],
        decided: Mapping[str, list[PositionDecision]],
        places: Collection[TopicPartition] | None,
    ) -> dict[str, list[PositionDecision]]:
        """Raises SessionLost. What raises leaves the transaction to `close`."""
        writes = {sight.target_group: _list_writes(decided[sight.group]) for sight in sights}
        transaction.begin()
        unsettled = wait_until_settled(target, writes, committed=False)
        until = time.monotonic() + _APPENDING_S
        errors: dict[str, dict[TopicPartition, str]] = {}
        for group, positions in writes.items():
            if group not in unsettled:
                errors[group] = transaction.append(group, positions)
            if time.monotonic() > until:
                break
        appended = {group: writes[group].keys() - refused.keys() for group, refused in errors.items()}
        appended = {group: those for group, those in appended.items() if those}
        looked_at = time.monotonic()
        held = target.held(appended, stable=False)
        there = target.find_listed(appended)  # last: brokers take what is in a transaction for a live group, too
        moved = [
            sight.target_group
            for sight in sights
            if sight.target_group in appended
            and (
                sight.target_group not in there  # the append made it, so its coordinator is moving
                or _list_writes(_decide_again(sight, there[sight.target_group], held[sight.target_group], places))
                != writes[sight.target_group]
            )
        ]
        commits = not moved and time.monotonic() - looked_at <= _FRESH_S
        transaction.end(commit=commits)
        wait_until_settled(target, appended, committed=commits)
        why = f"group {moved[0]} moved at {self.sides.target.alias} meanwhile" if moved else "the look was too old"
        why += ": nothing was committed in this round"
        open_why = "the target's commit is part of a transaction that is still open"
        found: dict[str, list[PositionDecision]] = {}
        for sight in sights:
            moves, group = decided[sight.group], sight.target_group
            if group in unsettled:
                found[sight.group] = [_late(move, open_why) for move in moves]
            elif group in errors:
                outcomes = [_outcome_of(move, errors[group]) for move in moves]
                found[sight.group] = outcomes if commits else [_late(move, why) for move in outcomes]
        return found

    def _connect(self, address: BrokerAddress | None) -> TransactionWire:
        return open_connection(self.sides.target, address)

    def _look(self, source: GroupOffsets, target: GroupOffsets, only: Collection[str] | None) -> list[GroupObservation]:
        sync = self.flow.sync.groups
        every = {
            name: group
            for name, group in source.listed().items()
            if name in self.named or is_group_selected(sync, group)
        }
        listed = {name: group for name, group in every.items() if only is None or name in only}
        self._here.read()
        self._there.read()
        back = [record.flow for record in self._here.flows().values() if record.source_cluster_id == target.cluster_id]
        share = {name for name, group in listed.items() if group.type == "share"}
        held = source.held(set(listed) - share) | (source.read_share_offsets(share) if share else {})
        readings = self._streams.read(self.flow, source, listed, held)
        held |= {name: reading.held for name, reading in readings.items()}
        about = {name: self._about(held[name], back) for name in listed}
        places = {place for each in about.values() for place in each}
        copies, missing = self._wait_for_state(source, target, places, back, readings)
        refusals = {
            name: readings[name].problem if name in readings else self._refusal(source, group, held[name], about[name])
            for name, group in listed.items()
        }
        shown = [name for name in sorted(listed) if about[name] or refusals[name]]
        there = target.listed() if shown else {}
        sights = [
            self._sight(
                listed[name], there, held[name], about[name], copies, back, source.cluster_id, target.cluster_id
            )
            for name in shown
        ]
        double = find_target_name_clashes(sync, every)
        sights = [
            replace(
                sight,
                refusal=refusals[sight.group] or double.get(sight.group, ""),
                state=readings[sight.group].build_range(self.flow.id, sight.target_group, sight.landings)
                if sight.group in readings
                else None,
                missing=missing.get(sight.group, {}),
            )
            for sight in sights
        ]
        at_target = self._target_held(target, sights)
        return [_with_target(sight, at_target[sight.target_group]) for sight in sights]

    def _wait_for_state(
        self,
        source: GroupOffsets,
        target: GroupOffsets,
        places: set[TopicPartition],
        back: list[PlanFlow],
        readings: Mapping[str, StreamsReading],
    ) -> tuple[CopiedLogs, dict[str, dict[TopicPartition, str]]]:
        """The copies, and by Streams application what they lack for its positions, after a moment for what is on its
        way."""
        internal = {place for reading in readings.values() for place in reading.after}
        until = time.monotonic() + _STATE_S
        while True:
            copies = self._copies(source, target, places | internal, back)
            now = source.logs(internal) if internal else {}
            missing = {
                name: reading.list_missing(copies, self.flow.id, now)
                for name, reading in readings.items()
                if not reading.problem
            }
            if not any(missing.values()) or time.monotonic() > until:
                break
            time.sleep(_STATE_S / 10)
        self._streams.keep_waiting(readings, missing, now, copies.list_copy_ids(internal))
        return copies, missing

    def _about(self, held: CommittedOffsets, back: list[PlanFlow]) -> set[TopicPartition]:
        return {
            place
            for place in {*held.positions, *held.unstable}
            if self.flow.selects(place.topic) or any(_came_by(each, place.topic) for each in back)
        }

    def _copies(
        self, source: GroupOffsets, target: GroupOffsets, places: set[TopicPartition], back: list[PlanFlow]
    ) -> CopiedLogs:
        """Log ends first: runs are announced before their batches are written, so the maps cover these ends."""
        if not places:
            return CopiedLogs({}, {}, {}, {})
        ways = {place: CopyDirections(self._arriving(place), _returning(place, back)) for place in places}
        here = source.logs(places)
        wanted = {each for way in ways.values() for each in (way.forward, way.backward) if each is not None}
        there = target.logs(wanted)
        for each in back:
            self._back.setdefault(each.id, LedgerFollower(self.sides.source, each.id, range(SLOT_COUNT)))
        ledgers = [self._ledger.read(), *(self._back[each.id].read() for each in back)]
        return CopiedLogs(ways, here, there, collect_offset_maps(ledgers), self.flow.offsets == "aligned")

    def _arriving(self, place: TopicPartition) -> TopicPartition | None:
        if not self.flow.selects(place.topic):
            return None
        return TopicPartition(self.flow.target_topic(place.topic), place.partition)

    def _sight(
        self,
        group: ListedGroup,
        there: Mapping[str, ListedGroup],
        held: CommittedOffsets,
        about: set[TopicPartition],
        copies: CopiedLogs,
        back: list[PlanFlow],
        here_id: str,
        there_id: str,
    ) -> GroupObservation:
        name = self.flow.sync.groups.target_group(group.id)
        landings: dict[TopicPartition, TranslatedPosition] = {}
        lag: dict[TopicPartition, int] = {}
        for place in about:
            position = held.positions.get(place)
            if position is None:
                way = copies.ways[place]
                why = "the source's commit is part of a transaction that is still open"
                landings[place] = TranslatedPosition(way.forward or way.backward or place, None, why=why)
                continue
            found = copies.landing(self.flow.id, place, position.offset)
            if found is not None:
                landings[place] = found
            if place in copies.here:
                lag[place] = max(0, copies.here[place].stable - position.offset)
        carried = [self._here.carried(each.id, group.id) for each in back]
        if group.type == "share":
            held = _as_marked(held, carried, there_id)
        decision = self._there.decision(self.flow.id, name)
        return GroupObservation(
            flow=self.flow.id,
            group=group.id,
            target_group=name,
            here=group,
            there=there.get(name),
            source=held,
            target=CommittedOffsets(),
            landings=landings,
            here_id=here_id,
            there_id=there_id,
            target_alias=self.sides.target.alias,
            lag=lag,
            returned={place: at for each in carried for place, at in each.source.items()},
            decided_positions=decision.answers if decision is not None else {},
            two_ways=bool(back),
        )

    def _target_held(self, target: GroupOffsets, sights: Sequence[GroupObservation]) -> dict[str, CommittedOffsets]:
        share = [sight for sight in sights if sight.here.type == "share"]
        others = [sight.target_group for sight in sights if sight.here.type != "share"]
        found = target.held(others)
        shared = target.read_share_offsets([sight.target_group for sight in share]) if share else {}
        for sight in share:
            carried = self._there.carried(self.flow.id, sight.target_group)
            found[sight.target_group] = _as_marked(shared[sight.target_group], [carried], sight.here_id)
        return found

    def _refusal(
        self, source: GroupOffsets, group: ListedGroup, held: CommittedOffsets, about: set[TopicPartition]
    ) -> str:
        """Why the group as a whole is left alone; empty when it is not."""
        if held.error:
            return held.error
        if group.protocol == "connect":
            return "the workers of Kafka Connect share work under this id: it holds no positions of records"
        if not about:
            return ""
        internal = self._internal(source, group.id) if group.type == "classic" else ""
        if group.type == "streams" or internal:
            known = f" (by its topic {internal})" if internal else ""
            return (
                f"an application of Kafka Streams{known}: positions without its state would make it go on with wrong "
                "results. Put its changelog and repartition topics into the flow and name it in sync.groups.streams"
            )
        return ""

    def _internal(self, source: GroupOffsets, group: str) -> str:
        """A topic that a classic Streams application keeps under its own name; empty where there is none."""
        read_at, names = self._topics
        if read_at == 0.0 or time.monotonic() - read_at > _TOPICS_S:
            names = [name for name in source.topic_names() if is_streams_internal_topic(name)]
            self._topics = time.monotonic(), names
        return next(iter(find_streams_topics(group, names)), "")

    def _remember(self, found: list[tuple[GroupObservation, list[PositionDecision]]]) -> None:
        """Before the commits: what a mark cannot tell later."""
        needed = [
            (sight, [move for move in each if move.write])
            for sight, each in found
            if sight.here.type == "share" or sight.two_ways
        ]
        records: list[SyncedPositions] = []
        for sight, writes in needed:
            if writes:
                before = self._there.carried(self.flow.id, sight.target_group)
                records.append(
                    before.with_positions(
                        {move.place: move.committed for move in writes if move.committed is not None},
                        {move.there: move.write.offset for move in writes if move.there and move.write},
                    )
                )
        if records:
            with ControlWriter(self.sides.target, "watershed-groups") as writer:
                for record in records:
                    writer.put_nowait(FLOWS_TOPIC, record.key, record.to_json(), 0)

    def _close(self, sight: GroupObservation, found: list[PositionDecision]) -> None:
        """Take the order back once nothing of it is left to do."""
        decision = self._there.decision(self.flow.id, sight.target_group)
        if decision is None:
            return
        outcome = describe_reset_outcome(decision, found)
        if outcome is not None:
            with ControlWriter(self.sides.target, "watershed-groups") as writer:
                close_group_reset(writer, decision, outcome)


def is_group_selected(sync: GroupSync, group: ListedGroup) -> bool:
    """Groups of tools only where the file names them (SYC506). A Streams application that the file names is selected
    whatever `include` and `exclude` say."""
    if group.id in sync.streams:
        return True
    return sync.names.selects(group.id) and (bool(sync.names.include) or not is_tool_group(group.id))


def find_target_name_clashes(sync: GroupSync, groups: Collection[str]) -> dict[str, str]:
    """Groups that would be one at the target, with why they are left alone: the one that is further would make the
    others skip records."""
    by_target: dict[str, list[str]] = {}
    for name in sorted(groups):
        by_target.setdefault(sync.target_group(name), []).append(name)
    return {
        name: f"{' and '.join(names)} would both be {at} at the target, by `sync.groups.rename`: leave one out "
        "(`exclude`), or give it another name"
        for at, names in by_target.items()
        if len(names) > 1
        for name in names
    }


def _came_by(back: PlanFlow, topic: str) -> bool:
    return back.source_topic(topic) is not None


def _returning(place: TopicPartition, back: list[PlanFlow]) -> tuple[str, TopicPartition] | None:
    """The flow the other way that brought the topic, and the partition that it came from."""
    for each in back:
        topic = each.source_topic(place.topic)
        if topic is not None:
            return each.id, TopicPartition(topic, place.partition)
    return None


def _as_marked(held: CommittedOffsets, carried: Sequence[SyncedPositions], path: str) -> CommittedOffsets:
    """Share groups keep no text: what the record says that a flow carried is marked as such."""
    positions = dict(held.positions)
    for place, position in held.positions.items():
        by = next((each for each in carried if each.ours(place, position.offset)), None)
        if by is not None:
            positions[place] = CommittedPosition(position.offset, str(PositionMark(by.flow, 0, (path,))))
    return replace(held, positions=positions)


def _with_target(sight: GroupObservation, target: CommittedOffsets) -> GroupObservation:
    sight = replace(sight, target=target)
    return replace(sight, refusal=target.error) if target.error and not sight.refusal else sight


def _decide_again(
    sight: GroupObservation, there: ListedGroup, held: CommittedOffsets, places: Collection[TopicPartition] | None
) -> list[PositionDecision]:
    return [_within(move, places) for move in decide_positions(_with_target(replace(sight, there=there), held))]


def _refused(move: PositionDecision, why: str) -> PositionDecision:
    """The target does not tell the group's positions any more: nothing is known to be ours to write over."""
    return replace(defer_commit(move), state="refused", why=why, write=None, obeys=False)


def _late(move: PositionDecision, why: str = "") -> PositionDecision:
    """Decided by an inspection that is too old by now."""
    late = replace(defer_commit(move), write=None, obeys=False)
    return replace(late, why=why) if why and move.write is not None else late


def _list_writes(found: list[PositionDecision]) -> dict[TopicPartition, CommittedPosition]:
    return {move.there: move.write for move in found if move.there is not None and move.write is not None}


def _within(move: PositionDecision, places: Collection[TopicPartition] | None) -> PositionDecision:
    if move.write is None or places is None or move.there in places:
        return move
    return replace(move, state="waiting", why="not asked for", write=None)


def _written(target: GroupOffsets, sight: GroupObservation, found: list[PositionDecision]) -> list[PositionDecision]:
    wanted = _list_writes(found)
    if not wanted:
        return found
    if sight.here.type == "share":
        errors = target.alter_share(sight.target_group, {place: at.offset for place, at in wanted.items()})
    else:
        errors = target.commit(sight.target_group, wanted)
    return [_outcome_of(move, errors) for move in found]


def _outcome_of(move: PositionDecision, errors: Mapping[TopicPartition, str]) -> PositionDecision:
    if move.write is None or move.there is None:
        return move
    if move.there in errors:
        return replace(move, state="refused", why=errors[move.there], write=None, obeys=False)
    return replace(move, at_target=move.write.offset)


def describe_reset_outcome(
    decision: GroupResetDecision, found: list[PositionDecision]
) -> dict[TopicPartition, str] | None:
    """What became of an order by partition; None while something of it can still be done."""
    outcome: dict[TopicPartition, str] = {}
    by_place = {move.there: move for move in found}
    for place, answered in decision.answers.items():
        move = by_place.get(place)
        if move is None:
            outcome[place] = "the group holds no position of it at the source"
        elif move.obeys and move.write is not None:
            outcome[place] = f"set from {answered} to {move.write.offset}"
        elif move.at_target != answered or move.state == "equal":
            outcome[place] = f"not obeyed: the target stands at {move.at_target}"
        else:
            return None
    return outcome
