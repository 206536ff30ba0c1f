"""What a target of `make fuzz` is: who reads foreign bytes, from which seeds, and what may come of it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = ("files", "imports", "answers", "batches", "records", "queries", "hooks", "schemas")


class OracleViolated(Exception):
    """The code said something about the input that is not so. The message says what."""


@dataclass(frozen=True, slots=True)
class Target:
    """attempt: takes one input; returns what it was taken for in a few words, or raises. An exception of `refusals`
    with a message is a refusal, any other exception is a finding.

    words: pieces that mean something to the reader, for mutations. tree: inputs are JSON or YAML, so mutations may
    also change the tree (`json`, `yaml`, or "" for neither). longest: bytes of an input.
    """

    name: str
    seeds: Sequence[bytes]
    attempt: Callable[[bytes], str]
    refusals: tuple[type[Exception], ...]
    words: Sequence[bytes] = ()
    tree: str = ""
    longest: int = 1 << 20


def load_target(name: str) -> Target:
    """`files`, or `module:function` of a target that is not of ours (the tests of the harness have some)."""
    module, _, function = name.partition(":")
    found = importlib.import_module(module if function else f"tests.fuzz.targets.{name}")
    target: Target = getattr(found, function or "target")()
    return target
