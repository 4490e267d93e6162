"""S3 as the place of a store's artifacts, for machines without a shared disk."""
