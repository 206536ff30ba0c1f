"""What an alignment means in offsets: kinds, spans, stretches, and where copying goes on."""

from __future__ import annotations

import pytest

from tests.replicator.adopting import log_of
from watershed.replicator.adoption.copy_proof import _groups
from watershed.replicator.adoption.duplicates_and_gaps import (
    ACCEPTABLE_FINDINGS,
    FINDING_MEANINGS,
    TOLERATED_FINDINGS,
    ComparedRanges,
    CopyFinding,
    CopyVerdict,
    judge_alignment,
    render_findings,
)
from watershed.replicator.adoption.log_alignment import align_logs
from watershed.replicator.adoption.log_digests import DigestedLog
from watershed.replicator.ledger.offset_map import ExplicitRun
from watershed.replicator.mirrormaker_records import Checkpoint
from watershed.replicator.partition_states import OffsetSpan


def log(*numbers: int | bytes, first: int = 0, aborted: tuple[int, ...] = (), step: int = 1) -> DigestedLog:
    content = [n if isinstance(n, bytes) else b"%d" % n for n in numbers]
    return log_of([(first + at * step, each) for at, each in enumerate(content)], aborted)


def judged(
    source: DigestedLog, target: DigestedLog, *, compacted: bool = False, target_end: int = -1, **more
) -> CopyVerdict:
    def ends_of(side: DigestedLog) -> tuple[int, int]:
        return (side.offset(0), side.offset(len(side) - 1) + 1) if len(side) else (0, 0)

    (here, here_end), (there, there_end) = ends_of(source), ends_of(target)
    there = target_end if not len(target) and target_end >= 0 else there
    found = align_logs(source, target, expired=here > 0 or compacted, sparse=compacted)
    return judge_alignment(found, ComparedRanges(here, here_end, there, max(there_end, target_end), compacted), **more)


SOURCE = log(*range(100))


def test_exact() -> None:
    found = judged(SOURCE, log(*range(80)))
    assert (found.findings, found.stretches, found.position, found.exact) == ((), (ExplicitRun(0, 0, 80),), 80, True)


def test_markers_on_both_sides() -> None:
    source = log(*range(50), first=10, step=2)
    target = log_of([(3 * n, b"%d" % n) for n in range(50)])
    found = judged(source, target)
    assert found.stretches == tuple(ExplicitRun(3 * n, 10 + 2 * n, 1) for n in range(50))
    assert found.position == 10 + 2 * 49 + 1


def test_duplicates_have_to_be_accepted_by_name() -> None:
    found = judged(SOURCE, log(*range(50), *range(30, 80)))
    assert found.findings == (CopyFinding("duplicates", 20, OffsetSpan(30, 50), OffsetSpan(50, 70)),)
    assert found.stretches == (ExplicitRun(0, 0, 50), ExplicitRun(70, 50, 30))
    assert found.refused() == ["duplicates"]
    assert found.refused(["duplicates"]) == []
    assert found.position == 80


def test_one_record_changed_and_one_missing() -> None:
    found = judged(SOURCE, log(*range(20), b"other", *range(21, 50), *range(51, 80)))
    assert found.findings == (
        CopyFinding("missing", 1, OffsetSpan(50, 51)),
        CopyFinding("changed", 1, OffsetSpan(20, 21), OffsetSpan(20, 21)),
    )
    assert found.refused(["missing", "changed"]) == ["changed"]  # nobody can accept content that never was


def test_equal_offsets_do_not_step_over_records() -> None:
    """The target's log ends with a marker where the source has a record."""
    found = judged(SOURCE, log(*range(80)), target_end=82, equal=True)
    assert (found.findings, found.position) == ((CopyFinding("missing", 2, OffsetSpan(80, 82)),), 82)
    assert judged(log(*range(100), aborted=(80, 81)), log(*range(80)), target_end=82, equal=True).exact
    assert judged(SOURCE, log(*range(80)), target_end=82).position == 80


def test_foreign_and_reordered() -> None:
    found = judged(SOURCE, log(*range(20), b"other", *range(20, 30), *range(40, 60), *range(30, 40), *range(60, 70)))
    assert found.counts == {"foreign": 1, "reordered": 10}
    assert found.refused(FINDING_MEANINGS) == ["foreign", "reordered"]


def test_aborted_records_that_were_copied() -> None:
    source = log(*range(100), aborted=tuple(range(10, 20)))
    found = judged(source, log(*range(60)))
    assert found.findings == (CopyFinding("aborted", 10, OffsetSpan(10, 20), OffsetSpan(10, 20)),)
    assert found.stretches == (ExplicitRun(0, 0, 60),)
    assert judged(source, log(*range(10), *range(20, 60))).exact


def test_what_expired_is_said_and_in_nobodys_way() -> None:
    found = judged(log(*range(40, 100), first=40), log(*range(80)))
    assert found.findings == (CopyFinding("expired", 40, None, OffsetSpan(0, 40)),)
    assert (found.stretches, found.position, found.exact) == ((ExplicitRun(40, 40, 40),), 80, True)
    found = judged(SOURCE, log(*range(30, 80), first=500))
    assert found.findings == (CopyFinding("expired", 30, OffsetSpan(0, 30)),)
    assert (found.stretches, found.exact) == ((ExplicitRun(500, 30, 50),), True)
    never = judged(SOURCE, log(*range(30, 80)))  # the target's log begins at 0: nothing expired there
    assert never.findings == (CopyFinding("missing", 30, OffsetSpan(0, 30)),)


def test_nothing_can_be_compared() -> None:
    older = judged(log(*range(500, 600), first=500), log(*range(80)), hint=510)
    assert older.findings == (CopyFinding("unverifiable", 80, None, OffsetSpan(0, 80)),)
    assert (older.stretches, older.position) == ((), 510)
    assert judged(log(*range(500, 600), first=500), log(*range(80)), hint=300).position == 500
    assert judged(log(*range(500, 600), first=500), log(*range(80))).position == -1
    gone = judged(SOURCE, log(), target_end=40, hint=41)
    assert gone.findings == (CopyFinding("unverifiable", 40, None, OffsetSpan(0, 40)),)
    assert gone.position == 41
    assert judged(SOURCE, log(), target_end=40, equal=True).position == 40


def test_an_empty_target_begins_with_the_source() -> None:
    found = judged(log(*range(500, 600), first=500), log(), hint=550)
    assert (found.findings, found.position, found.exact) == ((), 500, True)


def test_what_stands_beside_one_copy_of_each_record() -> None:
    source = log(*range(100), aborted=tuple(range(10, 20)))
    found = judged(source, log(*range(50), *range(15, 80)))
    # 10 to 49 repeats 5 aborted and 30 others; the aborted ones that stand in the main chain are extra, too.
    assert found.extra() == (OffsetSpan(10, 20), OffsetSpan(50, 85))
    assert judged(SOURCE, log(*range(50))).extra() == ()
    assert judged(log(*range(40, 100), first=40), log(*range(80))).extra() == ()  # older ones are not beside anything


def test_equal_offsets() -> None:
    exact = judged(SOURCE, log(*range(80)), equal=True)
    assert (exact.exact, exact.position) == (True, 80)
    behind_markers = judged(SOURCE, log(*range(80)), equal=True, target_end=82)
    assert behind_markers.position == 82
    shifted = judged(SOURCE, log(*range(40), *range(41, 80)), equal=True)
    assert shifted.counts == {"missing": 1, "shifted": 39}
    assert "shifted" in shifted.refused(["missing"])


def test_compacted_logs() -> None:
    found = judged(log(*(n for n in range(100) if n % 7)), log(*(n for n in range(100) if n % 5)), compacted=True)
    assert set(found.counts) == {"compacted"}
    assert found.refused(["compacted"]) == []


def test_timestamps_that_were_lost() -> None:
    found = judged(SOURCE, log(*range(80)), timestamps=False)
    assert found.findings == (CopyFinding("timestamps", 80, OffsetSpan(0, 80), OffsetSpan(0, 80)),)


def test_every_kind_has_a_meaning() -> None:
    assert all(kind in FINDING_MEANINGS for kind in ACCEPTABLE_FINDINGS | TOLERATED_FINDINGS)


def test_places_are_shown_with_their_offsets() -> None:
    finding = CopyFinding("duplicates", 20, OffsetSpan(30, 50), OffsetSpan(50, 70))
    assert render_findings([finding]) == "source 30 to 49, target 50 to 69"
    assert render_findings([finding] * 7).endswith("; and 2 more places")
    assert finding.to_json() == {"kind": "duplicates", "records": 20, "source": [30, 50], "target": [50, 70]}


@pytest.mark.parametrize("copied", range(0, 30, 7))
def test_a_target_beyond_what_the_source_ever_had(copied: int) -> None:
    found = judged(log(*range(20)), log(*range(20), *(b"x%d" % n for n in range(copied))))
    assert found.counts == ({"foreign": copied} if copied else {})
    assert found.position == 20


def test_groups_get_their_exact_offsets() -> None:
    found = judged(SOURCE, log(*range(50), *range(30, 80)))
    held = [
        Checkpoint("a", "t", 0, 45, 20, ""),
        Checkpoint("b", "t", 0, 60, 70, ""),
        Checkpoint("c", "t", 0, 81, 0, ""),
    ]
    groups = _groups(found, ComparedRanges(0, 100, 0, 100), held)
    assert [(each.group, exactly) for each, exactly in groups] == [("a", 45), ("b", 80)]  # c is ahead of the copy
