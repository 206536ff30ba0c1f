"""Where fleets are supervised in tasks, and where tasks stand by: a queue of Airflow each, and a DAG each.

A DAG of its own, because Airflow fails a task for good that no worker takes for long, and begins the next run of a DAG
only when all tasks of the last one have ended (decision 0095).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Final

from watershed.plugins.state_folder import is_state_shared

# What stands before `__NAME` in the ids of these DAGs, in the order of the queues.
SUPERVISE_KINDS: Final = ("supervise", *(f"supervise_{number}" for number in range(2, 10)))


def list_supervisor_queues() -> list[str | None]:
    """The queue of each task that supervises a fleet or stands by: those of WATERSHED_SUPERVISOR_QUEUES, which put them
    on different hosts; else Airflow's default queue (None), with two tasks where hosts have a state folder each. Raises
    ValueError for more queues than SUPERVISE_KINDS, and as `is_state_shared`."""
    named = [each.strip() for each in os.environ.get("WATERSHED_SUPERVISOR_QUEUES", "").split(",") if each.strip()]
    if len(named) > len(SUPERVISE_KINDS):
        raise ValueError(
            f"WATERSHED_SUPERVISOR_QUEUES names {len(named)} queues, and takes up to {len(SUPERVISE_KINDS)}: a fleet "
            "needs one more than hosts may fail at once"
        )
    return [*named] or ([None] if is_state_shared() else [None, None])


def list_supervise_kinds() -> Sequence[str]:
    """The kinds of DAGs for `list_supervisor_queues`. Where that raises, the first one, which becomes the report."""
    with contextlib.suppress(ValueError):
        return SUPERVISE_KINDS[: len(list_supervisor_queues())]
    return SUPERVISE_KINDS[:1]
