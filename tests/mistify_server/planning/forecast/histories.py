"""Records of past edges, and algorithms to choose from."""

from executors.contract.profile import AlgorithmProfile
from mistify_server.store.edges import EdgeFeatures, EdgeRecord
from mistify_server.tasks.estimates import NetworkFeatures

FEATURES = NetworkFeatures(model="m", kind="convolutional", blocks=2)

PROFILES = {
    "morphnet": AlgorithmProfile(adaptation=(0, *[100] * 32), tune_steps=600, max_steps=3000),
    "chamnet": AlgorithmProfile(
        preparation=(3000,) * 33,
        edge_overhead=2000,
        adaptation=(0, *[120] * 32),
        tune_steps=600,
        max_steps=3000,
    ),
}


def case(
    halvings: float = 1.0, *, subject: str = "own", algorithm: str = "morphnet", steps: int = 700
) -> EdgeFeatures:
    return EdgeFeatures(
        subject=subject,
        kind="convolutional",
        algorithm=algorithm,
        halvings=halvings,
        distance=1.0,
        share=1.0,
        steps=steps,
    )


def seen(case: EdgeFeatures, lost: float, seconds: float = 10.0, source: float = 0.8) -> EdgeRecord:
    return EdgeRecord(case=case, source_steps=200, source=source, lost=lost, seconds=seconds)
