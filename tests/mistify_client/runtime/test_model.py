import copy
import json
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import mistify_client
from mistify.errors import ErrorCode, MistifyError
from mistify.package.blocks import BlockStore
from mistify_client import load
from mistify_client.runtime.versions import state_directory
from tests.mistify_client.pools import make_elastic_package
from tests.support.tiny_packages import IMAGE, SCORES, make_package


def test_outputs_agree_with_tensorflow(package, expected):
    model = mistify_client.load(package)
    np.testing.assert_allclose(model(expected["image"]), expected["scores"], atol=1e-6)


def test_batches_of_any_size_run_in_any_order(package, expected):
    model = load(package)
    for batch in (1, 3, 2, 1, 3):
        scores = model(expected["image"][:batch])
        np.testing.assert_allclose(scores, expected["scores"][:batch], atol=1e-6)
    assert model(np.zeros((257, 4, 4, 1), np.float32)).shape == (257, 3)


def test_several_inputs_are_given_by_name_as_a_dict_or_by_position(pair_package, expected):
    model = load(pair_package, threads=2)
    left, right = expected["left"], expected["right"]
    by_name = {"right": right, "left": left}
    for outputs in (model(left, right), model(left, right=right), model(**by_name), model(by_name)):
        assert list(outputs) == ["mix", "difference"]
        np.testing.assert_allclose(outputs["difference"], expected["difference"], atol=1e-6)
        np.testing.assert_allclose(outputs["mix"], expected["mix"], atol=1e-5)


def test_a_model_describes_its_inputs_and_outputs(package):
    model = load(package)
    assert [(info.name, info.shape) for info in model.inputs] == [("image", (-1, 4, 4, 1))]
    assert [(info.name, info.dtype) for info in model.outputs] == [("scores", "float32")]
    assert model.manifest.accuracy == 0.75


def test_exact_conversions_are_made(package):
    model = load(package)
    pixels = np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1)
    np.testing.assert_array_equal(model(pixels), model(pixels.astype(np.float32)))


def test_an_integer_network_accepts_and_returns_float_values(int8_package, expected):
    model = load(int8_package)
    assert (model.inputs[0].dtype, model.outputs[0].dtype) == ("int8", "int8")
    scores = model(expected["image"])
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected["scores"], atol=0.02)


def test_quantized_integers_are_used_unchanged(int8_package, expected):
    model = load(int8_package)
    image = model.inputs[0]
    by_hand = np.clip(np.round(expected["image"] / image.scale) + image.zero_point, -128, 127).astype(np.int8)
    np.testing.assert_array_equal(model(by_hand), model(expected["image"]))


def test_integers_of_another_type_count_as_values(int8_package):
    model = load(int8_package)
    ones = np.ones((1, 4, 4, 1), np.uint8)
    np.testing.assert_array_equal(model(ones), model(ones.astype(np.float32)))
    with pytest.raises(MistifyError, match="image: got float64; expected float32"):
        model(ones.astype(np.float64))


def test_any_memory_layout_is_accepted(package, expected):
    flipped = expected["image"][:, :, ::-1]
    model = load(package)
    np.testing.assert_array_equal(model(flipped), model(flipped.copy()))


def test_outputs_are_copies_owned_by_the_caller(package, expected):
    model = load(package)
    first = model(expected["image"][:1])
    kept = first.copy()
    model(expected["image"][1:2])
    np.testing.assert_array_equal(first, kept)


def test_many_threads_run_batches_of_different_sizes(package, expected):
    model = load(package)

    def run(n: int) -> None:
        batch = n % 3 + 1
        scores = model(expected["image"][:batch])
        np.testing.assert_allclose(scores, expected["scores"][:batch], atol=1e-6)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(300)))


ZEROS = np.zeros((2, 4), np.float32)


@pytest.mark.parametrize(
    ("arrays", "named", "message"),
    [
        ((), {}, "left: got nothing; expected an array"),
        ((ZEROS,), {}, "right: got nothing"),
        ((ZEROS, ZEROS, ZEROS), {}, r"inputs: got 3; expected 2 \(left, right\)"),
        ((ZEROS, ZEROS), {"left": ZEROS}, "left: got two arrays; expected one"),
        ((ZEROS, ZEROS), {"middle": ZEROS}, r"middle: got .* shape \(2, 4\); expected one of left, right"),
        ((ZEROS, ZEROS[:1]), {}, "batches of left: 2, right: 1; expected equal batches"),
        ((ZEROS, ZEROS[0]), {}, r"right: got shape \(4,\); expected shape \(batch, 4\).*numpy.newaxis"),
        ((ZEROS, ZEROS[:, :3]), {}, r"right: got shape \(2, 3\); expected shape \(batch, 4\)"),
        ((ZEROS[:0], ZEROS[:0]), {}, r"left: got shape \(0, 4\); expected at least one example"),
        ((ZEROS, ZEROS.astype(np.float64)), {}, "right: got float64; expected float32.*astype"),
        ((ZEROS, [["a"] * 4] * 2), {}, "right: got <U1; expected float32"),
    ],
)
def test_unsuitable_inputs_are_described(pair_package, arrays, named, message):
    model = load(pair_package)
    with pytest.raises(MistifyError, match=message) as caught:
        model(*arrays, **named)
    assert caught.value.code is ErrorCode.INVALID_DATASET
    assert set(model(ZEROS, ZEROS)) == {"mix", "difference"}


def test_a_changed_file_is_refused(package):
    (package / "serve.tflite").write_bytes(b"something else")
    with pytest.raises(MistifyError, match=r"serve\.tflite: got 14 bytes") as caught:
        load(package)
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE


@pytest.mark.parametrize("directory", [".", "goals"])
def test_the_error_names_a_package_below_the_directory(package, tmp_path, directory):
    below = shutil.copytree(package, tmp_path / "goals" / "phone")
    with pytest.raises(MistifyError, match=r"is not a package: .* did you mean") as caught:
        load(tmp_path / directory)
    assert str(below) in str(caught.value)


def test_the_error_says_that_there_is_no_directory(tmp_path):
    with pytest.raises(MistifyError, match="is not a package: there is no such directory"):
        load(tmp_path / "missing")


def test_the_error_for_a_file_of_a_package_names_its_directory(package):
    with pytest.raises(MistifyError) as caught:
        load(package / "serve.tflite")
    assert str(caught.value).endswith(
        f'serve.tflite is not a package: it is a file; did you mean "{package}"?'
    )


def test_a_model_cannot_be_sent_to_another_process(package):
    model = load(package)
    assert repr(model) == f"PortedModel('{package}')"
    for send in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"cannot be copied .* call mistify_client\.load\("):
            send(model)


def test_the_error_names_a_directory_without_a_package(tmp_path):
    with pytest.raises(MistifyError, match="is not a package") as caught:
        load(tmp_path)
    assert caught.value.code is ErrorCode.NOT_FOUND


def change_manifest(package, **changes):
    path = package / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_network_that_the_manifest_does_not_list_is_refused(package):
    change_manifest(package, files={})
    with pytest.raises(MistifyError, match="does not list it"):
        load(package)


@pytest.mark.parametrize("key", ["inputs", "outputs"])
def test_a_manifest_of_another_network_is_refused(package, key):
    change_manifest(package, **{key: [{"name": "audio", "dtype": "float32", "shape": [-1, 4]}]})
    with pytest.raises(MistifyError, match=f"its {key} are") as caught:
        load(package)
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE


def test_an_invalid_network_is_refused(package):
    from mistify.package.records import describe_file

    (package / "serve.tflite").write_bytes(b"no flatbuffer")
    change_manifest(
        package, files={"serve.tflite": describe_file(package / "serve.tflite").model_dump(mode="json")}
    )
    with pytest.raises(MistifyError, match="cannot be used") as caught:
        load(package)
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE


def test_a_package_is_downloaded_only_once(service, package, expected, tmp_path):
    service.serve_package(package)
    source = {"server": service.address, "job": "job-1", "goal": "half", "cache": tmp_path / "cache"}
    np.testing.assert_allclose(load(**source)(expected["image"]), expected["scores"], atol=1e-6)
    service.stop()
    np.testing.assert_allclose(load(**source)(expected["image"]), expected["scores"], atol=1e-6)


def test_a_damaged_download_is_repaired(service, package, expected, tmp_path):
    service.serve_package(package)
    source = {"server": service.address, "job": "job-1", "goal": "half", "cache": tmp_path}
    load(**source)
    (tmp_path / "job-1" / "half" / "serve.tflite").write_bytes(b"damaged")
    np.testing.assert_allclose(load(**source)(expected["image"]), expected["scores"], atol=1e-6)


def test_a_cached_package_loads_without_a_server_even_with_damaged_blocks(service, tmp_path):
    service.serve_package(make_elastic_package(tmp_path / "elastic"))
    source = {"server": service.address, "job": "job-1", "goal": "half", "cache": tmp_path / "cache"}
    load(**source)
    service.stop()
    directory = tmp_path / "cache" / "job-1" / "half"
    (directory / BlockStore.load(directory).variants[0].file).write_bytes(b"damaged")
    assert load(**source).manifest.goal == "half"


def test_packages_are_cached_in_the_cache_directory_of_the_user(service, package, tmp_path, monkeypatch):
    service.serve_package(package)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    load(server=service.address, job="job-1", goal="half")
    assert (tmp_path / "xdg" / "mistify" / "job-1" / "half" / "serve.tflite").exists()


@pytest.mark.parametrize(
    "arguments", [{}, {"server": "localhost:1"}, {"package": ".", "server": "localhost:1"}]
)
def test_exactly_one_complete_source_is_required(arguments):
    with pytest.raises(TypeError, match="all of server, job and goal"):
        load(**arguments)


@pytest.mark.parametrize(
    ("threads", "error", "message"),
    [
        (0, ValueError, "threads is 0: give 1 to 1024"),
        (100_000, ValueError, "threads is 100000: give 1 to 1024"),
        (-1, ValueError, "threads is -1"),
        (1.5, TypeError, "integer"),
        ("2", TypeError, "integer"),
    ],
)
def test_an_invalid_number_of_threads_is_reported(package, threads, error, message):
    with pytest.raises(error, match=message):
        load(package, threads=threads)
    assert not state_directory(package).exists()


def test_threads_may_be_any_integer_type(package, expected):
    model = load(package, threads=np.int64(2))
    np.testing.assert_allclose(model(expected["image"]), expected["scores"], atol=1e-6)


def test_non_finite_inputs_are_refused_if_the_model_checks_them(package, expected):
    image = expected["image"].copy()
    image[1, 2, 3, 0] = np.nan
    load(package)(image)
    checking = load(package, check=True)
    with pytest.raises(MistifyError, match=r"image\[1, 2, 3, 0\]: got nan") as caught:
        checking(image)
    assert caught.value.code is ErrorCode.INVALID_DATASET
    np.testing.assert_allclose(checking(expected["image"]), expected["scores"], atol=1e-6)


@pytest.mark.parametrize("name", ["tiny", "tiny_fixed"])
def test_only_the_graph_that_runs_is_in_memory(tmp_path, data, expected, monkeypatch, name):
    """LiteRT would pack the weights of every graph."""
    opened = []

    def interpret(model_content, **settings):
        opened.append(Interpreter(model_content=model_content).num_subgraphs())
        return Interpreter(model_content=model_content, **settings)

    monkeypatch.setattr("mistify.litert.Interpreter", interpret)
    model = load(make_package(tmp_path / "package", data / f"{name}.tflite", (IMAGE,), (SCORES,)))
    np.testing.assert_allclose(model(expected["image"]), expected["scores"], atol=1e-6)
    assert set(opened) == {1}
