"""axe-core, which looks for barriers in a page: npm's package, fetched once by npm and held to its SHA-256.

As with the jars (docs/decisions/0063): what was fetched lies in the user's cache, not in the repository.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watershed.lab.jars import find_cache_folder

if TYPE_CHECKING:
    from playwright.sync_api import Page

_VERSION = "4.14.1"  # MPL 2.0
_SHA256 = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
_SCRIPT = "package/axe.min.js"
WITHOUT = "no npm: the page is tested without axe-core; Debian: apt-get install npm"


@functools.cache
def fetch_axe() -> str:
    """The program, as text. Raises FileNotFoundError without npm, RuntimeError where another file came."""
    kept = find_cache_folder(os.environ) / f"axe-core-{_VERSION}.tgz"
    if not kept.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise FileNotFoundError(WITHOUT)
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".axe-", dir=kept.parent) as scratch:
            command = [
                npm,
                "pack",
                f"axe-core@{_VERSION}",
                "--ignore-scripts",
                "--silent",
                "--pack-destination",
                scratch,
            ]
            subprocess.run(command, cwd=scratch, check=True, capture_output=True, timeout=300)
            [came] = Path(scratch).glob("*.tgz")
            came.replace(kept)
    found = hashlib.sha256(kept.read_bytes()).hexdigest()
    if found != _SHA256:
        kept.unlink()
        raise RuntimeError(f"axe-core {_VERSION} has the SHA-256 {found}, not the one in {__file__}; it was removed")
    with tarfile.open(kept) as archive:
        script = archive.extractfile(_SCRIPT)
        assert script is not None, f"{_SCRIPT} is no file"
        return script.read().decode()


def find_barriers(page: Page) -> list[str]:
    """What axe-core calls serious or critical (WCAG 2.2 A and AA, and its best practices): the rule, what it says, and
    the element."""
    page.evaluate(fetch_axe())
    told: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']}: {node['html'][:200]}"
        for each in told["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
