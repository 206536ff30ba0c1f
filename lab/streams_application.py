"""Sample application of Kafka Streams with state: it counts records by a bucket of their key (lab/KeyCounts.java).

`python -m watershed.lab.streams_application --help`. Control endpoint: lab/control_endpoint.py. Each client is a Java
process of its own with an empty state directory, so a client always restores its counts from the changelog.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from argparse import ArgumentParser
from pathlib import Path

from watershed.lab.control_endpoint import (
    ClientAddress,
    add_application_options,
    parse_client_address,
    serve_control_endpoint,
)
from watershed.lab.detached_process import end_processes, is_alive, spawn_detached
from watershed.lab.errors import LabError, ToolMissing
from watershed.lab.jars import fetch_jars, find_java, list_jvm_options

STREAMS_POM = Path(__file__).with_name("streams.pom.xml")
_PROGRAM = Path(__file__).with_name("KeyCounts.java")
_BUCKETS = 40  # as in the program
_CLOSE_S = 30.0  # the program closes its client within 20 s


def compute_bucket(key: bytes) -> str:
    """The key under which the application counts a record with this key."""
    return f"bucket-{sum(key) % _BUCKETS}"


def find_compiling_java() -> str:
    """A java that also compiles, because the program is run from its source (JEP 330). Raises ToolMissing."""
    java = find_java()
    listed = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False).stdout
    if "jdk.compiler" not in listed:
        raise ToolMissing(
            "javac", f"{java} cannot compile", "a whole JDK is needed, for example: apt-get install openjdk-17-jdk"
        )
    return java


class _StreamsApplication:
    """The application; `run` is one client's life."""

    role = "consumer"

    def __init__(self, name: str, directory: Path, topics: tuple[str, str], protocol: str, commit_ms: int) -> None:
        self.name = name
        self._directory = directory
        self._topics = topics
        self._how = (protocol, str(commit_ms))

    def counts(self) -> dict[str, int]:
        """Streams keeps its own."""
        return {}

    def run(self, place: ClientAddress, stopping: threading.Event) -> None:
        """Raises LabError where the process ends by itself. The state directory is removed first: its checkpoints hold
        offsets of changelogs, which mean nothing at another cluster."""
        state = self._directory / "state"
        shutil.rmtree(state, ignore_errors=True)
        jars = ["-Xmx256m", *list_jvm_options(), "-cp", f"{fetch_jars(STREAMS_POM, name='streams')}/*"]
        about = [place.bootstrap, self.name, *self._topics, str(state), *self._how]
        log = self._directory / "streams.log"
        process = spawn_detached([find_compiling_java(), *jars, str(_PROGRAM), *about], log)
        try:
            while not stopping.wait(0.2):
                if not is_alive(process):
                    raise LabError(f"the Streams application ended by itself, see {log}")
        finally:
            ended_well = end_processes([process], grace=_CLOSE_S)
        if not ended_well:
            raise LabError(f"the Streams application did not close within {_CLOSE_S:.0f} s, see {log}")


def main(argv: list[str] | None = None) -> None:
    """Runs the application until it is told to end (SIGTERM)."""
    parser = ArgumentParser(
        prog="python -m watershed.lab.streams_application",
        description="Sample application of Kafka Streams with a control endpoint; its name is its application id.",
    )
    add_application_options(parser)
    parser.add_argument("--input", required=True, help="the topic whose records are counted")
    parser.add_argument("--output", required=True, help="the topic that gets each new count")
    parser.add_argument("--protocol", default="classic", choices=["classic", "streams"], help="KIP-1071: streams")
    parser.add_argument("--commit-ms", type=int, default=100, help="how often it commits")
    options = parser.parse_args(argv)
    try:
        place = parse_client_address(options)
    except LabError as error:
        parser.error(str(error))
    options.directory.mkdir(parents=True, exist_ok=True)
    topics = (options.input, options.output)
    application = _StreamsApplication(options.name, options.directory, topics, options.protocol, options.commit_ms)
    serve_control_endpoint(application, options, place)


if __name__ == "__main__":
    main()
