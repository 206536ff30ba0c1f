"""Protobuf schemas as registries hold them (texts, with imports), compiled to descriptors.

The compiler is protoc, as grpcio-tools brings it, in a process of its own: a schema is a foreign text. It reads nothing
but the texts that it is given, and Google's own imports.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from watershed.clusters.errors import ClusterError

MAIN_PROTO: Final = "watershed_record.proto"  # what the schema itself is called beside what it imports
_LONGEST_S: Final = 30.0
_MOST_SAID: Final = 300  # characters


class CompilerFailed(ClusterError):
    """The compiler did not run, which says nothing of the schema."""


def compile_protobuf(text: str, references: Sequence[tuple[str, str]] = ()) -> bytes:
    """A FileDescriptorSet of the schema and all that it imports. references: (import path, text).

    Raises ValueError with what the compiler says of the schema, CompilerFailed.
    """
    if find_spec("grpc_tools") is None:
        raise CompilerFailed('grpcio-tools is not installed here: pip install "watershed[spark]"')
    with TemporaryDirectory(prefix="watershed-proto-") as folder:
        root = Path(folder)
        for name, each in (*references, (MAIN_PROTO, text)):
            place = Path(os.path.normpath(root / name))
            if not place.is_relative_to(root) or place == root:
                raise ValueError(f"it imports {name!r}, which is no relative path")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(each, encoding="utf-8")
        out = root / "descriptors"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", "--include_imports"]
        try:
            done = subprocess.run(
                [*command, f"--descriptor_set_out={out}", MAIN_PROTO],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CompilerFailed(f"the compiler of Protobuf schemas did not end within {_LONGEST_S:.0f} s") from None
        if done.returncode < 0:
            raise CompilerFailed(f"the compiler of Protobuf schemas was ended by signal {-done.returncode}")
        if done.returncode or not out.exists():
            said = " ".join(done.stderr.replace(f"{root}/", "").split())[:_MOST_SAID]
            raise ValueError(said or f"the compiler ended with {done.returncode}")
        return out.read_bytes()
