"""Uploads of malformed models: each is refused with the reason, and leaves no files."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.part import GoalSelection
from mistify.uploads import FileDigest, listing_text
from mistify_client.porting.local_files import local_files
from mistify_client.rpc.files import FilesClient
from mistify_client.rpc.porting import PortingClient
from mistify_server.store.directory import open_store
from mistify_server.store.upload_directories import UPLOADS
from mistify_server.store.uploads import Uploads
from tests.executors.inspection.corpus import write_corpus
from tests.executors.inspection.networks import save_good_model
from tests.support.servers import server
from tests.support.wrong_files import write_data

DAY = 86_400.0


@dataclass(frozen=True)
class Site:
    """A server without data roots, and malformed models on another machine."""

    address: str
    url: str
    models: Path
    expected: Mapping[str, str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    base = tmp_path_factory.mktemp("malformed")
    models, store = base / "models", base / "store"
    models.mkdir()
    write_data(models)
    save_good_model(models)
    corpus = write_corpus(models / "good-model.keras", models)
    # Uploads cannot contain links or pipes.
    sent = {name: text for name, (path, text) in corpus.items() if not has_links(path)}
    assert len(sent) > 40
    with server(store, "--http", "127.0.0.1:0") as (address, process):
        assert process.stdout is not None
        yield Site(address, process.stdout.readline().split()[-1], models, sent)
        assert process.poll() is None
    with open_store(store) as opened:
        assert opened.jobs.page(100, 100, selection=GoalSelection()).jobs == []
        later = Uploads(
            store / UPLOADS, 1e9, opened.jobs.referenced_digests, now=lambda: time.time() + 2 * DAY
        )
        later.collect()
    assert [path for path in (store / UPLOADS).rglob("*") if path.is_file()] == []
    assert [path for path in (store / "artifacts").rglob("*") if path.is_file()] == []


def has_links(path: Path) -> bool:
    below = path.rglob("*") if path.is_dir() and not path.is_symlink() else ()
    return path.is_fifo() or any(each.is_symlink() for each in (path, *below))


def config(model: str, train: str = "train.npz", test: str = "test.npz") -> str:
    goal = {
        "id": "half",
        "model": model,
        "dataset": {"train": train, "test": test},
        "algorithm": {"name": "morphnet", "config": {"source_steps": 0}},
        "adaptation_goal": {"FLOP": "0.5x"},
    }
    return json.dumps([goal])


def problems_by_grpc(site: Site, name: str) -> list[str]:
    """Upload a model and a config like `mistify port`; return the values of the problems."""
    files = local_files(config(name), [site.models])
    with FilesClient(site.address) as sending, PortingClient(site.address) as client:
        files.send(sending, lambda line: None)
        with pytest.raises(MistifyError) as raised:
            client.submit(files.text, name)
    assert raised.value.code is ErrorCode.INVALID_MODEL
    return [problem.value for problem in raised.value.problems]


def problems_by_http(site: Site, name: str) -> list[str]:
    """Upload a model and a config like curl; return the values of the problems."""
    with httpx.Client(base_url=site.url, timeout=300) as web:
        model, *data = [put(web, site.models / each) for each in (name, "train.npz", "test.npz")]
        answer = web.post("/v1/jobs", content=config(model, *data))
        assert web.get("/readyz").status_code == 200
    details = answer.json()
    assert (answer.status_code, details["code"]) == (400, "INVALID_MODEL"), details
    assert "upload:" not in answer.text
    return [problem["value"] for problem in details["problems"]]


def put(web: httpx.Client, path: Path) -> str:
    """Upload a file or a directory; return its name for configs."""
    if path.is_file():
        content, end = path.read_bytes(), ""
    else:
        files = {each.relative_to(path).as_posix(): each for each in path.rglob("*") if each.is_file()}
        for each in files.values():
            put(web, each)
        content, end = listing_text({name: digest_of(each) for name, each in files.items()}), "/"
    sha256 = hashlib.sha256(content).hexdigest()
    answer = web.put(f"/v1/files/{sha256}", content=content)
    assert answer.status_code == 200, answer.text
    return f"upload:{sha256}/{path.name}{end}"


def digest_of(path: Path) -> FileDigest:
    content = path.read_bytes()
    return FileDigest(hashlib.sha256(content).hexdigest(), len(content))


@pytest.mark.sampled
@pytest.mark.parametrize("problems_of", [problems_by_grpc, problems_by_http])
def test_malformed_models_are_refused_with_the_reason(
    site: Site, problems_of: Callable[[Site, str], list[str]]
) -> None:
    for name, text in site.expected.items():
        (problem,) = problems_of(site, name)
        assert text in problem, name
