"""Foreign files through every importer of `topology import`: the one that recognises the file, and one that is told to.

Oracle: what comes out is a topology file that the linter can read.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.target import ROOT, OracleViolated, Target
from watershed.topology.errors import TopologyError, UnreadableTopology
from watershed.topology.interop.import_formats import IMPORT_FORMATS, IMPORT_SUFFIXES, import_path
from watershed.topology.interop.import_report import build_import_report, render_import_findings
from watershed.topology.loader import parse_topology

_CASES = ROOT / "tests/cases"


def target() -> Target:
    files = [each for name in ("interop", "linking") for each in sorted((_CASES / name).rglob("*"))]
    seeds = [each.read_bytes() for each in files if each.suffix in IMPORT_SUFFIXES and "expected" not in each.parts]
    words = {word for data in seeds for word in data.replace(b"=", b" = ").split() if len(word) < 60}
    return Target("imports", seeds, _reader(), (TopologyError,), sorted(words), "yaml", 1 << 16)


def _reader() -> Callable[[bytes], str]:
    path = Path(tempfile.mkdtemp(prefix="watershed-fuzz-")) / "foreign.properties"

    def attempt(data: bytes) -> str:
        path.write_bytes(data)
        wanted = IMPORT_FORMATS[zlib.crc32(data) % len(IMPORT_FORMATS)].name
        try:
            imported = import_path(path)
        except UnreadableTopology:
            imported = import_path(path, wanted)
        report = build_import_report(imported, "topology.yaml")
        report.to_json()
        render_import_findings((*report.source, *report.result))
        if parse_topology(report.text).nodes == ():
            raise OracleViolated("what came out is no topology file")
        why = {each.why[:20] for each in report.not_carried}
        return f"{imported.format} {len(imported.flows)} {min(report.errors, 3)} {sorted(why)}"

    return attempt
