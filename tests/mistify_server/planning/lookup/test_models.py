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
    roots = DataRoots.of([tmp_path])
    assert find_model("resnet", repository, roots) == repository.find("Resnet")
    assert find_model("Digits-ResNet", repository, roots) == ModelSource(builtin="digits-resnet")
    assert find_model("net.h5", repository, roots) == ModelSource(path=str(tmp_path / "net.h5"))
    (tmp_path / "saved").mkdir()
    assert find_model("saved", repository, roots) == ModelSource(path=str(tmp_path / "saved"))
    assert find_model("keras.applications/VGG16", repository, roots) == ModelSource(application="VGG16")
    with pytest.raises(InvalidValue, match=r"Resnet, digits-resnet.*did you mean"):
        find_model("nett.h5", repository, roots)


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
    roots = DataRoots.of([tmp_path])
    (tmp_path / "train.npz").touch()
    assert find_data("builtin:digits-train", "train", roots) == "builtin:digits-train"
    assert find_data("train.npz", "train", roots) == str(tmp_path / "train.npz")
    with pytest.raises(InvalidValue, match="builtin:digits-test"):
        find_data("builtin:digits-train", "test", roots)
