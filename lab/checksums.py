"""Files that were fetched, held to the SHA-256 sums of the checkout (`sha256sum` writes and checks the same form)."""

from __future__ import annotations

import hashlib
from pathlib import Path

from watershed.lab.errors import LabError


def compute_checksums(directory: Path) -> dict[str, str]:
    """Sum by name of every file that lies in it."""
    return {path.name: _sum(path) for path in sorted(directory.iterdir()) if path.is_file()}


def read_checksums(sums: Path) -> dict[str, str]:
    """Sum by name. Raises LabError when the file is missing or is not of the form."""
    try:
        lines = [line.split() for line in sums.read_text().splitlines()]
        return {name: checksum for checksum, name in lines}
    except OSError as error:
        raise LabError(
            f"the checksums {sums} cannot be read ({error.strerror}); `make checksums` writes them"
        ) from None
    except ValueError:
        raise LabError(f"{sums} holds something else than `sha256  name` lines; `make checksums` writes it") from None


def write_checksums(sums: Path, found: dict[str, str]) -> None:
    """Writes `SHA-256  name` lines, sorted by name, as `sha256sum -c` reads them."""
    sums.write_text("".join(f"{checksum}  {name}\n" for name, checksum in sorted(found.items())))


def verify_checksums(directory: Path, sums: Path) -> None:
    """Raises LabError with every file that is another one, is missing, or is not named in `sums`."""
    found, meant = compute_checksums(directory), read_checksums(sums)
    both = sorted(found.keys() & meant.keys())
    wrong = [f"{name} has {found[name]}, not {meant[name]}" for name in both if found[name] != meant[name]]
    wrong += [f"{name} is missing" for name in meant if name not in found]
    wrong += [f"{name} is not among them" for name in found if name not in meant]
    if wrong:
        raise LabError(
            f"what was fetched is not what {sums} names, and was thrown away: {'; '.join(wrong[:8])}. Whoever changed "
            "a version on purpose runs `make checksums`; otherwise the repository gives other files than it did."
        )


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
