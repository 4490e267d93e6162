"""Make the packages with blocks that the tests of lending run: a small residual network with random weights.

Run `python -m tests.data.make_blocks` once with the server's dependencies. Tests only read the files.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from mistify.costs.quantization import Quantization
from mistify.package.blocks import BLOCKS, BlockStore
from tests.mistify_client.pools import list_files, make_block_package
from tests.support.block_stores import ORIGINAL

HERE = Path(__file__).parent
PACKAGES = {Quantization.NONE: "blocks", Quantization.INT8: "blocks_int8"}

if __name__ == "__main__":
    for precision, name in PACKAGES.items():
        with TemporaryDirectory() as scratch:
            package = make_block_package(Path(scratch) / "package", precision)
            store = BlockStore.load(package).model_copy(update={"served": ORIGINAL})
            (package / BLOCKS).write_text(store.model_dump_json())
            list_files(package)
            shutil.rmtree(HERE / name, ignore_errors=True)
            shutil.copytree(package, HERE / name)
