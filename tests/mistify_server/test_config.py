import re
import tomllib
from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_server.config import ServeConfig, load_config

EXAMPLE = Path(__file__).parents[2] / "configs" / "server.toml"


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "server.toml"
    path.write_text('store = "store"\ndata_root = ["data", "/srv/data"]\nslots = 3\nresume = false\n')
    return path


def test_flags_override_the_file_which_overrides_the_defaults(settings: Path) -> None:
    flags = {"slots": 4, "data_root": [], "index": None, "allow_code": True}
    config = load_config(settings, flags)
    assert (config.slots, config.resume, config.index, config.allow_code) == (
        4,
        False,
        "memory",
        True,
    )
    assert load_config(settings, {"resume": True}).resume
    assert load_config(settings, {"data_root": [Path("mine")]}).data_root == [Path("mine")]


def test_relative_paths_in_a_file_are_relative_to_it(settings: Path) -> None:
    here = settings.parent
    config = load_config(settings, {"token_file": Path("token")})
    assert config.store == here / "store"
    assert config.data_root == [here / "data", Path("/srv/data")]
    assert config.token_file == Path("token")


def test_all_problems_of_a_file_are_reported(settings: Path) -> None:
    settings.write_text('slot = 2\nslots = 0\nlisten = 7465\ndata_root = "/srv"\nresume = "perhaps"\n')
    with pytest.raises(MistifyError) as raised:
        load_config(settings, {})
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert str(settings) in raised.value.message
    assert {(problem.place, problem.value, problem.expected) for problem in raised.value.problems} == {
        ("slot", 'the key "slot"', f"one of {', '.join(sorted(ServeConfig.model_fields))}"),
        ("slots", "0", "a number from 1 to 256"),
        ("listen", "7465", "HOST:PORT"),
        ("data_root", '"/srv"', "a list of directories"),
        ("resume", '"perhaps"', "true or false"),
        ("store", "nothing", "a directory"),
    }


def test_without_a_file_a_missing_setting_is_named_as_a_flag() -> None:
    with pytest.raises(MistifyError, match=r"the command line: 1 problem.*\n.*--store: got nothing"):
        load_config(None, {})


@pytest.mark.parametrize(
    "content", [None, b"store = ", b"\xff", b"slots = " + b"[" * 5_000, b"slots = " + b"9" * 5_000]
)
def test_the_error_names_an_unreadable_file(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "server.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(MistifyError, match="cannot be read") as raised:
        load_config(path, {"store": tmp_path})
    assert raised.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("written", "origin"),
    [
        ("https://Porting.Example.org", "https://porting.example.org"),
        ("https://porting.example.org:443/", "https://porting.example.org"),
        ("http://porting.example.org:8080", "http://porting.example.org:8080"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_origins_are_normalised_to_the_form_that_browsers_send(
    settings: Path, written: str, origin: str
) -> None:
    assert load_config(settings, {"http_origin": [written]}).http_origin == [origin]


@pytest.mark.parametrize(
    "written", ["porting.example.org", "*", "https://a.b/c", "https://u@a.b", "ftp://a.b"]
)
def test_an_invalid_origin_is_reported(tmp_path: Path, written: str) -> None:
    with pytest.raises(MistifyError, match=f'--http-origin: got "{re.escape(written)}"; expected an origin'):
        load_config(None, {"store": tmp_path, "http_origin": [written]})


@pytest.mark.parametrize("written", ["", "models", "gs://models/mistify", "s3://key:secret@models/mistify"])
def test_an_invalid_bucket_is_reported(tmp_path: Path, written: str) -> None:
    with pytest.raises(MistifyError, match=r'--artifacts: got ".*"; expected an address') as raised:
        load_config(None, {"store": tmp_path, "artifacts": written})
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert "secret@" not in raised.value.message


def test_artifacts_in_a_bucket_have_a_limit_on_copies(tmp_path: Path) -> None:
    flags = {"store": tmp_path, "artifacts": "s3://models/mistify", "artifacts_cache": "3GB"}
    settings = load_config(None, flags).server_settings()
    assert (settings.artifacts, settings.artifacts_cache) == ("s3://models/mistify", 3e9)


def test_settings_of_the_main_server_are_refused_for_servers_that_join_it(
    settings: Path, tmp_path: Path
) -> None:
    given = {"artifacts": "s3://models/mistify", "artifacts_cache": "20GB", "index": "memory"}
    with pytest.raises(MistifyError) as raised:
        load_config(None, {"store": tmp_path, "join": True, **given})
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert [(problem.place, problem.value) for problem in raised.value.problems] == [
        ("--artifacts", '"s3://models/mistify" with --join'),
        ("--artifacts-cache", '"20GB" with --join'),
        ("--index", '"memory" with --join'),
    ]
    settings.write_text('store = "store"\nindex = "memory"\n')
    with pytest.raises(MistifyError, match=r"\n  index: got .* leave it out here"):
        load_config(settings, {"join": True})
    assert load_config(settings, {}).index == "memory"
    assert load_config(None, {"store": tmp_path, "join": True}).join


def test_the_example_has_every_key() -> None:
    assert load_config(EXAMPLE, {}).store == Path("/var/lib/mistify")
    content = tomllib.loads(re.sub(r"^# (?=\w+ = )", "", EXAMPLE.read_text(), flags=re.MULTILINE))
    assert set(content) == set(ServeConfig.model_fields)
    ServeConfig(**content)
