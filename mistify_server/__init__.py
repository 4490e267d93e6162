"""The porting server: API, planning, jobs, store and training workers."""

from mistify.extras import require_extra

require_extra("server", "the server")
