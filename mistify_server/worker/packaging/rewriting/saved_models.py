"""Rewriting of SavedModels for better conversion."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from mistify_server.worker.packaging.rewriting.dilation import fuse_dilations
from mistify_server.worker.packaging.rewriting.integer_masks import keep_resolution
from mistify_server.worker.packaging.rewriting.integer_operations import use_integer_kernels
from mistify_server.worker.packaging.rewriting.integer_ranges import keep_ranges
from mistify_server.worker.packaging.rewriting.scattering import average_updates
from mistify_server.worker.packaging.rewriting.stable_operations import make_stable


@contextmanager
def rewritten(directory: str, *, integers: bool) -> Iterator[None]:
    """Rewrite, within the block, the operations of a SavedModel that the converter decomposes badly.

    Args:
        directory: The directory of the SavedModel.
        integers: Whether the network will use integer arithmetic.
    """
    path = Path(directory, "saved_model.pb")
    content = path.read_bytes()
    path.write_bytes(_rewritten(content, integers=integers))
    try:
        yield
    finally:
        path.write_bytes(content)


def _rewritten(content: bytes, *, integers: bool) -> bytes:
    saved = SavedModel.FromString(content)
    graph = saved.meta_graphs[0].graph_def
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        fuse_dilations(nodes)
    make_stable(graph)
    if integers:
        use_integer_kernels(graph)
        keep_resolution(graph)
        keep_ranges(graph)
    else:
        average_updates(graph)
    rewritten: bytes = saved.SerializeToString()
    return rewritten
