"""Answer calls on an inherited socket: `python -m mistify.isolation DESCRIPTOR`."""

import signal
import sys
from multiprocessing.connection import Connection

from mistify.isolation.calls import answer_calls

signal.signal(signal.SIGINT, signal.SIG_IGN)  # the calling process handles Ctrl-C
answer_calls(Connection(int(sys.argv[1])))
