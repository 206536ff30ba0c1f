"""Where a child writes down what it does, and the parent reads it even when the child hangs or is dead: a mapped file.

The input stands there before it is tried. So whatever ends the child, it is known on which input.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.mutation import LONGEST

_FORM = struct.Struct("<QQQQQdddQ?")
_ROOM = _FORM.size + LONGEST


@dataclass(slots=True)
class Figures:
    """inputs: tried until now. accepted_kept: of the accepted, those that were kept from earlier runs. began_cpu: the
    child's processor seconds when it began the last, began: the clock's.
    longest: seconds of the longest. peak: bytes of memory above what the child began with. busy: it is in `attempt`."""

    inputs: int = 0
    accepted: int = 0
    accepted_kept: int = 0
    refused: int = 0
    peak: int = 0
    longest: float = 0.0
    began_cpu: float = 0.0
    began: float = 0.0
    length: int = 0
    busy: bool = False


class Board:
    """One child writes, one parent reads; a torn reading is read again at the next look."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_ROOM))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _ROOM)

    def write(self, figures: Figures) -> None:
        f = figures
        self._memory[: _FORM.size] = _FORM.pack(
            f.inputs, f.accepted, f.accepted_kept, f.refused,
            f.peak, f.longest, f.began_cpu, f.began, f.length, f.busy,
        )  # fmt: skip

    def write_input(self, data: bytes) -> None:
        self._memory[_FORM.size : _FORM.size + len(data)] = data

    def read(self) -> Figures:
        return Figures(*_FORM.unpack(self._memory[: _FORM.size]))

    def read_input(self) -> bytes:
        return self._memory[_FORM.size : _FORM.size + self.read().length]

    def close(self) -> None:
        self._memory.close()
