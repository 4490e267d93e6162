"""What a monitor keeps on disk, and what it shows."""
