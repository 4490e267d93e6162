"""The light client: LiteRT and gRPC, no TensorFlow."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mistify_client.rpc.porting import PortingClient
    from mistify_client.rpc.tuning import TuningClient
    from mistify_client.runtime.model import PortedModel, load
    from mistify_client.tuning.trainer import PackageTrainer, load_trainer, write_weights

__all__ = [
    "PackageTrainer",
    "PortedModel",
    "PortingClient",
    "TuningClient",
    "load",
    "load_trainer",
    "write_weights",
]

#: Imported when they are asked for: a command that needs none of them does not wait for their libraries.
_MODULES = {
    "PortedModel": "runtime.model",
    "PortingClient": "rpc.porting",
    "PackageTrainer": "tuning.trainer",
    "TuningClient": "rpc.tuning",
    "load": "runtime.model",
    "load_trainer": "tuning.trainer",
    "write_weights": "tuning.trainer",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
