"""A file's bytes as the page cache shows them and as the device holds them.

Unsynced bytes are remembered by sector, the unit that a device writes whole. A sector is *dirty* until it is synced.
When a sync fails, the kernel forgets that its sectors were dirty: they become *doubtful*, readable from the cache,
perhaps on the device, and no later sync will write them. Cuts are remembered too, because a shorter file is as
unsynced as new bytes are.
"""

from headrace.testing.rand import Chooser

SECTOR_SIZE = 512


class FileImage:
    __slots__ = ("cached", "cold", "cuts", "dirty", "doubtful", "durable")

    def __init__(self) -> None:
        self.cached = bytearray()
        self.durable = bytearray()
        self.dirty: set[int] = set()
        self.doubtful: set[int] = set()
        self.cuts: list[int] = []  # sizes that the file was cut to since the last sync, in order
        self.cold = False

    def write(self, data: bytes, position: int) -> None:
        if not data:
            return
        self._grow(position)
        self.cached[position : position + len(data)] = data
        touched = range(position // SECTOR_SIZE, (position + len(data) - 1) // SECTOR_SIZE + 1)
        self.dirty.update(touched)
        self.doubtful.difference_update(touched)

    def truncate(self, size: int) -> None:
        if size < len(self.cached):
            del self.cached[size:]
            self.cuts.append(size)
            beyond = -(-size // SECTOR_SIZE)
            self.dirty = {sector for sector in self.dirty if sector < beyond}
            self.doubtful = {sector for sector in self.doubtful if sector < beyond}
        self._grow(size)

    def sync(self) -> None:
        """What a successful fdatasync leaves: every dirty sector and the size are durable, doubtful sectors are not."""
        dirty, self.dirty = self.dirty, set()
        cuts, self.cuts = self.cuts, []
        del self.durable[min([len(self.durable), *cuts]) :]
        _write_sectors(self.durable, self.cached, sorted(dirty))
        del self.durable[len(self.cached) :]
        self.durable.extend(bytes(len(self.cached) - len(self.durable)))

    def fail_sync(self) -> None:
        """What a failed fdatasync leaves: nothing is known to be durable, and the kernel will not try again."""
        self.doubtful |= self.dirty
        self.dirty = set()

    def write_back(self, rand: Chooser) -> None:
        """The kernel wrote some of it by itself. Any of it may still be changed again before it is synced."""
        self.durable = self._choose_image(rand)

    def crash(self, rand: Chooser) -> None:
        """Power is lost: one of the images that the device may hold becomes the file."""
        self.durable = self._choose_image(rand)
        self.cached = bytearray(self.durable)
        self.dirty.clear()
        self.doubtful.clear()
        self.cuts.clear()

    def flip_bit(self, bit_index: int) -> None:
        position, bit = divmod(bit_index, 8)
        self.cached[position] ^= 1 << bit
        if position < len(self.durable):
            self.durable[position] ^= 1 << bit

    def _grow(self, size: int) -> None:
        if size > len(self.cached):
            self.cached.extend(bytes(size - len(self.cached)))

    def _choose_image(self, rand: Chooser) -> bytearray:
        if not self.dirty and not self.doubtful and not self.cuts and len(self.cached) == len(self.durable):
            return bytearray(self.durable)
        cuts = self.cuts[: rand.randint(0, len(self.cuts))]
        image = self.durable[: min([len(self.durable), *cuts])]
        size_min = len(image)
        _write_sectors(image, self.cached, _choose_sectors(sorted(self.dirty | self.doubtful), rand))
        # The size is metadata with a fate of its own: it may be older than the kept bytes, or newer and show zeros.
        size_max = max(len(image), len(self.cached))
        if size_max > size_min and rand.random() < 0.5:
            size = rand.randint(size_min, size_max)
            del image[size:]
            image.extend(bytes(size - len(image)))
        return image


def _write_sectors(image: bytearray, source: bytearray, sectors: list[int]) -> None:
    for sector in sectors:
        start = sector * SECTOR_SIZE
        data = source[start : start + SECTOR_SIZE]
        if start > len(image):
            image.extend(bytes(start - len(image)))
        image[start : start + len(data)] = data


def _choose_sectors(sectors: list[int], rand: Chooser) -> list[int]:
    """Any subset may survive. Coin tosses alone would almost never give the plain cases, so those are drawn too."""
    match rand.randint(0, 3):
        case 0:
            return []
        case 1:
            return sectors
        case 2:
            return sectors[: rand.randint(0, len(sectors))]
        case _:
            return [sector for sector in sectors if rand.random() < 0.5]
