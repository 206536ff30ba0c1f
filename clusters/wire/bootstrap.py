"""The one loop over bootstrap addresses: takes the first that answers, tries those that were lost lately last."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from watershed.clusters.connection_parameters import ConnectionParameters
from watershed.clusters.errors import ClusterError, ProtocolError, Unreachable

C = TypeVar("C")

# A broker that hangs takes connections all the same: for so long others are asked first.
_AVOIDED_S = 30.0
_lost_at: dict[tuple[str, int], float] = {}  # monotonic seconds


def connect_to_any(settings: ConnectionParameters, connect: Callable[[tuple[str, int]], C]) -> C:
    """Returns what `connect` makes of the first bootstrap address that answers.

    Addresses that raise Unreachable or ProtocolError are passed over; when all do, the last error is raised. Every
    other error ends the search at once: the next broker of the cluster would say the same.
    """
    last: ClusterError = settings.unreachable("no bootstrap address is given")
    since = time.monotonic() - _AVOIDED_S
    for address in sorted(settings.bootstrap_addresses, key=lambda each: _lost_at.get(each, since) > since):
        try:
            return connect(address)
        except (Unreachable, ProtocolError) as error:
            last = error
    raise last


def remember_lost(address: tuple[str, int]) -> None:
    """Note that this broker did not answer, so that `connect_to_any` tries it last for half a minute."""
    now = time.monotonic()
    for old in [each for each, at in list(_lost_at.items()) if at < now - _AVOIDED_S]:
        _lost_at.pop(old, None)
    _lost_at[address] = now
