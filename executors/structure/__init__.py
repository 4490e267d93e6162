"""The structure of Keras models, and structural changes.

`analyse(model)` finds the channel groups; `narrow` and `widen` change their widths.
`residual_blocks` finds removable blocks. `segments` finds where a network can be divided; `in_series` and
`in_parallel` compose graphs; `model_of` turns a graph into a model; `model_with` also replaces layers.
`at_resolution` reduces the image size. `fold_batch_norm` prepares a model for packaging.
"""

from executors.structure.analysis import Structure, Widths, analyse, trainable_weights
from executors.structure.channels import ChannelGroup, Role, Slot
from executors.structure.composition import in_parallel, in_series, model_of, model_with
from executors.structure.edits.depth import (
    ResidualBlock,
    removable_blocks,
    remove_blocks,
    remove_named_blocks,
    residual_blocks,
)
from executors.structure.edits.resolution import at_resolution, resolution
from executors.structure.edits.splitting import freeze, shareable_base, split
from executors.structure.edits.widths import (
    Keep,
    averaged_groups,
    narrow,
    narrow_arrays,
    widen,
    widened,
)
from executors.structure.empty_means import with_finite_means
from executors.structure.errors import UnsupportedLayerError
from executors.structure.folding import fold_batch_norm, foldable
from executors.structure.graph import set_weights
from executors.structure.handlers import LayerHandler, register
from executors.structure.reading.reader import calls, copied, tensors
from executors.structure.rules import Rules, unmatched
from executors.structure.segments import Segment, segments

__all__ = [
    "ChannelGroup",
    "Keep",
    "LayerHandler",
    "ResidualBlock",
    "Role",
    "Rules",
    "Segment",
    "Slot",
    "Structure",
    "UnsupportedLayerError",
    "Widths",
    "analyse",
    "at_resolution",
    "averaged_groups",
    "calls",
    "copied",
    "fold_batch_norm",
    "foldable",
    "freeze",
    "in_parallel",
    "in_series",
    "model_of",
    "model_with",
    "narrow",
    "narrow_arrays",
    "register",
    "removable_blocks",
    "remove_blocks",
    "remove_named_blocks",
    "residual_blocks",
    "resolution",
    "segments",
    "set_weights",
    "shareable_base",
    "split",
    "tensors",
    "trainable_weights",
    "unmatched",
    "widen",
    "widened",
    "with_finite_means",
]
