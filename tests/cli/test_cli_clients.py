"""`topology clients` without clusters: logs of several brokers, and a file that keeps what it holds."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from watershed.cli.main import main
from watershed.topology.client_inventory import (
    ClientInventory,
    ClusterClients,
    SeenClient,
    SeenSpan,
)
from watershed.topology.client_inventory_json import (
    build_client_schema,
    decode_client_inventory,
    encode_client_inventory,
)
from watershed.topology.inventory import Inventory, InventoryCluster, InventoryTopic
from watershed.topology.inventory_json import encode_inventory

SAMPLES = Path(__file__).parents[1] / "clusters" / "request_log_samples"
ORDERS = "p5xzWSSJStKksKr6DtNomQ"
FILE = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: estate}
clusters:
  onprem: {bootstrap: ["127.0.0.1:9"]}
  cloud: {bootstrap: ["127.0.0.1:9"]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A topology, and a folder of logs: one broker's is compressed."""
    (tmp_path / "estate.yaml").write_text(FILE)
    (tmp_path / "logs").mkdir()
    shutil.copy(SAMPLES / "4.3.1-debug.log", tmp_path / "logs" / "request.log")
    (tmp_path / "logs" / "request.log.1.gz").write_bytes(gzip.compress((SAMPLES / "2.8.2-debug.log").read_bytes()))
    return tmp_path


def clients(folder: Path, *arguments: str) -> int:
    return main(["clients", str(folder / "estate.yaml"), "--logs-only", *arguments])


def read(folder: Path) -> dict[str, SeenClient]:
    found = decode_client_inventory((folder / "clients.json").read_text()).clusters["onprem"]
    return {each.client_id or "": each for each in found.clients}


def test_logs_of_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topics = {"orders": InventoryTopic("orders", ORDERS, 3, 1)}
    seen = Inventory({"onprem": InventoryCluster("onprem", "id", 1, topics=topics)})
    (folder / "inventory.json").write_text(encode_inventory(seen))
    output = folder / "clients.json"
    arguments = ["-o", str(output), "--request-log", f"onprem={folder / 'logs'}"]
    assert clients(folder, *arguments, "--inventory", str(folder / "inventory.json")) == 0
    found = read(folder)
    assert set(found["billing-1"].reads) == {"orders"}
    assert found["tx"].writes["orders"].last_ms > found["tx"].writes["orders"].first_ms
    assert "onprem: 4 clients, 1 read, 3 write, 0 without a known principal" in capsys.readouterr().err
    before = output.read_text()
    assert clients(folder, *arguments, "--inventory", str(folder / "inventory.json")) == 0
    assert output.read_text() == before  # the same logs again


def test_what_the_file_holds_is_kept(folder: Path) -> None:
    monthly = SeenClient("User:monthly", "monthly", SeenSpan(1, 2), writes={"orders": SeenSpan(1, 2)})
    kept = ClientInventory({"onprem": ClusterClients("onprem", "id", (monthly,)), "old": ClusterClients("old", "x")})
    (folder / "clients.json").write_text(encode_client_inventory(kept))
    assert clients(folder, "-o", str(folder / "clients.json"), "--request-log", f"onprem={folder / 'logs'}") == 0
    assert read(folder)["monthly"] == monthly
    assert "billing-1" in read(folder)
    assert set(decode_client_inventory((folder / "clients.json").read_text()).clusters) == {"old", "onprem"}


def test_a_file_that_is_no_log_is_named_and_the_others_are_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "logs" / "server.log").write_text("INFO nothing about requests\n")
    arguments = ["-o", str(folder / "clients.json"), "--request-log", f"onprem={folder / 'logs'}"]
    assert clients(folder, *arguments, "--all") == 2
    assert not (folder / "clients.json").exists()
    assert clients(folder, *arguments) == 3
    assert "missing: " in (said := capsys.readouterr().err)
    assert "server.log is no request log: it has no such line" in said
    assert "billing-1" in read(folder)
    assert clients(folder, "--request-log", f"onprem={folder / 'logs' / 'server.log'}") == 2


def test_on_stdout(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    assert clients(folder, "--request-log", f"cloud={folder / 'logs' / 'request.log'}") == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["clusters"]) == {"cloud"}
    jsonschema.validate(document, build_client_schema(), cls=jsonschema.Draft202012Validator)
    assert main(["schema", "--clients"]) == 0
    assert json.loads(capsys.readouterr().out) == build_client_schema()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--logs-only needs --request-log CLUSTER=PATH"),
        (["--request-log", "logs"], "name a cluster of the file (cloud, onprem), `=`, and a path"),
        (["--request-log", "mars=logs"], "name a cluster of the file"),
        (["--request-log", "onprem=nowhere.log"], "nowhere.log is not there"),
        (["--request-log", "onprem=.", "--log-zone", "Mars/Phobos"], "no such zone"),
        (["--cluster", "mars"], "has no cluster `mars`"),
    ],
)
def test_wrong_usage(folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert clients(folder, *arguments) == 2
    assert message in capsys.readouterr().err


def test_a_damaged_list_is_refused_and_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "clients.json").write_text("{}")
    assert clients(folder, "-o", str(folder / "clients.json"), "--request-log", f"onprem={folder / 'logs'}") == 2
    assert "this is no list of clients" in capsys.readouterr().err
    assert (folder / "clients.json").read_text() == "{}"
