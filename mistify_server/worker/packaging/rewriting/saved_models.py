"""SavedModels rewritten into what the converter makes good networks of."""

from pathlib import Path

from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from mistify_server.worker.packaging.rewriting.dilation import fuse_dilations
from mistify_server.worker.packaging.rewriting.stable_operations import make_stable


def rewrite(directory: str) -> None:
    """Rewrite the operations of a SavedModel that the converter takes apart badly.

    Args:
        directory: The SavedModel's, which is written over.
    """
    path = Path(directory, "saved_model.pb")
    saved = SavedModel.FromString(path.read_bytes())
    graph = saved.meta_graphs[0].graph_def
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        fuse_dilations(nodes)
    make_stable(graph)
    path.write_bytes(saved.SerializeToString())
