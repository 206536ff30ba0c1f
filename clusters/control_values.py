"""Control records are foreign input: anybody with WRITE on a control topic may have written them (decision 0058).

Each record is read on its own. `decode_control_value` decodes bytes to a JSON object within limits;
`clusters.control_record_codec` makes a record of it and checks the type of every field. A record that fails is logged
once as an `InvalidControlRecord` and then ignored.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

from watershed.clusters.errors import ClusterError
from watershed.topology.bounded_json import parse_json_object

log = logging.getLogger("watershed.control")


ControlValue = dict[str, Any]

_TOLD_AT_MOST = 10_000

# Whatever a reader raises about a value that is not what it expects.
UNREADABLE_ERRORS: Final = (
    ClusterError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class InvalidControlRecord:
    """A record of a control topic that nobody can read. cluster: its alias; key: as far as it is text."""

    cluster: str
    topic: str
    partition: int
    offset: int
    key: str
    why: str

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} offset {self.offset} on cluster {self.cluster}, key {self.key!r:.200}, is "
            f"not a Watershed record: {self.why}"
        )

    @property
    def remedy(self) -> str:
        """What an operator can do about the record, as one sentence."""
        return (
            f"it is ignored until the key has a tombstone or a valid value; only Watershed may write to {self.topic}: "
            "find the writer, and deny it by an ACL (docs/security.md) unless it is a newer version (docs/upgrade.md)"
        )


_told: set[tuple[str, str, int, int]] = set()


def log_invalid_record(record: InvalidControlRecord) -> None:
    """Log it, once a process."""
    at = (record.cluster, record.topic, record.partition, record.offset)
    if at in _told:
        return
    if len(_told) >= _TOLD_AT_MOST:
        _told.clear()
    _told.add(at)
    log.warning(
        "record invalid",
        extra={"cluster": record.cluster, "topic": record.topic, "partition": record.partition,
               "offset": record.offset, "key": record.key[:200], "reason": record.why, "remedy": record.remedy},
    )  # fmt: skip


def decode_control_value(payload: bytes) -> ControlValue:
    """The JSON object that these bytes are. Raises ValueError, which says why they are none."""
    return parse_json_object(payload)
