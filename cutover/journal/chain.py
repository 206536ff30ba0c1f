"""The journal of migrations: `watershed.journal` on the target cluster, one entry before and one after each deed.

Entries of one topology form a hash chain. An entry counts only when its `previous` is the hash of the last entry that
counts; of two processes that write at once, the one that comes second in the log finds its entry void. So appending
is compare-and-set, and the chain is lock and fence at the same time: a second run is refused, and a process whose
run was taken over by another cannot act any more (research C02, C04, C05).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Protocol

from cutover.errors import BrokenChain, Superseded

GENESIS = "sha256:" + "0" * 64
RUN = "run"  # the step name of a run's first and last entry
TAKEN_OVER = "resume"

Kind = Literal["intent", "outcome"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One decision. deed: name of the action inside the step, empty for the step itself. holder: the process that
    wrote it. at_ms: wall clock, milliseconds since 1970. hash: SHA-256 of the canonical JSON of all other fields."""

    topology: str
    run: str
    seq: int
    step: str
    kind: Kind
    deed: str
    actor: str
    holder: str
    plan_hash: str
    wave: str
    at_ms: int
    observation: dict[str, Any]
    previous: str
    hash: str = ""

    def computed(self) -> str:
        body = self.to_json()
        del body["hash"]
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def sealed(self) -> Entry:
        return replace(self, hash=self.computed())

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _FIELDS}  # `asdict` copies deeply, at every append


_FIELDS = tuple(each.name for each in fields(Entry))


class Log(Protocol):
    """Where entries are kept, in order: the journal topic, or a list in tests."""

    def append(self, key: str, value: dict[str, Any]) -> None: ...

    def read(self, from_offset: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """(offset, value) of every record from there to the present end."""
        ...


@dataclass(slots=True)
class Chain:
    """The entries of one topology that count, and how many were void. Built by `follow`, in log order."""

    topology: str
    entries: list[Entry] = field(default_factory=list)
    void: int = 0
    next_offset: int = 0
    _known: set[str] = field(default_factory=lambda: {GENESIS})

    @property
    def root(self) -> str:
        return self.entries[-1].hash if self.entries else GENESIS

    def follow(self, records: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        """Take more of the log. Raises BrokenChain at the first entry that is not what its hash says, or that refers
        to one that is not there."""
        for offset, value in records:
            self.next_offset = offset + 1
            if value.get("topology") != self.topology:
                continue
            try:
                entry = Entry(**value)
            except TypeError:
                raise BrokenChain(f"journal offset {offset} is not an entry of this version", offset) from None
            if entry.hash != entry.computed():
                raise BrokenChain(
                    f"journal offset {offset} (run {entry.run}, step {entry.step}) was changed after it was written: "
                    "its content does not have its hash",
                    offset,
                )
            if entry.previous not in self._known:
                raise BrokenChain(
                    f"journal offset {offset} (run {entry.run}, step {entry.step}) follows an entry that is missing or "
                    "was changed",
                    offset,
                )
            if entry.previous == self.root and entry.seq == len(self.entries):
                self.entries.append(entry)
                self._known.add(entry.hash)
            else:
                self.void += 1

    def run(self, run: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.run == run]

    def unfinished(self) -> list[Entry]:
        """The entries of the run that holds the lock; empty when none does. A run that is being taken back is
        unfinished as well, and holds the lock again when whoever takes it back has given up."""
        ended = {entry.run for entry in self.entries if entry.step == RUN and entry.kind == "outcome"}
        holding = next((entry.run for entry in reversed(self.entries) if entry.run not in ended), None)
        return [] if holding is None else self.run(holding)


def outcome_of(entries: Iterable[Entry], step: str) -> tuple[dict[str, Any], str | None] | None:
    """A step's recorded outcome and why it was refused (None: it was not); None when it is not finished."""
    for entry in entries:
        if entry.step == step and entry.kind == "outcome" and not entry.deed:
            return entry.observation["outcome"], entry.observation["refused"]
    return None


def holder_of(entries: list[Entry]) -> str:
    """`run r1, begun by ann at 10:02:11, is at step drain`: who holds the lock, for messages."""
    first, last = entries[0], entries[-1]
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(first.at_ms / 1000))
    step = next((e.step for e in reversed(entries) if e.step not in (RUN, TAKEN_OVER)), "its beginning")
    return f"run {first.run}, begun by {first.actor} at {since}, held by {last.actor}, is at step {step}"


class Journal:
    """One topology's journal, as one process (`holder`) sees and extends it."""

    def __init__(self, log: Log, topology: str, holder: str, wall: Callable[[], float] = time.time) -> None:
        self.log = log
        self.holder = holder
        self.chain = Chain(topology)
        self._wall = wall

    def now_ms(self) -> int:
        """Wall clock, as entries have it."""
        return int(self._wall() * 1000)

    def refresh(self) -> Chain:
        self.chain.follow(self.log.read(self.chain.next_offset))
        return self.chain

    def append(
        self,
        run: str,
        step: str,
        kind: Kind,
        observation: dict[str, Any],
        *,
        actor: str,
        plan_hash: str,
        wave: str,
        deed: str = "",
    ) -> Entry:
        """Write an entry behind the last one that this process has seen, and see it count.

        Raises Superseded when somebody else wrote to this topology's journal in between.
        """
        entry = Entry(
            topology=self.chain.topology,
            run=run,
            seq=len(self.chain.entries),
            step=step,
            kind=kind,
            deed=deed,
            actor=actor,
            holder=self.holder,
            plan_hash=plan_hash,
            wave=wave,
            at_ms=self.now_ms(),
            observation=json.loads(json.dumps(observation)),
            previous=self.chain.root,
        ).sealed()
        seen = len(self.chain.entries)
        self.log.append(f"{entry.topology}/{entry.run}/{entry.seq}", entry.to_json())
        self.refresh()
        if len(self.chain.entries) <= seen or self.chain.entries[seen].hash != entry.hash:
            raise self._superseded(seen)
        if len(self.chain.entries) > seen + 1:  # ours counts, but somebody went on from it already
            raise self._superseded(seen + 1)
        return entry

    def only_ours(self) -> None:
        """Raises Superseded when somebody wrote behind the last entry that this process has seen."""
        seen = len(self.chain.entries)
        if len(self.refresh().entries) > seen:
            raise self._superseded(seen)

    def _superseded(self, seen: int) -> Superseded:
        other = self.chain.entries[seen] if len(self.chain.entries) > seen else None
        who = f"run {other.run} by {other.actor} (step {other.step})" if other else "another process"
        return Superseded(
            f"{who} wrote to the journal of {self.chain.topology} meanwhile: this process must not act any more. "
            "`topology journal` shows what happened"
        )
