"""Runs the scripted worker once there is a task.

Servers also start a worker for the next inspection, and most tests end before there is one.
"""

import select
import sys

if __name__ == "__main__":
    orders = select.poll()
    orders.register(sys.stdin, select.POLLIN)
    ((_, event),) = orders.poll()
    if event & select.POLLIN:  # not if the server has ended
        from mistify_server.worker.imports import quick_imports

        with quick_imports():
            from scripted_worker import main
        main()
