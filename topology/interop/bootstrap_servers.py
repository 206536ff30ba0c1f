"""`bootstrap.servers` of any client as the addresses of a cluster."""

from __future__ import annotations

import re

from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes, has_placeholder

_ADDRESS = re.compile(r"(?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9_][A-Za-z0-9._-]*):([0-9]{1,5})")


def parse_bootstrap_servers(alias: str, said: ForeignSetting | None, notes: ImportNotes) -> tuple[str, ...]:
    """Without duplicates and in order; () when there is none that can be said, which the notes then have."""
    if said is None:
        return ()
    out: list[str] = []
    for text in (each.strip() for each in said.text.split(",")):
        plain = re.sub(r"^[A-Za-z_]+://", "", text)
        match = _ADDRESS.fullmatch(plain)
        if match is not None and 0 < int(match[1]) < 65536:
            out.append(plain)
        elif has_placeholder(text):
            notes.add_not_carried(f"`{said.name}`", "no addresses yet, but what stands for them", said.span)
        elif text:
            # what stands before an @, or after a =, may be a password
            shown = f"`{text}`" if re.fullmatch(r"[A-Za-z0-9._:/-]{1,100}", text) else "an entry"
            more = "; take the second `=` away" if text.startswith("=") and out == [] else ""
            notes.add_problem(
                "SYN011", f"`{said.name}`: {shown} is no `host:port`", said.span, f"correct it here{more}"
            )
            notes.add_not_carried(
                f"`{said.name}`: {shown}", f"no address; correct `clusters.{alias}.bootstrap`", said.span
            )
    return tuple(dict.fromkeys(out))
