"""Which Kafka release a broker is, from what it says of itself in ApiVersions.

A KRaft broker names the highest level of the feature `metadata.version` that its software supports; each level belongs
to one release (KIP-584, KIP-778; the levels are those of Kafka's own `MetadataVersion`). A ZooKeeper broker has no such
feature, so the newest request version that it knows tells: each of the versions below first appeared in that release.
"""

from __future__ import annotations

from collections.abc import Mapping

METADATA_VERSION_FEATURE = "metadata.version"

# the highest level of each release, oldest first
_LEVELS = (
    (1, "3.0"),
    (2, "3.1"),
    (3, "3.2"),
    (7, "3.3"),
    (8, "3.4"),
    (11, "3.5"),
    (14, "3.6"),
    (19, "3.7"),
    (20, "3.8"),
    (21, "3.9"),
    (25, "4.0"),
    (27, "4.1"),
    (29, "4.2"),
    (30, "4.3"),
    (33, "4.4"),
)
# (release, api key, version) as each first appeared, newest first
_WITNESSES = (
    ("4.1", 0, 13),  # Produce by topic id
    ("4.0", 0, 12),
    ("3.9", 1, 17),
    ("3.8", 16, 5),
    ("3.7", 1, 16),
    ("3.6", 24, 4),
    ("3.5", 1, 15),
    ("3.4", 4, 7),
    ("3.3", 35, 4),
    ("3.2", 35, 3),
    ("3.1", 3, 12),
    ("3.0", 2, 7),
    ("2.8", 60, 0),
    ("2.7", 1, 12),
    ("2.6", 48, 0),
    ("2.5", 9, 7),
    ("2.4", 3, 9),
    ("2.3", 1, 11),
    ("2.2", 2, 5),
    ("2.1", 1, 10),
    ("2.0", 1, 8),
    ("1.1", 1, 7),
    ("1.0", 35, 0),
    ("0.11", 0, 3),
)


def detect_release(versions: Mapping[int, tuple[int, int]], supported: Mapping[str, int]) -> str | None:
    """The broker's release such as `4.3`; the newest one known here for anything newer; None below 0.11.

    versions: api key → (lowest, highest); supported: feature → highest level.
    """
    level = supported.get(METADATA_VERSION_FEATURE)
    if level is not None:
        return next((name for highest, name in _LEVELS if level <= highest), _LEVELS[-1][1])
    return next((name for name, key, version in _WITNESSES if versions.get(key, (0, -1))[1] >= version), None)


def find_release_of_level(level: int) -> str:
    """The release that a finalized `metadata.version` belongs to."""
    return next((name for highest, name in _LEVELS if level <= highest), _LEVELS[-1][1])


def parse_release(name: str) -> tuple[int, ...]:
    """For comparing releases: `3.10` is newer than `3.9`."""
    return tuple(int(part) for part in name.split("."))
