"""Server benchmarks: large jobs, many jobs, interruptions, pages."""
