"""Which formats there are, and the folder that comes out of one: a folder for each cluster, with a README."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, get_args

import yaml

from watershed.topology.assets.asset_files import AssetFiles
from watershed.topology.assets.kafka_scripts import write_kafka_scripts
from watershed.topology.assets.sayable_assets import keep_sayable
from watershed.topology.assets.strimzi_resources import write_strimzi_resources
from watershed.topology.assets.target_assets import AssetKind, LeftOutAsset, TargetAssets
from watershed.topology.assets.terraform_resources import write_terraform_resources
from watershed.topology.plan import Plan
from watershed.topology.rounded_amounts import render_counted_noun
from watershed.topology.text_escaping import escape_controls

AssetFormat = Literal["strimzi", "terraform", "scripts"]
ASSET_FORMATS: Final[tuple[AssetFormat, ...]] = get_args(AssetFormat)
_NOUNS: Final[Mapping[AssetKind, str]] = {
    "topics": "topic",
    "users": "SCRAM user",
    "acls": "right",
    "quotas": "limited entity",
}
_WRITERS: Final[Mapping[AssetFormat, str]] = {
    "strimzi": "resources of Strimzi 0.49 or newer",
    "terraform": "Terraform, for the provider Mongey/kafka",
    "scripts": "shell scripts for Kafka's own tools",
}


def render_asset_folder(
    plan: Plan, found: Iterable[TargetAssets], form: AssetFormat, kafka: str = ""
) -> tuple[dict[str, str], tuple[TargetAssets, ...]]:
    """Path in the folder (`cloud/1-topics.sh`) → text, and the assets with everything that is left out.

    kafka: for `strimzi`, the name of the Kafka resource; empty: it is called like the cluster's alias. The same plan
    and inventory give the same bytes.
    """
    files: dict[str, str] = {}
    written = []
    for assets in map(keep_sayable, found):
        made = _get_writer(form, kafka or assets.cluster.alias)(assets)
        told = assets.leave_out(made.left_out)
        alias = assets.cluster.alias
        files |= {f"{alias}/{name}": text for name, text in made.files.items()}
        files[f"{alias}/README.md"] = _render_readme(plan, told, made, form)
        written.append(told)
    return files, tuple(written)


def count_assets(assets: TargetAssets) -> str:
    """`3 topics, 1 SCRAM user, 12 rights, 2 limited entities`."""
    counts = {"topics": assets.topics, "users": assets.users, "acls": assets.acls, "quotas": assets.quotas}
    return ", ".join(_count(kind, len(counts[kind])) for kind in _NOUNS)


def _count(kind: AssetKind, number: int) -> str:
    if kind == "quotas":
        return f"{number:,} limited {'entity' if number == 1 else 'entities'}"
    return render_counted_noun(number, _NOUNS[kind])


def _get_writer(form: AssetFormat, kafka: str) -> Callable[[TargetAssets], AssetFiles]:
    if form == "strimzi":
        return lambda assets: write_strimzi_resources(assets, kafka)
    return write_terraform_resources if form == "terraform" else write_kafka_scripts


def _render_readme(plan: Plan, assets: TargetAssets, made: AssetFiles, form: AssetFormat) -> str:
    lines = [
        f"# What cluster `{assets.cluster.alias}` gets",
        "",
        f"Made by `topology assets --as {form}` ({_WRITERS[form]}) from the topology "
        f"`{escape_controls(plan.topology)}`, plan `{plan.hash}`.",
        f"It says: {count_assets(assets)}. Make it anew instead of changing it: `--overwrite`.",
        "",
        "## In this order",
        "",
        *(f"{number}. {step}" for number, step in enumerate(made.steps, 1)),
        *_render_fill(made.to_fill),
        *_render_withheld(assets),
        *_render_left_out(assets.left_out),
    ]
    return "\n".join(lines) + "\n"


def _render_fill(to_fill: tuple[str, ...]) -> Iterator[str]:
    if to_fill:
        yield from ("", "## To fill in", "")
        yield from (f"- {escape_controls(each)}" for each in to_fill)
        if any("password of user" in each for each in to_fill):
            yield from (
                "",
                "Brokers never hand out a password (KIP-554): somebody who knows it, or chooses it, writes it down. "
                "A user that was made at the target after the scan gets this one.",
            )


def _render_withheld(assets: TargetAssets) -> Iterator[str]:
    if assets.withheld:
        yield from ("", "## Rights to write", "")
        rights = "1 right" if assets.withheld == 1 else f"{assets.withheld:,} rights"
        yield (
            f"{rights} to write of the source {'is' if assets.withheld == 1 else 'are'} not in here, because "
            "`sync.acls.include_write` does not say `always`. Make the files anew with `--write-rights` when "
            "applications move."
        )


def _render_left_out(left_out: tuple[LeftOutAsset, ...]) -> Iterator[str]:
    """In a code block, whose end no name can hold: control characters are escaped."""
    if left_out:
        yield from ("", "## Left out", "", "````text")
        yield from (f"{escape_controls(each.what)}: {escape_controls(each.why)}" for each in left_out)
        yield "````"


def list_declared_names(file: str, text: str) -> frozenset[str]:
    """The topics and users that a tool deletes when they are no longer in this file; none for files that only create.

    file: its name, such as `topics.tf.json`. Raises ValueError for a text that is no such file.
    """
    try:
        if file == "topics.tf.json":
            return frozenset(each["name"] for each in json.loads(text)["resource"]["kafka_topic"].values())
        if file == "users.tf.json":
            users = json.loads(text)["resource"]["kafka_user_scram_credential"].values()
            return frozenset(f"{each['scram_mechanism']} of user {each['username']}" for each in users)
        if file in ("1-topics.yaml", "2-users.yaml"):
            found: list[Any] = [each for each in yaml.safe_load_all(text) if each is not None]
            return frozenset(each["spec"].get("topicName", each["metadata"]["name"]) for each in found)
    except (KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise ValueError(f"it is no {file} of `topology assets`") from error
    return frozenset()
