"""Rights as an IAM policy: every right is in it, with what its action needs, and names cannot widen it."""

from __future__ import annotations

import json
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from watershed.clusters.iam_policy import _ACTIONS, POLICY_LIMIT, build_iam_policy
from watershed.clusters.required_role_acls import ACCOUNT_ROLES, RequiredRight, derive_required_rights
from watershed.topology import compile_path
from watershed.topology.msk_arn import parse_msk_arn

EXAMPLES = Path(__file__).parents[2] / "topology" / "examples"
ARN = "arn:aws:kafka:eu-central-1:123456789012:cluster/orders/0ab12c34-5d6e-7f89-a0b1-c2d3e4f5a6b7-1"
TAIL = ARN.partition("cluster/")[2]
MSK = parse_msk_arn(ARN)
HEAD = "apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {name: x}\nclusters:\n"
PLAIN = "  a: {bootstrap: ['127.0.0.1:1']}\n"
FLOW = "flows:\n  - {source: a, target: b, topics: {include: [t]}, naming: {policy: prefix}}\n"


def allowed(right: RequiredRight, *more: RequiredRight) -> dict[str, list[str]]:
    """Actions by resource."""
    statements = build_iam_policy((right, *more), {"msk": MSK}).document["Statement"]
    return {resource: each["Action"] for each in statements for resource in each["Resource"]}


def test_a_topic_s_rights() -> None:
    read = RequiredRight("msk", "TOPIC", "orders.", "PREFIXED", "READ", "w")
    write = RequiredRight("msk", "TOPIC", "orders.", "PREFIXED", "WRITE", "w")
    topic = f"arn:aws:kafka:eu-central-1:123456789012:topic/{TAIL}/orders.*"
    assert allowed(read) == {
        ARN: ["kafka-cluster:Connect"],
        topic: ["kafka-cluster:DescribeTopic", "kafka-cluster:ReadData"],
    }
    assert allowed(read, write) == {
        ARN: ["kafka-cluster:Connect", "kafka-cluster:WriteDataIdempotently"],
        topic: ["kafka-cluster:DescribeTopic", "kafka-cluster:ReadData", "kafka-cluster:WriteData"],
    }


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("a*b?c$d", "LITERAL", "a${*}b${?}c${$}d"),
        ("*", "LITERAL", "*"),
        ("*", "PREFIXED", "${*}*"),
        ("x", "LITERAL", "x"),
    ],
)
def test_a_wildcard_in_a_name_is_no_wildcard(name: str, pattern: str, expected: str) -> None:
    right = RequiredRight("msk", "GROUP", name, pattern, "READ", "w")  # type: ignore[arg-type]
    assert f"arn:aws:kafka:eu-central-1:123456789012:group/{TAIL}/{expected}" in allowed(right)


def test_another_partition_and_a_serverless_cluster() -> None:
    arn = "arn:aws-cn:kafka:cn-north-1:123456789012:cluster/x/0ab12c34-5d6e-7f89-a0b1-c2d3e4f5a6b7-s2"
    right = RequiredRight("msk", "TRANSACTIONAL_ID", "w.", "PREFIXED", "WRITE", "w")
    [cluster, id_] = build_iam_policy((right,), {"msk": parse_msk_arn(arn)}).document["Statement"]
    assert cluster["Resource"] == [arn]
    assert id_["Resource"] == [arn.replace(":cluster/", ":transactional-id/") + "/w.*"]


@pytest.mark.parametrize(
    "text", ["", "arn:aws:kafka:eu:1:cluster/x/y", ARN.replace("cluster", "topic"), f"{ARN}\n", "*"]
)
def test_what_is_no_arn_of_a_cluster(text: str) -> None:
    with pytest.raises(ValueError, match="expected the ARN of an MSK cluster"):
        parse_msk_arn(text)


@pytest.mark.parametrize("role", ACCOUNT_ROLES)
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_right_of_every_role_is_in_its_policy(path: Path, role: str) -> None:
    plan = compile_path(path)
    needed = derive_required_rights(plan, role)  # type: ignore[arg-type]
    arns = {each.alias: parse_msk_arn(ARN.replace("orders", each.alias)) for each in plan.clusters}
    made = build_iam_policy(needed, arns)
    assert not made.left_out, "only what has another way may be missing"
    assert set(made.optional) == {right for right in needed if right.optional}
    assert set(made.wider) == {right for right in needed if right.wider and not right.optional}
    pairs = [(a, r) for each in made.document["Statement"] for a in each["Action"] for r in each["Resource"]]
    for right in set(needed) - set(made.optional):
        kind = {"TRANSACTIONAL_ID": "transactional-id"}.get(right.resource, right.resource.lower())
        name = arns[right.cluster].name_resource(kind, "" if kind == "cluster" else right.name)
        for action in _ACTIONS[right.resource, right.operation]:
            covered = [r for a, r in pairs if a == f"kafka-cluster:{action}" and fnmatchcase(name, r)]
            assert covered, (right, action)


def test_optional_rights_are_not_given() -> None:
    """ALTER on the cluster would let the role write ACLs for anybody."""
    alter = RequiredRight("msk", "CLUSTER", "kafka-cluster", "LITERAL", "ALTER", "w", optional=True)
    read = RequiredRight("msk", "TOPIC", "*", "LITERAL", "READ", "w", wider=True)
    made = build_iam_policy((alter, read), {"msk": MSK})
    assert "AlterCluster" not in json.dumps(made.document)
    assert (made.optional, made.wider, made.left_out) == ((alter,), (read,), ())


def test_what_the_command_leaves_out_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    clusters = f"  a: {{bootstrap: ['127.0.0.1:1'], arn: '{ARN}'}}\n  b: {{bootstrap: ['127.0.0.1:2'], arn: '{ARN}'}}\n"
    path.write_text(
        HEAD + clusters + FLOW.replace("[t]", "[{glob: 'x*y'}]").replace("naming", "offsets: aligned, naming")
    )
    done = acls(path)
    assert "AlterCluster" not in done.stdout, done.stderr
    assert (
        "not in the policy, for it is optional: ALTER on CLUSTER kafka-cluster of cluster b: fill gaps" in done.stderr
    )
    assert "wider than the file's selection: READ on TOPIC x* of cluster a: fetch records" in done.stderr


def acls(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "watershed.cli.main", "acls", *map(str, arguments), "--format", "iam"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=EXAMPLES.parents[1], check=False)
    assert "Traceback" not in done.stderr
    return done


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"{HEAD}{PLAIN}  b: {{bootstrap: ['127.0.0.1:2'], arn: '{ARN}'}}\n{FLOW}")
    done = acls(path)
    assert done.returncode == 0
    policy = json.loads(done.stdout)
    assert policy["Version"] == "2012-10-17"
    assert all(TAIL in name for each in policy["Statement"] for name in each["Resource"])
    assert done.stderr.strip() == "cluster a has no ARN and is left out; `--format commands` has its ACLs"
    for arguments, said in (
        (("--cluster", "a"), "give them by --arn a="),
        (("--arn", f"c={ARN}"), "has no cluster c; it has a, b"),
        (("--arn", "a=arn:aws:s3:::x"), "expected the ARN of an MSK cluster"),
        (("--check",), "policy simulator"),
    ):
        done = acls(path, *arguments)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert acls(path, "--cluster", "a", "--arn", f"a={ARN}").returncode == 0


def test_a_policy_beyond_the_limit_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    topics = ", ".join(f"topic-{number:03d}" for number in range(100))
    path.write_text(HEAD + PLAIN + PLAIN.replace("a:", "b:").replace(":1", ":2") + FLOW.replace("[t]", f"[{topics}]"))
    done = acls(path, "--arn", f"b={ARN}")
    assert f"longer than the {POLICY_LIMIT:,} characters" in done.stderr
    assert json.loads(done.stdout)["Statement"]
