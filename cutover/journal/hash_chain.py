"""The journal of migrations: `watershed.journal` on the target cluster, one entry before and one after each deed.

Entries of one topology form a hash chain. An entry counts only when its `previous` is the hash of the last entry that
counts; of two processes that write at once, the one that comes second in the log finds its entry void. So appending
is compare-and-set, and the chain is lock and fence at the same time: a second run is refused, and a process whose
run was taken over by another cannot act any more (research C02, C04, C05).

Others may write to the topic, too. A line that is no entry of ours is void and named, and stops nobody. What shows that
real entries were changed or removed stops everybody: an entry that follows such a line (decision 0064).
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Protocol

from watershed.clusters.field_types import require_types
from watershed.cutover.errors import BrokenChain, NewerEntry, NothingToSign, Superseded, UnsignedHistory
from watershed.cutover.journal.signing import PLAIN_HASH_PREFIX, SIGNED_HASH_PREFIX, UNSIGNED, Signing, hash_entry

GENESIS_HASH = "sha256:" + "0" * 64
RUN_STEP = "run"  # the step name of a run's first and last entry
TAKEOVER_STEP = "resume"
_SIGN = "sign"  # the kind of run that takes unsigned entries over

EntryKind = Literal["intent", "outcome"]


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One decision. deed: name of the action inside the step, empty for the step itself. holder: the process that
    wrote it. at_ms: wall clock, milliseconds since 1970. hash: SHA-256 of the canonical JSON of all other fields; in a
    topology that has a key, its HMAC-SHA256."""

    topology: str
    run: str
    seq: int
    step: str
    kind: EntryKind
    deed: str
    actor: str
    holder: str
    plan_hash: str
    wave: str
    at_ms: int
    observation: dict[str, Any]
    previous: str
    hash: str = ""

    def body(self) -> bytes:
        """What the hash is made from. Raises UnicodeEncodeError for text that is none (half of a surrogate pair)."""
        body = self.to_json()
        del body["hash"]
        return _encode_body(body)

    def sealed(self, signing: Signing = UNSIGNED) -> JournalEntry:
        """A copy with its hash: a plain digest, or a MAC where the topology has a journal key."""
        return replace(self, hash=signing.seal(self.body()))

    @property
    def signs(self) -> bool:
        """Whether it takes over what was written before there was a key."""
        return self.step == RUN_STEP and self.kind == "outcome" and self.observation.get("kind") == _SIGN

    def to_json(self) -> dict[str, Any]:
        """The line in the journal topic."""
        return {name: getattr(self, name) for name in _FIELDS}  # `asdict` copies deeply, at every append


_FIELDS = tuple(each.name for each in fields(JournalEntry))


def _encode_body(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


class JournalLog(Protocol):
    """Where entries are kept, in order: the journal topic, or a list in tests."""

    def append(self, key: str, value: dict[str, Any]) -> None:
        """Writes one line behind the last one. Raises ClusterError."""

    def read(self, from_offset: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """(offset, value) of every record from there to the present end."""
        ...


@dataclass(frozen=True, slots=True)
class VoidLine:
    """A line that names the topology and does not count. foreign: it is no entry of ours; otherwise it came second.
    run, step: as the line says, empty where it says none."""

    offset: int
    why: str
    foreign: bool
    run: str = ""
    step: str = ""

    def to_json(self) -> dict[str, Any]:
        """The line as `topology journal --format json` shows it."""
        return asdict(self)


@dataclass(slots=True)
class JournalChain:
    """The entries of one topology that count, and the lines that do not. Built by `follow`, in log order.

    signed: how many of the entries are. unsigned: with a key, what was written without one, until a signed entry
    counts; nothing of it counts by itself.
    """

    topology: str
    entries: list[JournalEntry] = field(default_factory=list)
    signing: Signing = UNSIGNED
    signed: int = 0
    next_offset: int = 0
    unsigned: JournalChain | None = None
    _void: list[VoidLine] = field(default_factory=list)
    _known: dict[str, int] = field(default_factory=lambda: {GENESIS_HASH: 0})  # hash → how many entries count up to it
    _offsets: list[int] = field(default_factory=list)  # of the entries
    _rejected: dict[str, int] = field(default_factory=dict)  # what foreign lines say is their hash → their offset
    _newest_key: int | None = None  # of the keys with which entries that count were signed

    @property
    def root(self) -> str:
        """Hash of the last entry: it stands for the whole chain. The genesis hash where there is none."""
        return self.entries[-1].hash if self.entries else GENESIS_HASH

    @property
    def void(self) -> tuple[VoidLine, ...]:
        """In log order."""
        waiting = () if self.unsigned is None else (*self.unsigned._unsigned_lines(0), *self.unsigned._void)
        return tuple(sorted((*self._void, *waiting), key=lambda each: each.offset))

    @property
    def foreign(self) -> tuple[VoidLine, ...]:
        """Lines that no Watershed of this topology wrote."""
        return tuple(each for each in self.void if each.foreign)

    def follow(self, records: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        """Take more of the log. Raises BrokenChain at the first entry that was changed, or that refers to one that was
        changed or is not there; and again for the same entry whenever it is called."""
        for offset, value in records:
            if value.get("topology") == self.topology:
                self._take(offset, value)
            self.next_offset = offset + 1  # behind it: nobody who asks again shall pass over what stopped him

    def _take(self, offset: int, value: Mapping[str, Any]) -> None:
        try:
            self._refuse_newer(offset, value)
            entry = require_types(JournalEntry(**value))
            body = entry.body()
        except (TypeError, ValueError) as error:
            self._reject(offset, value, f"it is no entry of this version ({error})")
            return
        if self.signing.keys:
            self._take_with_key(offset, value, entry, body)
        elif entry.hash.startswith(SIGNED_HASH_PREFIX):
            if not self.signing.trusting:
                self._reject(offset, value, "it is signed, and the file names no key (`migration.journal`)")
                return
            if not self.signed and entry.signs:
                self._cut(entry)
            if self._link(offset, value, entry, genuine=False):
                self.signed += 1
        elif entry.hash != hash_entry(body):
            self._reject(offset, value, "its content does not have its hash")
        elif self.signed:
            self._reject(offset, value, "it is not signed, and stands behind entries that are")
        else:
            self._link(offset, value, entry, genuine=False)

    def _refuse_newer(self, offset: int, value: Mapping[str, Any]) -> None:
        """An entry that would count but for fields that this version does not know. Whoever passed it over would take
        the lock of a run that goes on. Raises NewerEntry."""
        unknown = sorted(map(str, value.keys() - set(_FIELDS)))
        stated = value.get("hash")
        if not unknown or not isinstance(stated, str) or value.get("previous") != self.root:
            return
        body = _encode_body({name: each for name, each in value.items() if name != "hash"})
        if self.signing.keys:
            is_genuine = self.signing.key_of(body, stated) is not None
        else:
            is_genuine = not self.signed and stated == hash_entry(body)
        if is_genuine:
            raise NewerEntry(
                f"journal offset {offset} (run {value.get('run')}, step {value.get('step')}) was written by a newer "
                f"version of Watershed, with fields unknown here: {', '.join(unknown)}. Go on with that version, or a "
                "newer one (docs/upgrade.md)",
                offset,
            )

    def _take_with_key(self, offset: int, value: Mapping[str, Any], entry: JournalEntry, body: bytes) -> None:
        number = self.signing.key_of(body, entry.hash)
        if number is None:
            if entry.hash.startswith(PLAIN_HASH_PREFIX) and not self.signed:
                self._set_aside(offset, value)
            else:
                self._reject(offset, value, "it is not signed with this topology's key")
            return
        if self._newest_key is not None and number > self._newest_key:
            self._reject(offset, value, "it is signed with an earlier key, behind entries of a newer one")
            return
        if not self.signed and entry.signs:
            self._take_over(entry)
        if self._link(offset, value, entry, genuine=True):
            self.signed, self._newest_key = self.signed + 1, number
            if self.unsigned is not None:  # what was not taken over stays void
                self._void += (*self.unsigned._unsigned_lines(0), *self.unsigned._void)
                self.unsigned = None

    def _link(self, offset: int, value: Mapping[str, Any], entry: JournalEntry, *, genuine: bool) -> bool:
        """Whether the entry counts. genuine: whoever wrote it has the key. Raises BrokenChain."""
        if entry.previous == self.root and entry.seq == len(self.entries):
            self._count(offset, entry)
            return True
        if entry.previous in self._known:
            self._void.append(VoidLine(offset, "another entry came first", False, entry.run, entry.step))
            return False
        where = f"(run {entry.run}, step {entry.step})"
        changed = self._rejected.get(entry.previous)
        if changed is not None and (genuine or not self.signed):
            why = next(each.why for each in self._void if each.offset == changed)
            raise BrokenChain(
                f"journal offset {changed} was changed after it was written: {why}, and offset {offset} {where} "
                "follows it",
                changed,
            )
        if genuine:
            raise BrokenChain(
                f"journal offset {offset} {where} follows an entry that is missing or was changed", offset
            )
        self._reject(offset, value, "it follows an entry that is not in the journal")
        return False

    def _count(self, offset: int, entry: JournalEntry) -> None:
        self.entries.append(entry)
        self._offsets.append(offset)
        self._known[entry.hash] = len(self.entries)

    def _set_aside(self, offset: int, value: Mapping[str, Any]) -> None:
        """What was written before there was a key: a chain of its own, which a signed entry may take over."""
        if self.unsigned is None:
            self.unsigned = JournalChain(self.topology)
        try:
            self.unsigned._take(offset, value)
        except BrokenChain as error:
            self.unsigned._reject(offset, value, str(error))

    def _take_over(self, entry: JournalEntry) -> None:
        """Let the unsigned entries count up to the one that a signed entry vouches for."""
        upto = None if self.unsigned is None else self.unsigned._known.get(entry.previous)
        if upto is None or self.unsigned is None or upto != entry.seq:
            return
        aside, self.unsigned = self.unsigned, None
        self._void += (*aside._unsigned_lines(upto), *aside._void)
        for offset, each in zip(aside._offsets[:upto], aside.entries[:upto], strict=True):
            self._count(offset, each)

    def _cut(self, entry: JournalEntry) -> None:
        """The same for who has no key: unsigned entries behind the one that is vouched for do not count any more."""
        upto = self._known.get(entry.previous)
        if upto is not None and upto == entry.seq:
            self._void += self._unsigned_lines(upto)
            del self.entries[upto:], self._offsets[upto:]

    def _unsigned_lines(self, beginning: int) -> Iterator[VoidLine]:
        for offset, entry in zip(self._offsets[beginning:], self.entries[beginning:], strict=True):
            yield VoidLine(offset, "it is not signed with this topology's key", True, entry.run, entry.step)

    def _reject(self, offset: int, value: Mapping[str, Any], why: str) -> None:
        run, step, stated = (
            each if isinstance(each, str) else "" for each in (value.get("run"), value.get("step"), value.get("hash"))
        )
        self._void.append(VoidLine(offset, why, True, run, step))
        if stated and stated not in self._known:
            self._rejected.setdefault(stated, offset)

    def run(self, run: str) -> list[JournalEntry]:
        """The entries of one run, in their order; empty where there is no run of that name."""
        return [entry for entry in self.entries if entry.run == run]

    def unfinished(self) -> list[JournalEntry]:
        """The entries of the run that holds the lock; empty when none does. A run that is being taken back is
        unfinished as well, and holds the lock again when whoever takes it back has given up."""
        ended = {entry.run for entry in self.entries if entry.step == RUN_STEP and entry.kind == "outcome"}
        holding = next((entry.run for entry in reversed(self.entries) if entry.run not in ended), None)
        return [] if holding is None else self.run(holding)


def find_step_outcome(entries: Iterable[JournalEntry], step: str) -> tuple[dict[str, Any], str | None] | None:
    """A step's recorded outcome and why it was refused (None: it was not); None when it is not finished."""
    for entry in entries:
        if entry.step == step and entry.kind == "outcome" and not entry.deed:
            return entry.observation["outcome"], entry.observation["refused"]
    return None


def describe_holder(entries: list[JournalEntry]) -> str:
    """`run r1, begun by ann at 10:02:11, is at step drain`: who holds the lock, for messages."""
    first, last = entries[0], entries[-1]
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(first.at_ms / 1000))
    step = next((e.step for e in reversed(entries) if e.step not in (RUN_STEP, TAKEOVER_STEP)), "its beginning")
    return f"run {first.run}, begun by {first.actor} at {since}, held by {last.actor}, is at step {step}"


class Journal:
    """One topology's journal, as one process (`holder`) sees and extends it."""

    def __init__(
        self,
        log: JournalLog,
        topology: str,
        holder: str,
        wall: Callable[[], float] = time.time,
        signing: Signing = UNSIGNED,
    ) -> None:
        self.log = log
        self.holder = holder
        self.chain = JournalChain(topology, signing=signing)
        self._wall = wall

    def now_ms(self) -> int:
        """Wall clock, as entries have it."""
        return int(self._wall() * 1000)

    def refresh(self) -> JournalChain:
        """Raises BrokenChain; and UnsignedHistory where nobody has said yet what becomes of entries that were written
        before there was a key."""
        self._follow()
        aside = self.chain.unsigned
        if aside is not None and aside.entries:
            raise UnsignedHistory(
                f"the journal of {self.chain.topology} has {len(aside.entries)} entries that were written without a "
                f"key, up to {aside.root}, and none with one. Compare that root with the one that you know (of "
                "evidence.json, or of `topology journal` before the key was given), then vouch for them with "
                f"`topology journal FILE --sign {aside.root}`; or leave them void and begin anew with `--sign none`"
            )
        return self.chain

    def _follow(self) -> None:
        self.chain.follow(self.log.read(self.chain.next_offset))

    def sign(self, root: str | None, *, actor: str, plan_hash: str) -> JournalEntry:
        """Vouch for the unsigned entries up to the one with the hash `root`, or (None) for none of them.

        Raises NothingToSign, Superseded.
        """
        self._follow()
        aside = self.chain.unsigned
        if not self.chain.signing.keys or self.chain.signed or aside is None or not aside.entries:
            raise NothingToSign(
                f"the journal of {self.chain.topology} holds nothing to sign: "
                + (
                    "the file names no key (`migration.journal`)"
                    if not self.chain.signing.keys
                    else "its newest entries are signed"
                    if self.chain.signed
                    else "nothing was written without a key"
                )
            )
        upto = 0 if root is None else aside._known.get(root, 0)
        if root is not None and not upto:
            raise NothingToSign(
                f"no unsigned entry of {self.chain.topology} has the hash {root}; the newest has {aside.root}"
            )
        run = f"{_SIGN}.{secrets.token_hex(6)}"
        seen = {"kind": _SIGN, "state": "done", "entries": upto, "root": root}
        entry = JournalEntry(
            *(
                self.chain.topology,
                run,
                upto,
                RUN_STEP,
                "outcome",
                "",
                actor,
                self.holder,
                plan_hash,
                "",
                self.now_ms(),
            ),
            *(seen, GENESIS_HASH if root is None else root),
        ).sealed(self.chain.signing)
        self.log.append(f"{entry.topology}/{entry.run}/{entry.seq}", entry.to_json())
        self._follow()
        if all(each.hash != entry.hash for each in self.chain.entries):
            raise self._superseded(upto)
        return entry

    def append(
        self,
        run: str,
        step: str,
        kind: EntryKind,
        observation: dict[str, Any],
        *,
        actor: str,
        plan_hash: str,
        wave: str,
        deed: str = "",
    ) -> JournalEntry:
        """Write an entry behind the last one that this process has seen, and see it count.

        Raises Superseded when somebody else wrote to this topology's journal in between.
        """
        entry = JournalEntry(
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
        ).sealed(self.chain.signing)
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
