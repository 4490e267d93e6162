"""Migrations: how the database of a store is brought to the current schema when the store is opened."""
