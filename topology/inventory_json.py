"""An inventory as one JSON document (`topology scan` writes it, `topology lint --inventory` reads it), and its schema.

The shape follows the dataclasses of `topology.inventory`, so that it cannot drift from them: every field is there, none
else. What is looked up by name is an object by that name (clusters by alias, topics, groups). `topic_configs` of a
cluster holds the value of each topic config that most of its topics have; a topic lists only what differs (null: it
does not have the key), which keeps 100,000 topics readable, and small in memory too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, get_args, get_origin, get_type_hints

from watershed.topology.cluster_capabilities import ClusterCapabilities
from watershed.topology.errors import UnreadableInventory
from watershed.topology.inventory import Inventory, InventoryCluster

INVENTORY_SCHEMA_VERSION = 1
INVENTORY_KIND = "inventory"
CAPABILITIES_KIND = "capabilities"
# what is looked up by name, and the field that holds the name
INVENTORY_KEY_FIELDS = {
    "InventoryCluster": "alias",
    "InventoryTopic": "name",
    "InventoryGroup": "id",
    "ClusterClients": "alias",
}
# what inventories of earlier versions do not have; None then
INVENTORY_LATER_FIELDS = {
    "InventoryCluster": frozenset({"capabilities", "users"}),
    "InventoryTopic": frozenset({"replica_racks"}),
}
_WORDS: dict[Any, str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
_Reader = Callable[[Any], Any]


class DamagedValue(Exception):
    """What is wrong with a value; `path` grows from the inside out while the readers return."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str] = []

    def under(self, name: str) -> DamagedValue:
        """The same error, seen from the value that has this one under the name."""
        self.path.insert(0, name)
        return self


def encode_inventory(inventory: Inventory) -> str:
    """Canonical: sorted keys, newline at the end; the same inventory gives the same bytes. `taken` is when its first
    cluster was looked at (RFC 3339, UTC), null without clusters."""
    taken = min((cluster.taken_ms for cluster in inventory.clusters.values()), default=None)
    document = {
        "schema": INVENTORY_SCHEMA_VERSION,
        "kind": INVENTORY_KIND,
        "taken": None if taken is None else datetime.fromtimestamp(taken / 1000, UTC).isoformat(timespec="seconds"),
        "clusters": {alias: _cluster_tree(cluster) for alias, cluster in inventory.clusters.items()},
        "missing": dict(inventory.missing),
    }
    return json.dumps(document, sort_keys=True, indent=1) + "\n"


def decode_inventory(text: str) -> Inventory:
    """An inventory from the text of `encode_inventory`. Raises UnreadableInventory, with the path of what is wrong."""
    try:
        document = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno}: {error.msg})" if isinstance(error, json.JSONDecodeError) else ""
        raise UnreadableInventory(f"this is not JSON{where}; an inventory is written by `topology scan`") from None
    if not isinstance(document, dict) or document.get("kind") != INVENTORY_KIND:
        raise UnreadableInventory(
            f'this is JSON, but not an inventory ("kind": "{INVENTORY_KIND}"); `topology scan` writes one'
        )
    if document.get("schema") != INVENTORY_SCHEMA_VERSION:
        raise UnreadableInventory(
            f"the inventory has schema {document.get('schema')!r}, this Watershed reads "
            f"{INVENTORY_SCHEMA_VERSION}; scan again with it"
        )
    try:
        _text(document, "taken", optional=True)
        clusters = _member(document, "clusters")
        return Inventory(
            {alias: _cluster(alias, value) for alias, value in sorted(_object(clusters).items())},
            missing=_read_missing(document),
        )
    except DamagedValue as wrong:
        raise _build_damage_error(["clusters", *wrong.path] if wrong.path else [], wrong.what) from None


def _read_missing(document: dict[str, Any]) -> dict[str, str]:
    """Inventories of earlier versions have none."""
    try:
        return _strings(document.get("missing", {}), "missing")
    except DamagedValue as wrong:
        raise _build_damage_error(wrong.path, wrong.what) from None


def _build_damage_error(path: list[str], what: str) -> UnreadableInventory:
    at = f" at {'.'.join(path)}" if path else ""
    return UnreadableInventory(f"the inventory is damaged{at}: {what}; scan again, or correct it there")


def encode_capability_record(capabilities: ClusterCapabilities) -> str:
    """What `topology probe` writes: canonical, as an inventory is."""
    document = {
        "schema": INVENTORY_SCHEMA_VERSION,
        "kind": CAPABILITIES_KIND,
        "capabilities": encode_value(capabilities),
    }
    return json.dumps(document, sort_keys=True, indent=1) + "\n"


def decode_capability_record(text: str) -> ClusterCapabilities:
    """Capabilities from the text of `encode_capability_record`. Raises UnreadableInventory."""
    try:
        document = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("kind") != CAPABILITIES_KIND:
        raise UnreadableInventory(
            f'this is no capability record (JSON with "kind": "{CAPABILITIES_KIND}"); `topology probe -o` writes one'
        )
    if document.get("schema") != INVENTORY_SCHEMA_VERSION:
        raise UnreadableInventory(
            f"the capability record has schema {document.get('schema')!r}, this Watershed reads "
            f"{INVENTORY_SCHEMA_VERSION}; probe again with it"
        )
    try:
        found: ClusterCapabilities = _READ_CAPABILITIES(None, _member(document, "capabilities"))
    except DamagedValue as wrong:
        path = ".".join(["capabilities", *wrong.path])
        raise UnreadableInventory(f"the capability record is damaged at {path}: {wrong.what}; probe again") from None
    return found


def _cluster_tree(cluster: InventoryCluster) -> dict[str, Any]:
    """Topics often share one mapping of configs: it is counted and compared once."""
    common = _common([topic.configs for topic in cluster.topics.values()])
    differing: dict[int, dict[str, str | None]] = {}
    topics = {}
    for name, topic in cluster.topics.items():
        own = topic.configs
        if id(own) not in differing:
            keys = common.keys() | own.keys()
            differing[id(own)] = {key: own.get(key) for key in keys if own.get(key) != common.get(key)}
        topics[name] = encode_value(replace(topic, configs={})) | {"configs": differing[id(own)]}
    tree: dict[str, Any] = encode_value(replace(cluster, topics={}))
    return tree | {"topics": topics, "topic_configs": common}


def _common(configs: list[Mapping[str, str]]) -> dict[str, str]:
    """Key → the value of most; not there when most do not have the key. Ties: the smallest, so that it is stable."""
    same = Counter(map(id, configs))
    counts: dict[str, Counter[str]] = {}
    for each in {id(each): each for each in configs}.values():
        for key, value in each.items():
            counts.setdefault(key, Counter())[value] += same[id(each)]
    common = {}
    for key, counter in counts.items():
        value, times = min(counter.items(), key=lambda item: (-item[1], item[0]))
        if times >= len(configs) - counter.total():
            common[key] = value
    return common


def _cluster(alias: str, value: Any) -> InventoryCluster:
    """`topic_configs` under the topics' own; topics without own configs share one mapping."""
    try:
        tree = dict(_object(value))
        common = _strings(_member(tree, "topic_configs"), "topic_configs")
        del tree["topic_configs"]
        topics = _member(tree, "topics")
        tree["topics"] = {name: _expanded(name, topic, common) for name, topic in _object(topics, "topics").items()}
        cluster: InventoryCluster = _READ_CLUSTER(alias, tree)
        return cluster
    except DamagedValue as wrong:
        raise wrong.under(alias) from None


def _expanded(name: str, topic: Any, common: dict[str, str]) -> Any:
    if not isinstance(topic, dict) or not isinstance(topic.get("configs"), dict):
        return topic  # the reader of topics says what is wrong
    own = topic["configs"]
    if not own:
        return topic | {"configs": common}
    merged = {**common, **own}
    return topic | {"configs": {key: value for key, value in merged.items() if value is not None}}


def encode_value(value: Any) -> Any:
    """Plain JSON values; a dataclass that is looked up by name leaves its name out."""
    if isinstance(value, Mapping):
        return {str(key): encode_value(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [encode_value(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        keyed = INVENTORY_KEY_FIELDS.get(type(value).__name__)
        return {each.name: encode_value(getattr(value, each.name)) for each in fields(value) if each.name != keyed}
    return value


def _reader(kind: Any) -> _Reader:
    """A function that checks and converts one JSON value; made once a type, as there are many values."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _WORDS:
        return _scalar(kind)
    if origin is tuple:
        return _list(_reader(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(arguments[0], arguments[1])
    if type(None) in arguments:
        [inner] = [each for each in arguments if each is not type(None)]
        read = _reader(inner)
        return lambda value: None if value is None else read(value)
    keyed = build_object_reader(kind)
    return lambda value: keyed(None, value)


def _scalar(kind: type) -> _Reader:
    accepted: tuple[type, ...] = (int, float) if kind is float else (kind,)

    def read(value: Any) -> Any:
        if type(value) not in accepted:
            raise DamagedValue(f"{_WORDS[kind]} is expected, {json.dumps(value, default=str)[:40]} is there")
        return kind(value)

    return read


def _list(item: _Reader) -> _Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise DamagedValue("a list is expected")
        found = []
        for index, each in enumerate(value):
            try:
                found.append(item(each))
            except DamagedValue as wrong:
                raise wrong.under(f"[{index}]") from None
        return tuple(found)

    return read


def _mapping(key: Any, kind: Any) -> _Reader:
    keyed = build_object_reader(kind) if getattr(kind, "__name__", "") in INVENTORY_KEY_FIELDS else None
    plain = None if keyed else _reader(kind)
    shared: list[Any] = [None]

    def read(value: Any) -> Any:
        found: dict[Any, Any] = {}
        if kind is str and isinstance(value, dict) and (value is shared[0] or set(map(type, value.values())) <= {str}):
            shared[0] = value  # the configs of most topics are the same object: looked through once, kept once
            return value
        for name, each in _object(value).items():
            try:
                if key is int and not name.isdecimal():
                    raise DamagedValue("a partition's number is expected as the key")
                found[int(name) if key is int else name] = keyed(name, each) if keyed else plain(each)  # type: ignore[misc]
            except DamagedValue as wrong:
                raise wrong.under(name) from None
        return found

    return read


def build_object_reader(kind: Any) -> Callable[[str | None, Any], Any]:
    """Reads a dataclass; the name it is looked up by comes from outside."""
    hints, keyed = get_type_hints(kind), INVENTORY_KEY_FIELDS.get(kind.__name__)
    readers = {each.name: _reader(hints[each.name]) for each in fields(kind) if each.name != keyed}
    later: dict[str, Any] = dict.fromkeys(INVENTORY_LATER_FIELDS.get(kind.__name__, ()))

    def read(name: str | None, value: Any) -> Any:
        tree = later | _object(value) if later else _object(value)
        if tree.keys() != readers.keys():
            for missing in sorted(readers.keys() - tree.keys()):
                raise DamagedValue(f"`{missing}` is missing")
            raise DamagedValue(f"`{min(tree.keys() - readers.keys())}` is not known here")
        found = {} if keyed is None else {keyed: name}
        for field_name, read_field in readers.items():
            try:
                found[field_name] = read_field(tree[field_name])
            except DamagedValue as wrong:
                raise wrong.under(field_name) from None
        return kind(**found)

    return read


_READ_CLUSTER = build_object_reader(InventoryCluster)
_READ_CAPABILITIES = build_object_reader(ClusterCapabilities)


def _object(value: Any, at: str | None = None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DamagedValue("an object is expected") if at is None else DamagedValue("an object is expected").under(at)
    return value


def _member(tree: dict[str, Any], name: str) -> Any:
    if name not in tree:
        raise DamagedValue(f"`{name}` is missing")
    return tree[name]


def _strings(value: Any, at: str) -> dict[str, str]:
    found = _object(value, at)
    for name, each in found.items():
        if type(each) is not str:
            raise DamagedValue("a text is expected").under(name).under(at)
    return found


def _text(tree: dict[str, Any], name: str, *, optional: bool) -> None:
    value = _member(tree, name)
    if type(value) is not str and not (optional and value is None):
        raise DamagedValue(f"`{name}` must be a text")


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")
