"""Migrations, which update a store's database to the current schema when the store is opened."""
