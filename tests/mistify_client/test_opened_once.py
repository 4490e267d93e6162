"""`load` and `mistify adapt` open each file of a package once, as counted by Python's audit hooks."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from mistify.package.blocks import BLOCKS
from mistify.package.manifest import MANIFEST, NETWORK, Manifest
from mistify_client.assembly.pool import POOL
from mistify_client.runtime.versions import install, state_directory
from tests.mistify_client.pools import (
    FAST,
    SUBNETS,
    make_block_package,
    make_elastic_package,
    write_pool,
)
from tests.support import elastic_stores

#: Runs a program, and prints how often it opened each file below the given directories.
COUNTED = """
import json, os, sys
from collections import Counter

program, *roots = sys.argv[1:]
opened = Counter()


def count(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if any(path.startswith(os.path.realpath(root) + os.sep) for root in roots) and os.path.isfile(path):
            opened[path] += 1


sys.addaudithook(count)
exec(program)
print(json.dumps(opened))
"""

LOADS = "from mistify_client import load; load(roots[0])"

ADAPTS = """
from pathlib import Path
from mistify.parsing.quantities import parse_time
from mistify_client.subnets.search_session import adapt
adapt(Path(roots[0]), Path(roots[0]).with_name("mine.npz"), parse_time("0.9x"), seconds=1e-3)
"""


def opened(program: str, *roots: Path) -> Counter[Path]:
    """Return how often a program opened each file in the given directories."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, program, *map(str, roots)], capture_output=True, text=True, check=True
    )
    counts = json.loads(done.stdout.splitlines()[-1])
    return Counter({Path(path): count for path, count in counts.items()})


def once(directory: Path, names: Iterable[str]) -> Counter[Path]:
    return Counter(directory / name for name in set(names))


def all_once(directory: Path) -> Counter[Path]:
    return Counter(directory.iterdir())


def test_load_opens_each_file_of_a_package_once(data, tmp_path):
    """This includes the training network, of which only the digest is checked."""
    package = tmp_path / "package"
    package.mkdir()
    for name in (MANIFEST, *Manifest.load(data / "trainable").files):
        (package / name).write_bytes((data / "trainable" / name).read_bytes())
    assert len(all_once(package)) > 2
    assert opened(LOADS, package) == all_once(package)


@pytest.mark.parametrize("files", [FAST, (NETWORK,)])
def test_load_opens_only_the_blocks_that_run_and_only_once(tmp_path, files):
    package = make_block_package(tmp_path / "package")
    write_pool(package, [SUBNETS[0].model_copy(update={"files": files})])
    pool = state_directory(package) / POOL
    counts = opened(LOADS, package, state_directory(package))
    assert counts[pool] == 1
    in_package = Counter({path: count for path, count in counts.items() if path.parent == package})
    assert in_package == once(package, (MANIFEST, BLOCKS, NETWORK, *files))


def test_load_of_a_later_version_opens_its_files_and_the_shipped_manifest_once(tmp_path):
    package = make_block_package(tmp_path / "package")
    (tmp_path / "next").mkdir()
    version = install(package, make_block_package(tmp_path / "next" / "package"))
    counts = opened(LOADS, package, version)
    assert counts == once(package, (MANIFEST, BLOCKS)) + once(version, (MANIFEST, BLOCKS, NETWORK))


@pytest.mark.parametrize("adapted_before", [False, True])
def test_adapt_opens_each_file_of_a_package_once(tmp_path, adapted_before):
    """Blocks are verified, measured in several rounds, and reloaded if memory is short."""
    package = make_elastic_package(tmp_path / "package")
    np.savez(tmp_path / "mine.npz", x=elastic_stores.digits()[0][1000:1050])
    if adapted_before:
        opened(ADAPTS, package)
    assert opened(ADAPTS, package) == all_once(package)
