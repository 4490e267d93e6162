"""The pages in a real browser: submitting and watching jobs, viewing results, downloading packages."""

import json
import os
import shlex
import subprocess
import sys
import sysconfig
import zipfile
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect
from sklearn.datasets import load_digits

from mistify_client import load
from tests.support.servers import web_server

pytestmark = [pytest.mark.web, pytest.mark.timeout(600)]

SETTINGS = {"source_steps": 40, "adapt_steps": 20, "cuts": 2, "tune_steps": 30}
CONFIG = [
    {
        "id": goal,
        "model": "digits-resnet",
        "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
        "adaptation_goal": {"FLOP": share},
        "algorithm": {"name": "morphnet", "config": SETTINGS},
    }
    for goal, share in (("phone", "0.6x"), ("watch", "0.3x"))
]


@pytest.fixture(scope="module")
def job(url: str) -> str:
    """Run a job to its end, and return its id."""
    with httpx.Client(base_url=url, timeout=400) as client:
        submitted = client.post("v1/jobs", content=json.dumps(CONFIG)).json()["job"]["id"]
        client.get(f"v1/jobs/{submitted}/events")  # all events, until the job ends
        assert client.get(f"v1/jobs/{submitted}").json()["job"]["state"] == "done"
    return str(submitted)


def submit(page: Page, url: str, config: object) -> None:
    page.goto(f"{url}submit")
    page.get_by_label("Config").fill(config if isinstance(config, str) else json.dumps(config, indent=1))
    page.get_by_role("button", name="Submit").click()


def test_a_job_is_submitted_in_the_editor_and_its_package_runs(
    page: Page, url: str, screenshots: Path, tmp_path: Path
) -> None:
    submit(page, url, CONFIG)
    heading = page.get_by_role("heading", level=1)
    expect(heading).not_to_have_text("Submit a config", timeout=120_000)
    job = heading.inner_text()
    assert urlsplit(page.url).path == f"/jobs/{job}"
    expect(page.locator("#progress li").first).to_contain_text("source", timeout=120_000)
    # No reload: the page follows the events.
    expect(page.locator(".title .state")).to_have_text("done", timeout=400_000)
    expect(page.locator("svg a")).to_have_count(2)
    expect(page.locator(".plot .main-svg").first).to_be_visible()
    expect(page.locator("#progress")).to_be_hidden()
    page.screenshot(path=screenshots / "job.png", full_page=True)
    page.goto(url)
    expect(page.get_by_role("link", name=job)).to_be_visible()
    page.screenshot(path=screenshots / "jobs.png")
    page.get_by_role("link", name=job).click()
    page.locator("svg a").first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("phone")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the package").click()
    download.value.save_as(tmp_path / "package.zip")
    with zipfile.ZipFile(tmp_path / "package.zip") as archive:
        archive.extractall(tmp_path)
    outputs = load(tmp_path / "phone")(np.zeros((3, 8, 8, 1), np.float32))
    assert outputs.shape == (3, 10)


def test_an_onnx_file_with_sizes_is_planned_in_the_editor(page: Page, tmp_path: Path) -> None:
    onnx_files = pytest.importorskip("tests.support.onnx_files")
    nodes = [
        *(onnx_files.node("Conv", "image kernel", "c"), onnx_files.node("GlobalAveragePool", "c", "g")),
        *(onnx_files.node("Flatten", "g", "f"), onnx_files.node("Gemm", "f head", "digit", transB=1)),
    ]
    weights = {"kernel": onnx_files.normal(8, 1, 3, 3), "head": onnx_files.normal(10, 8)}
    inputs = {"image": ["n", 1, "height", "width"]}
    proto = onnx_files.model(nodes, inputs, weights, outputs=["digit"])
    onnx_files.written(tmp_path / "net.onnx", proto)
    goal = {**CONFIG[0], "model": "net.onnx?image=1,8,8"}
    with web_server(tmp_path / "store", "--data-root", tmp_path) as url:
        page.goto(f"{url}submit")
        page.get_by_label("Config").fill(json.dumps([goal], indent=1))
        page.get_by_role("button", name="Plan").click()
        plan = page.locator("#answer h2")
        expect(plan).to_contain_text("Plan of net.onnx?image=1,8,8", timeout=120_000)


def test_chosen_files_are_sent_and_used(page: Page, url: str, tmp_path: Path) -> None:
    digits = load_digits()
    images, classes = (digits.images[..., None] / 16).astype(np.float32), digits.target
    np.savez(tmp_path / "train.npz", x=images[:1000], y=classes[:1000])
    np.savez(tmp_path / "test.npz", x=images[1000:1200], y=classes[1000:1200])
    page.goto(f"{url}submit")
    config = {**CONFIG[0], "dataset": {"train": "data/train.npz", "test": "test.npz"}}
    page.get_by_label("Config").fill(json.dumps([config], indent=1))
    page.get_by_label("Models and data").set_input_files([tmp_path / "train.npz", tmp_path / "test.npz"])
    expect(page.locator("#sent")).to_have_text("Sent train.npz, test.npz.")
    text = page.get_by_label("Config").input_value()
    for name in ("train.npz", "test.npz"):
        digest = sha256((tmp_path / name).read_bytes()).hexdigest()
        assert f'"upload:{digest}/{name}"' in text
        assert httpx.get(f"{url}v1/files/{digest}").json()["complete"]
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("heading", level=1)).not_to_have_text("Submit a config", timeout=120_000)
    expect(page.locator("main")).to_contain_text("training data train.npz, test data test.npz")


def test_a_click_on_a_point_leads_to_its_goal(page: Page, url: str, job: str) -> None:
    page.goto(f"{url}jobs/{job}")
    point = page.locator(".plot .points path.point").first
    expect(point).to_be_visible()
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator(".hoverlayer text").first).to_be_visible()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.get_by_role("heading", level=1)).to_have_text("phone")


def test_the_report_of_a_job_is_downloaded_or_viewed(page: Page, url: str, job: str, tmp_path: Path) -> None:
    page.goto(f"{url}jobs/{job}")
    with page.expect_download() as download:
        page.get_by_role("link", name="Report").click()
    download.value.save_as(tmp_path / "report.html")
    address = urlsplit(page.url)._replace(path=f"/v1{urlsplit(page.url).path}/report.html").geturl()
    for place in ((tmp_path / "report.html").as_uri(), address):
        page.goto(place)
        expect(page.locator(".plot .main-svg").first).to_be_visible()
        expect(page.locator(".goal th")).to_have_text(["phone", "watch"])


def test_the_commands_on_the_page_of_a_goal_load_its_package(
    page: Page, url: str, job: str, tmp_path: Path
) -> None:
    """The dependencies are those of this environment: nothing else is downloaded."""
    page.goto(f"{url}jobs/{job}/goals/phone")
    install, load_it = page.locator("pre code").all_inner_texts()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the package").click()
    with zipfile.ZipFile(download.value.path()) as archive:
        archive.extractall(tmp_path)
    alone = ["--no-deps", "--target", str(tmp_path / "installed")]
    subprocess.run([sys.executable, "-m", *shlex.split(install), *alone], check=True, capture_output=True)
    script = f"import numpy\ninputs = numpy.zeros((2, 8, 8, 1), 'float32')\n{load_it}\n"
    path = os.pathsep.join([str(tmp_path / "installed"), sysconfig.get_path("purelib")])
    done = subprocess.run(
        [sys.executable, "-c", f"{script}print(outputs.shape, mistify_client.__file__)"],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.stdout.split("\n")[0].endswith(f"(2, 10) {tmp_path}/installed/mistify_client/__init__.py")


def test_mistakes_are_marked_at_their_lines(browser: Browser, url: str, screenshots: Path) -> None:
    # Chromium itself logs the response 400 on the console, so console errors are ignored.
    page = browser.new_page()
    text = json.dumps([{**CONFIG[0], "adaptation_goal": {"FLOP": "fast"}}], indent=1)
    submit(page, url, text)
    wrong = 1 + text[: text.index('"FLOP"')].count("\n")
    expect(page.locator("#lines .wrong")).to_have_text(str(wrong))
    expect(page.locator("#answer li")).to_contain_text("[0].adaptation_goal.FLOP")
    page.get_by_role("link", name=f"line {wrong}").click()
    chosen = page.evaluate("config.value.slice(config.selectionStart, config.selectionEnd)")
    assert chosen.strip() == '"FLOP": "fast"'
    page.screenshot(path=screenshots / "submit.png")
    assert page.url.endswith("/submit")
    page.close()


def test_a_plan_is_shown_and_starts_nothing(page: Page, url: str) -> None:
    page.goto(url)
    before = page.locator("tbody tr").count()
    page.goto(f"{url}submit")
    page.get_by_label("Config").fill(json.dumps(CONFIG))
    page.get_by_role("button", name="Plan").click()
    expect(page.locator("#answer tbody tr")).to_have_count(3, timeout=200_000)
    expect(page.locator("#answer")).to_contain_text("watch")
    page.goto(url)
    expect(page.locator("tbody tr")).to_have_count(before)


def test_markup_in_names_is_shown_as_text(page: Page, url: str) -> None:
    """Ids of goals cannot contain markup, but names of models can, and appear in errors and plans."""
    evil = "<img src=x onerror=document.title=1>"
    page.goto(url + "submit")
    problem = {"place": evil, "line": None, "value": evil, "expected": evil, "fix": evil}
    page.evaluate("details => showProblems(details)", {"detail": evil, "problems": [problem]})
    expect(page.locator("#answer img")).to_have_count(0)
    expect(page.locator("#answer p")).to_have_text(evil)
    assert "1" not in page.title()


def test_with_a_token_a_browser_logs_in_and_out(browser: Browser, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("correct horse battery staple")
    token.chmod(0o600)
    with web_server(tmp_path / "store", "--token-file", token) as url:
        page = browser.new_page()
        page.goto(f"{url}fleet")
        assert urlsplit(page.url).path == "/login"
        page.get_by_label("token").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("#answer")).to_contain_text("token")
        page.get_by_label("token").fill("correct horse battery staple")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Fleet")
        assert page.evaluate("document.cookie") == ""
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
        page.goto(f"{url}fleet")
        assert urlsplit(page.url).path == "/login"
        page.close()


def test_a_page_of_another_site_can_neither_read_nor_start_anything(
    browser: Browser, url: str, tmp_path: Path
) -> None:
    page = browser.new_page()
    (tmp_path / "evil.html").write_text("<p>evil</p>")
    page.goto((tmp_path / "evil.html").as_uri())
    script = """async ([address, body]) => {
      const read = await fetch(address).then(() => "read", () => "refused");
      await fetch(address, {method: "POST", body, mode: "no-cors"}).catch(() => null);
      return read;
    }"""
    page.goto(url)
    before = page.locator("tbody tr").count()
    page.goto((tmp_path / "evil.html").as_uri())
    assert page.evaluate(script, [f"{url}v1/jobs", json.dumps(CONFIG)]) == "refused"
    page.goto(url)
    expect(page.locator("tbody tr")).to_have_count(before)
    page.close()


@pytest.mark.parametrize("path", ["", "submit", "fleet", "login"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_the_width_of_a_phone(browser: Browser, url: str, path: str, scheme: str) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 740}, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(url + path)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()


def test_goals_are_added_to_a_job_that_is_then_copied_and_removed(page: Page, url: str, job: str) -> None:
    page.goto(f"{url}jobs/{job}")
    page.get_by_role("link", name="Add goals").click()
    expect(page.get_by_role("button", name="Plan")).to_have_count(0)
    added = [{"id": "badge", "adaptation_goal": {"FLOP": "0.8x"}}]
    page.get_by_label("Config").fill(json.dumps(added))
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("main")).to_contain_text("badge", timeout=120_000)
    expect(page.locator(".title .state")).to_have_text("done", timeout=400_000)
    with page.expect_download() as downloaded:
        page.get_by_role("link", name="All packages").click()
    with zipfile.ZipFile(downloaded.value.path()) as packages:
        assert {name.split("/")[0] for name in packages.namelist()} == {"phone", "watch", "badge"}
    page.get_by_role("link", name="Copy config").click()
    expect(page.get_by_label("Config")).to_have_value(json.dumps(CONFIG))
    page.go_back()
    page.get_by_role("button", name="Remove").click()
    expect(page.locator("p.removed")).to_contain_text("This job is removed")
    page.goto(url)
    expect(page.locator("main")).not_to_contain_text(job)
