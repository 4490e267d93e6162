"""A cache of blocks in memory within a size limit, with optimal eviction."""

from bisect import bisect_right
from collections.abc import Callable, Sequence

from mistify.package.blocks import BlockVariant
from mistify_client.assembly.chaining import LoadedBlock
from mistify_client.assembly.memory import return_memory


class BlockCache:
    """The blocks of a known, repeating sequence of runs, loaded on demand.

    If there is no room for another block, the one whose next run is furthest in the future is evicted
    (Belady, 1966). The running block is in memory, whatever its size.

    Attributes:
        loads: Number of blocks loaded.
    """

    def __init__(
        self,
        load: Callable[[BlockVariant], LoadedBlock],
        size: Callable[[BlockVariant], int],
        limit_bytes: int,
        runs: Sequence[BlockVariant],
    ) -> None:
        """Prepare the runs.

        Args:
            load: Loads a block.
            size: Returns the bytes of memory that a block needs.
            limit_bytes: Limit on the bytes of all blocks in memory.
            runs: The blocks of one round in execution order; further rounds are the same.
        """
        self.loads = 0
        self._load = load
        self._size = size
        self._limit = limit_bytes
        self._round = len(runs)
        self._places: dict[BlockVariant, list[int]] = {}
        for place, variant in enumerate(runs):
            self._places.setdefault(variant, []).append(place)
        self._now = 0
        self._cached: dict[BlockVariant, LoadedBlock] = {}

    def next(self, variant: BlockVariant) -> LoadedBlock:
        """Return the next block to run."""
        if variant not in self._cached:
            self._make_room(self._size(variant))
            self._cached[variant] = self._load(variant)
            self.loads += 1
        self._now = (self._now + 1) % self._round
        return self._cached[variant]

    def _make_room(self, needed: int) -> None:
        taken = sum(map(self._size, self._cached))
        if taken + needed <= self._limit:
            return
        while self._cached and taken + needed > self._limit:
            last = max(self._cached, key=self._runs_until)
            del self._cached[last]
            taken -= self._size(last)
        return_memory()

    def _runs_until(self, variant: BlockVariant) -> int:
        """Return the number of runs until the next one of a block, excluding the current one."""
        places = self._places[variant]
        later = bisect_right(places, self._now)
        return (places[later] if later < len(places) else places[0] + self._round) - self._now
