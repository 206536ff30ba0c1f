"""A hash over all chunks of a proof for a change ticket, and the proof that a chunk is among them.

Tree and prefixes of RFC 6962 (Certificate Transparency), 2.1: a leaf is hashed behind 0x00, an inner node behind 0x01,
so neither can stand for the other. Leaves are texts, sorted, so that the root does not depend on the order of reading.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

_PREFIX = "sha256:"


class MerkleStep(NamedTuple):
    """A neighbour on the way from a leaf to the root: the hash, in hex, on this side of what is known so far."""

    side: Literal["left", "right"]
    hash: str


def encode_leaf(row: Mapping[str, Any]) -> str:
    """The text of a chunk row that is hashed: JSON with sorted keys and no spaces."""
    return json.dumps(row, sort_keys=True, separators=(",", ":"))


def compute_merkle_root(texts: Iterable[str]) -> str:
    """The root over the leaves' texts, in whatever order they come: `sha256:` and hex."""
    level = [_leaf(text) for text in sorted(texts)]
    if not level:
        return _PREFIX + hashlib.sha256(b"").hexdigest()
    while len(level) > 1:
        level = _above(level)
    return _PREFIX + level[0].hex()


def build_inclusion_path(texts: Iterable[str], text: str) -> list[MerkleStep]:
    """The hashes that lead from a leaf to the root. Raises ValueError when the text is no leaf."""
    leaves = sorted(texts)
    at, level = leaves.index(text), [_leaf(each) for each in leaves]
    steps = []
    while len(level) > 1:
        beside = at ^ 1
        if beside < len(level):
            steps.append(MerkleStep("right" if at % 2 == 0 else "left", level[beside].hex()))
        at, level = at // 2, _above(level)
    return steps


def compute_root_from_path(text: str, steps: Sequence[MerkleStep]) -> str:
    """The root that a leaf and its path give, to be compared with the one in the change ticket."""
    known = _leaf(text)
    for step in steps:
        beside = bytes.fromhex(step.hash)
        known = _node(known, beside) if step.side == "right" else _node(beside, known)
    return _PREFIX + known.hex()


def _above(level: list[bytes]) -> list[bytes]:
    pairs = [_node(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
    return pairs + ([level[-1]] if len(level) % 2 else [])


def _leaf(text: str) -> bytes:
    return hashlib.sha256(b"\x00" + text.encode()).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()
