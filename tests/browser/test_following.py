"""A page that follows a job, with the test as its server and clock."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from playwright.sync_api import Page, expect
from pydantic import TypeAdapter

from mistify.jobs.details import GoalDetails
from mistify.jobs.job import Goal, GoalState, Job, JobEvent, JobState, ProgressUpdate
from mistify.jobs.package_spec import PackageSpec
from tests.browser.without_server import open_page
from tests.support.rendered import goal_page, job_page

pytestmark = pytest.mark.web

#: A fake server within the page: event streams, and requests that wait for their responses.
SERVER: Final = """
window.streams = [];
window.requests = [];
window.EventSource = class extends EventTarget {
  static CLOSED = 2;
  readyState = 1;
  constructor(url) { super(); this.url = url; window.streams.push(this); }
  close() { this.readyState = 2; }
};
window.fetch = () => new Promise((resolve, reject) => { window.requests.push({ resolve, reject }); });
"""

KINDS: Final = {JobState: "job", GoalState: "goal", ProgressUpdate: "progress"}
JOB: Final = Job(
    "j",
    JobState.RUNNING,
    tuple(
        Goal(f"goal-{n}", 0, PackageSpec({"flops": 1.0}), parent=f"goal-{n - 1}" if n else None)
        for n in range(12)
    ),
    0,
)
DONE: Final = replace(
    JOB, state=JobState.DONE, goals=tuple(replace(goal, state=GoalState.MET) for goal in JOB.goals)
)


class Followed:
    """A page that follows a job, and its fake server."""

    def __init__(self, page: Page, html: str) -> None:
        self.page = page
        page.clock.install()
        page.add_init_script(SERVER)
        open_page(page, html, "/jobs/j")

    def send_event(
        self, sequence: int, event: JobState | GoalState | ProgressUpdate, goal: str | None = None
    ) -> None:
        """Send an event to the page."""
        data = TypeAdapter(JobEvent).dump_json(JobEvent(sequence, 0, goal, event)).decode()
        script = "([kind, data]) => streams.at(-1).dispatchEvent(new MessageEvent(kind, { data }))"
        self.page.evaluate(script, [KINDS[type(event)], data])

    def wait(self, seconds: float) -> int:
        """Advance the clock, and return the number of pending requests."""
        self.page.clock.run_for(int(1000 * seconds))
        return int(self.page.evaluate("requests.length"))

    def answer(self, html: str, status: int = 200) -> None:
        """Respond to the oldest pending request."""
        script = """([html, status]) => requests.shift().resolve(
          { ok: status === 200, status, text: async () => html })"""
        self.page.evaluate(script, [html, status])

    def hide(self, state: str) -> None:
        """Hide this tab behind another one, or show it again."""
        script = """state => {
          for (const [name, value] of [["visibilityState", state], ["hidden", state === "hidden"]]) {
            Object.defineProperty(document, name, { value, configurable: true });
          }
          document.dispatchEvent(new Event("visibilitychange"));
        }"""
        self.page.evaluate(script, state)

    @property
    def streams(self) -> list[str]:
        """Return the addresses of the open streams."""
        return list(self.page.evaluate("streams.filter(each => each.readyState < 2).map(each => each.url)"))

    @property
    def state(self) -> str:
        """Return the state of the job shown on the page."""
        return self.page.locator(".title .state").inner_text()


Follow = Callable[[str], Followed]


@pytest.fixture
def follow(page: Page) -> Follow:
    return lambda html: Followed(page, html)


def test_one_refresh_ends_before_the_next_begins(follow: Follow) -> None:
    followed = follow(job_page(JOB, after=5))
    followed.send_event(6, GoalState.RUNNING, "goal-0")
    assert followed.wait(1) == 1
    followed.send_event(7, GoalState.MET, "goal-0")
    assert followed.wait(1) == 1
    followed.answer(job_page(JOB, after=6))
    assert followed.wait(1) == 1
    followed.answer(job_page(DONE, after=7))
    assert followed.state == "done"
    assert (followed.streams, followed.wait(9)) == ([], 0)


def test_a_failed_refresh_is_repeated(follow: Follow) -> None:
    followed = follow(job_page(JOB, after=5))
    followed.send_event(6, JobState.DONE)
    followed.wait(1)
    followed.page.evaluate("requests.shift().reject(new TypeError('no network'))")
    assert followed.wait(2) == 1
    followed.answer("Bad gateway", 502)
    assert followed.wait(2) == 1
    followed.answer(job_page(DONE, after=6))
    assert followed.state == "done"


@pytest.mark.parametrize("status", [401, 404])
def test_without_access_or_job_the_page_is_reloaded(follow: Follow, status: int) -> None:
    followed = follow(job_page(JOB, after=5))
    followed.page.evaluate("window.old = true")
    followed.send_event(6, JobState.CANCELLED)
    followed.wait(1)
    followed.answer("", status)
    followed.page.wait_for_function("window.old === undefined")


def test_a_response_older_than_the_shown_page_is_requested_again(follow: Follow) -> None:
    followed = follow(job_page(JOB, after=5))
    followed.send_event(6, JobState.RUNNING)
    followed.wait(1)
    followed.answer(job_page(replace(JOB, state=JobState.QUEUED), after=4))
    assert followed.state == "running"
    assert followed.wait(2) == 1


def test_points_newer_than_the_page_are_kept_on_the_curves(follow: Follow) -> None:
    goal = replace(JOB.goals[0], state=GoalState.RUNNING)
    point = ProgressUpdate("adapting", 1, 90, loss=0.9)
    followed = follow(goal_page(JOB, goal, GoalDetails(None, (point,), 5)))
    followed.send_event(6, replace(point, step=2, loss=0.8), goal.id)
    followed.send_event(7, GoalState.RUNNING, goal.id)
    followed.wait(1)
    followed.send_event(8, replace(point, step=3, loss=0.7), goal.id)
    followed.answer(goal_page(JOB, goal, GoalDetails(None, (point, replace(point, step=2, loss=0.8)), 7)))
    losses = followed.page.evaluate("document.querySelector('#curves .plot').data[0].y")
    assert losses == [0.9, 0.8, 0.7]


def test_a_refused_stream_is_reopened_where_it_ended(follow: Follow) -> None:
    followed = follow(job_page(JOB, after=5))
    followed.send_event(6, ProgressUpdate("adapting", 1, 2), "goal-0")
    refuse = "streams.at(-1).close(); streams.at(-1).dispatchEvent(new Event('error'))"
    for _ in range(2):
        followed.page.evaluate(refuse)
        assert followed.wait(5) == 1
        followed.answer("Bad gateway", 502)
        assert followed.streams == ["/v1/jobs/j/events?after=6"]
        followed.wait(2)
        followed.answer(job_page(JOB, after=6))
    followed.page.evaluate(refuse)
    followed.wait(5)
    with followed.page.expect_navigation():  # which the server redirects to the login page
        followed.answer("", 401)


def test_a_hidden_tab_keeps_no_connection(follow: Follow) -> None:
    followed = follow(job_page(JOB, after=5))
    assert followed.streams == ["/v1/jobs/j/events?after=5"]
    followed.send_event(6, GoalState.RUNNING, "goal-0")
    followed.hide("hidden")
    assert (followed.streams, followed.wait(9)) == ([], 0)
    followed.hide("visible")
    followed.answer(job_page(JOB, after=9))
    assert followed.streams == ["/v1/jobs/j/events?after=6"]
    followed.hide("hidden")
    followed.hide("visible")
    followed.answer(job_page(DONE, after=12))
    assert (followed.state, followed.streams) == ("done", [])


@pytest.mark.parametrize(
    "focused", ["tbody a[href$='goal-3']", "svg a[href$='goal-3']", "[data-send$='/cancel']"]
)
def test_a_refresh_preserves_focus_and_scroll_positions(follow: Follow, focused: str) -> None:
    followed = follow(job_page(JOB, after=5))
    followed.page.set_viewport_size({"width": 600, "height": 400})
    place = "[document.querySelector('.tree').scrollLeft, scrollY]"
    followed.page.locator(focused).focus()
    followed.page.evaluate("document.querySelector('.tree').scrollLeft = 333; scrollTo(0, 77)")
    followed.send_event(6, GoalState.RUNNING, "goal-0")
    followed.wait(1)
    followed.page.evaluate("document.querySelector('#live').marked = true")
    followed.answer(job_page(JOB, after=6))
    assert followed.page.evaluate("document.querySelector('#live').marked") is None
    expect(followed.page.locator(focused)).to_be_focused()
    assert followed.page.evaluate(place) == [333, 77]


def test_only_the_new_line_of_progress_changes(follow: Follow) -> None:
    started = [JobEvent(n, n, f"goal-{n}", ProgressUpdate("adapting", 1, 2)) for n in range(2)]
    followed = follow(job_page(JOB, 5, started))
    lines = followed.page.locator("#progress li")
    lines.first.evaluate("line => { line.firstChild.marked = true; }")
    followed.send_event(6, ProgressUpdate("adapting", 2, 2), "goal-1")
    expect(lines).to_have_text(["goal-0: adapting, step 1 of 2", "goal-1: adapting, step 2 of 2"])
    assert lines.first.evaluate("line => line.firstChild.marked")
    followed.send_event(7, GoalState.MET, "goal-0")
    followed.send_event(8, ProgressUpdate("packaging", 0, 0), "goal-1")
    expect(lines).to_have_text(["goal-1: packaging"])


def test_bars_follow_the_steps_of_goals_and_the_work_of_the_job(follow: Follow) -> None:
    """What events show is what a page loaded after them shows."""
    updates = [
        ProgressUpdate("adapting", 1_500, 3_000, job_share=0.25, seconds_left=99.4),
        ProgressUpdate("packaging", 0, 1, job_share=0.75, seconds_left=7_200.0),
    ]
    events = [JobEvent(number, number, "goal-1", update) for number, update in enumerate(updates, 6)]
    followed = follow(job_page(JOB, 5))
    shown = []
    for event, left in zip(events, ("99 s", "2.0 h"), strict=True):
        followed.send_event(event.sequence, event.event, event.goal_id)
        expect(followed.page.locator("#left")).to_have_text(f", about {left} left")
        shown.append(bars(followed.page))
    assert shown == [[0.25, 1, 1_500, 3_000], [0.75, 1, 1_500, 3_000]]
    line = followed.page.locator("#progress li").inner_text()
    followed.page.unroute_all()
    open_page(followed.page, job_page(JOB, 7, events), "/jobs/j")
    assert bars(followed.page) == shown[-1]
    expect(followed.page.locator("#left")).to_have_text(", about 2.0 h left")
    assert followed.page.locator("#progress li").inner_text() == line == "goal-1: packaging "


def bars(page: Page) -> list[float]:
    """Return the value and the maximum of each bar."""
    values: list[float] = page.evaluate(
        "[...document.querySelectorAll('progress')].flatMap((bar) => [bar.value, bar.max])"
    )
    return values


def test_only_changes_of_state_are_announced_to_screen_readers(follow: Follow) -> None:
    followed = follow(job_page(JOB, after=5))
    aloud = followed.page.locator("[aria-live]")
    followed.send_event(6, ProgressUpdate("adapting", 1, 2), "goal-1")
    expect(aloud).to_have_text("")
    followed.send_event(7, GoalState.MET, "goal-1")
    expect(aloud).to_have_text("goal-1: met")
    followed.wait(1)
    followed.answer(job_page(JOB, after=7))
    expect(aloud).to_have_text("goal-1: met")
    followed.send_event(8, JobState.DONE)
    expect(aloud).to_have_text("j: done")
