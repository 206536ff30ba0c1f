"""An archive in an object store: the same files, checked the same way. The store is moto's server on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.archives import TOPIC, batch_at, write_archive, write_object
from watershed.cli.main import main
from watershed.spark.archive.archive_reader import (
    find_faults,
    find_left_objects,
    open_object,
    read_manifest,
    require_manifest,
)
from watershed.spark.archive.manifest import MANIFEST_FILE, encode_manifest
from watershed.spark.archive.s3_storage import ObjectStoreStorage, is_object_store, open_archive_storage
from watershed.spark.archive.storage import FolderStorage
from watershed.spark.errors import Unwritable, WrongUse

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The address of a bucket."""
    import botocore.session
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0)
    server.start()
    try:
        endpoint = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
        with pytest.MonkeyPatch.context() as patch:
            names = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"}
            for name, value in {**names, "AWS_ENDPOINT_URL_S3": endpoint, "AWS_EC2_METADATA_DISABLED": "true"}.items():
                patch.setenv(name, value)
            client = botocore.session.get_session().create_client("s3", endpoint_url=endpoint, region_name="us-east-1")
            client.create_bucket(Bucket="archives")
            yield "s3a://archives"
    finally:
        server.stop()


def test_an_archive_is_written_found_and_checked(store: str, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest, local = write_archive(tmp_path, 40, 20), FolderStorage(tmp_path)
    place = f"{store}/one/orders"
    storage = open_archive_storage(place)
    assert read_manifest(storage) is None
    for entry in manifest.objects:
        storage.write_new(entry.path, local.read(entry.path))
    assert [entry for _, entry in find_left_objects(storage, None, [(TOPIC, 0), (TOPIC, 1)])] == list(manifest.objects)
    storage.replace(MANIFEST_FILE, b"of an earlier version")
    storage.replace(MANIFEST_FILE, encode_manifest(manifest))
    assert require_manifest(storage) == manifest
    assert find_faults(storage, manifest.objects) == []
    assert main(["archive", "--check", place]) == 0
    assert open_object(storage, manifest.objects[0]).place == open_object(local, manifest.objects[0]).place
    storage.replace(manifest.objects[1].path, b"changed")
    assert main(["archive", "--check", place]) == 1
    assert f"{place}/{manifest.objects[1].path} was changed" in capsys.readouterr().out


def test_objects_are_never_overwritten_there_either(store: str, tmp_path) -> None:
    storage = ObjectStoreStorage(f"{store}/two")
    entry = write_object(FolderStorage(tmp_path), 0, 0, 10, [batch_at(0, 10)])
    storage.write_new(entry.path, b"first")
    with pytest.raises(Unwritable, match="never overwritten"):
        storage.write_new(entry.path, b"second")
    assert storage.read(entry.path) == b"first"
    assert storage.list_names(f"topics/{TOPIC}/0") == [entry.path.rpartition("/")[2]]
    assert storage.list_names("topics/other/0") == []
    with pytest.raises(FileNotFoundError):
        storage.read("nothing")


def test_a_bucket_that_is_not_there_is_said(store: str) -> None:
    with pytest.raises(Unwritable, match=r"cannot write s3a://absent/x/y: .*See to the bucket"):
        ObjectStoreStorage("s3a://absent/x").write_new("y", b"z")


@pytest.mark.parametrize("place", ["s3a://", "s3a:///x", "s3a://user@bucket/x", "s3a://bucket/x?y=z"])
def test_an_address_without_a_bucket_is_refused(place: str) -> None:
    assert is_object_store(place)
    with pytest.raises(WrongUse, match="s3a://BUCKET/PREFIX"):
        open_archive_storage(place)
