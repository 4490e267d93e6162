"""Limits and keys on which both ends of a connection have to agree."""

from typing import Final

#: Trailing metadata of a failed call: the whole error, as an `ErrorInfo` message.
ERROR_METADATA: Final = "mistify-error-bin"

#: The largest message, in bytes: enough for a config text of maximum length (`mistify.parsing.jsonc`) in its
#: longest encoding, and for a job with all its goals if a caller requests no pages.
MAX_MESSAGE_BYTES: Final = 64 * 2**20

#: The largest metadata of a call, in bytes: enough for an error with all of its problems.
MAX_METADATA_BYTES: Final = 2**20
