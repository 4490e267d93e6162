"""PostgreSQL as the database of a store."""
