"""MLPerf Tiny's ResNet-8 ported by Mistify: our side of comparisons with peers."""

from pathlib import Path
from typing import Final, NamedTuple

import keras

from mistify.budget import FLOPS
from mistify_server.store.artifacts import Artifacts
from mistify_server.tasks import AdaptResult, AdaptTask, DataSource, ModelSource, SourceResult, SourceTask
from mistify_server.workshop import Workshop

TRAIN: Final = "cifar10/train.npz"
TEST: Final = "cifar10/test.npz"
SOURCE: Final = "mlperf_tiny/resnet8_cifar10.h5"
FILES: Final = (TRAIN, TEST, SOURCE)


class Reached(NamedTuple):
    """What one side makes of one goal: accuracy in percent, and the share of multiply-adds left."""

    accuracy: float
    share: float
    steps: int
    seconds: float


class Mistify:
    """Our side: the server's own tasks, done in this process."""

    def __init__(self, data: Path, directory: Path, steps: int, seed: int) -> None:
        self.files = DataSource(train=str(data / TRAIN), test=str(data / TEST))
        self._artifacts = Artifacts(directory)
        self._workshop = Workshop(self._artifacts, lambda progress: None)
        self._config: dict[str, object] = {
            "adapt_steps": steps // 3,
            "tune_steps": steps - steps // 3,
            "max_steps": steps,
        }
        self._seed = seed
        self._root = self._prepare(data / SOURCE)

    def source(self) -> keras.Model:
        """The tuned source that both sides start from."""
        return keras.models.load_model(self._artifacts.path(self._root.teacher), compile=False)

    def port(self, share: float) -> Reached:
        """One goal from the tuned source."""
        full = self._root.root_costs[FLOPS]
        result = self._workshop.do(
            AdaptTask(
                parent=self._root.root,
                teacher=self._root.teacher,
                data=self.files,
                algorithm="morphnet",
                algorithm_config=self._config,
                hardware={},
                budget={FLOPS: share * full},
                accuracy_target=None,
                seed=self._seed,
            )
        )
        if not isinstance(result, AdaptResult):
            raise TypeError(f"an adaptation gave {result}")
        return Reached(100 * result.accuracy, result.costs[FLOPS] / full, result.steps, result.seconds)

    def _prepare(self, model: Path) -> SourceResult:
        result = self._workshop.do(
            SourceTask(
                model=ModelSource(path=str(model)),
                data=self.files,
                algorithm="morphnet",
                algorithm_config=self._config,
                hardware={},
                exceed={},
                seed=self._seed,
            )
        )
        if not isinstance(result, SourceResult):
            raise TypeError(f"a source gave {result}")
        return result
