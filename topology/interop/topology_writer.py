"""A topology file from what was imported: stable order, settings that all flows share in `defaults:`, and a comment
wherever a person has to fill something in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from watershed.topology.interop.imported_topology import ImportedCluster, ImportedFlow, ImportedTopology
from watershed.topology.interop.kept_flows import render_kept_flows
from watershed.topology.language import TOPOLOGY_API_VERSION, TOPOLOGY_KIND
from watershed.topology.quantities import MissingUnit, parse_duration
from watershed.topology.scalar_shape import AMBIGUOUS_SCALAR, NULL_SCALARS, NUMERIC_SCALAR
from watershed.topology.selectors import Selector

# the order in which people read a flow
_ORDER = (
    "naming",
    "state",
    "provenance",
    "merge",
    "delivery",
    "offsets",
    "replication_factor",
    "partitions",
    "sync",
    "workers",
    "slo",
    "verify",
    "expected",
)
# one a cluster: the same address twice would be one cluster (CLU102)
_PLACEHOLDER = "{alias}.example.invalid:9092"
# lint refuses it (NAM305) until somebody writes the template
_UNREADABLE_NAMING = {"policy": "template"}
_PLAIN = re.compile(r"[A-Za-z0-9/_.][A-Za-z0-9/_.:@+-]*")


def render_topology_file(imported: ImportedTopology) -> str:
    """The file, ending in a newline. The loader reads it back; what it lacks it says in comments and in findings."""
    defaults, flows = _folded(imported)
    lines = [
        f"# Imported from {_comment(imported.file)} ({imported.format}). Look it through, then `topology lint` it.",
        f"apiVersion: {TOPOLOGY_API_VERSION}",
        f"kind: {TOPOLOGY_KIND}",
        f"metadata: {{name: {_scalar(imported.name)}}}",
        "",
        "clusters:" if imported.clusters else "clusters: {}   # fill in: none was declared",
    ]
    for cluster in sorted(imported.clusters, key=lambda each: each.alias):
        lines += _cluster(cluster)
    if defaults:
        lines += ["", "defaults:", *_settings(defaults, "  ")]
    if flows:
        lines += ["", "flows:"]
        for flow in sorted(flows, key=lambda each: each.id):
            lines += _flow(flow)
    elif imported.kept:
        lines += ["", "# flows:   # fill in: what we copy beside"]
    else:
        lines += ["", "# flows:   # fill in: the file holds no flow that copies anything"]
    lines += render_kept_flows(imported, _topics, _settings)
    return "\n".join(lines) + "\n"


def build_cluster_alias(name: str, taken: Mapping[str, str] | None = None) -> str:
    """A legal alias for a foreign cluster name, another one than those `taken` (alias → foreign name) by others."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "cluster"
    alias, number = plain, 2
    while taken is not None and taken.get(alias, name) != name:
        alias, number = f"{plain[:36]}-{number}", number + 1
    return alias


def _folded(imported: ImportedTopology) -> tuple[dict[str, Any], tuple[ImportedFlow, ...]]:
    """Sections that are the same in every flow of several go to the defaults."""
    defaults = dict(imported.defaults)
    if len(imported.flows) < 2:
        return defaults, imported.flows
    first = imported.flows[0].settings
    shared = {
        name: value
        for name, value in first.items()
        if name not in ("state", "topics")
        and name not in defaults
        and all(flow.settings.get(name) == value for flow in imported.flows)
    }
    rest = [{name: value for name, value in flow.settings.items() if name not in shared} for flow in imported.flows]
    flows = tuple(replace(flow, settings=own) for flow, own in zip(imported.flows, rest, strict=True))
    return defaults | shared, flows


def _cluster(cluster: ImportedCluster) -> Iterator[str]:
    yield f"  {cluster.alias}:"
    if cluster.bootstrap:
        yield f"    bootstrap: [{', '.join(map(_scalar, cluster.bootstrap))}]"
    else:
        address = _PLACEHOLDER.format(alias=cluster.alias)
        yield f"    bootstrap: [{address}]   # fill in: the imported file does not say the addresses"
    if cluster.cluster_id:
        yield f"    cluster_id: {_scalar(cluster.cluster_id)}"
    if cluster.region:
        yield f"    region: {_scalar(cluster.region)}"
    if cluster.security:
        yield f"    security: {_inline(cluster.security)}"


def _flow(flow: ImportedFlow) -> Iterator[str]:
    yield f"  - source: {flow.source}"
    yield f"    target: {flow.target}"
    if flow.suffix:
        yield f"    suffix: {_scalar(flow.suffix)}"
    yield from _topics(flow)
    yield from _settings(flow.settings, "    ")


def _topics(flow: ImportedFlow) -> Iterator[str]:
    if not flow.include:
        yield "    # fill in: topics: {include: [...]}   nothing that selects topics could be carried over"
        return
    yield "    topics:"
    yield from _selectors("include", flow.include)
    if flow.exclude:
        yield from _selectors("exclude", flow.exclude)
    if flow.settings.get("topics", {}).get("allow_internal"):
        yield "      allow_internal: true"


def _selectors(key: str, selectors: tuple[Selector, ...]) -> Iterator[str]:
    texts = [_inline(each) for each in sorted(set(selectors))]
    if sum(map(len, texts)) < 80:
        yield f"      {key}: [{', '.join(texts)}]"
        return
    yield f"      {key}:"
    yield from (f"        - {text}" for text in texts)


def _settings(settings: Mapping[str, Any], indent: str) -> Iterator[str]:
    known = {name: place for place, name in enumerate(_ORDER)}
    for name in sorted(settings, key=lambda each: (known.get(each, len(known)), each)):
        if name == "topics":
            continue
        value = settings[name]
        if value == _UNREADABLE_NAMING:
            yield f"{indent}naming: {{policy: template}}   # fill in: template: what a class calls the target topics"
        elif isinstance(value, Mapping) and any(isinstance(each, Mapping) for each in value.values()):
            yield f"{indent}{name}:"
            yield from (f"{indent}  {key}: {_inline(each)}" for key, each in value.items())
        else:
            yield f"{indent}{name}: {_inline(value)}"


def _inline(value: Any) -> str:
    if isinstance(value, Selector):
        quoted = quote_yaml_text(value.text) if value.kind == "glob" else _single(value.text)
        return _scalar(value.text) if value.kind == "literal" else f"{{{value.kind}: {quoted}}}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(str(key))}: {_inline(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else _scalar(str(value))


def _scalar(text: str) -> str:
    """Plain where every YAML reader agrees that it is text, else in quotes."""
    if _PLAIN.fullmatch(text) and not text.endswith(":"):
        if _is_duration(text):
            return text
        if text not in NULL_SCALARS and not AMBIGUOUS_SCALAR.fullmatch(text) and not NUMERIC_SCALAR.fullmatch(text):
            return text
    return quote_yaml_text(text)


def _is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except (MissingUnit, ValueError):
        return False
    return True


def _single(text: str) -> str:
    return "'" + text.replace("'", "''") + "'" if text.isprintable() else quote_yaml_text(text)


def quote_yaml_text(text: str) -> str:
    """In double quotes, all ASCII. JSON's escapes are YAML's, but for pairs of surrogates (YAML 1.2, 5.7)."""
    letters = (json.dumps(each)[1:-1] if ord(each) < 0x10000 else f"\\U{ord(each):08x}" for each in text)
    return f'"{"".join(letters)}"'


def _comment(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
