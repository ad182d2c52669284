"""What messages say about themselves when they arrive: nothing, for most."""

from collections.abc import Mapping
from types import MappingProxyType

from headrace.model.message import Properties

__all__ = ["ALL_PLAIN", "Properties"]

ALL_PLAIN: Mapping[int, Properties] = MappingProxyType({})
