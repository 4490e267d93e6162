"""Latencies of inferences with exits, made comparable with each other."""

from typing import Any

import numpy as np
import numpy.typing as npt

from mistify_client.runtime.options import PackageOptions


def expected_stages(inferences: npt.NDArray[Any], options: PackageOptions) -> npt.NDArray[Any]:
    """Scale the latencies of inferences with exits to those expected of an average example.

    An inference takes longer if it runs more stages. Its latency relative to the usual one up to its last
    stage shows whether the device is slower or faster than expected.

    Args:
        inferences: An array of shape (n,) and dtype `runtime.statistics.INFERENCE`.
    """
    if options.exits is None:
        return inferences
    stages_ms = np.array([stage.latency_ms for stage in options.exits.stages])
    expected_ms = np.array([option.exits.latency_ms if option.exits else 0.0 for option in options.options])
    own_ms = expected_ms[inferences["option"]]
    usual_ms = stages_ms[np.minimum(inferences["stage"], len(stages_ms) - 1)]
    factors = np.where(own_ms > 0, own_ms / usual_ms, 1.0)
    changed = inferences.copy()
    for name in ("latency_ms", "computing_ms"):
        changed[name] *= factors
    return changed
