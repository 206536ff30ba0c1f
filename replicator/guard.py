"""The loop guard: which batches of a source must not travel on, told by the producer id in their header.

A batch that a Watershed flow wrote carries that flow's producer id for ever. What came from this flow's own
target must not go back there; with `forward: local` nothing that any flow brought travels on.
"""

from __future__ import annotations

from collections.abc import Callable

from replicator.batches import Batch


class Guard:
    """`origins()` gives producer id → id of the cluster that flow reads from, for all flows into the source.
    `target` is this flow's target's cluster id: another topology file may know the same cluster by another alias.

    A flow's producer id is registered before its first batch is written. So an id that is unknown after reading the
    registry again belongs to an ordinary producer, for good.
    """

    def __init__(self, target: str, forward: str, origins: Callable[[], dict[int, str]]) -> None:
        self._target, self._forward, self._origins = target, forward, origins
        self._leave_out: dict[int, bool] = {-1: False}

    def __call__(self, batch: Batch) -> bool:
        """Whether the batch is left out."""
        decided = self._leave_out.get(batch.producer_id)
        if decided is None:
            origins = self._origins()
            origin = origins.get(batch.producer_id)
            decided = origin is not None and (self._forward == "local" or origin == self._target)
            self._leave_out[batch.producer_id] = decided
        return decided
