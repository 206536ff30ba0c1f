"""The states of a partition, and what a person can do about each loud one.

A loud state concerns its partition only; the others of the flow go on. Nothing is skipped: a loud partition
stands still until somebody decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STARTING: Final = "starting"  # finding out where to go on
CATCHING_UP: Final = "catching_up"
RUNNING: Final = "running"
PAUSED: Final = "paused"
STOPPED: Final = "stopped"
RETRYING: Final = "retrying"  # a broker does not answer; tried again by itself

REMEDIES: Final = {
    "source_expired": "the source deleted records before they were copied; raise retention there, "
    "then decide whether the loss is acceptable and start the flow anew",
    "source_recreated": "the source topic was deleted and created again; its old copy is complete as far as it went. "
    "To copy the new one as well, give the flow a `suffix` and an empty target name, and apply the topology again",
    "source_truncated": "the source lost records that were already copied (unclean leader election); "
    "compare both sides with `topology verify` before going on",
    "source_gone": "the source topic does not exist any more; remove it from the flow or create it",
    "target_gone": "the target topic was deleted or created again; to copy it again from the start, "
    "give the flow a `suffix` and apply the topology again",
    "target_foreign_write": "somebody else writes to the target partition; stop that writer, "
    "then copy the topic again into an empty target topic",
    "duplicated": "the target holds batches that this flow wrote twice or out of place; "
    "do not move consumers; copy the topic again into an empty target topic",
    "rejected": "the target refuses a record batch; compare the topic's configuration on both sides "
    "(max.message.bytes, message.timestamp.*, cleanup.policy)",
    "unauthorised": "give the worker's principal the right that is named, it tries again by itself",
    "unsupported": "this batch has to be rewritten record by record, which this version does not do",
}


SELF_HEALING: Final = frozenset({"unauthorised"})  # tried again by itself, every RETRY_S
RETRY_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Loud:
    """A partition stops here: `state` is a key of REMEDIES, `error` says what was seen, with offsets."""

    state: str
    error: str

    @property
    def remedy(self) -> str:
        again = "" if self.state in SELF_HEALING else "; then `topology flow restart`"
        return REMEDIES[self.state] + again


@dataclass(frozen=True, slots=True)
class LookAgain:
    """The outcome is unknown or the log is not where we thought: find out anew, then go on.

    `in_the_end`: the loud state when the very same reason comes back three times in a row, for five seconds.
    """

    reason: str
    in_the_end: str | None = None
