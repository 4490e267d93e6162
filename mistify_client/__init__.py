"""The light client: LiteRT and gRPC, no TensorFlow."""

from mistify_client.client import PortingClient
from mistify_client.runtime import PortedModel, load

__all__ = ["PortedModel", "PortingClient", "load"]
