"""Feeds the catalog: one list at a revision, then one watch, and over again whenever the watch cannot go on."""

import logging

from headrace.cluster.catalog import Catalog
from headrace.cluster.store import CompactedError, Store
from headrace.host.clock import Clock
from headrace.host.rand import Rand
from headrace.model.errors import StoreUnavailableError

_RETRY_MS_MIN = 50
_RETRY_MS_MAX = 5000

_logger = logging.getLogger(__name__)


class CatalogDriver:
    """Owns the catalog's watch. Await `load` once, then run `run` as a task for as long as the node lives."""

    def __init__(self, *, store: Store, catalog: Catalog, clock: Clock, rand: Rand) -> None:
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._rand = rand

    async def load(self) -> None:
        """Bring the catalog up to the store's current revision."""
        self._catalog.reset(await self._store.list(self._catalog.keys.root))

    async def run(self) -> None:
        """Follow the store until cancelled or until the store is closed."""
        retry_ms = _RETRY_MS_MIN
        try:
            while True:
                try:
                    await self._follow()
                    return
                except CompactedError as error:
                    _logger.info("catalog starts over from a full list", extra={"reason": str(error)})
                    retry_ms = await self._reload(retry_ms)
                except StoreUnavailableError as error:
                    _logger.warning("the metadata store is away", extra={"reason": str(error)})
                    retry_ms = await self._back_off(retry_ms)
        finally:
            self._catalog.close()

    async def _follow(self) -> None:
        async for events in self._store.watch(self._catalog.keys.root, self._catalog.revision):
            self._catalog.apply(events)

    async def _reload(self, retry_ms: int) -> int:
        try:
            await self.load()
        except StoreUnavailableError:
            return await self._back_off(retry_ms)
        return _RETRY_MS_MIN

    async def _back_off(self, retry_ms: int) -> int:
        await self._clock.sleep(self._rand.uniform(retry_ms / 2, retry_ms))
        return min(retry_ms * 2, _RETRY_MS_MAX)
