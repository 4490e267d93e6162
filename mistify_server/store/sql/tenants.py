"""The tenants in the database."""

from sqlalchemy import select, union

from mistify_server.identity.callers import DEFAULT_TENANT
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.schema import FleetRow, RolloutRow, TokenRow


def tenants_of(database: Database) -> list[str]:
    """Return the tenants that have tokens, devices or roll-outs, and `default`, by name."""
    named = union(*(select(row.tenant) for row in (TokenRow, FleetRow, RolloutRow)))
    with database.read() as session:
        return sorted({DEFAULT_TENANT, *session.scalars(named)})
