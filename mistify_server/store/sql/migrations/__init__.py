"""Migrations, which bring the database of a store to the current schema when the store is opened."""
