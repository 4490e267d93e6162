"""What is published of the records: `RESULTS.md`, the README's table and picture, and what is missed."""
