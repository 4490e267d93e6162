"""The command `mistify`."""

from mistify.extras import require_extra

require_extra("client", "the command mistify")
