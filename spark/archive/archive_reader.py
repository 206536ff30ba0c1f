"""What an archive holds, read from where it lies: the manifest, objects that no manifest names yet, and faults."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from watershed.spark.archive.manifest import (
    MANIFEST_FILE,
    OBJECTS_FOLDER,
    ArchivedObject,
    ArchiveManifest,
    decode_manifest,
    parse_object_name,
)
from watershed.spark.archive.object_format import OpenedObject, decode_object, describe_object
from watershed.spark.archive.storage import ArchiveStorage, ReusedMemory
from watershed.spark.errors import ArchiveDamaged, WrongUse


def read_manifest(storage: ArchiveStorage) -> ArchiveManifest | None:
    """None where there is none yet. Raises ArchiveDamaged, WrongUse."""
    where = storage.locate(MANIFEST_FILE)
    try:
        content = storage.read(MANIFEST_FILE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WrongUse(f"{where} cannot be read: {error.strerror or error}") from None
    return decode_manifest(content, where)


def require_manifest(storage: ArchiveStorage) -> ArchiveManifest:
    """Raises WrongUse where there is none, and as `read_manifest`."""
    found = read_manifest(storage)
    if found is None:
        raise WrongUse(
            f"{storage.locate('')} holds no archive: {MANIFEST_FILE} is missing. Name the folder that "
            "`topology archive --to` wrote; a run that was killed writes it when it is run again"
        )
    return found


def open_object(storage: ArchiveStorage, entry: ArchivedObject, memory: ReusedMemory | None = None) -> OpenedObject:
    """An object, if it is what the manifest says. memory: to read the file into. Raises ArchiveDamaged."""
    where = storage.locate(entry.path)
    opened = decode_object(_read_entry(storage, entry, memory or ReusedMemory()), where)
    place = opened.place
    if (place.topic, place.partition, place.first, place.end) != (
        entry.topic, entry.partition, entry.first, entry.end,
    ):  # fmt: skip
        raise ArchiveDamaged(
            [f"{where} holds {place.topic}-{place.partition} from offset {place.first}; copy it again"]
        )
    return opened


def find_faults(
    storage: ArchiveStorage,
    objects: Sequence[ArchivedObject],
    *,
    workers: int = 4,
    report: Callable[[ArchivedObject], None] = lambda _: None,
) -> list[str]:
    """What is missing or changed, each with its path and what to do; empty when all objects are whole. Reads each of
    them to its end."""

    of_thread = threading.local()

    def check(entry: ArchivedObject) -> tuple[str, ...]:
        if not hasattr(of_thread, "memory"):
            of_thread.memory = ReusedMemory()
        try:
            _read_entry(storage, entry, of_thread.memory)
        except ArchiveDamaged as damaged:
            return damaged.faults
        report(entry)
        return ()

    with ThreadPoolExecutor(max(1, workers)) as pool:
        return [fault for faults in pool.map(check, objects) for fault in faults]


def find_left_objects(
    storage: ArchiveStorage, manifest: ArchiveManifest | None, partitions: Iterable[tuple[str, int]]
) -> list[tuple[OpenedObject, ArchivedObject]]:
    """Complete objects that a run wrote which ended before its manifest, in log order. Raises ArchiveDamaged for files
    that nobody of us wrote there."""
    found: list[tuple[OpenedObject, ArchivedObject]] = []
    objects = {} if manifest is None else manifest.group_objects()
    for topic, partition in partitions:
        known = objects.get((topic, partition), ())
        folder = f"{OBJECTS_FOLDER}/{topic}/{partition}"
        behind = known[-1].end if known else -1
        paths = {each.path for each in known}
        for path in (f"{folder}/{name}" for name in storage.list_names(folder)):
            if path in paths:
                continue
            opened, entry = _read_left_object(storage, path, behind)
            if (entry.topic, entry.partition) != (topic, partition):
                raise ArchiveDamaged(
                    [f"{storage.locate(path)} is of {entry.topic}-{entry.partition}. Move it elsewhere"]
                )
            found.append((opened, entry))
            behind = entry.end
    return found


def _read_left_object(storage: ArchiveStorage, path: str, behind: int) -> tuple[OpenedObject, ArchivedObject]:
    """The object at a path that no manifest names. behind: the offset that it has to begin with, -1 for any. Raises
    ArchiveDamaged."""
    where, named = storage.locate(path), parse_object_name(path.rpartition("/")[2])
    if named is None or named[0] != (behind if behind >= 0 else named[0]):
        raise ArchiveDamaged([f"{where} is none of the archive's objects. Move it elsewhere"])
    content = storage.read(path)
    if not hashlib.sha256(content).hexdigest().startswith(named[2]):
        raise ArchiveDamaged([f"{where} was changed since it was written. Delete it: the next run writes it again"])
    opened = decode_object(content, where)
    if (opened.place.first, opened.place.end) != named[:2]:
        raise ArchiveDamaged([f"{where} holds other offsets than its name says. Move it elsewhere"])
    return opened, describe_object(opened.place, opened.batches, content)


def _read_entry(storage: ArchiveStorage, entry: ArchivedObject, memory: ReusedMemory) -> memoryview:
    """The bytes of an object. Raises ArchiveDamaged unless they are those of the manifest."""
    where = storage.locate(entry.path)
    try:
        content = storage.read_into(entry.path, memory)
    except FileNotFoundError:
        raise ArchiveDamaged([f"{where} is missing. Copy it again from where the archive was written"]) from None
    except OSError as error:
        raise ArchiveDamaged([f"{where} cannot be read: {error.strerror or error}. Copy it again"]) from None
    digest = hashlib.sha256(content).hexdigest()
    if digest != entry.sha256:
        raise ArchiveDamaged(
            [f"{where} was changed: its SHA-256 is {digest}, the manifest says {entry.sha256}. Copy it again from where"
             " the archive was written"]
        )  # fmt: skip
    return content
