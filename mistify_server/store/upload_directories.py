"""The directories of uploads: that of the tenant `default` is the one of all uploads, with those of others.

`tenants/NAME/` in it is the directory of another tenant.
"""

from pathlib import Path
from typing import Final

from mistify_server.identity.callers import DEFAULT_TENANT

#: Name of the directory of uploads in a store.
UPLOADS: Final = "uploads"

#: Directory of the directories of other tenants than `default`.
TENANTS: Final = "tenants"


def directory_of(directory: Path, tenant: str) -> Path:
    """Return the directory of a tenant's uploads, given that of all uploads."""
    return directory if tenant == DEFAULT_TENANT else directory / TENANTS / tenant


def tenants_with_uploads(directory: Path) -> list[str]:
    """Return the tenants that have sent something, and `default`."""
    return [DEFAULT_TENANT, *sorted(path.name for path in (directory / TENANTS).glob("*"))]
