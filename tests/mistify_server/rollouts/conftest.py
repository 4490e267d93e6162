from collections.abc import Iterator
from pathlib import Path

import pytest

from mistify_server.identity.callers import LOCAL
from tests.mistify_server.rollouts.site import Site
from tests.support.callers import called_by


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    with called_by(LOCAL):
        yield site
    site.close()
