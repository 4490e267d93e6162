"""Addresses of directories in buckets, which never contain a key."""

import pytest

from mistify.parsing.validation import InvalidValue
from mistify_server.store.objects.address import BucketAddress

SECRET = "s3cret"  # noqa: S105


@pytest.mark.parametrize(
    ("text", "bucket", "prefix"),
    [
        ("s3://models/mistify", "models", "mistify/"),
        ("s3://models/team=vision/mistify_1/", "models", "team=vision/mistify_1/"),
        ("s3://models.example.org", "models.example.org", ""),
    ],
)
def test_an_address_has_a_bucket_and_a_directory(text: str, bucket: str, prefix: str) -> None:
    address = BucketAddress.of(text)
    assert (address.bucket, address.prefix) == (bucket, prefix)
    assert str(address) == text.removesuffix("/")


@pytest.mark.parametrize("text", [f"s3://AKIA:{SECRET}@models/mistify", f"models:{SECRET}@host"])
def test_a_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"without a key.*AWS_SECRET_ACCESS_KEY") as raised:
        BucketAddress.of(text)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    ["", "models", "s3://", "s3://m", "s3://Models/x", "s3://models//x", "s3:/models", "gs://models/x"],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="expected an address such as s3://"):
        BucketAddress.of(text)
