"""The states of a partition, and what a person can do about each halt state.

A halt state concerns its partition only; the others of the flow go on. Nothing is skipped: a halted partition
stands still until somebody decides (`replicator.recovery.operator_decisions`) or its policy already has. docs/states.md
has a section for each.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from watershed.replicator.batch.record_batch import RawBatch

from watershed.topology.shell_command import quote_shell_argument

STARTING: Final = "starting"  # finding out where to go on
CATCHING_UP: Final = "catching_up"
RUNNING: Final = "running"
ALIGNING: Final = "aligning"  # the empty log is brought to the source's log start
PAUSED: Final = "paused"
STOPPED: Final = "stopped"
COMPLETE: Final = "complete"  # everything in front of its end is copied (`delivery.end`)
RETRYING: Final = "retrying"  # a broker does not answer; tried again by itself

OVER_BUDGET: Final = "over_budget"  # `slo.on_breach: fail`

_ACCEPT = "`topology flow accept-gap {flow} {file} --topic {topic} --partition {partition}`"
_RESEED = (
    "empty the target first (`topology flow reseed` names the commands), then copy again with "
    "`topology flow reseed {flow} {file} --topic {topic} --partition {partition}`"
)
_RESTART = "`topology flow restart {flow} {file}`"

REMEDIES: Final = {
    "source_expired": "the source deleted records before they were copied. Raise retention on {topic} there; "
    f"when the loss is acceptable, go on behind it with {_ACCEPT}",
    "source_recreated": "the source topic was deleted and created again; its old copy is complete as far as it went. "
    f"To copy the new topic into the same target, {_RESEED}. To keep the old copy, give the flow a `suffix`",
    "source_truncated": "the source lost records that were already copied (unclean leader election); the target holds "
    "them still. Keep what you need of them, then " + _RESEED,
    "source_gone": "the source topic does not exist any more, its copy is kept. Take {topic} out of the flow, or "
    "bring the topic back; it is looked for again by itself",
    "start_missing": "the position at which the file lets this partition begin (`delivery.start`) is not in the "
    "source's log, or the group has none. Write another `delivery.start` and `topology apply {file}`, or let the group "
    "commit a position on {topic} there; it is looked at again by itself",
    "source_foreign_write": "a record at the source names one of our flows as its producer, and that flow did not "
    "write it; or only some records of a batch have the header of another tool. Find who has WRITE on {topic} there. "
    "To copy it as what it is, an application's record, "
    "`topology flow copy-foreign {flow} {file} --topic {topic} --partition {partition}`",
    "target_gone": "the target topic was deleted or created again. To copy it again from the source, " + _RESEED,
    "target_foreign_write": "somebody else writes to the target partition. Stop that writer, then "
    + _RESEED
    + ". Is what is there the copy that another tool made of the same topic? Then go on behind it instead, "
    "`topology flow adopt {flow} {file} --topic {topic} --dry-run` (docs/takeover.md)",
    "duplicated": "the target holds batches that this flow wrote twice or out of place. Do not move consumers; "
    + _RESEED,
    "rejected": "the target refuses a record. Compare {topic} on both sides (max.message.bytes, "
    "message.timestamp.after.max.ms, message.timestamp.before.max.ms, cleanup.policy), set what is missing on the "
    f"target, then {_RESTART}; or write `delivery: {{{{rejected: quarantine}}}}` for the flow and "
    "`topology apply {file}`",
    "untransformed": "an expression of the flow's `transform` is refused, or cannot be applied to the record that is "
    "named. Change the expression, or the schema, so that it says what becomes of such records, "
    f"`topology apply {{file}}`, then {_RESTART}; or write `delivery: {{{{rejected: quarantine}}}}` for the flow to "
    "keep such records apart (docs/transform.md)",
    "unauthorised": "give the worker's principal the right that is named; it tries again by itself",
    "append_time": "the target topic put its own time into the records that are named "
    "(message.timestamp.type=LogAppendTime). Give it message.timestamp.type=CreateTime. To get their timestamps right, "
    + _RESEED
    + f"; to leave them as they are and go on, {_RESTART}",
    "ledger_invalid": "a record about this partition in watershed.ledger on the target cannot be read, and without it "
    "records could be copied twice. Find who wrote it and take WRITE on watershed.ledger away from them; then write "
    "the value that the key had before, or a tombstone where it had none (docs/states.md has the commands). It is "
    "looked at again by itself",
    "failed": "a fault of Watershed itself; the worker's log has its trace, please report it with that. It is tried "
    "again by itself; after an update of the workers nothing else is to be done. The other partitions go on",
    OVER_BUDGET: "the flow was stopped because the file says `slo.on_breach`. See what made it slow, then let all of "
    "it go on: `topology flow resume {flow} {file}`",
    "unsupported": "this version cannot do what is named. When the batch that is named is gone from the source, or the "
    f"setting that is named is another one, {_RESTART}",
}
# Tried again by themselves, with back-off: nothing is written before the inspection that finds them healed.
SELF_HEALING_STATES: Final = frozenset({"unauthorised", "source_gone", "failed", "ledger_invalid", "start_missing"})
RETRY_FIRST_S: Final = 2.0
RETRY_LONGEST_S: Final = 30.0

COPY_FOREIGN_STATE: Final = "source_foreign_write"
GAP_ACCEPTABLE_STATES: Final = frozenset({"source_expired"})
RESEEDABLE_STATES: Final = frozenset(
    {"source_recreated", "source_truncated", "target_gone", "target_foreign_write", "duplicated", "append_time"}
)


class OffsetSpan(NamedTuple):
    """Offsets from `first` up to, not including, `end`."""

    first: int
    end: int

    def __str__(self) -> str:
        return f"{self.first} to {self.end - 1}" if self.end > self.first else f"none (at {self.first})"


@dataclass(frozen=True, slots=True)
class Halt:
    """A partition stops here: `state` is a key of REMEDIES, `error` says what was seen, with offsets.

    source, target: the offsets concerned on either side, as far as they are known. expected_id, found_id: topic ids
    where another topic stands than the ledger's. sent: a batch whose answer leaves open what stands at `target`.
    """

    state: str
    error: str
    source: OffsetSpan | None = None
    target: OffsetSpan | None = None
    expected_id: uuid.UUID | None = None
    found_id: uuid.UUID | None = None
    sent: RawBatch | None = field(default=None, compare=False, repr=False)

    @property
    def remedy(self) -> str:
        """The remedy as a template, with FLOW, TOPIC and N in place of the partition."""
        return self.remedy_for("FLOW", "TOPIC", "N")

    def remedy_for(self, flow: str, topic: str, partition: int | str, file: str = "FILE") -> str:
        """What to do, with the command as it is typed; FILE stands for the topology file's path."""
        return REMEDIES[self.state].format(
            flow=quote_shell_argument(flow),
            topic=quote_shell_argument(topic),
            partition=partition,
            file=quote_shell_argument(file),
        )

    def to_json(self) -> dict[str, Any]:
        """The coordinates, without names: what `topology status --format json` shows beside the text."""
        return {
            "source": None if self.source is None else list(self.source),
            "target": None if self.target is None else list(self.target),
            "expected_id": None if self.expected_id is None else str(self.expected_id),
            "found_id": None if self.found_id is None else str(self.found_id),
        }


@dataclass(frozen=True, slots=True)
class Reinspect:
    """The outcome is unknown or the log is not where we thought: find out anew, then go on.

    `halts_as`: the halt state when the very same reason comes back three times in a row, for five seconds. `pending`:
    the halt that an inspection will find when the wait that `reason` names is over and nothing has changed. It is
    reported when three in a row saw its state, for five seconds; nothing is decided by it before (decision 0142).
    """

    reason: str
    halts_as: str | None = None
    pending: Halt | None = None


@dataclass(frozen=True, slots=True)
class EndReached(Reinspect):
    """Everything in front of the partition's end is copied: the copy ends, and nothing is inspected any more."""

    reason: str = "everything in front of its end is copied"


def pick_trouble(first: Halt | Reinspect | None, later: Halt | Reinspect) -> Halt | Reinspect:
    """The trouble that counts: the first one, except that a halt replaces a reason to inspect again."""
    if first is None or (isinstance(later, Halt) and isinstance(first, Reinspect)):
        return later
    return first
