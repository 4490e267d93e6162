from pathlib import Path

import h5py
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.validation import InvalidValue
from mistify_server.planning.lookup.data_roots import DataRoots
from mistify_server.planning.lookup.models import ModelRepository, find_data, find_model
from mistify_server.store.directory import Store
from mistify_server.tasks.sources import ModelSource


@pytest.fixture
def repository(store: Store, tmp_path: Path) -> ModelRepository:
    with h5py.File(tmp_path / "net.h5", "w") as file:
        file.attrs["model_config"] = '{"class_name": "Sequential", "config": {"layers": []}}'
    made = ModelRepository(store.models, store.artifacts)
    made.add("Resnet", tmp_path / "net.h5")
    return made


def test_a_model_name_ignores_case_and_refers_to_the_copied_model(
    repository: ModelRepository, tmp_path: Path
) -> None:
    content = (tmp_path / "net.h5").read_bytes()
    (tmp_path / "net.h5").unlink()
    source = repository.find("RESNET")
    assert source is not None
    assert source.path is not None
    assert source.path.endswith(".h5")
    assert Path(source.path).read_bytes() == content


def test_a_model_in_a_config_is_resolved(repository: ModelRepository, tmp_path: Path) -> None:
    roots = DataRoots.of([tmp_path], tmp_path / "store")
    assert find_model("resnet", repository, roots) == repository.find("Resnet")
    assert find_model("Digits-ResNet", repository, roots) == ModelSource(builtin="digits-resnet")
    assert find_model("net.h5", repository, roots) == ModelSource(path=str(tmp_path / "net.h5"))
    (tmp_path / "saved").mkdir()
    assert find_model("saved", repository, roots) == ModelSource(path=str(tmp_path / "saved"))
    assert find_model("keras.applications/VGG16", repository, roots) == ModelSource(application="VGG16")
    with pytest.raises(InvalidValue, match=r"Resnet, digits-resnet.*did you mean"):
        find_model("nett.h5", repository, roots)


def test_an_onnx_file_is_found_with_its_sizes_and_external_data(
    repository: ModelRepository, tmp_path: Path
) -> None:
    roots, sizes = DataRoots.of([tmp_path], tmp_path / "store"), (("image", (3, 8, 8)),)
    for name in ("net.onnx", "other.onnx", "net.onnx.data"):
        (tmp_path / name).touch()
    net, other = str(tmp_path / "net.onnx"), str(tmp_path / "other.onnx")
    assert find_model("other.onnx", repository, roots) == ModelSource(path=other)
    assert find_model("net.onnx?image=3,8,8", repository, roots) == ModelSource(
        path=net, external_data=f"{net}.data", sizes=sizes
    )
    assert find_model("net.onnx?layout=channels_first", repository, roots).channels_first
    for name in ("net.h5?image=3,8,8", "net.h5?layout=channels_first", "resnet?image=3,8,8"):
        with pytest.raises(InvalidValue, match="options only for ONNX files"):
            find_model(name, repository, roots)
    with pytest.raises(InvalidValue, match="a file or directory below a data root"):
        find_model("none.onnx?image=3,8,8", repository, roots)


def test_a_function_is_found_with_its_file_and_weights(repository: ModelRepository, tmp_path: Path) -> None:
    roots, file = DataRoots.of([tmp_path], tmp_path / "store"), tmp_path / "model.py"
    for name in ("model.py", "weights.pt"):
        (tmp_path / name).touch()
    made = ModelSource(path=str(file), call="network")
    assert find_model("model.py:network", repository, roots) == made
    assert find_model("model.py:network?weights=weights.pt", repository, roots) == made.model_copy(
        update={"weights": str(tmp_path / "weights.pt")}
    )
    assert find_model("model.py:network?layout=channels_first", repository, roots) == made.model_copy(
        update={"channels_first": True}
    )
    for name in ("none.py:network", "model.py:network?weights=none.pt"):
        with pytest.raises(InvalidValue, match="below a data root"):
            find_model(name, repository, roots)


def test_an_added_onnx_file_contains_its_external_data(repository: ModelRepository, tmp_path: Path) -> None:
    onnx, files = pytest.importorskip("onnx"), pytest.importorskip("tests.support.onnx_files")
    proto = files.model([files.node("Add", "x w", "y")], {"x": ["n", 3]}, {"w": files.normal(3)})
    (tmp_path / "exported").mkdir()
    path = tmp_path / "exported" / "net.onnx"
    onnx.save_model(proto, path, save_as_external_data=True, location="weights", size_threshold=0)
    with pytest.raises(MistifyError, match="give a directory that contains only the model's files"):
        repository.add("added", path)
    repository.add("added", path.parent)
    path.unlink()
    found = find_model("added?x=3", repository, DataRoots.of([], tmp_path))
    assert (found.sizes, found.external_data) == ((("x", (3,)),), None)
    assert onnx.load(found.path).graph.initializer[0].raw_data == files.normal(3).tobytes()


@pytest.mark.parametrize(
    ("name", "file", "code"),
    [
        ("resnet", "net.h5", ErrorCode.CONFLICT),
        ("digits-resnet", "net.h5", ErrorCode.CONFLICT),
        ("../x", "net.h5", ErrorCode.INVALID_CONFIG),
        ("other", "missing.h5", ErrorCode.NOT_FOUND),
        ("other", "pickle.keras", ErrorCode.INVALID_MODEL),
    ],
)
def test_invalid_models_cannot_be_added(
    repository: ModelRepository, tmp_path: Path, name: str, file: str, code: ErrorCode
) -> None:
    (tmp_path / "pickle.keras").write_bytes(b"\x80\x04.")
    with pytest.raises(MistifyError) as raised:
        repository.add(name, tmp_path / file)
    assert raised.value.code is code
    assert [model.name for model in repository.names.all()] == ["Resnet"]


def test_data_is_either_built_in_or_a_file(tmp_path: Path) -> None:
    roots = DataRoots.of([tmp_path], tmp_path / "store")
    (tmp_path / "train.npz").touch()
    assert find_data("builtin:digits-train", "train", roots) == "builtin:digits-train"
    assert find_data("train.npz", "train", roots) == str(tmp_path / "train.npz")
    with pytest.raises(InvalidValue, match="builtin:digits-test"):
        find_data("builtin:digits-train", "test", roots)
