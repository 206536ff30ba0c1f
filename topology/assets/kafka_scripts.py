"""Assets as shell scripts that call Kafka's own tools. They may be run again: what is there stays.

Every name is one quoted argument (`topology.shell_command`). What the tools' own syntax cannot hold is left out, by
name: kafka-topics splits `--config` at every `=`, kafka-acls trims names and takes each operation only for the kinds of
resource that have it (TopicCommand and AclCommand of Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from watershed.topology.acl_translation import ACL_RESOURCE_OPTIONS
from watershed.topology.assets.acl_grouping import AclGroup, group_acls
from watershed.topology.assets.asset_files import AssetFiles
from watershed.topology.assets.asset_names import build_resource_names
from watershed.topology.assets.target_assets import (
    AssetQuota,
    AssetTopic,
    AssetUser,
    LeftOutAsset,
    TargetAssets,
    keep_acls,
    render_limit,
)
from watershed.topology.inventory import InventoryAcl
from watershed.topology.plan import PlanCluster
from watershed.topology.shell_command import quote_shell_argument, render_shell_command

_NAMES_A_COMMAND: Final = (
    100  # of one kafka-acls call; far below the 128 KiB that Linux lets an argument list line have
)
_BLANKS: Final = "".join(map(chr, range(0x21)))  # what Java's String.trim takes away
# What kafka-acls takes besides ALL (AclEntry.supportedOperations of Kafka 4.3.1). Brokers store others, too, when a
# client asks for them. Older tools lack configs of groups and TWO_PHASE_COMMIT.
_OPERATIONS: Final = {
    "TOPIC": {"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS"},
    "GROUP": {"READ", "DELETE", "DESCRIBE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS"},
    "CLUSTER": {
        *("CREATE", "CLUSTER_ACTION", "ALTER", "DESCRIBE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS", "IDEMPOTENT_WRITE"),
    },
    "TRANSACTIONAL_ID": {"DESCRIBE", "WRITE", "TWO_PHASE_COMMIT"},
}
_QUOTA_TYPES: Final = {"user": "users", "client-id": "clients"}
_HEAD: Final = r"""#!/usr/bin/env bash
# {what}. README.md says how to run it. It may be run again.
set -euo pipefail
export LC_ALL=C.UTF-8 # Java reads arguments in the encoding of the locale
here=$(cd -- "$(dirname -- "${{BASH_SOURCE[0]}}")" && pwd)
if [ -z "${{BOOTSTRAP:-}}" ]; then BOOTSTRAP={bootstrap}; fi
COMMAND_CONFIG=${{COMMAND_CONFIG:-$here/admin.properties}}
if [ ! -r "$COMMAND_CONFIG" ]; then
  echo "$COMMAND_CONFIG cannot be read: copy admin.properties.example to it, or set COMMAND_CONFIG" >&2
  exit 2
fi
"""
_CALL: Final = r"""{function}() {{
  "{tool}${{KAFKA_SUFFIX-.sh}}" --bootstrap-server "$BOOTSTRAP" --command-config "$COMMAND_CONFIG" {fixed} "$@"
}}
"""
_CREATE_USER: Final = r"""PASSWORDS=${PASSWORDS:-$here/passwords}
# NAME MECHANISM ITERATIONS FILE. The password is in no argument: other users of the machine see arguments.
create_user() {
  if [ ! -r "$PASSWORDS/$4" ]; then
    echo "no password for $1: write it to $PASSWORDS/$4, one line" >&2
    missing=1
    return
  fi
  local password
  password=$(<"$PASSWORDS/$4")
  alter_configs --entity-type users --entity-name "$1" \
    --add-config-file <(printf '%s=iterations=%s,password=%s\n' "$2" "$3" "${password//\\/\\\\}")
}
missing=0
"""


def write_kafka_scripts(assets: TargetAssets) -> AssetFiles:
    """One script a kind, numbered in the order in which they run; an example of the client's properties."""
    left: list[LeftOutAsset] = []
    cluster = assets.cluster
    files = {"admin.properties.example": _render_properties(cluster)}
    if assets.topics:
        lines = [_render_topic(topic, left) for topic in assets.topics]
        call = _CALL.format(function="create_topic", tool="kafka-topics", fixed="--create --if-not-exists")
        files["1-topics.sh"] = _render_script("Topics of cluster {cluster}", cluster, call, lines)
    passwords = build_resource_names((user.name for user in assets.users), "identifier")
    users = [line for user in assets.users for line in _render_user(user, passwords[user.name], cluster, left)]
    alter = _CALL.format(function="alter_configs", tool="kafka-configs", fixed="--alter")
    if users:
        files["2-users.sh"] = _render_script(
            "SCRAM users of cluster {cluster}", cluster, alter + _CREATE_USER, [*users, 'exit "$missing"']
        )
    if acls := list(_render_acls(group_acls(keep_acls(assets.acls, _find_acl_problem, left)))):
        call = _CALL.format(function="add_acl", tool="kafka-acls", fixed="--add")
        files["3-acls.sh"] = _render_script("Access rights of cluster {cluster}, denials first", cluster, call, acls)
    if assets.quotas:
        files["4-quotas.sh"] = _render_script(
            "Client quotas of cluster {cluster}", cluster, alter, map(_render_quota, assets.quotas)
        )
    return AssetFiles(files, tuple(_list_steps(files)), tuple(_list_blanks(assets, passwords)), tuple(left))


def _render_script(what: str, cluster: PlanCluster, calls: str, lines: Iterable[str]) -> str:
    bootstrap = quote_shell_argument(",".join(cluster.bootstrap))
    head = _HEAD.format(what=what.format(cluster=cluster.alias), bootstrap=bootstrap)
    return f"{head}{calls}\n" + "".join(f"{line}\n" for line in lines)


def _render_topic(topic: AssetTopic, left: list[LeftOutAsset]) -> str:
    parts = ["--topic", topic.name, "--partitions", topic.partitions, "--replication-factor", topic.replicas]
    for key, value in sorted(topic.configs.items()):
        if not value or "=" in value or value != value.lstrip():
            why = f"kafka-topics cannot be told the value {value!r}; set it with kafka-configs --add-config-file"
            left.append(LeftOutAsset("topics", f"{key} of topic {topic.name}", why))
        else:
            parts += ["--config", f"{key}={value}"]
    return render_shell_command("create_topic", *parts)


def _render_user(user: AssetUser, file: str, cluster: PlanCluster, left: list[LeftOutAsset]) -> Iterator[str]:
    for mechanism, iterations in user.mechanisms.items():
        if mechanism in user.existing:
            why = f"{cluster.alias} has this user: its password stays as it is"
            left.append(LeftOutAsset("users", f"{mechanism} of user {user.name}", why))
        else:
            yield render_shell_command("create_user", user.name, mechanism, iterations, file)


def _find_acl_problem(acl: InventoryAcl) -> str:
    if acl.resource not in ACL_RESOURCE_OPTIONS:
        return "kafka-acls is not told rights to this kind of resource"
    if acl.operation != "ALL" and acl.operation not in _OPERATIONS[acl.resource]:
        return f"kafka-acls refuses {acl.operation} for this kind of resource; another client can give it"
    if any(part != part.strip(_BLANKS) for part in (acl.principal, acl.name, acl.host)):
        return "kafka-acls takes blanks away from the beginning and the end of names"
    return ""


def _render_acls(groups: list[AclGroup]) -> Iterator[str]:
    """One call for all names of which the same is said: each call starts a JVM."""
    named: dict[AclGroup, list[str]] = {}
    for each in groups:
        named.setdefault(replace(each, name=""), []).append(each.name)
    for said, names in named.items():
        verb = "deny" if said.permission == "DENY" else "allow"
        parts = [f"--{verb}-principal", said.principal, f"--{verb}-host", said.host]
        parts += [part for operation in said.operations for part in ("--operation", operation)]
        option = ACL_RESOURCE_OPTIONS[said.resource]
        prefixed = ["--resource-pattern-type", "prefixed"] if said.pattern == "PREFIXED" else []
        for start in range(0, len(names), _NAMES_A_COMMAND):
            some = names[start : start + _NAMES_A_COMMAND]
            things = [option] if said.resource == "CLUSTER" else [part for name in some for part in (option, name)]
            yield render_shell_command("add_acl", *parts, *things, *prefixed)


def _render_quota(quota: AssetQuota) -> str:
    parts: list[str] = []
    for kind, name in quota.entity:
        parts += ["--entity-type", _QUOTA_TYPES[kind]]
        parts += ["--entity-default"] if name is None else ["--entity-name", name]
    limits = ",".join(f"{key}={render_limit(value)}" for key, value in sorted(quota.limits.items()))
    return render_shell_command("alter_configs", *parts, "--add-config", limits)


def _render_properties(cluster: PlanCluster) -> str:
    """Without anything secret; what a person fills in is a comment."""
    security = cluster.security
    lines = [f"security.protocol={security.protocol}"]
    if security.mechanism is not None:
        lines.append(f"sasl.mechanism={security.mechanism}")
        lines.append("# fill in: sasl.jaas.config=… with a user who may create topics, users, ACLs and quotas")
    if security.protocol.endswith("SSL"):
        lines.append("# fill in, unless a public authority signed the brokers' certificates:")
        lines.append("# ssl.truststore.type=PEM")
        lines.append("# ssl.truststore.location=…")
    if security.protocol == "SSL":
        lines.append("# fill in, if the brokers ask for a client certificate: ssl.keystore.type=PEM")
        lines.append("# ssl.keystore.location=…")
    return "".join(f"{line}\n" for line in lines)


def _list_steps(files: Iterable[str]) -> Iterator[str]:
    yield (
        "Copy `admin.properties.example` to `admin.properties`, and fill it in. Or name another file: "
        "`export COMMAND_CONFIG=FILE`."
    )
    yield (
        "Have Kafka's `bin` folder on the search path (`kafka-topics.sh`, `kafka-configs.sh`, `kafka-acls.sh`). "
        "Where the tools have no `.sh` in their names: `export KAFKA_SUFFIX=`. Other addresses: "
        "`export BOOTSTRAP=HOST:PORT`."
    )
    for file in files:
        if file.endswith(".sh"):
            yield f"`bash {file}`"


def _list_blanks(assets: TargetAssets, passwords: dict[str, str]) -> Iterator[str]:
    yield "`admin.properties`: how an administrator connects. Keep it out of version control."
    for user in assets.users:
        if user.mechanisms.keys() - user.existing:
            yield f"`passwords/{passwords[user.name]}`: the password of user {user.name}, one line of ASCII"
