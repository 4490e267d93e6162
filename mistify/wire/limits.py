"""Figures and keys that both ends of a connection have to agree on."""

from typing import Final

#: Trailing metadata of a failed call: the whole error, as an `ErrorInfo` message.
ERROR_METADATA: Final = "mistify-error-bin"

#: The largest message, in bytes: a config text of the greatest length (`mistify.parsing.jsonc`) in its
#: longest encoding is one, and so is a job with all its goals for callers that ask for no pages of them.
MAX_MESSAGE_BYTES: Final = 64 * 2**20

#: The largest metadata of a call, in bytes: an error arrives with all of its problems.
MAX_METADATA_BYTES: Final = 2**20
