"""Ports on 127.0.0.1 for what the lab starts.

Seconds pass between the choice of a port and the moment a broker listens on it. So a process first reserves whole
ranges of ports, by names in Linux's abstract namespace: such a name is gone with the process that bound it. No two
processes choose the same port, and a process chooses each port once, until it has used all of its ranges.
"""

import os
import random
import socket
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from watershed.lab.errors import LabError

LOOPBACK_HOST = "127.0.0.1"

_RANGE_SIZE = 100
_RANGES = range(20000, 30000, _RANGE_SIZE)  # below the kernel's ephemeral ports: a stopped broker gets its port back
_DECADES = range(30000, 32700, 10)  # so are these, ten in a row each


@dataclass(slots=True)
class _Reserved:
    """What one process holds. unused: ports of its ranges in the order in which they will be chosen."""

    process: int
    names: list[socket.socket] = field(default_factory=list)
    unused: deque[int] = field(default_factory=deque)


_RESERVED = _Reserved(os.getpid())


def find_free_ports(count: int, taken: Iterable[int] = ()) -> list[int]:
    """Ports on 127.0.0.1 that nobody listens on, that are not in `taken`, and that no other call returned, in this
    process or another one that runs. Raises LabError.
    """
    free: list[int] = []
    unusable = set(taken)
    while len(free) < count:
        port = _take_unused_port()
        if port not in unusable and _is_bindable(port):
            free.append(port)
    return free


def reserve_port_decade() -> int:
    """A multiple of ten such that nobody listens on the nine ports behind it. Raises LabError.

    It is this process's until its end.
    """
    for decade in random.sample(_DECADES, len(_DECADES)):
        if all(_is_bindable(decade + number) for number in range(1, 10)) and _reserve(decade):
            return decade
    raise LabError(f"no ten free ports in a row on {LOOPBACK_HOST}")


def _take_unused_port() -> int:
    reserved = _find_reserved()
    if not reserved.unused:
        first = next((start for start in random.sample(_RANGES, len(_RANGES)) if _reserve(start)), None)
        if first is None:
            raise LabError(
                f"no free ports on {LOOPBACK_HOST} between {_RANGES.start} and {_RANGES.stop}: other processes of the "
                "lab have reserved them; end some of them"
            )
        reserved.unused.extend(range(first, first + _RANGE_SIZE))
    return reserved.unused.popleft()


def _reserve(start: int) -> bool:
    """Whether no process had the ports from `start` on; now this one has them."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        name.bind(f"\0watershed.lab.{start}")
    except OSError:
        name.close()
        return False
    _find_reserved().names.append(name)
    return True


def _find_reserved() -> _Reserved:
    """This process's. A fork starts with none: those that it inherits are its parent's."""
    global _RESERVED
    if _RESERVED.process != os.getpid():
        _RESERVED = _Reserved(os.getpid())
    return _RESERVED


def _is_bindable(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((LOOPBACK_HOST, port))
        except OSError:
            return False
    return True
