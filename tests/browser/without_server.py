"""Pages in a browser without a server."""

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from playwright.sync_api import Page, Route

import mistify_server.web

_STATIC: Final = Path(mistify_server.web.__file__).parent / "static"

#: A stub of the plotting library with the functions used for curves and trade-offs.
_PLOTLY: Final = """window.Plotly = {
  react(place, data) { place.data = data; },
  newPlot(place, data) { place.data = data; place.on = () => {}; },
};"""


def open_page(page: Page, html: str, path: str) -> None:
    """Open a page as if a server delivered it at a path, with its scripts and styles."""

    def answer(route: Route) -> None:
        asked = urlsplit(route.request.url).path
        if asked == "/static/plotly.js":
            route.fulfill(body=_PLOTLY, content_type="text/javascript")
        elif asked.startswith("/static/"):
            route.fulfill(path=_STATIC / asked.removeprefix("/static/"))
        else:
            route.fulfill(body=html, content_type="text/html")

    page.route("http://mistify.test/**", answer)
    page.goto(f"http://mistify.test{path}")
