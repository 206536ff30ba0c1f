"""Errors of this room: what stops a proof, the fleet or a Spark job.

::

    SparkError               exit_code 2; the message is complete in itself
    ├── JavaMissing          no Java, or one too old, before anything of Spark is loaded
    ├── WrongUse             a flow, a topic or an earlier summary that does not fit the plan
    ├── NotReadable          a range could not be read: corrupt batch, no answer in time
    ├── NotAppended          batches could not be appended, or not all of a job be committed
    ├── Unwritable           the evidence, or an archive, could not be written
    ├── NotArchivable        what an archive holds and what the cluster has do not fit together any more
    ├── ArchiveDamaged       an archive is not as its manifest says; nothing was written from it
    └── NotRestorable        a topic, or a position of a group, that an archive cannot be restored to

Findings about records (missing, altered, ...) are data, not exceptions: see `spark.judging.verdict`.
"""

from __future__ import annotations

from collections.abc import Sequence


class SparkError(Exception):
    """Root of this room's errors; its text is one sentence for people."""

    exit_code = 2


class JavaMissing(SparkError):
    """There is no usable Java."""


class WrongUse(SparkError):
    """A request that does not fit the topology, the clusters or the earlier proof."""


class NotReadable(SparkError):
    """Records that should be there could not be read."""


class NotAppended(SparkError):
    """Batches that a Spark job writes; the message says what of the job is visible."""


class Unwritable(SparkError):
    """The folder for the evidence takes no files: full, read-only, no folder."""


class NotArchivable(SparkError):
    """The source's logs do not go on where the archive ends: retention, a recreated topic, a log that was cut."""


class ArchiveDamaged(SparkError):
    """Objects are missing or changed, or the manifest's seal does not fit; each is named in `faults`."""

    exit_code = 1

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


class NotRestorable(SparkError):
    """The target holds something else than the archive, or refuses what would have to be written."""
