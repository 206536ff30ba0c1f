"""What is in an image: a bill of materials in CycloneDX's JSON, asked of the image itself.

`python -m watershed.lab.containers.image_bill FOLDER` (make sbom-images) writes one for each image of
docker/Dockerfile: Debian's packages, Python's distributions, and jars with their hashes. What `lab.sbom` says of the
checkout is what was asked for; this is what came.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from watershed.lab.containers.container_engine import ContainerEngine, EngineFailed, find_engine
from watershed.lab.errors import LabError
from watershed.lab.sbom import describe_library, describe_sha256

OWN_IMAGES: Final = ("watershed-engine", "watershed-airflow", "watershed-kafka", "watershed-registry")
_PYTHON = (
    "import importlib.metadata as m\n"
    "for each in m.distributions(): print('python', each.metadata['Name'], each.version, sep='\\t')"
)
_QUESTION = f"""set -e
dpkg-query -W -f 'debian\\t${{Package}}\\t${{Version}}\\t${{Architecture}}\\n'
if command -v python >/dev/null; then python -c "{_PYTHON}"; fi
find / -xdev -type f -name '*.jar' -exec sha256sum {{}} + | sed 's/^/jar\\t/; s/  /\\t/'
"""


def build_image_bill(engine: ContainerEngine, image: str) -> dict[str, Any]:
    """The document; the image's id is its version. Raises EngineFailed where it is not there, or has no Debian."""
    known = engine.inspect(image)
    if known is None:
        raise EngineFailed(f"{image} is not there: `make containers` builds the images")
    told = engine.run("run", "--rm", "--network=none", "--user=0", "--entrypoint=sh", image, "-c", _QUESTION)
    return describe_image_content(image, str(known["Id"]).removeprefix("sha256:"), told)


def describe_image_content(image: str, identity: str, told: str) -> dict[str, Any]:
    """The document of what an image said of itself: lines of `debian`, `python` and `jar`, parted by tabs. The same
    content makes the same bytes. Raises LabError for another line."""
    found = {each["bom-ref"]: each for each in map(_describe, told.splitlines())}
    container = {"type": "container", "bom-ref": image, "name": image, "version": f"sha256:{identity}"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": container},
        "components": [found[ref] for ref in sorted(found)],
    }


def _describe(line: str) -> dict[str, Any]:
    kind, *fields = line.split("\t")
    if kind == "debian" and len(fields) == 3:
        name, version, architecture = fields
        return describe_library(f"pkg:deb/debian/{name}@{quote(version)}?arch={architecture}", name, version)
    if kind == "python" and len(fields) == 2:
        name = re.sub(r"[-_.]+", "-", fields[0]).lower()
        return describe_library(f"pkg:pypi/{name}@{quote(fields[1])}", name, fields[1])
    if kind == "jar" and len(fields) == 2:
        checksum, path = fields
        stem = re.fullmatch(r"(.+?)(?:-(\d[\w.+-]*))?\.jar", Path(path).name)
        name, version = (stem[1], stem[2] or "") if stem else (path, "")
        return describe_library(f"jar:{path}", name, version) | {"hashes": describe_sha256(checksum)}
    raise LabError(f"an image said {line!r} of what it has, which is no line of a bill of materials")


def _write_bills(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    engine = find_engine(folder / "engine")
    for image in OWN_IMAGES:
        path = folder / f"{image}.cdx.json"
        path.write_text(json.dumps(build_image_bill(engine, image), indent=2) + "\n")
        click.echo(str(path))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m watershed.lab.containers.image_bill FOLDER")
    try:
        _write_bills(Path(sys.argv[1]))
    except LabError as error:
        sys.exit(f"sbom: {error}")
