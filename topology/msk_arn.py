"""The name that Amazon gives a cluster of its own (ARN): region, account, cluster and its UUID."""

from __future__ import annotations

import re
from dataclasses import dataclass

MSK_ARN_REGEX = re.compile(
    r"arn:(?P<partition>aws[a-z-]{0,16}):kafka:(?P<region>[a-z0-9-]{1,32}):(?P<account>[0-9]{12}):"
    r"cluster/(?P<name>[A-Za-z0-9-]{1,64})/(?P<uuid>[a-f0-9-]{36}(?:-s?[0-9]{1,4})?)"
)


@dataclass(frozen=True, slots=True)
class MskArn:
    """`arn:PARTITION:kafka:REGION:ACCOUNT:cluster/NAME/UUID`, as `aws kafka list-clusters-v2` shows it."""

    partition: str
    region: str
    account: str
    name: str
    uuid: str

    def name_resource(self, kind: str, name: str = "") -> str:
        """The ARN of something in the cluster: kind `topic`, `group`, `transactional-id`, or the cluster itself."""
        about = f"arn:{self.partition}:kafka:{self.region}:{self.account}:{kind}/{self.name}/{self.uuid}"
        return f"{about}/{name}" if name else about


def parse_msk_arn(text: str) -> MskArn:
    """Raises ValueError for any other text."""
    found = MSK_ARN_REGEX.fullmatch(text)
    if found is None:
        raise ValueError("expected the ARN of an MSK cluster, arn:aws:kafka:REGION:ACCOUNT:cluster/NAME/UUID")
    return MskArn(**found.groupdict())
