"""Packages with early exits, made by `tests/data/make_exits.py`; TensorFlow computed what is expected."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.package.exits import ExitStore
from mistify.package.manifest import NETWORK, Manifest
from mistify.package.opened import Package
from mistify.package.option_kinds import OptionKind
from mistify.package.records import describe_file
from mistify_client import load
from mistify_client.monitor.sensing.costs import expected_on
from mistify_client.monitor.sensing.exits import expected_stages
from mistify_client.runtime.options import options_of
from mistify_client.runtime.statistics import observed
from mistify_client.runtime.versions import state_directory
from tests.support.paths import DATA

EXPECTED = np.load(DATA / "exits_expected.npz")
IMAGES = EXPECTED["image"].astype(np.float32)


def store_of(package):
    store = ExitStore.of(Package.open(package))
    assert store is not None
    return store


def expected_ends(choice):
    """Return the stage that answers each image, and its answer, by the heads' outputs in TensorFlow."""
    answers = EXPECTED["answers"]
    confident = answers.max(2) >= choice.threshold
    confident[-1] = True
    ends = confident.argmax(0)
    return ends, answers[ends, np.arange(len(ends))]


@pytest.fixture(params=["exits", "exits_int8"])
def package(request, tmp_path):
    """Return a package with exits, in float32 and in int8."""
    return Path(shutil.copytree(DATA / request.param, tmp_path / "package"))


@pytest.fixture
def float_package(tmp_path):
    return Path(shutil.copytree(DATA / "exits", tmp_path / "package"))


def damaged(package, name, content=b"damaged"):
    """Replace a file of a package, with the manifest knowing it."""
    (package / name).write_bytes(content)
    manifest = Manifest.load(package)
    files = manifest.files | {name: describe_file(package / name)}
    manifest.model_copy(update={"files": files}).save(package)


@pytest.mark.parametrize("number", [0, 1])
def test_each_example_is_answered_by_the_first_confident_head(float_package, number):
    model, choice = load(float_package), store_of(float_package).choices[number]
    model.switch(f"exit-{choice.loss:g}")
    ends, answers = expected_ends(choice)
    assert len(set(ends.tolist())) > 2  # several exits, and the end of the network
    for row, image in enumerate(IMAGES[:150]):
        actual = model(image[None])
        assert model.answered == (ends[row],)
        np.testing.assert_allclose(actual[0], answers[row], atol=1e-5)


def test_rows_of_a_batch_are_answered_as_they_are_alone(package):
    model = load(package)
    for choice in store_of(package).choices:
        model.switch(f"exit-{choice.loss:g}")
        together = model(IMAGES[:60])
        stages = model.answered
        for row in range(60):
            np.testing.assert_array_equal(model(IMAGES[row : row + 1])[0], together[row])
            assert model.answered == stages[row : row + 1]


def test_the_whole_network_runs_until_exits_are_chosen(package):
    model = load(package)
    assert [option.id for option in model.options] == ["branch-0", "exit-0.01", "exit-0.03"]
    assert (model.wanted, model.answered) == ("branch-0", ())
    actual = model(IMAGES)
    assert model.answered == ()
    agreement = np.mean(actual.argmax(1) == EXPECTED["whole"].argmax(1))
    assert agreement > 0.97
    model.switch("exit-0.03")
    model(IMAGES[:2])
    assert len(model.answered) == 2
    model.switch("branch-0")
    np.testing.assert_array_equal(model(IMAGES), actual)
    assert model.answered == ()


def test_rates_and_accuracy_on_other_data_are_about_those_in_the_package(package):
    model = load(package)
    for choice in store_of(package).choices:
        model.switch(f"exit-{choice.loss:g}")
        answers = model(IMAGES)
        rates = np.bincount(model.answered, minlength=len(choice.rates)) / len(IMAGES)
        np.testing.assert_allclose(rates, choice.rates, atol=0.1)
        assert np.mean(answers.argmax(1) == EXPECTED["digit"]) == pytest.approx(choice.accuracy, abs=1e-6)


def test_options_have_the_expected_costs(float_package, tmp_path):
    store, options = store_of(float_package), options_of(Package.open(float_package), tmp_path)
    whole, *exits = options.options
    for option, choice in zip(exits, store.choices, strict=True):
        assert (option.kind, option.exits) == (OptionKind.EXIT, choice)
        assert option.costs.latency_ms == choice.latency_ms
        assert option.costs.p95_ms in [stage.latency_ms for stage in store.stages]
        assert option.score.value == choice.validation_accuracy
        assert option.costs.memory_bytes == whole.costs.memory_bytes + option.costs.size_bytes
        assert option.costs.energy.mj < whole.costs.energy.mj
    assert exits[0].costs.latency_ms > exits[1].costs.latency_ms
    assert options.default == 0
    assert not options.paged


def test_other_hardware_slows_exits_as_much_as_the_network(float_package, tmp_path):
    package = Package.open(float_package)
    own = package.manifest.latency.median_ms
    manifest = package.manifest.model_copy(
        update={"achieved": {**package.manifest.achieved, "latency_ms@board": 7 * own}}
    )
    options = options_of(package, tmp_path)
    slowed = expected_on("board", options, manifest)
    for before, after in zip(options.options, slowed.options, strict=True):
        assert after.costs.latency_ms == pytest.approx(7 * before.costs.latency_ms)


def test_records_name_the_last_stage_and_are_compared_with_its_latency(float_package):
    model, store = load(float_package), store_of(float_package)
    options = options_of(Package.open(float_package), float_package)
    model.switch("exit-0.01")
    ends = []
    for image in IMAGES[:60]:
        model(image[None])
        ends += model.answered
    model.switch("branch-0")
    model(IMAGES[:1])
    (runtime,) = observed(state_directory(float_package))
    inferences = runtime.inferences
    assert inferences["option"].tolist() == [1] * 60 + [0]
    assert inferences["stage"].tolist() == [*ends, 0]
    # A device that takes twice as long for each stage takes twice the expected time.
    inferences["latency_ms"][:60] = [2 * store.stages[end].latency_ms for end in ends]
    actual = expected_stages(inferences, options)["latency_ms"]
    np.testing.assert_allclose(actual[:60], 2 * store.choices[0].latency_ms, rtol=1e-5)
    assert actual[60] == inferences["latency_ms"][60]


def test_exits_do_not_apply_to_another_network(float_package, tmp_path):
    damaged(float_package, NETWORK, (DATA / "exits" / NETWORK).read_bytes() + b"\0" * 8)
    assert options_of(Package.open(float_package), tmp_path).ids == ("branch-0",)
    assert load(float_package).wanted == "branch-0"


@pytest.mark.parametrize("name", ["exits.json", "exits.tflite"])
def test_a_missing_or_changed_file_is_reported(float_package, name):
    content = (float_package / name).read_bytes()
    (float_package / name).write_bytes(content[:-1] + b"?")
    with pytest.raises(MistifyError, match=f"{name}.*SHA-256") as error:
        load(float_package)
    assert error.value.code is ErrorCode.CORRUPT_PACKAGE
    (float_package / name).unlink()
    with pytest.raises(MistifyError, match=f"{name}.*no such file"):
        load(float_package)


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"format_version": 2}, "update Mistify"),
        ({"stages": []}, "stages"),
        ({"kind": "cosine"}, "kind"),
        ({"choices": []}, "choices"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_an_unusable_description_is_reported_with_its_place(float_package, changes, reported):
    content = json.loads((float_package / "exits.json").read_text())
    damaged(float_package, "exits.json", json.dumps(content | changes).encode())
    with pytest.raises(MistifyError, match=reported):
        load(float_package)


def test_choices_that_do_not_fit_the_stages_are_refused(float_package):
    content = json.loads((float_package / "exits.json").read_text())
    content["choices"][0]["rates"] = [0.5, 0.4]
    damaged(float_package, "exits.json", json.dumps(content).encode())
    with pytest.raises(MistifyError, match=r"rates \[0.5, 0.4\] are not those of"):
        load(float_package)
    content["choices"] = content["choices"][::-1]
    damaged(float_package, "exits.json", json.dumps(content).encode())
    with pytest.raises(MistifyError, match="not in ascending order"):
        load(float_package)


@pytest.mark.parametrize(
    ("content", "reported"),
    [(b"no network", "cannot be used"), ((DATA / "exits" / NETWORK).read_bytes(), "no signature stage_0")],
)
def test_stages_that_cannot_run_are_reported(float_package, content, reported):
    damaged(float_package, "exits.tflite", content)
    with pytest.raises(MistifyError, match=f"exits.tflite.*{reported}") as error:
        load(float_package)
    assert error.value.code is ErrorCode.CORRUPT_PACKAGE
