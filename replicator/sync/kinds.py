"""The kinds, in the order in which they are compared and carried over: topics before what refers to them."""

from __future__ import annotations

from typing import Final

from replicator.sync.acls import AccessRights
from replicator.sync.configs import Configs
from replicator.sync.groups import Groups
from replicator.sync.kind import Kind
from replicator.sync.quotas import ClientQuotas
from replicator.sync.schemas import Schemas
from replicator.sync.users import ScramUsers

KINDS: Final[tuple[Kind, ...]] = (Configs(), ScramUsers(), AccessRights(), ClientQuotas(), Schemas(), Groups())
