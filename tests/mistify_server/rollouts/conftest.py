from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mistify_server.rollouts.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()
