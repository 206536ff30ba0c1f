"""Our packages as one archive, for executors on machines where Watershed is not installed.

Only what runs there: pure Python of our own. What it imports (numpy, confluent-kafka, ...) is compiled code for one
machine and Python, and is the executors' own (docs/engines.md).
"""

from __future__ import annotations

import zipfile
from importlib import import_module
from pathlib import Path

PACKAGE_ARCHIVE = "watershed.zip"
SHIPPED_PACKAGES = ("clusters", "replicator", "spark", "topology")


def write_package_archive(directory: Path) -> Path:
    """Write ARCHIVE there: our packages, as this process has imported them."""
    archive = directory / PACKAGE_ARCHIVE
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for package in SHIPPED_PACKAGES:
            [root] = import_module(package).__path__
            for path in sorted(Path(root).rglob("*")):
                if path.suffix in (".py", ".json"):
                    out.write(path, Path(package, path.relative_to(root)))
    return archive
