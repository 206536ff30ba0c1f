"""What a target partition takes, as far as it decides how batches are cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_MAX_BATCH_BYTES: Final = 1_048_588  # message.max.bytes of Apache Kafka: 1 MiB and the front of a batch


@dataclass(frozen=True, slots=True)
class TargetLimits:
    """max_batch: bytes of the largest record batch (header included) that the target topic takes. append_time: it puts
    its own time in place of the records'."""

    max_batch: int = DEFAULT_MAX_BATCH_BYTES
    append_time: bool = False
