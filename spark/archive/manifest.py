"""What an archive holds: the manifest as plain data, and as sealed JSON.

The manifest names every object with its hash. The Merkle root is over these entries; the seal is over the whole
manifest. Each version names the seal of the version before it. Does no I/O.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Final

from watershed.spark.errors import ArchiveDamaged
from watershed.spark.evidence.evidence_folder import compute_seal
from watershed.spark.judging.merkle_tree import compute_merkle_root, encode_leaf
from watershed.topology.bounded_json import parse_json_object

MANIFEST_FILE: Final = "manifest.json"
OBJECTS_FOLDER: Final = "topics"
MANIFEST_SCHEMA: Final = 1
_LARGEST: Final = 1 << 30  # bytes of a manifest: two million objects
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NAMED_DIGITS: Final = 16  # of the hash, in a file's name
_HASH: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, order=True)
class ArchivedObject:
    """One Parquet file: the committed batches that begin at offsets first <= offset < end of one partition.

    batches, records: how many. batch_bytes: of the batches as stored; largest_batch: of the largest one. size: bytes of
    the file; sha256: of the file, in hex. last_offset, leader_epoch: of the last batch, -1 where there is none.
    """

    topic: str
    partition: int
    first: int
    end: int
    batches: int
    records: int
    batch_bytes: int
    largest_batch: int
    last_offset: int
    leader_epoch: int
    size: int
    sha256: str

    @property
    def path(self) -> str:
        """Where the file lies below the archive's root. Offsets have 20 digits, so names sort as offsets do. By the
        beginning of the hash a file says whether it is whole, before a manifest does."""
        name = f"{self.first:020d}-{self.end:020d}-{self.sha256[:_NAMED_DIGITS]}.parquet"
        return f"{OBJECTS_FOLDER}/{self.topic}/{self.partition}/{name}"


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    """start, end: the offsets that the archive covers. log_start, log_end: where the log began and where committed
    records ended when the last run looked; pending: offsets behind that, of transactions that were open then."""

    partition: int
    start: int
    end: int
    log_start: int
    log_end: int
    pending: int = 0


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """A topic as the last run that selected it saw it. configs: what is set on the topic itself."""

    name: str
    topic_id: uuid.UUID
    replication_factor: int
    configs: Mapping[str, str]
    partitions: tuple[ArchivedPartition, ...]


@dataclass(frozen=True, slots=True, order=True)
class ArchivedPosition:
    """What a consumer group had committed for one partition. metadata: the text beside the offset."""

    group: str
    topic: str
    partition: int
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class ArchivedSchema:
    """One version of a subject that is called after an archived topic. references: name, subject and version."""

    subject: str
    version: int
    id: int
    type: str
    text: str
    references: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ArchiveManifest:
    """version: 1 for the first run, one more with each run that found something new. written_at: ms.
    previous_seal: of the version before, empty for the first."""

    version: int
    written_at: int
    cluster: str
    cluster_id: str
    topics: tuple[ArchivedTopic, ...] = ()
    positions: tuple[ArchivedPosition, ...] = ()
    schemas: tuple[ArchivedSchema, ...] = ()
    objects: tuple[ArchivedObject, ...] = ()
    previous_seal: str = ""

    def find_topic(self, name: str) -> ArchivedTopic | None:
        """The topic of this name; None where the archive has none."""
        return next((topic for topic in self.topics if topic.name == name), None)

    def group_objects(self) -> dict[tuple[str, int], tuple[ArchivedObject, ...]]:
        """Topic and partition → objects, in log order; partitions without any are left out."""
        found: dict[tuple[str, int], list[ArchivedObject]] = defaultdict(list)
        for each in sorted(self.objects):
            found[each.topic, each.partition].append(each)
        return {place: tuple(objects) for place, objects in found.items()}


def parse_object_name(name: str) -> tuple[int, int, str] | None:
    """(first, end, the beginning of the SHA-256) of a file's name without its folder; None for any other name."""
    found = re.fullmatch(r"(\d{20})-(\d{20})-([0-9a-f]{16})\.parquet", name)
    return None if found is None else (int(found[1]), int(found[2]), found[3])


def encode_manifest(manifest: ArchiveManifest) -> bytes:
    """The sealed JSON form, with a line break at its end."""
    document = _build_document(manifest)
    document["seal"] = compute_seal(document)
    return (json.dumps(document, indent=1) + "\n").encode()


def find_seal(manifest: ArchiveManifest) -> str:
    """The seal of this content: `sha256:` and hex."""
    return compute_seal(_build_document(manifest))


def find_objects_root(manifest: ArchiveManifest) -> str:
    """The Merkle root over the entries of all objects: `sha256:` and hex."""
    return compute_merkle_root(encode_leaf(_build_object_row(each)) for each in manifest.objects)


def decode_manifest(content: bytes, where: str) -> ArchiveManifest:
    """`where` names the file in messages. Raises ArchiveDamaged for a seal or a root that does not fit, an unknown
    schema, a path that is not the object's own, and offsets that do not follow one another."""
    try:
        document = parse_json_object(content, largest=_LARGEST)
    except ValueError as error:
        raise ArchiveDamaged([f"{where} is no manifest ({error}). Copy it again from where it was written"]) from None
    if document.get("schema") != MANIFEST_SCHEMA:
        raise ArchiveDamaged(
            [f"{where} has schema {document.get('schema')!r}; this version reads {MANIFEST_SCHEMA}. Use the version "
             "that wrote it, or a newer one"]
        )  # fmt: skip
    if document.get("seal") != compute_seal(document):
        raise ArchiveDamaged(
            [f"{where} was changed: its content gives the seal {compute_seal(document)}, it says "
             f"{document.get('seal')}. Copy it again from where it was written"]
        )  # fmt: skip
    try:
        found = _read_document(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArchiveDamaged([f"{where} is sealed, and contradicts itself: {error}. Make the archive anew"]) from None
    if find_objects_root(found) != document.get("merkle_root"):
        raise ArchiveDamaged([f"{where}: its objects do not give its Merkle root. Make the archive anew"])
    return found


def advance_manifest(
    before: ArchiveManifest | None,
    *,
    written_at: int,
    cluster: str,
    cluster_id: str,
    topics: Iterable[ArchivedTopic],
    positions: Iterable[ArchivedPosition],
    schemas: Iterable[ArchivedSchema],
    objects: Iterable[ArchivedObject],
) -> ArchiveManifest:
    """The next version: what is given replaces what was known of the same topics; `objects` are added."""
    seen = {topic.name: topic for topic in topics}
    known = before or ArchiveManifest(0, 0, cluster, cluster_id)
    kept_topics = [topic for topic in known.topics if topic.name not in seen]
    kept_positions = [each for each in known.positions if each.topic not in seen]
    fresh = list(schemas)
    renewed = {each.subject for each in fresh}
    return replace(
        known,
        version=known.version + 1,
        written_at=written_at,
        cluster=cluster,
        topics=tuple(sorted([*kept_topics, *seen.values()], key=lambda topic: topic.name)),
        positions=tuple(sorted([*kept_positions, *positions])),
        schemas=tuple(
            sorted(
                [*(each for each in known.schemas if each.subject not in renewed), *fresh],
                key=lambda each: (each.subject, each.version),
            )
        ),
        objects=tuple(sorted([*known.objects, *objects])),
        previous_seal="" if before is None else find_seal(before),
    )


def _build_document(manifest: ArchiveManifest) -> dict[str, Any]:
    return {
        "schema": MANIFEST_SCHEMA,
        "version": manifest.version,
        "written_at_ms": manifest.written_at,
        "cluster": {"alias": manifest.cluster, "id": manifest.cluster_id},
        "topics": [
            {
                "name": topic.name,
                "topic_id": str(topic.topic_id),
                "replication_factor": topic.replication_factor,
                "configs": dict(topic.configs),
                "partitions": [asdict(part) for part in topic.partitions],
            }
            for topic in manifest.topics
        ],
        "groups": [asdict(each) for each in manifest.positions],
        "schemas": [asdict(each) | {"references": list(map(list, each.references))} for each in manifest.schemas],
        "objects": [_build_object_row(each) for each in manifest.objects],
        "merkle_root": find_objects_root(manifest),
        "previous_seal": manifest.previous_seal,
    }


def _build_object_row(each: ArchivedObject) -> dict[str, Any]:
    return {"path": each.path, **asdict(each)}


def _read_document(document: Mapping[str, Any]) -> ArchiveManifest:
    """Raises KeyError, TypeError, ValueError, AttributeError."""
    found = ArchiveManifest(
        int(document["version"]),
        int(document["written_at_ms"]),
        str(document["cluster"]["alias"]),
        str(document["cluster"]["id"]),
        tuple(_read_topic(each) for each in document["topics"]),
        tuple(ArchivedPosition(**each) for each in document["groups"]),
        tuple(
            ArchivedSchema(**each | {"references": tuple((str(a), str(b), int(c)) for a, b, c in each["references"])})
            for each in document["schemas"]
        ),
        tuple(_read_object(each) for each in document["objects"]),
        str(document["previous_seal"]),
    )
    _require_whole_logs(found)
    return found


def _read_topic(value: Mapping[str, Any]) -> ArchivedTopic:
    name = str(value["name"])
    if _TOPIC_NAME.fullmatch(name) is None or name in (".", ".."):
        raise ValueError(f"{name!r} is no name of a topic")
    return ArchivedTopic(
        name,
        uuid.UUID(value["topic_id"]),
        int(value["replication_factor"]),
        {str(key): str(text) for key, text in value["configs"].items()},
        tuple(ArchivedPartition(**{key: int(number) for key, number in part.items()}) for part in value["partitions"]),
    )


def _read_object(value: Mapping[str, Any]) -> ArchivedObject:
    fields = {key: content for key, content in value.items() if key != "path"}
    numbers = {key: int(number) for key, number in fields.items() if key not in ("topic", "sha256")}
    found = ArchivedObject(topic=str(fields["topic"]), sha256=str(fields["sha256"]), **numbers)
    if value["path"] != found.path or _HASH.fullmatch(found.sha256) is None:
        raise ValueError(f"object {value['path']!r} is not where its offsets say, or has no SHA-256")
    return found


def _require_whole_logs(manifest: ArchiveManifest) -> None:
    """Objects of a partition follow one another and cover what the partition says. Raises ValueError."""
    covered = manifest.group_objects()
    for topic in manifest.topics:
        for part in topic.partitions:
            found = covered.pop((topic.name, part.partition), ())
            edges = (found[0].first, found[-1].end) if found else (part.start, part.start)
            if edges != (part.start, part.end) or any(a.end != b.first for a, b in pairwise(found)):
                raise ValueError(
                    f"the objects of {topic.name}-{part.partition} do not cover offsets {part.start} to {part.end}"
                )
    if covered:
        (topic_name, number), _ = next(iter(covered.items()))
        raise ValueError(f"objects of {topic_name}-{number} belong to no partition")
