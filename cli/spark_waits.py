"""What a Spark application that runs beside says of waiting for cores, for the terminal: its log is in a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import click

# What such lines begin with (`spark.cluster_cores`); that module need not be loaded for it.
_PREFIXES = ("waiting for Spark: ", "Spark has begun: ")


@dataclass(slots=True)
class SparkWaitReader:
    """Reads what an application adds to its log."""

    log: Path
    _read: int = field(init=False, default=0)

    def read_new(self) -> list[str]:
        """Whole lines about waiting that were added since the last call; none while there is no log."""
        try:
            with self.log.open("rb") as file:
                if file.seek(0, 2) < self._read:  # begun anew
                    self._read = 0
                file.seek(self._read)
                added = file.read()
        except OSError:
            return []
        whole = added[: added.rfind(b"\n") + 1]
        self._read += len(whole)
        return [line for line in whole.decode(errors="replace").splitlines() if line.startswith(_PREFIXES)]

    def show_new(self) -> None:
        """Those lines on standard error."""
        for line in self.read_new():
            click.echo(line, err=True)
