"""Running converted networks: latency, accuracy, and what a precision has brought."""
