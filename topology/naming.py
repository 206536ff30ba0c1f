"""How a topic is called at the target of a flow, and back. Every policy is reversible: text around the name, or a
one-to-one map; names that a map does not mention stay as they are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

_Policy = Literal["identity", "prefix", "template", "map"]


@dataclass(frozen=True)
class Naming:
    """prefix and template are `before` + name + `after`, already filled in for the flow's clusters. Not slotted: it
    remembers its map as a mapping, which may have twenty thousand names."""

    policy: _Policy = "identity"
    before: str = ""
    after: str = ""
    map: tuple[tuple[str, str], ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.policy, self.before, self.after, self.map))

    @cached_property
    def there(self) -> dict[str, str]:
        """The map: source name → target name."""
        return dict(self.map)

    @cached_property
    def _back(self) -> dict[str, str]:
        return {to: name for name, to in self.map}

    def apply(self, topic: str) -> str:
        """The target's name of a source topic."""
        if self.policy == "map":
            return self.there.get(topic, topic)
        return f"{self.before}{topic}{self.after}"

    def invert(self, topic: str) -> str | None:
        """The source topic that is called `topic` at the target; None when there is none."""
        if self.policy == "map":
            renamed = topic not in self._back and topic in self.there
            return None if renamed else self._back.get(topic, topic)
        if not topic.startswith(self.before) or not topic.endswith(self.after):
            return None
        name = topic[len(self.before) : len(topic) - len(self.after)]
        return name if name and self.apply(name) == topic else None

    @property
    def grows(self) -> bool:
        """Whether the target's name is longer than the source's, always."""
        return bool(self.before or self.after)

    def to_json(self) -> dict[str, Any]:
        """The `naming` of a flow in the plan."""
        return {"policy": self.policy, "before": self.before, "after": self.after, "map": dict(self.map)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Naming:
        """Reads the JSON form of the plan."""
        return cls(value["policy"], value["before"], value["after"], tuple(sorted(value["map"].items())))


def build_prefix_naming(source: str, separator: str = ".") -> Naming:
    """`orders` from cluster onprem becomes `onprem.orders`."""
    return Naming("prefix", before=f"{source}{separator}")


def build_template_naming(text: str, source: str, target: str) -> Naming:
    """`{topic}` exactly once, `{source}` and `{target}` anywhere. Raises ValueError, saying what is wrong."""
    if "{topic}" not in text:
        raise ValueError("all topics would get one name: a template names {topic} exactly once")
    if text.count("{topic}") != 1:
        raise ValueError("a template names {topic} exactly once")
    filled = text.replace("{source}", source).replace("{target}", target)
    before, _, after = filled.partition("{topic}")
    if set("{}") & set(before + after):
        raise ValueError("a template knows {topic}, {source} and {target}")
    return Naming("template", before=before, after=after)
