"""Inputs that were found stay in the checkout, `tests/cases/fuzz/TARGET/HASH.bin`, and the suite tries them again."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.fuzz.child import Order
from tests.fuzz.target import ROOT
from tests.fuzz.watching import MEMORY, Finding, watch

FOLDER = ROOT / "tests/cases/fuzz"
_MINIMISE_S = 20.0
_QUICK = frozenset({"traceback", "oracle", "no message"})  # a hang or much memory costs as long again at each try


def keep(finding: Finding) -> Path:
    path = FOLDER / finding.target / f"{finding.short}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(finding.data)
    return path


def kept_folders() -> list[Path]:
    """One of each target that something was found of."""
    return sorted({path.parent for path in FOLDER.glob("*/*.bin")})


def minimised(finding: Finding, seconds: float = _MINIMISE_S) -> Finding:
    """The same finding of fewer bytes, as far as time allows; the finding itself where none is smaller."""
    if finding.kind not in _QUICK:
        return finding
    with tempfile.TemporaryDirectory(prefix="watershed-fuzz-") as folder:
        path = Path(folder) / "input"
        path.write_bytes(finding.data)
        order = Order(finding.target, "0", folder, seconds, 1, MEMORY, only=str(path))
        found = [each for each in watch(order).findings if (each.kind, each.what) == (finding.kind, finding.what)]
    return min([*found, finding], key=lambda each: len(each.data))
