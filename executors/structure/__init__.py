"""What a Keras model is made of, and how its widths are changed.

`analyse(model)` finds the channel groups; `narrow` and `widen` change their widths;
`residual_blocks` finds what can be left out; `at_resolution` makes images smaller;
`fold_batch_norm` prepares a model for packaging.
"""

from executors.structure.analysis import Structure, Widths, analyse
from executors.structure.channels import ChannelGroup, Role, Slot
from executors.structure.depth import ResidualBlock, residual_blocks, shallower
from executors.structure.errors import UnsupportedLayerError
from executors.structure.folding import fold_batch_norm, foldable
from executors.structure.graph import set_weights
from executors.structure.handlers import LayerHandler, register
from executors.structure.reading import calls, copied, tensors
from executors.structure.resolution import at_resolution, resolution
from executors.structure.splitting import freeze, shareable_base, split
from executors.structure.surgery import Keep, narrow, narrow_arrays, widen, widened

__all__ = [
    "ChannelGroup",
    "Keep",
    "LayerHandler",
    "ResidualBlock",
    "Role",
    "Slot",
    "Structure",
    "UnsupportedLayerError",
    "Widths",
    "analyse",
    "at_resolution",
    "calls",
    "copied",
    "fold_batch_norm",
    "foldable",
    "freeze",
    "narrow",
    "narrow_arrays",
    "register",
    "residual_blocks",
    "resolution",
    "set_weights",
    "shallower",
    "shareable_base",
    "split",
    "tensors",
    "widen",
    "widened",
]
