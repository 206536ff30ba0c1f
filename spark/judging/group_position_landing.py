"""The landing test of a group's position, from fingerprints alone. Pure.

A translated position is exact if (1) the next record is the same on both sides and (2) no record that the group has
not read stands before it at the target. Only the records around both positions decide; the offset map, which is under
test, only says where to look.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

_Word = Literal["exact", "behind", "ahead", "not there", "not known"]
_Judged = Literal["same", "told", "different", "unknown"]
RECORDS_AROUND: Final = 64  # records on each side of a position that are looked at, about


@dataclass(frozen=True, slots=True)
class RecordsAround:
    """Fingerprints of the records before and from a position on, in log order. Both ends are the window's or far
    enough away."""

    before: tuple[int, ...]
    after: tuple[int, ...]


class LandingResult(NamedTuple):
    """records: by how many the group would read again (behind) or leave out (ahead)."""

    word: _Word
    records: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class LandedPosition:
    """One tried position. None: there is none, or it is not known.

    committed: at the source. translated: its target offset by the offset map; `translation` says whether that is right.
    at_target: the group's committed offset at the target; `landing` says how far it is from the right one. source_fp,
    target_fp: fingerprints of the next records, at `committed` and at `translated`.
    """

    flow: str
    group: str
    target_group: str
    topic: str
    target_topic: str
    partition: int
    committed: int | None
    translated: int | None = None
    translation: _Word = "not known"
    translation_records: int | None = None
    at_target: int | None = None
    landing: _Word = "not there"
    landing_records: int | None = None
    judged: _Judged = "unknown"
    why: str = ""
    source_fp: int | None = None
    target_fp: int | None = None


def compare_landing(here: RecordsAround, there: RecordsAround) -> LandingResult:
    """Whether a consumer at the target continues where one at the source does. here, there: around both positions."""
    single = _single(here) & _single(there)
    skipped = sum(fp in single for fp in here.after if fp in set(there.before))
    if skipped:
        return LandingResult("ahead", skipped)
    again = sum(fp in single for fp in here.before if fp in set(there.after))
    if again:
        return LandingResult("behind", again)
    if not here.after and not there.after:
        same_end = not here.before or not there.before or here.before[-1] == there.before[-1]
        return (
            LandingResult("exact") if same_end else LandingResult("not known", why="the last records before it differ")
        )
    if here.after and there.after and here.after[0] == there.after[0]:
        return _alike(here, there)
    if here.after and here.after[0] in there.after:
        extra = there.after.index(here.after[0])
        return LandingResult("exact", why=f"{extra} records that the source does not have come first")
    if not here.after:
        if here.before and there.before and here.before[-1] == there.before[-1]:
            return LandingResult("exact", why="behind it stand records that the source does not have")
        return LandingResult("not known", why="the target goes on there, the source does not")
    if not there.after:
        return LandingResult("not known", why="the record that the group goes on with is not on the target")
    return LandingResult("not known", why="another record stands there: see the differences")


def _single(side: RecordsAround) -> frozenset[int]:
    """What stands once around a position, so that its place is certain."""
    return frozenset(fp for fp, count in Counter(side.before + side.after).items() if count == 1)


def _alike(here: RecordsAround, there: RecordsAround) -> LandingResult:
    """The next record is the same; where like records repeat, their number behind both positions tells."""
    here_run, there_run, like = _run(here.after), _run(there.after), here.after[:1]
    if here_run < len(here.after) and there_run < len(there.after):
        if here_run > there_run and there.before[-1:] == like:
            return LandingResult("ahead", here_run - there_run)
        if here_run < there_run and here.before[-1:] == like:
            return LandingResult("behind", there_run - here_run)
    if here.before and there.before and here.before[-1] != there.before[-1]:
        return LandingResult("exact", why="the records before it differ: see the differences")
    return LandingResult("exact")


def _run(records: tuple[int, ...]) -> int:
    """How many like records it begins with."""
    return next((n for n, fp in enumerate(records) if fp != records[0]), len(records))


def judge_position(translation: LandingResult, landing: LandingResult, *, elsewhere: bool) -> _Judged:
    """What both results mean for the verdict. elsewhere: the application reads at the target itself, so its position
    there is its own and is not judged."""
    if translation.word == "ahead" or (landing.word == "ahead" and not elsewhere):
        return "different"
    if translation.word == "not known" or (landing.word == "not known" and not elsewhere):
        return "unknown"
    if translation.word == "behind" or landing.word in ("behind", "ahead"):
        return "told"
    return "same"
