"""Whom a client quota limits, as one text: `user=ann,client-id=web`, the key of `quotas` in an inventory.

A name that could be read otherwise is a JSON text: one that begins with `"`, is `<default>`, or holds `,user=`,
`,client-id=` or `,ip=`. Inventories of v0.1.0 have such names as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

QuotaKey = tuple[tuple[str, str | None], ...]

_DEFAULT: Final = "<default>"
_PART: Final = re.compile(r"(?:^|,)(user|client-id|ip)=")
_QUOTED_NAME: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_LATER_PART: Final = re.compile(r",(?:user|client-id|ip)=")


def render_quota_entity_text(entity: Iterable[tuple[str, str | None]]) -> str:
    """The text of an entity: pairs of its kind (`user`, `client-id`, `ip`) and its name, None for the default."""
    return ",".join(f"{kind}={_DEFAULT if name is None else _quote_if_needed(name)}" for kind, name in entity)


def parse_quota_entity(text: str) -> QuotaKey | None:
    """`user=ann,client-id=web` as an inventory has it, the user first; None where nobody can tell where a name ends."""
    pairs: list[tuple[str, str | None]] = []
    at = 0
    while at < len(text) or not pairs:
        part = _PART.match(text, at)
        if part is None:
            return None
        quoted = _QUOTED_NAME.match(text, part.end())
        if quoted is not None and (quoted.end() == len(text) or _LATER_PART.match(text, quoted.end())):
            name, at = _read_quoted(quoted[0]), quoted.end()
        else:
            later = _LATER_PART.search(text, part.end())
            at = len(text) if later is None else later.start()
            name = text[part.end() : at]
        if not name:
            return None
        pairs.append((part[1], None if name == _DEFAULT and quoted is None else name))
    if len({kind for kind, _ in pairs}) != len(pairs):
        return None
    return tuple(sorted(pairs, key=lambda pair: pair[0] != "user"))


def _quote_if_needed(name: str) -> str:
    is_ambiguous = name == _DEFAULT or name.startswith('"') or _LATER_PART.search(name) is not None
    return json.dumps(name) if is_ambiguous else name


def _read_quoted(text: str) -> str:
    """The name in a JSON text; the text itself where it is none."""
    try:
        return str(json.loads(text))
    except ValueError:
        return text
