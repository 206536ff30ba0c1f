"""One arrow of a picture, and arrows that are better told as one thing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edge:
    """From box to box. loop: it is part of a cycle that nothing stops, or of names that grow. tool: who copies, where
    we do not."""

    source: str
    target: str
    flow: str
    label: str
    paused: bool
    loop: bool
    tool: str = ""

    @property
    def marks(self) -> str:
        """Words after the label for another tool, a paused flow and a loop."""
        by = f"  [by {self.tool}]" if self.tool else ""
        return by + ("  [paused]" if self.paused else "") + ("  [LOOP]" if self.loop else "")


@dataclass(frozen=True, slots=True)
class Mesh:
    """Clusters that all send the same to each other."""

    members: tuple[str, ...]
    label: str
    paused: bool


def find_meshes(edges: Iterable[Edge], least: int = 3) -> tuple[list[Mesh], list[Edge]]:
    """The meshes of at least so many members, and the arrows that belong to none. What is on a loop stays an arrow,
    as does what another tool copies."""
    fans: dict[tuple[str, str, bool], list[Edge]] = {}
    for edge in edges:
        fans.setdefault((edge.source, edge.label, edge.paused), []).append(edge)
    around: dict[tuple[frozenset[str], str, bool], list[str]] = {}
    for (source, label, paused), fan in fans.items():
        if not any(edge.loop or edge.tool for edge in fan):
            around.setdefault((frozenset({source, *(edge.target for edge in fan)}), label, paused), []).append(source)
    whole = {key for key, sources in around.items() if len(key[0]) >= least and set(sources) == key[0]}
    found = [Mesh(tuple(sorted(members)), label, paused) for members, label, paused in whole]
    inside = {(source, mesh.label, mesh.paused) for mesh in found for source in mesh.members}
    rest = [edge for key, fan in fans.items() if key not in inside for edge in fan]
    return sorted(found, key=lambda mesh: (mesh.members, mesh.label)), rest
