"""Findings framed in their source with carets, as compilers do. Values on secret-like lines are masked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from watershed.topology.finding import Label, LintFinding
from watershed.topology.lint import LintResult
from watershed.topology.reports.masking import mask_secrets
from watershed.topology.text_escaping import escape_controls
from watershed.topology.yaml_tree import split_yaml_lines

_WIDTH = 160
_BEFORE = 40  # letters of a long line that are shown before what is wrong in it
_COLOURS = {"error": "31", "warning": "33", "info": "36"}


def render_text(results: Iterable[LintResult], *, colour: bool = False) -> str:
    """All frames, and one line that counts; ends without a newline."""
    results = list(results)
    blocks = [block for result in results for block in render_frames(result, colour=colour)]
    return "\n\n".join([*blocks, render_summary(results)])


def render_frames(result: LintResult, *, colour: bool = False) -> Iterator[str]:
    """One block of lines a finding: message, lines of the file with marks, help. colour: with ANSI colours."""
    lines = _lines(result)
    for finding in result.findings:
        if finding.severity != "info":
            yield "\n".join(_frame(finding, lines, colour))
    notes = [finding for finding in result.findings if finding.severity == "info"]
    if notes and result.profile == "regular":
        yield f"{count_remarks(notes)} (--profile strict says more)"
    elif notes:
        yield "\n".join(escape_controls(f"info[{finding.rule}] {finding.span}: {finding.message}") for finding in notes)


def count_remarks(notes: Collection[LintFinding]) -> str:
    """`3 remarks: CLU104 x2, OPS901`"""
    counts = Counter(finding.rule for finding in notes)
    said = ", ".join(f"{rule} x{count}" if count > 1 else rule for rule, count in sorted(counts.items()))
    return f"{len(notes)} remark{'s' * (len(notes) != 1)}: {said}"


def render_summary(results: Iterable[LintResult]) -> str:
    """`1 error, 2 warnings, 1 suppressed in 3 files`"""
    results = list(results)
    counts = [(sum(r.count("error") for r in results), "error"), (sum(r.count("warning") for r in results), "warning")]
    infos = sum(r.count("info") for r in results)
    parts = [f"{count} {word}{'s' * (count != 1)}" for count, word in counts] + ([f"{infos} info"] if infos else [])
    silenced = sum(len(r.suppressed) for r in results)
    known = sum(len(r.known) for r in results)
    count = sum(len(r.sources) for r in results)
    more = (f", {silenced} suppressed" if silenced else "") + (f", {known} in the baseline" if known else "")
    return f"{', '.join(parts)}{more} in {count} file{'s' * (count != 1)}{_skipped(results)}"


def _skipped(results: list[LintResult]) -> str:
    """A linter that skips in silence is trusted too much."""
    offline = {rule.code for result in results for rule in result.skipped if rule.needs == "inventory"}
    live = {rule.code for result in results for rule in result.skipped if rule.needs == "live"}
    parts = [f"{len(offline)} rules need an inventory (--inventory FILE)"] if offline else []
    parts += [f"{len(live)} need live clusters (topology plan)"] if live else []
    return f"; skipped: {', '.join(parts)}" if parts else ""


def _lines(result: LintResult) -> dict[str, list[str]]:
    """The files' lines, without what stands behind the beginning of a literal secret."""
    lines = {file: split_yaml_lines(text) for file, text in result.sources.items()}
    hidden: dict[tuple[str, int], int] = {}
    for span in (finding.span for finding in result.findings if finding.rule == "SEC601"):
        place = (span.file, span.line)
        hidden[place] = min(span.column, hidden.get(place, span.column))
    for (file, line), column in hidden.items():
        lines[file][line - 1] = lines[file][line - 1][: column - 1] + "…"
    return lines


def _frame(finding: LintFinding, lines: dict[str, list[str]], colour: bool) -> Iterator[str]:
    head = f"{finding.severity}[{finding.rule}]"
    if colour:
        head = f"\x1b[1;{_COLOURS[finding.severity]}m{head}\x1b[0m"
    likely = "" if finding.confidence == "certain" else f" ({finding.confidence})"
    yield f"{head}: {escape_controls(finding.message)}{likely}"
    width = max(len(str(label.span.line)) for label in finding.labels)
    bar = " " * width + " |"
    yield f"{' ' * width}--> {escape_controls(str(finding.span))}"
    yield bar
    file = finding.span.file
    for label in finding.labels:
        if label.span.file != file:
            file = label.span.file
            yield f"{' ' * width}::: {escape_controls(file)}"
        yield from _source(label, lines.get(file, []), width)
    if finding.notes or finding.help:
        yield bar
    for note in finding.notes:
        yield f"{' ' * width} = {escape_controls(note)}"
    if finding.help:
        yield f"{' ' * width} = help: {escape_controls(finding.help)}"
    yield f"{' ' * width} = more: topology explain {finding.rule}"


def _source(label: Label, lines: list[str], width: int) -> Iterator[str]:
    """The line, or of a long one the piece around the span, which then begins and ends with `…`."""
    span = label.span
    line = lines[span.line - 1] if span.line <= len(lines) else ""
    shown = mask_secrets(line)
    end = span.end_column - 1 if span.end_line == span.line else len(line.rstrip())
    first = shown.at(span.column - 1)
    begin = 0 if len(shown.text) <= _WIDTH or first <= _WIDTH - _BEFORE else first - _BEFORE
    piece = shown.text[begin : begin + _WIDTH]
    if begin:
        piece = f"…{piece[1:]}"
    if begin + _WIDTH < len(shown.text):
        piece = f"{piece[:-1]}…"
    before = first - begin
    after = max(before + 1, min(shown.at(end - 1) + 1 - begin, len(piece)))
    gap = len(escape_controls(piece[:before])) + max(0, before - len(piece))
    carets = "^" * max(1, len(escape_controls(piece[before:after])))
    yield f"{span.line:>{width}} | {escape_controls(piece)}".rstrip()
    yield f"{' ' * width} | {' ' * gap}{carets}{f' {escape_controls(label.text)}' if label.text else ''}"
