"""A queue's configuration as REST has it: the model's, with seconds for milliseconds."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.gateways.rest.form import SECONDS_MAX, Count, Lease, Life, Span
from headrace.model.names import NAME_LENGTH_MAX
from headrace.model.queue import ATTEMPTS_MAX, Backoff, Deduplication, Guarantee, Overflow, QueueConfig

PARTITIONS_MAX = 10_000
# A queue's name.
Name = Annotated[str, Meta(max_length=NAME_LENGTH_MAX, pattern=r"^(?!\.{1,2}$)[A-Za-z0-9._\-]+$")]


class BackoffForm(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How long a message rests after a failed attempt: the first length, doubled each time up to the last."""

    first: Span | UnsetType = UNSET
    last: Span | UnsetType = UNSET


class ConfigForm(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What a queue promises. What is left out keeps its value, or gets the default where the queue is new."""

    guarantee: Guarantee | UnsetType = UNSET
    ordered: bool | UnsetType = UNSET
    lease: Lease | UnsetType = UNSET
    delay: Span | UnsetType = UNSET
    ttl: Life | UnsetType | None = UNSET
    retention: Life | UnsetType | None = UNSET
    history: Span | UnsetType = UNSET
    max_deliveries: Annotated[float, Meta(multiple_of=1, ge=1, le=ATTEMPTS_MAX)] | UnsetType | None = UNSET
    dead_letter: Name | UnsetType | None = UNSET
    dead_letter_expired: bool | UnsetType = UNSET
    backoff: BackoffForm | UnsetType | None = UNSET
    deduplication: Deduplication | UnsetType = UNSET
    deduplication_window: Span | UnsetType = UNSET
    messages_max: Count | UnsetType | None = UNSET
    overflow: Overflow | UnsetType = UNSET
    leased_max: Count | UnsetType = UNSET
    fair: bool | UnsetType = UNSET
    reader_lag_max: Life | UnsetType = UNSET
    reader_lag_bytes_max: Count | UnsetType = UNSET


# What each setting means, and what it is where nobody says anything.
ABOUT_SETTINGS = {
    "guarantee": "what a crash can do to messages that are being handed out; at_least_once",
    "ordered": "no message of a key is handed out while an earlier one of it is not done; false",
    "lease": "seconds for which a receive holds messages; 30",
    "delay": "seconds before a message is visible, where it does not say; 0",
    "ttl": "seconds after which a message is dropped, where it does not say; null: never",
    "retention": "seconds after which what nobody has acknowledged is dropped; 7 days; null: never",
    "history": "seconds for which messages that are done can still be read by offset; 0",
    "max_deliveries": "attempts after which a message goes to the dead letters; 10; null: no limit",
    "dead_letter": "the queue that gets dead letters; null: this queue's name with -dead behind it",
    "dead_letter_expired": "whether it gets messages whose time to live is over too; false",
    "backoff": "how long a message rests after a failed attempt; null: not at all",
    "deduplication": "by what a message is known to have been sent before; id",
    "deduplication_window": "seconds for which that is remembered; 300",
    "messages_max": "how many messages it holds; null: no limit",
    "overflow": "what happens to a send above that; reject",
    "leased_max": "messages of each partition that can be leased at a time; 1000000",
    "fair": "keys of a queue without order take turns; false",
    "reader_lag_max": "seconds by which a named reader can hold the log back; 7 days",
    "reader_lag_bytes_max": "bytes of each partition by which it can do so; 64 GiB",
}


class NewQueue(msgspec.Struct, forbid_unknown_fields=True):
    """A queue to be made. Everything may be left out."""

    config: ConfigForm = msgspec.field(default_factory=ConfigForm)
    partitions: Annotated[float, Meta(multiple_of=1, ge=1, le=PARTITIONS_MAX)] | UnsetType = UNSET
    durability: Literal["fsync", "replicated", "memory"] | UnsetType = UNSET
    convert: Annotated[
        bool, Meta(description="make a queue of a topic of this name that holds records; without it, that is refused")
    ] = False


class QueueChange(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be different from now on."""

    config: ConfigForm


# REST's name, and the model's where that is another one. The model's are in milliseconds.
_IN_MS = {
    "lease": "lease_ms",
    "delay": "delay_ms",
    "ttl": "ttl_ms",
    "retention": "retention_ms",
    "history": "history_ms",
    "deduplication_window": "deduplication_window_ms",
    "reader_lag_max": "reader_lag_ms_max",
}


def changed(config: QueueConfig, form: ConfigForm) -> QueueConfig:
    """The configuration with what the form says."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(ConfigForm):
        value = getattr(form, field.name)
        if value is UNSET:
            continue
        if isinstance(value, BackoffForm):
            value = _changed_backoff(config.backoff or Backoff(), value)
        elif field.name in _IN_MS and value is not None:
            value = _ms(value)
        elif isinstance(value, float):
            value = int(value)
        values[_IN_MS.get(field.name, field.name)] = value
    return msgspec.structs.replace(config, **values)


def _changed_backoff(backoff: Backoff, form: BackoffForm) -> Backoff:
    first = backoff.first_ms if form.first is UNSET else _ms(form.first)
    return Backoff(first_ms=first, last_ms=backoff.last_ms if form.last is UNSET else _ms(form.last))


def shown(config: QueueConfig) -> ConfigForm:
    """The whole configuration."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(ConfigForm):
        value = getattr(config, _IN_MS.get(field.name, field.name))
        if isinstance(value, Backoff):
            value = BackoffForm(value.first_ms / 1_000, value.last_ms / 1_000)
        elif field.name in _IN_MS and value is not None:
            value = value / 1_000
        values[field.name] = value
    return ConfigForm(**values)


def _ms(seconds: float) -> int:
    return round(min(seconds, SECONDS_MAX) * 1_000)
