"""Tuning of a package on the device, alone and with the help of peers (paper 5.1)."""

from mistify_client.examples import Examples
from mistify_client.tuning.examples import read_examples
from mistify_client.tuning.peers.exchange import Peering
from mistify_client.tuning.release import Privacy
from mistify_client.tuning.session import TuningOutcome, tune, withdraw
from mistify_client.tuning.training_loop import Score, TrainingSettings

__all__ = [
    "Examples",
    "Peering",
    "Privacy",
    "Score",
    "TrainingSettings",
    "TuningOutcome",
    "read_examples",
    "tune",
    "withdraw",
]
