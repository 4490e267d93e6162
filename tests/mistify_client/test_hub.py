import contextlib
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState
from mistify.package.blocks import BlockStore
from mistify.package.manifest import Manifest
from mistify.v1 import porting_pb2 as pb
from mistify_client import PortedModel, hub
from mistify_client.origin import ORIGIN, Origin
from mistify_client.porting.local_server import embedded_server
from tests.mistify_client.conftest import PortingFake, ended_job, events, running
from tests.mistify_client.pools import make_elastic_package

CONFIG = {
    "id": "half",
    "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
    "adaptation_goal": {"FLOP": "0.5x"},
}


@pytest.fixture
def porting(service, package, tmp_path) -> hub.Porting:
    """Arguments that port by a config, with a server that has the package immediately."""
    service.serve_package(package)
    return {"server": service.address, "config": CONFIG, "cache": str(tmp_path / "cache")}


def test_a_goal_of_a_job_is_loaded(service, package, expected, tmp_path):
    service.serve_package(package)
    model = hub.load(
        "resnet",
        porting={"server": service.address, "job": "job-1", "goal": "half", "cache": str(tmp_path / "cache")},
    )
    np.testing.assert_allclose(model(expected["image"]), expected["scores"], atol=1e-6)


def test_porting_by_a_config_needs_the_server_only_once(service, porting, expected):
    for _ in range(2):
        model = hub.load("resnet", porting=porting)
        assert isinstance(model, PortedModel)
        np.testing.assert_allclose(model(expected["image"]), expected["scores"], atol=1e-6)
        service.stop()
    (request,) = service.fake.requests_of(pb.SubmitBatchRequest)
    assert '"model": "resnet"' in request.config_json


def test_another_config_is_ported_separately(service, porting):
    hub.load("resnet", porting=porting)
    hub.load("mobilenet", porting=porting)
    hub.load("resnet", porting={**porting, "config": {**CONFIG, "adaptation_goal": {"FLOP": "0.4x"}}})
    assert len(service.fake.requests_of(pb.SubmitBatchRequest)) == 3


def test_another_server_ports_the_same_config_again(service, porting, package, tmp_path):
    """Its model and data may differ under the same names."""
    hub.load("resnet", porting=porting)
    other = shutil.copytree(package, tmp_path / "other")
    Manifest.load(other).model_copy(update={"job": "job-of-another"}).save(other)
    files = {path.name: path.read_bytes() for path in other.iterdir()}
    with running(PortingFake(files, events(), ended_job(files))) as another:
        model = hub.load("resnet", porting={**porting, "server": another.address})
        assert model.manifest.job == "job-of-another"
        assert hub.load("resnet", porting=porting).manifest.job == "job-1"
    assert len(service.fake.requests_of(pb.SubmitBatchRequest)) == 1


def test_blocks_are_not_downloaded_until_they_are_needed(service, porting, tmp_path):
    package = make_elastic_package(tmp_path / "elastic")
    service.serve_package(package)
    hub.load("resnet", porting=porting)
    (origin,) = (tmp_path / "cache").rglob(ORIGIN)
    blocks = {variant.file for variant in BlockStore.load(package).variants}
    assert blocks
    assert not blocks & {path.name for path in origin.parent.iterdir()}
    assert Origin.load(origin.parent) == Origin(server=service.address, job="job-1", goal="half")


def test_a_damaged_block_is_downloaded_again_if_the_server_is_reachable(service, porting, tmp_path):
    service.serve_package(make_elastic_package(tmp_path / "elastic"))
    hub.load("resnet", porting=porting)
    (origin,) = (tmp_path / "cache").rglob(ORIGIN)
    block = origin.parent / BlockStore.load(origin.parent).variants[0].file
    block.write_bytes(b"damaged")
    hub.load("resnet", porting=porting)
    assert block.read_bytes() == (tmp_path / "elastic" / block.name).read_bytes()
    service.stop()
    block.write_bytes(b"damaged")
    assert hub.load("resnet", porting=porting).manifest.goal == "half"


def test_the_token_is_sent(service, porting):
    hub.load("resnet", porting={**porting, "token": "secret"})
    assert {sent["authorization"] for sent in service.fake.metadata} == {"Bearer secret"}


def test_a_goal_without_a_package_is_reported(service, porting):
    failed, *others = service.fake.job.goals
    failed = replace(failed, state=GoalState.FAILED, files=(), reason="no room")
    service.fake.job = replace(service.fake.job, goals=(failed, *others))
    with pytest.raises(
        MistifyError, match="resnet has not been ported, the goal is failed: no room"
    ) as caught:
        hub.load("resnet", porting=porting)
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_an_unmet_goal_gives_the_best_package(service, porting, expected, caplog):
    unmet, *others = service.fake.job.goals
    unmet = replace(unmet, state=GoalState.UNMET, reason="at most 70.0%")
    service.fake.job = replace(service.fake.job, goals=(unmet, *others))
    model = hub.load("resnet", porting=porting)
    np.testing.assert_allclose(model(expected["image"]), expected["scores"], atol=1e-6)
    assert "half is not met, this is the best package found: at most 70.0%" in caplog.text


def test_a_wrong_config_is_reported_before_calling_the_server(service, porting):
    with pytest.raises(MistifyError, match=r"porting\.config: 1 problem(.|\n)*FLOP") as caught:
        hub.load("resnet", porting={**porting, "config": {**CONFIG, "adaptation_goal": {"FLOP": -1}}})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert service.fake.requests == []


def test_a_config_with_several_goals_is_refused(service, porting):
    """The call loads a single package."""
    config = {**CONFIG, "adaptation_goal": {"FLOP": ["0.5x", "0.4x"]}}
    with pytest.raises(MistifyError, match=r"porting\.config: got 2 goals; expected one") as caught:
        hub.load("resnet", porting={**porting, "config": config})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert service.fake.requests == []


@pytest.mark.parametrize(
    ("porting", "message"),
    [
        ({"server": "localhost:1"}, "either a config or both job and goal"),
        ({"server": "localhost:1", "job": "a"}, "either a config or both job and goal"),
        ({"server": "localhost:1", "job": "a", "goal": "b", "config": CONFIG}, "either a config or both"),
        ({"job": "a", "goal": "b"}, "has to name the server"),
        ("localhost:1", r"porting is 'localhost:1': give a dict such as"),
        (
            {"server": "localhost:1", "config": CONFIG, "model": "resnet"},
            "porting has no 'model'; it takes server, token, job",
        ),
    ],
)
def test_exactly_one_complete_source_is_required(porting, message):
    with pytest.raises(TypeError, match=message):
        hub.load("resnet", porting=porting)


@pytest.mark.parametrize("arguments", [{"tags": ["serve"]}, {"options": object()}])
def test_arguments_for_tensorflow_are_refused(porting, arguments):
    with pytest.raises(TypeError, match="for TensorFlow only"):
        hub.load("resnet", **arguments, porting=porting)


def test_the_error_says_how_to_install_tensorflow_hub(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_hub", None)
    for wanted in (lambda: hub.load("resnet"), hub.intercept().install):
        with pytest.raises(MistifyError, match="pip install tensorflow tensorflow_hub") as caught:
            wanted()
        assert caught.value.code is ErrorCode.UNAVAILABLE


def test_an_interception_without_tensorflow_hub_names_the_call_that_needs_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_hub", None)
    porting = {"server": "host:7465", "job": "job", "goal": "goal"}
    with pytest.raises(MistifyError, match=r"an interception .* or call mistify_client\.hub\.load"):
        hub.intercept(porting).install()


@pytest.fixture
def tensorflow_hub():
    module = pytest.importorskip("tensorflow_hub")
    before = module.load
    yield module
    assert module.load is before


@pytest.fixture
def doubling(tmp_path) -> str:
    """Return a SavedModel that doubles its input."""
    import tensorflow as tf

    module = tf.Module()
    module.double = tf.function(lambda x: 2 * x, input_signature=[tf.TensorSpec([None], tf.float32)])
    tf.saved_model.save(module, tmp_path / "doubling")
    return str(tmp_path / "doubling")


def test_other_handles_are_passed_on_to_tensorflow_hub(tensorflow_hub, doubling):
    assert hub.load(doubling).double([3.0]).numpy() == [6.0]
    with hub.intercept():
        assert hub.load(doubling).double([3.0]).numpy() == [6.0]
        assert tensorflow_hub.load(doubling, tags=["serve"]).double([3.0]).numpy() == [6.0]


def test_calls_to_tensorflow_hub_are_intercepted_within_the_block(tensorflow_hub, doubling, porting):
    with hub.intercept(porting):
        assert isinstance(tensorflow_hub.load("resnet"), PortedModel)
        assert tensorflow_hub.load(doubling, porting=None).double([3.0]).numpy() == [6.0]
    with hub.intercept():
        assert isinstance(tensorflow_hub.load("resnet", porting=porting), PortedModel)


def test_calls_to_tensorflow_hub_can_be_intercepted_permanently(tensorflow_hub, doubling, porting):
    interception = hub.intercept(porting)
    interception.install()
    interception.install()
    assert isinstance(tensorflow_hub.load("resnet"), PortedModel)
    interception.restore()
    interception.restore()
    assert tensorflow_hub.load(doubling).double([3.0]).numpy() == [6.0]


def test_tensorflow_hub_is_restored_after_an_error(tensorflow_hub, porting):
    with contextlib.suppress(ZeroDivisionError), hub.intercept(), hub.intercept(porting):
        raise ZeroDivisionError


@pytest.mark.slow
def test_the_digits_model_is_ported_by_a_real_server(tmp_path):
    settings = {"source_steps": 20, "adapt_steps": 16, "cuts": 2, "tune_steps": 10, "max_steps": 40}
    config = {**CONFIG, "algorithm": {"name": "morphnet", "config": settings}}
    cache = str(tmp_path / "cache")
    with embedded_server(tmp_path / "store", [tmp_path]) as (server, token):
        porting: hub.Porting = {"server": server, "token": token, "config": config, "cache": cache}
        model = hub.load("digits-resnet", porting=porting)
    assert model.manifest.goal == "half"
    assert model.manifest.achieved["flops"] <= model.manifest.budget["flops"]
    image = np.zeros((2, *model.inputs[0].shape[1:]), np.float32)
    again = hub.load("digits-resnet", porting=porting)
    np.testing.assert_array_equal(again(image), model(image))
