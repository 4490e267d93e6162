"""Block stores survive a round trip; invalid combinations of blocks and damaged files are refused."""

import json
import resource

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.package.block_files import BlockFiles
from mistify.package.blocks import BLOCKS, BlockStore, BlockVariant
from mistify.package.manifest import TensorInfo
from mistify.package.records import PackagedFile
from mistify.package.training import OutputEncoding

CONTENT = {f"{name}.tflite": name.encode() * 1000 for name in ("a", "b", "c", "bc")}
PLACES = {"a": (0, 1), "b": (1, 1), "c": (2, 1), "bc": (1, 2)}


def tensor(name, **quantization):
    return TensorInfo(name=name, dtype="int8" if quantization else "float32", shape=(-1, 4), **quantization)


def content_of(name):
    return PackagedFile.of(CONTENT[f"{name}.tflite"])


@pytest.fixture
def directory(tmp_path):
    store = BlockStore(
        inputs=(tensor("x"),),
        positions=(tensor("one", scale=0.5, zero_point=-3), tensor("two", scale=0.25, zero_point=0)),
        outputs=(tensor("y"), tensor("z")),
        variants=tuple(
            BlockVariant(
                file=f"{name}.tflite",
                content=PackagedFile.of(CONTENT[f"{name}.tflite"]),
                start=start,
                span=span,
            )
            for name, (start, span) in PLACES.items()
        ),
    )
    for name, content in {**CONTENT, BLOCKS: store.model_dump_json().encode()}.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def failure(call, *arguments):
    with pytest.raises(MistifyError) as caught:
        call(*arguments)
    return caught.value


def change(directory, **values):
    path = directory / BLOCKS
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def network(*names):
    files = [f"{name}.tflite" for name in names]
    return {"files": files, "loss": 0.5, "latency_ms": 2.0, "energy_mj": 3.0, "energy_origin": "fitted"}


def test_a_store_of_the_first_format_has_no_front(directory):
    content = json.loads((directory / BLOCKS).read_text())
    del content["front"]
    (directory / BLOCKS).write_text(json.dumps(content | {"format_version": 1}))
    assert BlockStore.load(directory).front == ()


def test_the_front_lists_networks_of_the_blocks(directory):
    change(directory, front=[network("a", "b", "c"), network("a", "bc")])
    store = BlockStore.load(directory)
    assert [one.files for one in store.front] == [
        ("a.tflite", "b.tflite", "c.tflite"),
        ("a.tflite", "bc.tflite"),
    ]
    assert store.only({"a.tflite", "bc.tflite"}).front == store.front[1:]
    change(directory, front=[network("a", "bc"), network("a", "c")])
    assert "front[1]: " in str(failure(BlockStore.load, directory))


def test_a_store_survives_a_round_trip(directory):
    store = BlockStore.load(directory)
    assert [tensor.name for position in range(4) for tensor in store.tensors_at(position)] == [
        *("x", "one", "two", "y", "z")
    ]
    with BlockFiles(directory) as files:
        assert [files.read(variant) for variant in store.variants] == list(CONTENT.values())


@pytest.mark.parametrize("names", ["a b c", "a bc"])
def test_connected_blocks_form_a_network(directory, names):
    chosen = BlockStore.load(directory).network_of([f"{name}.tflite" for name in names.split()])
    assert [variant.file.removesuffix(".tflite") for variant in chosen] == names.split()


@pytest.mark.parametrize(
    ("names", "code", "message"),
    [
        ("b c", ErrorCode.INVALID_CONFIG, "b.tflite begins at position 1; expected 0"),
        ("a c", ErrorCode.INVALID_CONFIG, "c.tflite begins at position 2; expected 1"),
        ("a b", ErrorCode.INVALID_CONFIG, "the 2 blocks end at position 2; expected 3"),
        ("a bc c", ErrorCode.INVALID_CONFIG, "c.tflite begins at position 2; expected 3"),
        ("a d", ErrorCode.NOT_FOUND, "no block d.tflite; there are a.tflite, b.tflite, c.tflite, bc.tflite"),
    ],
)
def test_blocks_that_form_no_network_are_refused(directory, names, code, message):
    store = BlockStore.load(directory)
    error = failure(store.network_of, [f"{name}.tflite" for name in names.split()])
    assert error.code is code
    assert message in str(error)


def truncated(path):
    path.write_bytes(path.read_bytes()[:-1])


def damaged(path):
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)


def of_another_network(path):
    path.write_bytes(CONTENT["a.tflite"])


@pytest.mark.parametrize("harm", [truncated, damaged, of_another_network, lambda path: path.unlink()])
def test_a_file_with_another_digest_is_refused_by_name(directory, harm):
    harm(directory / "b.tflite")
    store = BlockStore.load(directory)
    with BlockFiles(directory) as files:
        error = failure(files.read, store.variants[1])
        assert not files.has(store.variants[1])
    assert error.code is ErrorCode.CORRUPT_PACKAGE
    assert error.problems[0].place == str(directory / "b.tflite")


@pytest.mark.parametrize(
    ("target", "reason"),
    [("b.tflite", "Too many levels of symbolic links"), ("/proc/self/mem", "Input/output error")],
)
def test_a_file_that_cannot_be_read_is_refused_by_name_with_the_cause(directory, target, reason):
    store = BlockStore.load(directory)
    (directory / "b.tflite").unlink()
    (directory / "b.tflite").symlink_to(target)
    with BlockFiles(directory) as files:
        error = failure(files.read, store.variants[1])
        assert (error.code, error.problems[0].place, error.problems[0].value) == (
            *(ErrorCode.CORRUPT_PACKAGE, str(directory / "b.tflite"), reason),
        )
        (directory / "b.tflite").unlink()
        (directory / "b.tflite").write_bytes(CONTENT["b.tflite"])
        assert files.read(store.variants[1]) == CONTENT["b.tflite"]


def test_too_many_open_files_are_no_damage(directory):
    store = BlockStore.load(directory)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with BlockFiles(directory) as files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                files.read(store.variants[1])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert files.read(store.variants[1]) == CONTENT["b.tflite"]


def test_a_damaged_missing_or_newer_manifest_is_refused(directory):
    variant = BlockStore.load(directory).variants[0].model_dump()
    for values, message in [
        ({"variants": [variant, variant]}, "several variants are called a.tflite"),
        ({"variants": [{**variant, "span": 4}]}, "a.tflite ends at position 4; the last is 3"),
        ({"variants": [{**variant, "file": "../a.tflite"}]}, "variants[0].file"),
        ({"rounding_losses": {"1": 0.0}}, "the tensor at position 1 cannot be rounded"),
        ({"rounding_losses": {"3": 0.0}}, "the tensor at position 3 cannot be rounded"),
    ]:
        before = (directory / BLOCKS).read_text()
        change(directory, **values)
        error = failure(BlockStore.load, directory)
        assert error.code is ErrorCode.CORRUPT_PACKAGE
        assert message in str(error)
        (directory / BLOCKS).write_text(before)
    change(directory, format_version=4)
    assert failure(BlockStore.load, directory).code is ErrorCode.STORE_VERSION
    (directory / BLOCKS).write_text("{")
    assert failure(BlockStore.load, directory).code is ErrorCode.CORRUPT_PACKAGE
    (directory / BLOCKS).unlink()
    assert failure(BlockStore.load, directory).code is ErrorCode.NOT_FOUND


def test_kinds_of_outputs_are_optional(directory):
    assert BlockStore.load(directory).kinds == {}
    change(directory, kinds={"y": "softmax"})
    assert BlockStore.load(directory).kinds == {"y": OutputEncoding.SOFTMAX}


def test_a_store_without_the_field_kinds_can_be_read(directory):
    path = directory / BLOCKS
    content = json.loads(path.read_text())
    del content["kinds"]
    path.write_text(json.dumps(content))
    assert BlockStore.load(directory).kinds == {}
