"""Run a worker: `python -m mistify_server.worker --store DIR`."""

from mistify_server.worker.loop import main

main()
