"""Our packages as one archive, for executors on machines where Watershed is not installed.

Only what runs there: pure Python of our own. What it imports (numpy, confluent-kafka, ...) is compiled code for one
machine and Python, and is the executors' own (docs/engines.md).
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import watershed

PACKAGE_ARCHIVE = "watershed.zip"
SHIPPED_ROOMS = ("clusters", "replicator", "spark", "topology")


def write_package_archive(directory: Path) -> Path:
    """Write ARCHIVE there: our packages, as this process has imported them."""
    archive = directory / PACKAGE_ARCHIVE
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        package = Path(watershed.__file__).parent
        out.write(package / "__init__.py", "watershed/__init__.py")
        for room in SHIPPED_ROOMS:
            for path in sorted((package / room).rglob("*")):
                if path.suffix in (".py", ".json"):
                    out.write(path, Path("watershed", path.relative_to(package)))
    return archive
