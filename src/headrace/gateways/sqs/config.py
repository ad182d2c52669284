"""What the SQS gateway is told."""

from typing import Annotated

import msgspec


class SqsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The SQS gateway, which shares the HTTP listener."""

    # Parts of queue addresses and ARNs. Signatures must be made for this region.
    account: Annotated[str, msgspec.Meta(pattern="^[0-9]{12}$")] = "000000000000"
    region: Annotated[str, msgspec.Meta(pattern="^[a-z0-9-]{1,40}$")] = "us-east-1"
    # A TOML file with a line `ACCESSKEYID = "secret"` for each key. None: any signature is accepted, and none.
    keys_file: str | None = None
    # SQS purges a queue once in this time, and gives a deleted queue's name away after it.
    purge_interval_ms: Annotated[int, msgspec.Meta(ge=0)] = 60_000
    deleted_name_ms: Annotated[int, msgspec.Meta(ge=0)] = 60_000
