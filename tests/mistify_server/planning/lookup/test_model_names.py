import hashlib
from pathlib import Path

import pytest

from mistify.parsing.validation import InvalidValue
from mistify_server.planning.lookup.data_roots import DataRoots
from mistify_server.planning.lookup.model_names import OnnxOptions, onnx_options, parse_name
from mistify_server.tasks.sources import ModelSource


@pytest.fixture
def roots(tmp_path: Path) -> DataRoots:
    (tmp_path / "root" / "bert").mkdir(parents=True)
    (tmp_path / "root" / "net.weights.h5").touch()
    return DataRoots.of([tmp_path / "root"], tmp_path / "store")


def test_names_are_parsed(roots: DataRoots, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert parse_name("keras.applications/MobileNetV2", roots) == ModelSource(application="MobileNetV2")
    asked = "keras.applications/mobilenetv2?classes=10&input=96&weights=net.weights.h5"
    expected = ModelSource(
        application="MobileNetV2", classes=10, input=96, weights=str(root / "net.weights.h5")
    )
    assert parse_name(asked, roots) == expected
    preset = ModelSource(path=str(root / "bert"), sequence=64, classes=3)
    assert parse_name("keras_hub/bert?sequence=64&classes=3", roots) == preset
    assert parse_name("net.keras", roots) is None


@pytest.mark.parametrize(
    ("name", "expected", "fix"),
    [
        ("keras.applications/MobilNetV2", "EfficientNetB0", 'did you mean "MobileNetV2"?'),
        ("keras.applications/MobileNetV2?class=10", "classes, input, weights", 'did you mean "classes"?'),
        ("keras.applications/MobileNetV2?classes=1", "classes from 2", "classes=2"),
        ("keras.applications/MobileNetV2?input=1e3", "input from 8", "input=8"),
        ("keras.applications/MobileNetV2?input=8&input=9", "every option at most once", "remove"),
        ("keras.applications/MobileNetV2?input", "?NAME=VALUE", "write them in this form"),
        ("keras.applications/MobileNetV2?weights=../key", "a file below a data root", ""),
        ("keras_hub/../root", "a directory below a data root", ""),
        ("keras_hub/bert?input=3", "classes, sequence", ""),
    ],
)
def test_invalid_names_are_refused(roots: DataRoots, name: str, expected: str, fix: str) -> None:
    (Path(roots.roots[0]).parent / "key").touch()
    with pytest.raises(InvalidValue) as caught:
        assert parse_name(name.replace("../root", "../other"), roots) is None
    assert expected in caught.value.expected
    assert fix in caught.value.fix


def test_sizes_of_an_onnx_file_are_parsed() -> None:
    sizes = (("image", (3, 224, 224)), ("a/b:0", (7,)))
    assert onnx_options("net.onnx?image=3,224,224&a/b:0=7") == ("net.onnx", OnnxOptions(sizes))
    assert onnx_options("net.onnx") == ("net.onnx", OnnxOptions())


def test_the_layout_of_an_onnx_file_is_parsed() -> None:
    options = OnnxOptions((("image", (3, 8, 8)),), channels_first=True)
    assert onnx_options("net.onnx?image=3,8,8&layout=channels_first") == ("net.onnx", options)
    assert onnx_options("net.onnx?layout=channels_last") == ("net.onnx", OnnxOptions())
    assert onnx_options("net.onnx?layout=7") == ("net.onnx", OnnxOptions((("layout", (7,)),)))


@pytest.mark.parametrize(
    "name", ["net.onnx?image=3,-1", "net.onnx?=3", "net.onnx?image=", "net.onnx?layout=nchw"]
)
def test_wrong_sizes_are_refused(name: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        onnx_options(name)
    assert "inputs with their sizes, without the batch, or a layout" in caught.value.expected


HANDLE = "https://tfhub.dev/google/imagenet/mobilenet_v2_035_96/classification/5"


def test_a_handle_is_read_from_the_cache(
    roots: DataRoots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(InvalidValue, match="set TFHUB_CACHE_DIR") as caught:
        parse_name(HANDLE, roots)
    directory = tmp_path / "cache" / hashlib.sha1(HANDLE.encode(), usedforsecurity=False).hexdigest()
    assert str(directory) in caught.value.expected
    directory.mkdir(parents=True)
    assert parse_name(HANDLE, roots) == ModelSource(path=str(directory))


def test_the_cache_has_the_layout_of_tensorflow_hub(
    roots: DataRoots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("tensorflow_hub")
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "cache"))
    module = Path(hub.compressed_module_resolver._module_dir(HANDLE))
    module.mkdir(parents=True)
    (module / "saved_model.pb").touch()
    assert parse_name(HANDLE, roots) == ModelSource(path=hub.resolve(HANDLE))
