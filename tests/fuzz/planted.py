"""Targets with a fault each, for the tests of the harness itself."""

from __future__ import annotations

import os
import time

from tests.fuzz.target import OracleViolated, Target

BAD = b"bad"


class Refused(Exception):
    """As documented."""


def raising() -> Target:
    return _target(lambda: {}["nothing"])


def hanging() -> Target:
    def hang() -> None:
        while True:
            pass

    return _target(hang)


def waiting() -> Target:
    return _target(lambda: time.sleep(3600))


def eating() -> Target:
    return _target(lambda: bytearray(1 << 30))


def eating_in_secret() -> Target:
    """What catches a MemoryError has asked for the memory all the same."""

    def eat() -> None:
        try:
            bytearray(1 << 30)
        except MemoryError as error:
            raise Refused("too large") from error

    return _target(eat)


def dying() -> Target:
    return _target(lambda: os.abort())


def lying() -> Target:
    def lie() -> None:
        raise OracleViolated("a lie")

    return _target(lie)


def silent() -> Target:
    def refuse() -> None:
        raise Refused

    return _target(refuse)


def sound() -> Target:
    return _target(lambda: None)


def _target(fault: object) -> Target:
    def attempt(data: bytes) -> str:
        if data.startswith(BAD):
            fault()  # type: ignore[operator]
        if data.startswith(b"no"):
            raise Refused("no")
        return "yes"

    return Target("planted", [b"yes", b"no", BAD, b"yes again"], attempt, (Refused,))
