"""What messages say about themselves when they arrive: nothing, for most."""

from collections.abc import Mapping
from types import MappingProxyType

from headrace.model.message import Properties
from headrace.model.queue import PRIORITY_DEFAULT

__all__ = ["ALL_PLAIN", "PLAIN", "Properties"]

PLAIN = Properties(priority=PRIORITY_DEFAULT)
ALL_PLAIN: Mapping[int, Properties] = MappingProxyType({})
