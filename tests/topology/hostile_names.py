"""A name that Kafka takes for groups, principals, users and client ids, and that breaks tools which quote badly."""

from __future__ import annotations

HOSTILE_NAME = "a \"b\" $(id) `id` ${HOME} %{x} \\ 'q' [c,d]=e;f|g #h <i> ü 日本 😀\nnext -- line"
