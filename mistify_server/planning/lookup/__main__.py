"""Look up the names in a config, without a server: `python -m mistify_server.planning.lookup --store DIR`.

Reads the config from standard input, and writes all problems to standard output as a JSON list.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from mistify.errors import MistifyError, Problem
from mistify_server.planning.lookup.data_roots import DataRoots
from mistify_server.planning.lookup.models import ModelRepository
from mistify_server.planning.lookup.reading import read_and_resolve
from mistify_server.planning.lookup.resolver import BatchResolver
from mistify_server.store.directory import open_store


def main() -> None:
    """Look up names like a server started for a single command, with the same store and data roots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--data-root", type=Path, action="append", default=[])
    options = parser.parse_args()
    text = sys.stdin.read()
    with open_store(options.store) as store:
        models = ModelRepository(store.models, store.artifacts)
        roots = DataRoots.of(options.data_root, options.store)
        resolver = BatchResolver(models, roots, store.devices, allow_code=True, opens_models=True)
        problems: Sequence[Problem] = ()
        try:
            read_and_resolve(text, resolver, sys.maxsize)
        except MistifyError as error:
            problems = error.problems
    json.dump([asdict(problem) for problem in problems], sys.stdout)


main()
