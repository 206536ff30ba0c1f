"""What tells batches of a source log that another tool brought there and the flow leaves out (`external_flows`)."""

from __future__ import annotations

from typing import Final, NamedTuple


class ExternalMarks(NamedTuple):
    """headers: a batch does not count if all of its records have one of these. flows: producer ids of our flows into
    the source; a batch under one of them is that flow's, whatever headers its records have brought along."""

    headers: tuple[str, ...] = ()
    flows: tuple[int, ...] = ()


NO_MARKS: Final = ExternalMarks()
