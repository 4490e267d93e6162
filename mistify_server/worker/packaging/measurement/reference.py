"""Measurement of a float32 source in LiteRT, as the baseline for packages."""

from collections.abc import Iterable, Mapping

from executors.data import Dataset
from executors.outputs.objectives import OutputObjective
from mistify.costs.quantization import Quantization
from mistify_server.tasks.results import ReferenceResult
from mistify_server.tasks.sources import DataSource
from mistify_server.worker.packaging.measurement.accuracy import measure_accuracy
from mistify_server.worker.packaging.measurement.isolated import latency_of
from mistify_server.worker.packaging.measurement.package import measured_here
from mistify_server.worker.packaging.tflite.runner import Runner


def measure_reference(
    source: bytes,
    tuned: bytes,
    test: Dataset,
    objectives: Mapping[str, OutputObjective],
    *,
    data: DataSource,
    threads: Iterable[int],
) -> ReferenceResult:
    """Measure a source in the same way as packages.

    Args:
        source: A float32 `.tflite` of the source before tuning.
        tuned: A `.tflite` of the tuned source.
        objectives: Output -> its objective.
        data: The data source, which defines the metric.
        threads: Numbers of threads for which to measure the source's latency.
    """
    measured: dict[str, float] = {}
    for count in threads:
        measured |= measured_here(latency_of(source, count), Quantization.NONE)
    if data.settings.tasks is not None:
        return ReferenceResult(accuracy=None, tuned_accuracy=None, measured=measured)
    came, learned = (measure_accuracy(Runner(network), test, objectives, data) for network in (source, tuned))
    return ReferenceResult(
        accuracy=came.accuracy,
        tuned_accuracy=learned.accuracy,
        output_scores=came.outputs,
        tuned_output_scores=learned.outputs,
        measured=measured,
    )
