"""The uploads of all tenants.

They share no file: content that two tenants send is stored twice, so that nobody can use, or find out, what
others have sent. They only share the limit on their total size.
"""

from pathlib import Path

from mistify_server.identity.tenants import ByTenant
from mistify_server.store.directory import Store
from mistify_server.store.upload_directories import directory_of, tenants_with_uploads
from mistify_server.store.uploads import Uploads


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

    Raises:
        MistifyError: The store cannot be read to find the files that jobs refer to.
        OSError: A file cannot be removed.
    """
    return sum(each.collect() for each in uploads.all())
