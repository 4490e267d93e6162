"""The uploads of all tenants.

They share no file: content that two tenants send is stored twice, so that nobody can use, or find out, what
others have sent. They only share the limit on their total size.
"""

import logging
from pathlib import Path

from mistify.errors import MistifyError
from mistify_server.identity.tenants import ByTenant
from mistify_server.store.directory import Store
from mistify_server.store.upload_directories import directory_of, tenants_with_uploads
from mistify_server.store.uploads import Uploads

_log = logging.getLogger(__name__)


def open_uploads(store: Store, directory: Path, most_bytes: float) -> ByTenant[Uploads]:
    """Return the uploads of each tenant.

    Args:
        store: The store of all tenants.
        directory: The directory of all uploads.
        most_bytes: Limit on their total size.
    """

    def opened(tenant: str) -> Uploads:
        own = store.of(tenant)
        return Uploads(
            directory_of(directory, tenant),
            most_bytes,
            own.jobs.referenced_digests,
            most_sent=lambda sender: own.tokens.limits(sender).uploads,
            kept_by_all=lambda: kept_bytes(uploads),
            share=store.artifacts.share,
        )

    uploads = ByTenant(opened, tenants_with_uploads(directory))
    return uploads


def kept_bytes(uploads: ByTenant[Uploads]) -> int:
    """Return the total size of the uploads of all tenants, as in `Uploads.kept`."""
    return sum(each.kept for each in uploads.all())


def collect_uploads(uploads: ByTenant[Uploads]) -> int:
    """Remove the unused uploads of all tenants; return the number of bytes freed.

    The log says which could not be removed, which affects no other tenant.
    """
    return sum(map(_collected, uploads.all()))


def _collected(uploads: Uploads) -> int:
    try:
        return uploads.collect()
    except (OSError, MistifyError) as error:
        _log.warning("unused uploads could not be removed: %s", error)
    except Exception:  # the next attempt may succeed; otherwise, the disk would fill up
        _log.exception("unused uploads could not be removed because of an internal error")
    return 0
