"""`topology flow adopt`: what is refused before any cluster is asked, and what is told of a proof."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from watershed.cli.main import main
from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.operations.adoption import (
    AdoptionRequest,
    AdoptionStage,
    encode_adoption,
    explain_refused_adoption,
    render_adoption,
)
from watershed.replicator.adoption.copy_proof import PartitionProof
from watershed.replicator.adoption.duplicates_and_gaps import ComparedRanges, CopyFinding, CopyVerdict
from watershed.replicator.ledger.offset_map import ExplicitRun
from watershed.replicator.mirrormaker_records import Checkpoint
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import OffsetSpan
from watershed.topology import compile_path

_TOPOLOGY = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: orders, owner: test}}
clusters:
  onprem: {{bootstrap: ["127.0.0.1:1"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["127.0.0.1:2"], security: {{protocol: PLAINTEXT}}}}
flows:
  - source: onprem
    target: cloud
    topics: {{include: [orders]}}
    naming: {{policy: prefix}}
{more}"""


def file(directory: Path, more: str = "") -> Path:
    path = directory / "orders.yaml"
    path.write_text(_TOPOLOGY.format(more=more))
    return path


@pytest.mark.parametrize(
    ("more", "options", "says"),
    [
        ("", ("--accept", "duplicates,foreign"), "--accept foreign: what can be accepted is aborted, compacted"),
        ("    delivery: {start: latest}\n", ("--dry-run",), "has `start: latest`"),
        ("    offsets: aligned\n", ("--dry-run",), "has `offsets: aligned`"),
        ("    delivery: {semantics: transactions}\n", ("--dry-run",), "copies in transactions"),
        ("", ("--from", "records", "--connect-group", "g"), "--connect-group is for --from mm2; with --from records"),
        ("", ("--from", "archive"), "name the archive that was restored: --from archive --archive DIR"),
        ("", ("--archive", "disk"), "--archive is for --from archive; with --from records"),
    ],
    ids=["unacceptable", "latest", "aligned", "transactions", "notes", "archive", "folder"],
)
def test_refused_before_a_cluster_is_asked(tmp_path, capsys, more: str, options: tuple[str, ...], says: str) -> None:
    assert main(["flow", "adopt", "onprem-to-cloud", str(file(tmp_path, more)), *options]) == 2
    assert says in capsys.readouterr().err


def staged(directory: Path, *accepted: str) -> AdoptionStage:
    path = file(directory)
    plan = compile_path(path)
    nowhere = ConnectionSettings(alias="cloud", bootstrap=("127.0.0.1:1",))
    asked = AdoptionRequest("mm2", accepted=frozenset(accepted), file=str(path))
    return AdoptionStage(plan.flows[0], plan.topology, nowhere, nowhere, asked)


def proof(partition: int, *findings: CopyFinding, position: int = 80, target_end: int = 100) -> PartitionProof:
    key = PartitionKey("onprem-to-cloud", "orders", "onprem.orders", partition)
    verdict = CopyVerdict(findings, (ExplicitRun(0, 0, 50), ExplicitRun(70, 50, 30)) if target_end else (), position)
    groups = ((Checkpoint("billing", "onprem.orders", partition, 60, 51, ""), 80),)
    return PartitionProof(
        key, ComparedRanges(0, 500, 0, target_end), verdict, uuid.UUID(int=1), uuid.UUID(int=2), 79, 3, 4, groups
    )


TWICE = CopyFinding("duplicates", 20, OffsetSpan(30, 50), OffsetSpan(50, 70))
OTHER = CopyFinding("changed", 1, OffsetSpan(12, 13), OffsetSpan(12, 13))


def test_what_is_told_of_each_partition(tmp_path) -> None:
    proofs = [proof(0), proof(1, TWICE), proof(2, position=0, target_end=0)]
    assert "".join(f"{line}\n" for line in render_adoption(staged(tmp_path, "duplicates"), proofs)) == (
        "onprem-to-cloud: onprem -> cloud, copied by MirrorMaker 2\n"
        + "".join(
            f"  orders-{number} -> onprem.orders-{number}: {state}\n"
            f"    {proven} records proven; target offsets 0 to {end} (end), source 0 to 500 (end)\n"
            f"    copying goes on at source offset {position} ({500 - position} offsets to go)\n"
            "    its own note says 79; the records on the target decide\n"
            "    3 of 4 offset syncs of MirrorMaker are true\n"
            "    group billing at source offset 60: MirrorMaker sends it to 51, exactly it is 80\n" + more
            for number, state, proven, end, position, more in (
                (0, "exact", 80, 100, 80, ""),
                (1, "not exact: duplicates", 80, 100, 80,
                 "    duplicates (accepted): 20 records copied more than once; the copier began again at an older "
                 "position; source 30 to 49, target 50 to 69\n"),
                (2, "empty, onprem-to-cloud begins it itself", 0, 0, 0, ""),
            )
        )
    )  # fmt: skip


def test_theencode_adoption(tmp_path) -> None:
    (found,) = encode_adoption(staged(tmp_path), [proof(1, TWICE)], ["said"])["partitions"]
    assert (found["exact"], found["refused"], found["proven"], found["position"]) == (False, ["duplicates"], 80, 80)
    assert found["groups"] == [{"group": "billing", "source": 60, "noted": 51, "exact": 80}]
    assert found["findings"] == [{"kind": "duplicates", "records": 20, "source": [30, 50], "target": [50, 70]}]


def test_a_refusal_says_what_can_be_done(tmp_path) -> None:
    assert explain_refused_adoption(staged(tmp_path, "aborted"), [proof(0, TWICE)]).endswith(
        "--accept aborted,duplicates"
    )
    told = explain_refused_adoption(staged(tmp_path), [proof(0, TWICE, OTHER)])
    assert "What is changed cannot be accepted" in told
    assert "--accept" not in told
    assert "nothing says where to go on" in explain_refused_adoption(staged(tmp_path), [proof(0, position=-1)])
