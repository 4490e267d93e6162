"""The page of a goal in a real browser: its layers, and its training curves while they grow."""

import json
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from ai_edge_litert.tools import flatbuffer_utils
from playwright.sync_api import Browser, Page, expect

pytestmark = [pytest.mark.web, pytest.mark.timeout(600)]

#: Long enough to be watched on a fast machine, with two limits, so that both have weights.
SETTINGS = {"source_steps": 20, "adapt_steps": 200, "cuts": 8, "schedule_interval": 50, "tune_steps": 1000}
CONFIG = {
    "id": "phone",
    "model": "digits-resnet",
    "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
    "adaptation_goal": {"FLOP": "0.5x", "num_of_params": "0.4x"},
    "algorithm": {"name": "morphnet", "config": SETTINGS},
}
PLOTS = [
    "Training loss",
    "Validation data: accuracy",
    "Costs, as multiples of their limits",
    "Weights of the structure losses",
]


@pytest.fixture(scope="module")
def job(url: str) -> str:
    """Submit a job, and return its id."""
    answer = httpx.post(f"{url}v1/jobs", content=json.dumps(CONFIG), timeout=300)
    return str(answer.json()["job"]["id"])


@pytest.fixture
def goal_page(url: str, job: str) -> str:
    """Return the address of the goal's page."""
    return f"{url}jobs/{job}/goals/phone"


def drawn(page: Page, part: str) -> list[Any]:
    """Return an attribute of each plot of the curves from Plotly."""
    return list(page.evaluate(f"[...document.querySelectorAll('#curves .plot')].map(plot => plot.{part})"))


def test_curves_grow_while_the_page_is_open(page: Page, goal_page: str, url: str, job: str) -> None:
    page.goto(goal_page)
    page.evaluate("window.isTheSame = true")
    expect(page.locator("#curves .plot .main-svg").first).to_be_visible(timeout=200_000)
    seen = drawn(page, "data[0].x.length")[0]
    more = "seen => document.querySelector('#curves .plot').data[0].x.length > seen + 2"
    page.wait_for_function(more, arg=seen, timeout=200_000)
    expect(page.locator("#progress li")).to_contain_text("phone")
    # The package appears when it is finished, and the curves remain.
    expect(page.get_by_role("link", name="Download the package")).to_be_visible(timeout=400_000)
    assert page.evaluate("window.isTheSame")
    expect(page.locator("#curves figcaption")).to_have_text(PLOTS)
    assert drawn(page, "data[0].x.length > 0") == [True] * len(PLOTS)
    curve = httpx.get(f"{url}v1/jobs/{job}/goals/phone/details", timeout=60).json()["curve"]
    losses = [point["loss"] for point in curve if point["loss"] is not None]
    assert drawn(page, "data[0].y")[0] == losses
    assert len(losses) > 5
    assert {point["stage"] for point in curve} == {"adapting", "tuning"}


def test_layers_have_the_widths_of_the_package(
    page: Page, goal_page: str, url: str, job: str, tmp_path: Path
) -> None:
    """The expected number of channels of each layer is read from the package's LiteRT file."""
    page.goto(goal_page)
    with page.expect_download(timeout=400_000) as download:
        page.get_by_role("link", name="Download the package").click(timeout=400_000)
    download.value.save_as(tmp_path / "package.zip")
    with zipfile.ZipFile(tmp_path / "package.zip") as archive:
        packaged = bytearray(archive.read("phone/serve.tflite"))
    model = flatbuffer_utils.read_model_from_bytearray(packaged)
    graph = model.subgraphs[0]
    channels = [
        int(graph.tensors[operator.outputs[0]].shape[-1])
        for operator in graph.operators
        if flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex) in ("CONV_2D", "FULLY_CONNECTED")
    ]
    rows = page.locator("div.layers tbody tr")
    shown = {}
    for row in rows.all():
        name, width, params, _, _ = row.locator("td").all_inner_texts()
        shown[name] = (width, params)
    widths = [
        [int(each) for each in width.split("→")] for width, params in shown.values() if params.strip() != "0"
    ]
    assert sorted(width[-1] for width in widths) == sorted(channels)
    assert sum(width[0] > width[-1] for width in widths) > 5
    with httpx.Client(base_url=url, timeout=60) as client:
        goal = client.get(f"v1/jobs/{job}", params={"goal_id": "phone"}).json()["job"]["goals"][0]
        details = client.get(f"v1/jobs/{job}/goals/phone/details").json()
    for figure, axis in (("params", "params"), ("multiply_adds", "flops")):
        after = (layer["after"] for layer in details["layers"]["layers"] if layer["after"])
        assert sum(layer[figure] for layer in after) == goal["achieved"][axis]


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
)
def test_the_page_of_a_goal_fits_its_screen(
    browser: Browser, goal_page: str, screenshots: Path, width: int, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    page.set_default_timeout(120_000)
    page.goto(goal_page)
    expect(page.locator("#curves .plot .main-svg").first).to_be_visible(timeout=400_000)
    expect(page.locator("div.layers")).to_be_visible(timeout=400_000)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if (width, scheme) == (1280, "light"):
        page.screenshot(path=screenshots / "goal.png", full_page=True)
    page.close()
