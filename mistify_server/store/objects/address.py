"""Addresses of directories in buckets of S3."""

import re
from dataclasses import dataclass
from typing import Final

from mistify.parsing.validation import InvalidValue
from mistify_server.addresses import without_user

_ADDRESS: Final = re.compile(
    r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?P<prefix>(/[A-Za-z0-9_.=-]+)*)/?"
)

_EXPECTED: Final = "an address such as s3://bucket/mistify"


@dataclass(frozen=True)
class BucketAddress:
    """The address of a directory in a bucket: `s3://BUCKET[/PREFIX]`, without credentials.

    Attributes:
        prefix: Beginning of all keys of the directory: empty, or with a slash at its end.
    """

    bucket: str
    prefix: str

    @classmethod
    def of(cls, text: str) -> "BucketAddress":
        """Parse an address.

        Raises:
            InvalidValue: It is no address, or it contains credentials.
        """
        if "@" in text:
            raise InvalidValue(
                without_user(text),
                "an address without a key, which others could read",
                "put it into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or into ~/.aws/credentials",
            )
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise InvalidValue(
                text, _EXPECTED, "write s3://, the name of the bucket, and a directory in it if it has others"
            )
        prefix = match["prefix"].removeprefix("/")
        return cls(match["bucket"], f"{prefix}/" if prefix else "")

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".removesuffix("/")


def checked_bucket(text: str) -> str:
    """Return an address unchanged if it is valid.

    Raises:
        InvalidValue: It is not an address of a bucket, or it contains credentials.
    """
    BucketAddress.of(text)
    return text
