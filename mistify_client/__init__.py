"""The light client: LiteRT and gRPC, no TensorFlow."""

from mistify_client.rpc.porting import PortingClient
from mistify_client.rpc.tuning import TuningClient
from mistify_client.runtime.model import PortedModel, load
from mistify_client.tuning.trainer import Trainer, load_trainer, write_weights

__all__ = [
    "PortedModel",
    "PortingClient",
    "Trainer",
    "TuningClient",
    "load",
    "load_trainer",
    "write_weights",
]
