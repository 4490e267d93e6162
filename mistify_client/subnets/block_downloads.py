"""The blocks of a package on a device, and downloads of others that may be useful."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from mistify.errors import MistifyError, Problem
from mistify.package.block_files import BlockFiles
from mistify.package.blocks import BlockEstimate, BlockStore, BlockVariant
from mistify.package.records import corrupt_package
from mistify.parsing.quantities import format_bytes
from mistify.tokens import read_token
from mistify.wording import counted
from mistify_client.origin import Origin, token_file_for
from mistify_client.rpc.porting import PortingClient
from mistify_client.rpc.retry import FEW_ATTEMPTS, Backoff
from mistify_client.subnets.block_latencies import LatencyTable
from mistify_client.subnets.expected_latencies import expected_latencies_ms
from mistify_client.subnets.search.additive import best_sums
from mistify_client.subnets.space import SubnetSpace

#: Number of times that the best subnets are computed, each with different random latencies and losses, and
#: how many of them are used each time, between these multiples of the limit.
_DRAWS: Final = 20
_BEST: Final = 8
_NEAR: Final = (0.8, 1.2)

#: Errors of expected latencies (0.13 and 0.15 for the blocks of a ResNet-20 and a MobileNet), and assumed
#: errors of losses on other data: standard deviations of their natural logarithms. Variants that suit uneven
#: data may lose much on even ones.
_LATENCY_DOUBT: Final = 0.15
_LOSS_DOUBT: Final = 1.5


class BlockDownloads:
    """The blocks of a package, some of which may not be downloaded yet.

    Args:
        files: The files of the package's current version.
        state: The state directory of the package.
        whole: The package's block store.
        token_file: The file with the server's access token; None for the one with which the package was
            downloaded.
        on_progress: Called with a line of text for each download.

    Attributes:
        whole: The block store, with all blocks, downloaded or not.
    """

    def __init__(
        self,
        files: BlockFiles,
        state: Path,
        whole: BlockStore,
        token_file: Path | None,
        on_progress: Callable[[str], None],
    ) -> None:
        self._files = files
        self._state = state
        self.whole = whole
        self._token_file = token_file
        self._verified = set[str]()
        self._on_progress = on_progress

    @property
    def store(self) -> BlockStore:
        """The store restricted to the blocks on this device."""
        return self.whole.only({one.file for one in self.whole.variants if self._is_here(one)})

    def fetch(self, variants: Iterable[BlockVariant]) -> None:
        """Download blocks that are missing or damaged; an interrupted download resumes the next time.

        Raises:
            MistifyError: CORRUPT_PACKAGE, the origin is unknown, or a block fails verification twice in a
                row; STORE_VERSION, a newer version of Mistify wrote the origin; INVALID_CONFIG, the file with
                the token cannot be used; NOT_FOUND, the server no longer has the package; NO_ROOM, they do
                not fit on the disk; UNAVAILABLE, the server cannot be reached; UNAUTHENTICATED or
                PERMISSION_DENIED, it refuses the token.
            OSError: The blocks cannot be written.
        """
        missing = {variant.file: variant.content.size for variant in variants if not self._is_here(variant)}
        if not missing:
            return
        directory = self._files.directory
        origin = Origin.load(directory)
        if origin is None:
            problems = [
                Problem(str(directory / file), "missing or damaged", f"{size} bytes", "fetch it again")
                for file, size in missing.items()
            ]
            raise corrupt_package(directory, problems)
        blocks = f"{len(missing)} of {counted(len(self.whole.variants), 'block')}"
        self._on_progress(f"fetching {blocks} from {origin.server}, {format_bytes(sum(missing.values()), 3)}")
        token = read_token(self._token_file or token_file_for(self._state, origin.server))
        with PortingClient(origin.server, token, backoff=Backoff(attempts=FEW_ATTEMPTS)) as client:
            client.fetch(origin.job, origin.goal, directory, only=missing)
        self._files.forget(missing)

    def fetch_if_possible(self, variants: Iterable[BlockVariant]) -> None:
        """Download blocks as `fetch` does; if that fails, report it and continue without the missing ones."""
        try:
            self.fetch(variants)
        except (MistifyError, OSError) as error:
            self._on_progress(
                f"no other blocks can be fetched, so only those on the device are used: {error}"
            )

    def _is_here(self, variant: BlockVariant) -> bool:
        if variant.file not in self._verified and self._files.has(variant):
            self._verified.add(variant.file)
        return variant.file in self._verified


def promising(space: SubnetSpace, table: LatencyTable, budget_ms: float) -> set[BlockVariant]:
    """Return the variants that the best subnets near a latency are likely to contain.

    They are the variants of the best subnets by expected latencies and the server's estimates of losses,
    assuming that losses add up. Both are uncertain, so latencies and losses are drawn at random around them,
    several times.

    Args:
        space: All subnets.
        table: The latencies of the original blocks.
        budget_ms: Milliseconds near which subnets are sought.
    """
    known = {variant: variant.estimate for variant in space.variants if variant.estimate is not None}
    if len(known) < len(space.variants):
        return set(space.variants)
    expected_ms = expected_latencies_ms(space.store, table, space.original)
    rng = np.random.default_rng(0)
    chosen = set[BlockVariant]()
    for _ in range(_DRAWS):
        front = best_sums(space, *_drawn(known, table, expected_ms, rng))
        near = budget_ms * np.linspace(*_NEAR, _BEST)
        places = np.searchsorted(front.latencies_ms, near, side="right") - 1
        chosen.update(*(front.subnet(place) for place in places.tolist() if place >= 0))
    return chosen


def _drawn(
    known: dict[BlockVariant, BlockEstimate],
    table: LatencyTable,
    expected_ms: Mapping[BlockVariant, float],
    rng: np.random.Generator,
) -> tuple[LatencyTable, dict[BlockVariant, float]]:
    """Draw random latencies and losses around the estimates."""
    latencies_ms, losses = {}, {}
    for variant, estimate in known.items():
        latency_doubt, loss_doubt = np.exp(rng.standard_normal(2) * (_LATENCY_DOUBT, _LOSS_DOUBT))
        measured = table.has(variant)
        ms = table.of(variant) if measured else expected_ms[variant] * latency_doubt
        latencies_ms[variant.content.sha256] = ms
        losses[variant] = estimate.loss * loss_doubt
    return table.model_copy(update={"latencies_ms": latencies_ms, "handover_ms": 0.0}), losses
