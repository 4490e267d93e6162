"""Published results of the records: `RESULTS.md`, the README's table and picture, and the missed targets."""
