"""What a browser needs for the page of a finished job with twenty goals, when it has nothing in its cache."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple
from urllib.request import urlopen

from benchmarks.harness.checkouts import serving
from benchmarks.harness.run import MissingDataError
from mistify.jobs.job import GoalState, Job, JobState
from mistify_client.rpc.porting import PortingClient

#: Number of goals. Three quarters of them limit the latency on one of these kinds of hardware.
GOALS: Final = 20
_HARDWARE: Final = ("raspberry-pi", "raspberry-pi-4", "raspberry-pi-5")

#: Steps that are enough for packages: their accuracies do not matter here.
_SETTINGS: Final = {"source_steps": 20, "adapt_steps": 6, "cuts": 2, "tune_steps": 4, "max_steps": 10}

#: A connection of 10 Mbit/s with 20 ms to the server.
_SLOW: Final = {
    "offline": False,
    "latency": 20,
    "downloadThroughput": 1.25e6,
    "uploadThroughput": 1.25e6,
}

#: The time of the last paint so far that was larger than all before, in milliseconds since the request.
_PAINT: Final = """() => new Promise((resolve) => {
  const kind = { type: "largest-contentful-paint", buffered: true };
  new PerformanceObserver((list) => resolve(list.getEntries().at(-1).startTime)).observe(kind);
})"""


class Visit(NamedTuple):
    """A visit: largest contentful paint in milliseconds, and bytes over the wire."""

    paint_ms: float
    transferred: float


class Visits(NamedTuple):
    """The medians of visits over the loopback interface, and over a slow connection."""

    fast: Visit
    slow: Visit


def compared_visits(checkouts: Mapping[str, Path], repetitions: int) -> dict[str, Visits]:
    """Return the visits to the page of the same job on servers of several checkouts, which take turns.

    Raises:
        MissingDataError: Playwright or Chromium is not installed.
    """
    with ExitStack() as opened:
        browser = opened.enter_context(_browser())
        pages = {name: opened.enter_context(_page_of_job(checkout)) for name, checkout in checkouts.items()}
        visits: dict[tuple[str, bool], list[Visit]] = {}
        for _ in range(repetitions + 1):
            for slow in (False, True):
                for name, url in pages.items():
                    visits.setdefault((name, slow), []).append(visit(browser, url, slow=slow))
        # The first visit of each server warms it up.
        return {
            name: Visits(*(_median(visits[name, slow][1:]) for slow in (False, True))) for name in checkouts
        }


def _config() -> str:
    return json.dumps([_goal(number) for number in range(GOALS)])


def _goal(number: int) -> dict[str, Any]:
    share, hardware = f"{0.9 - 0.02 * number:.2f}x", _HARDWARE[number % len(_HARDWARE)]
    limits = {"FLOP": share} if number % 4 == 3 else {"latency": share}
    return {
        "id": f"classifier-{hardware}-{share}",
        "model": "digits-resnet",
        "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
        "hardware": hardware,
        "quantization": "none",
        "algorithm": {"name": "morphnet", "config": _SETTINGS},
        "adaptation_goal": limits,
    }


@contextmanager
def _page_of_job(checkout: Path) -> Iterator[str]:
    """Run the job on a server of a checkout, and yield the address of its page."""
    with TemporaryDirectory() as store, serving(checkout, Path(store)) as addresses:
        url = addresses.url.rstrip("/")
        job = json.loads(_answer(f"{url}/v1/jobs", _config().encode()))["job"]["id"]
        _answer(f"{url}/v1/jobs/{job}/events")  # until the job ends
        # Over gRPC: the REST answer of 5daba0d1 cannot be written by later versions of FastAPI.
        with PortingClient(addresses.grpc) as client:
            check_packaged(client.job(job))
        yield f"{url}/jobs/{job}"


def check_packaged(job: Job) -> None:
    """Check that the job has ended with a package for each goal: other pages would need fewer bytes.

    Raises:
        RuntimeError: It has not; the message gives the states and reasons.
    """
    others = [goal for goal in job.goals if goal.state not in (GoalState.MET, GoalState.UNMET)]
    if job.state is not JobState.DONE or len(job.goals) != GOALS or others:
        reasons = "; ".join(f"{goal.id} is {goal.state.value}: {goal.reason}" for goal in others)
        raise RuntimeError(f"the job is {job.state.value}, {len(job.goals)} goals of {GOALS}: {reasons}")


def _answer(url: str, body: bytes | None = None) -> bytes:
    with urlopen(url, body) as answer:  # noqa: S310 - an address of our own server
        content: bytes = answer.read()
    return content


@contextmanager
def _browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only this part needs it
    except ImportError as error:
        raise MissingDataError("Playwright is not installed; pip install playwright") from error
    chromium = shutil.which("chromium")
    if chromium is None:
        raise MissingDataError("Chromium is not installed; apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


def visit(browser: Any, url: str, *, slow: bool) -> Visit:
    """Visit a page with plots, with nothing in the cache.

    Args:
        browser: A browser of Playwright.
        slow: Over a slow connection.
    """
    context = browser.new_context(viewport={"width": 1600, "height": 900})
    page = context.new_page()
    network = context.new_cdp_session(page)
    network.send("Network.enable")
    if slow:
        network.send("Network.emulateNetworkConditions", _SLOW)
    sizes: list[float] = []
    network.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto(url, wait_until="load")
    page.wait_for_selector(".plot .main-svg")
    paint = page.evaluate(_PAINT)
    context.close()
    return Visit(paint, sum(sizes))


def _median(visits: list[Visit]) -> Visit:
    return Visit(*(median(figures) for figures in zip(*visits, strict=True)))
