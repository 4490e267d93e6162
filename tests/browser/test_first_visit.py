"""The benchmark of pages counts what a browser loads on its first visit."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import Browser

from benchmarks.server.first_visit import visit

pytestmark = pytest.mark.web

SCRIPT = b"//" + b"x" * 200_000
PAGE = b"""<!doctype html><title>t</title><script src="/script.js" defer></script><h1>A page with a plot</h1>
<div class="plot"><svg class="main-svg" width="9" height="9"></svg></div>"""


class Handler(BaseHTTPRequestHandler):
    """Serves a page whose script may be cached."""

    def do_GET(self) -> None:
        """Answer with the page or its script."""
        content = SCRIPT if self.path == "/script.js" else PAGE
        self.send_response(200)
        self.send_header("content-type", "text/javascript" if content is SCRIPT else "text/html")
        self.send_header("cache-control", "max-age=3600")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


@contextmanager
def serving() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("slow", [False, True])
def test_each_visit_loads_and_paints_everything(browser: Browser, slow: bool) -> None:
    size = len(PAGE) + len(SCRIPT)
    with serving() as url:
        for _ in range(2):
            seen = visit(browser, url, slow=slow)
            assert seen.paint_ms > 0
            assert size < seen.transferred < size + 2_000
