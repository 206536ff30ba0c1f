"""An archive in an object store that speaks S3, by pyarrow's own client.

An object there is written whole or not at all. There is no lock: that one run at a time writes to a place is for its
users to see to. Credentials and region come from where AWS's tools look (environment, profile, instance);
`AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL` names another store than AWS's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from watershed.spark.archive.storage import ArchiveStorage, FolderStorage, ReusedMemory
from watershed.spark.errors import Unwritable, WrongUse

_SCHEMES = frozenset({"s3", "s3a", "s3n"})


def is_object_store(place: str) -> bool:
    """Whether the place is an address of an object store, and not a folder."""
    return urlsplit(place).scheme in _SCHEMES


def open_archive_storage(place: str) -> ArchiveStorage:
    """A folder, or `s3a://BUCKET/PREFIX`. Raises WrongUse."""
    return ObjectStoreStorage(place) if is_object_store(place) else FolderStorage(Path(place))


class ObjectStoreStorage:
    """Files below `s3a://BUCKET/PREFIX`. Raises WrongUse for an address without a bucket."""

    def __init__(self, place: str, environ: Mapping[str, str] | None = None) -> None:
        address = urlsplit(place)
        if address.scheme not in _SCHEMES or not address.netloc or address.query or address.username is not None:
            raise WrongUse(f"{place} is no place in an object store; write s3a://BUCKET/PREFIX")
        self._place = place.rstrip("/")
        self._root = f"{address.netloc}{address.path}".rstrip("/")
        self._files = _open_file_system(os.environ if environ is None else environ)

    def locate(self, path: str) -> str:
        """The path as people find it."""
        return f"{self._place}/{path}"

    def read(self, path: str) -> bytes:
        """The whole object. Raises FileNotFoundError, OSError."""
        with self._files.open_input_stream(f"{self._root}/{path}") as stream:
            return bytes(stream.read())

    def read_into(self, path: str, memory: ReusedMemory) -> memoryview:
        """The whole object. Raises FileNotFoundError, OSError."""
        return memoryview(self.read(path))

    def list_names(self, folder: str) -> list[str]:
        """Names of the objects below a prefix, sorted; empty where there are none."""
        from pyarrow import fs

        found = self._files.get_file_info(fs.FileSelector(f"{self._root}/{folder}", allow_not_found=True))
        return sorted(each.base_name for each in found if each.type == fs.FileType.File)

    def write_new(self, path: str, content: bytes | memoryview) -> None:
        """Raises Unwritable, also for an object that is there: it is not touched."""
        from pyarrow import fs

        try:
            there = self._files.get_file_info(f"{self._root}/{path}")
        except OSError as error:
            raise self._build_unwritable(path, error) from None
        if there.type != fs.FileType.NotFound:
            raise Unwritable(f"{self.locate(path)} is there already, and objects are never overwritten")
        self.replace(path, content)

    def replace(self, path: str, content: bytes | memoryview) -> None:
        """The store shows the object once all of it has arrived. Raises Unwritable."""
        try:
            with self._files.open_output_stream(f"{self._root}/{path}") as stream:
                stream.write(content)
        except OSError as error:
            raise self._build_unwritable(path, error) from None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Holds nothing: an object store has no lock."""
        yield

    def _build_unwritable(self, path: str, error: OSError) -> Unwritable:
        return Unwritable(
            f"cannot write {self.locate(path)}: {str(error).splitlines()[0]}. See to the bucket, its rights and the "
            "credentials, then run it again: what is complete stays, what is half is written again"
        )


def _open_file_system(environ: Mapping[str, str]) -> Any:
    from pyarrow import fs

    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    options: dict[str, Any] = {"allow_bucket_creation": False, "background_writes": False}
    if region := environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION"):
        options["region"] = region
    if endpoint:
        address = urlsplit(endpoint)
        options |= {"endpoint_override": address.netloc, "scheme": address.scheme}
    return fs.S3FileSystem(**options)
