"""A bill of materials of what an image says of itself."""

from __future__ import annotations

import pytest

from watershed.lab.containers.image_bill import describe_image_content
from watershed.lab.errors import LabError

TOLD = (
    "debian\tlibc6\t2.36-9+deb12u10\tamd64\n"
    "python\tConfluent_Kafka\t2.16.0\n"
    f"jar\t{'a' * 64}\t/opt/kafka/libs/kafka_2.13-4.3.1.jar\n"
    f"jar\t{'b' * 64}\t/opt/registry/apicurio.jar\n"
)


def test_packages_distributions_and_jars_are_named_with_their_versions() -> None:
    bill = describe_image_content("watershed-engine", "f" * 64, TOLD)
    assert bill["metadata"]["component"]["version"] == f"sha256:{'f' * 64}"
    found = {each["bom-ref"]: each for each in bill["components"]}
    assert found.keys() == {
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64", "pkg:pypi/confluent-kafka@2.16.0",
        "jar:/opt/kafka/libs/kafka_2.13-4.3.1.jar", "jar:/opt/registry/apicurio.jar",
    }  # fmt: skip
    broker = found["jar:/opt/kafka/libs/kafka_2.13-4.3.1.jar"]
    assert (broker["name"], broker["version"]) == ("kafka_2.13", "4.3.1")
    assert broker["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    assert describe_image_content("watershed-engine", "f" * 64, "".join(sorted(TOLD.splitlines(True)))) == bill


@pytest.mark.parametrize("line", ["", "rpm\tglibc\t2.36", "debian\tlibc6", "cannot find python"])
def test_what_is_no_line_of_it_is_refused(line: str) -> None:
    with pytest.raises(LabError, match="no line of a bill of materials"):
        describe_image_content("watershed-engine", "f" * 64, f"{TOLD}{line}\n")
