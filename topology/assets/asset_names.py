"""Names for things whose own name a tool does not take: resources of Kubernetes and Terraform, files of a folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final, Literal

# RFC 1123 subdomains, as Kubernetes asks of metadata.name: at most 253 characters.
_KUBERNETES: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII)
# Terraform's identifiers (ASCII only), and file names that no shell and no file system reads otherwise.
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_LENGTH: Final = 200
_HASHED: Final = 8  # hexadecimal digits of SHA-256; more where two names have them in common

NameStyle = Literal["kubernetes", "identifier"]


def is_kubernetes_name(name: str) -> bool:
    """Whether Kubernetes takes the text as the name of a resource."""
    return len(name) <= 253 and _KUBERNETES.fullmatch(name) is not None


def build_resource_names(names: Iterable[str], style: NameStyle) -> dict[str, str]:
    """Name → a name in this style, no two the same; what is valid stays. The others get readable letters of the name
    and a hash of it, so that the result depends on nothing but the names. Kubernetes: lower case, `-` and `.`.

    A name gets a longer hash where its short one is taken.
    """
    wanted = sorted(set(names))
    found = {name: name for name in wanted if _is_valid(name, style)}
    taken = set(found.values())
    for name in wanted:
        if name in found:
            continue
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        made = next(
            each
            for length in range(_HASHED, len(digest) + 1)
            if (each := _build_name(name, digest[:length], style)) not in taken
        )
        taken.add(made)
        found[name] = made
    return found


def find_name_problem(name: str) -> str:
    """Why no tool can be given this name, which comes from a file that anyone can write; empty if it can."""
    if not name:
        return "the name is empty"
    if "\0" in name:
        return "the name holds a NUL character"
    if any(0xD800 <= ord(letter) < 0xE000 for letter in name):
        return "the name holds half of a surrogate pair, which is no text"
    return ""


def _is_valid(name: str, style: NameStyle) -> bool:
    if style == "kubernetes":
        return is_kubernetes_name(name)
    return len(name) <= _LENGTH and _IDENTIFIER.fullmatch(name) is not None


def _build_name(name: str, digest: str, style: NameStyle) -> str:
    if style == "kubernetes":
        readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_LENGTH].rstrip("-")
        return f"{readable}-{digest}" if readable else f"x-{digest}"
    readable = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:_LENGTH]
    return f"{readable}_{digest}" if readable[:1].isalpha() else f"x_{readable}_{digest}"
