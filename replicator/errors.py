"""What can stop the data plane.

    ReplicatorError
    ├── NotCopied          a source offset beyond what has been copied so far
    ├── NoLedger           the target cluster holds no ledger entry for what was asked
    ├── Misaligned         a target log whose end cannot be brought to where it should be (`offsets: aligned`)
    ├── LedgerThreadEnded  a worker that would never hear again what the ledger holds
    └── BadBatch           bytes that are not a record batch, or one that cannot be copied
        ├── ForeignWrite    a batch under the id of a flow that did not write it
        ├── PartlyMarked    a batch of which only some records have the header of another tool
        ├── ReturnedRecord  a record whose provenance header says that it has come round
        ├── OversizedBatch  a batch that holds more than may be opened
        ├── CompactionHole  a batch behind a hole, where holes cannot be copied yet
        ├── EndPassed       a batch with a record of the time at which the copy ends
        └── SchemaMissing   a batch with something in it that the target does not know yet

Halt states of a partition (`source_expired`, `duplicated`, …) are data, not exceptions:
see `replicator.partition_states`.
"""

from __future__ import annotations


class ReplicatorError(Exception):
    """Root of all errors of this package; `exit_code` is what the command line ends with."""

    exit_code = 2


class NotCopied(ReplicatorError):
    """The source offset `offset` is not on the target yet: copied through `copied` only."""

    exit_code = 1

    def __init__(self, offset: int, copied: int) -> None:
        self.offset = offset
        self.copied = copied
        super().__init__(
            f"source offset {offset} is not copied yet: the target holds everything below {copied}; "
            "wait for the flow to catch up, then ask again"
        )


class NoLedger(ReplicatorError):
    """The ledger has nothing about this flow, topic and partition."""

    def __init__(self, flow: str, topic: str = "", partition: int | None = None) -> None:
        self.flow, self.topic, self.partition = flow, topic, partition
        where = f"flow {flow}" + (f", topic {topic}" if topic else "")
        where += f", partition {partition}" if partition is not None else ""
        super().__init__(
            f"no ledger entry for {where} on the target cluster; "
            "has a worker served this flow yet? `topology status` shows what runs"
        )


class Misaligned(ReplicatorError):
    """A target log that is longer than it may be, or holds what nobody of us wrote. Nothing more is written to it.

    wanted: where the end should be; end: where it is, or the first offset that holds what should not be there.
    """

    def __init__(self, where: str, wanted: int, end: int, why: str) -> None:
        self.wanted, self.end, self.why = wanted, end, why
        super().__init__(f"{where} was to be brought to offset {wanted}: {why}")


class LedgerThreadEnded(ReplicatorError):
    """A worker without the thread that hears acknowledgements would stand still and look alive; so it ends."""

    def __init__(self) -> None:
        super().__init__(
            "the worker's ledger thread has ended and nothing could be copied any more; start the worker again"
        )


class BadBatch(ReplicatorError):
    """A record batch that cannot be copied; `reason` says why.

    state: the halt state that it leads to. passing: the bytes may have been damaged on their way here only, so that
    fetching them again may help.
    """

    def __init__(self, reason: str, base_offset: int, state: str = "rejected", *, passing: bool = False) -> None:
        self.reason, self.base_offset, self.state, self.passing = reason, base_offset, state, passing
        super().__init__(f"batch at source offset {base_offset}: {reason}")


class ForeignWrite(BadBatch):
    """A batch that names a flow as its producer, while no flow's ledger says that it wrote it. `end` is behind it."""

    def __init__(self, base_offset: int, end: int, producer_id: int) -> None:
        self.end = end
        super().__init__(
            f"foreign record under our id: it carries producer id {producer_id} of a flow into this cluster, and no "
            f"flow's ledger there claims source offsets {base_offset} to {end - 1}",
            base_offset,
            "source_foreign_write",
        )


class PartlyMarked(BadBatch):
    """A batch of which only some records have the header with which another tool marks its own. `end` is behind it."""

    def __init__(self, base_offset: int, end: int, header: str, marked: int, count: int) -> None:
        self.end = end
        super().__init__(
            f"{marked} of its {count} records have the header `{header}`, with which another tool marks what it "
            f"writes, and the others do not (source offsets {base_offset} to {end - 1})",
            base_offset,
            "source_foreign_write",
        )


class ReturnedRecord(BadBatch):
    """A record whose provenance header says that it stood in the flow's target topic, or in this topic, before. It is
    raised for the record, and then for the whole batch (`of_batch`). `end` is behind what it stands for."""

    def __init__(self, base_offset: int, header: str, origin: str, end: int | None = None) -> None:
        self.end, self.header, self.origin = base_offset + 1 if end is None else end, header, origin
        super().__init__(
            f"holds a record that has come round: its header `{header}` says `{origin}`. A tool that the file does not "
            f"declare brought it back, or an application passed its headers on (source offsets {base_offset} to "
            f"{self.end - 1})",
            base_offset,
            "source_foreign_write",
        )

    def of_batch(self, base_offset: int, end: int) -> ReturnedRecord:
        """The same for the batch that holds the record."""
        return ReturnedRecord(base_offset, self.header, self.origin, end)


class OversizedBatch(BadBatch):
    """A batch that holds more than is opened of one: bytes, or records."""

    def __init__(self, reason: str, base_offset: int) -> None:
        super().__init__(f"{reason}, and it cannot be passed on without being opened", base_offset, "unsupported")


class CompactionHole(BadBatch):
    """Compaction left something out at `base_offset`, where the writer must not depend on it: another worker may have
    read the log before the cleaner came, and under one producer epoch both must mean the same records."""

    def __init__(self, base_offset: int, why: str = "follows a hole left by compaction") -> None:
        super().__init__(f"{why}; a producer epoch of its own is needed", base_offset)


class EndPassed(BadBatch):
    """Nothing is wrong with it: it holds the first record at which the copy ends, or one behind it. Which one, the
    source is asked (`replicator.recovery.found_ends`)."""

    def __init__(self, base_offset: int) -> None:
        super().__init__("holds the first record of the time at which the copy ends", base_offset)


class SchemaMissing(BadBatch):
    """Nothing is wrong with it: something that a record in it needs is not at the target yet."""

    def __str__(self) -> str:
        return self.reason
