"""The light client: LiteRT and gRPC, no TensorFlow."""

from mistify_client.client import PortingClient
from mistify_client.runtime import PortedModel, load
from mistify_client.training import Trainer, load_trainer, write_weights
from mistify_client.tuning_client import TuningClient

__all__ = [
    "PortedModel",
    "PortingClient",
    "Trainer",
    "TuningClient",
    "load",
    "load_trainer",
    "write_weights",
]
