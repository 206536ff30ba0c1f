"""An application of the demonstration in a container of its own (docker/demo.yaml): `container_application NAME`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from watershed.lab.demo.demo_setup import DEMO_APPLICATIONS
from watershed.lab.sample_applications import SampleApplication

CONTAINER_ROOT = Path("/")  # below it, `applications` is the volume that all of them and the demonstration share
_PORT = 8090


def list_container_applications() -> dict[str, SampleApplication]:
    """The applications by name. Each is called so in the network of the containers."""
    return {
        name: SampleApplication(name, CONTAINER_ROOT / "applications" / name, _PORT, host=name)
        for name in DEMO_APPLICATIONS
    }


def build_application_arguments(name: str) -> list[str]:
    """The application's module and arguments. It starts nowhere: the demonstration says where. Raises KeyError."""
    app, (module, *rest) = list_container_applications()[name], DEMO_APPLICATIONS[name]
    return [module, f"--directory={app.directory}", "--name", name, "--port", str(app.port), "--host", app.host, *rest]


def main(name: str) -> None:
    """Runs the application until it is told to end (SIGTERM)."""
    sys.argv = build_application_arguments(name)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1])
