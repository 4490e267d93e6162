"""The client: LiteRT and gRPC, without TensorFlow."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mistify.extras import require_extra

if TYPE_CHECKING:
    from mistify.errors import ErrorCode, MistifyError, Problem
    from mistify.package.manifest import Branch, Manifest, TensorInfo
    from mistify.package.option_kinds import OptionKind
    from mistify_client.assembly.engine import Engine
    from mistify_client.rpc.porting import PortingClient
    from mistify_client.rpc.tuning import TuningClient
    from mistify_client.runtime.loading import load
    from mistify_client.runtime.model import PortedModel
    from mistify_client.runtime.options import Option, OptionCosts, OptionScore
    from mistify_client.runtime.statistics import Statistics
    from mistify_client.tuning.trainer import PackageTrainer, load_trainer, write_weights

__all__ = [
    "Branch",
    "Engine",
    "ErrorCode",
    "Manifest",
    "MistifyError",
    "Option",
    "OptionCosts",
    "OptionKind",
    "OptionScore",
    "PackageTrainer",
    "PortedModel",
    "PortingClient",
    "Problem",
    "Statistics",
    "TensorInfo",
    "TuningClient",
    "load",
    "load_trainer",
    "write_weights",
]

#: Imported on first access, so that commands do not wait for libraries that they do not need.
_MODULES = {
    "Branch": "mistify.package.manifest",
    "Engine": "mistify_client.assembly.engine",
    "ErrorCode": "mistify.errors",
    "Manifest": "mistify.package.manifest",
    "MistifyError": "mistify.errors",
    "Option": "mistify_client.runtime.options",
    "OptionCosts": "mistify_client.runtime.options",
    "OptionKind": "mistify.package.option_kinds",
    "OptionScore": "mistify_client.runtime.options",
    "PackageTrainer": "mistify_client.tuning.trainer",
    "PortedModel": "mistify_client.runtime.model",
    "PortingClient": "mistify_client.rpc.porting",
    "Problem": "mistify.errors",
    "Statistics": "mistify_client.runtime.statistics",
    "TensorInfo": "mistify.package.manifest",
    "TuningClient": "mistify_client.rpc.tuning",
    "load": "mistify_client.runtime.loading",
    "load_trainer": "mistify_client.tuning.trainer",
    "write_weights": "mistify_client.tuning.trainer",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_extra("client", f"{__name__}.{name}")
    return getattr(import_module(_MODULES[name]), name)
