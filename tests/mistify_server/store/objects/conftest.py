import pytest

from tests.support.buckets import BucketServer


@pytest.fixture
def address(bucket_server: BucketServer) -> str:
    """Return the address of a directory in a new bucket."""
    return bucket_server.new_bucket()
