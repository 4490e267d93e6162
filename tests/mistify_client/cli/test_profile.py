"""Commands for devices report mistakes before they measure anything."""

from contextlib import contextmanager

import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

from mistify.costs.devices import DeviceTable, OperatorTiming
from mistify.files.writing import write_json
from mistify.machine import machine, runtime
from mistify.profiling.samples import samples
from mistify_client.cli.main import app
from mistify_client.porting.local_server import LocalServer
from tests.mistify_client.coordinators import running
from tests.mistify_client.device_service import Devices, serve
from tests.support.ports import reserved_address
from tests.support.tokens import write_token


@pytest.fixture
def measured(monkeypatch):
    """Replace measurements by fakes, and return the list of what they were called with."""
    calls = []

    def measure_device(name, threads, **options):
        calls.append((name, threads))
        return small_table(name)

    def measure_package(package):
        calls.append(package)
        return 0.75

    monkeypatch.setattr("mistify_client.cli.profile.measure_isolated", measure_device)
    monkeypatch.setattr("mistify_client.cli.profile.measure_package", measure_package)
    return calls


def small_table(name):
    readings = tuple(
        OperatorTiming(chain, integer, 1, 0.5)
        for integer in (False, True)
        for chain in samples(integer=integer)
    )
    return DeviceTable(name=name, machine=machine(), runtime=runtime(), readings=readings)


def mistify(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"MISTIFY_SERVER": None})


def test_a_table_of_another_device_is_refused(tmp_path):
    path = tmp_path / "table.json"
    write_json(path, TypeAdapter(DeviceTable).dump_python(small_table("their-board"), mode="json"))

    def profile(name):
        return mistify("profile-device", "--name", name, "--table", path)

    refused = profile("my-board")
    assert refused.exit_code == 2
    assert "their-board" in refused.stderr
    assert "--name" in refused.stderr
    assert profile("their-board").exit_code == 0


def test_measurements_are_saved_in_a_new_directory(tmp_path, measured):
    kept = mistify("profile-device", "--name", "my-board", "--table", tmp_path / "boards" / "table.json")
    assert kept.exit_code == 0, kept.stderr
    assert (tmp_path / "boards" / "table.json").is_file()
    assert measured == [("my-board", [1])]


@pytest.mark.slow
def test_unusable_servers_and_paths_are_reported_before_measuring(tmp_path, measured):
    write_token(tmp_path / "token", "wrong")
    (tmp_path / "file").write_text("no directory")
    with running(tmp_path / "store", token="right") as address:  # noqa: S106
        for options, exit_code, message in (
            (["--server", address, "--token-file", tmp_path / "token"], 5, "token"),
            (["--server", address, "--token-file", tmp_path / "none"], 2, "No such file"),
            (["--server", "127.0.0.1:1"], 8, "no server answers"),
            (["--server", address, "--table", tmp_path / "file" / "table.json"], 2, "--table"),
            (["--store", tmp_path / "file"], 8, "cannot be used"),
        ):
            refused = mistify("profile-device", "--name", "my-board", *options)
            assert refused.exit_code == exit_code, refused.stderr
            assert message in refused.stderr
    assert measured == []


def test_a_missing_server_is_reported_before_measuring(tmp_path, measured, monkeypatch):
    monkeypatch.setattr("mistify_client.porting.local_server._REQUIRED", ("no_server_here",))
    refused = mistify("profile-device", "--name", "my-board", "--store", tmp_path / "store")
    assert refused.exit_code == 8
    assert "mistify-porting[server]" in refused.stderr
    assert measured == []


def test_this_machine_can_be_profiled_without_a_server(tmp_path, measured, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    stores, known = [], "only to the command"

    @contextmanager
    def embedded_server(store, data_roots, *, resume, porting):
        assert not porting
        stores.append(store)
        with running(store, token=known) as address:
            yield LocalServer(address, known)

    monkeypatch.setattr("mistify_client.cli.profile.embedded_server", embedded_server)
    result = mistify("profile-device", "--name", "host", "--threads", "2")
    assert result.exit_code == 0, result.stderr
    assert "host" in result.stdout
    assert measured == [("host", [1, 2])]
    assert not any(store.exists() for store in stores)
    listed = mistify("devices", "--store", tmp_path / "store")
    assert "host" in listed.stdout


def test_another_device_needs_a_server_or_a_file(measured):
    refused = mistify("profile-device", "--name", "my-board")
    assert refused.exit_code == 2
    assert "--server, --store or --table" in refused.stderr
    assert measured == []


def test_the_latency_of_a_package_is_reported(package, measured):
    devices = Devices()
    with reserved_address() as address:
        server = serve(devices, address)
        result = mistify("report-latency", "--device", "my-board", "--package", package, "--server", address)
        server.stop(None).wait()
    assert result.exit_code == 0, result.stderr
    assert measured == [package]
    assert devices.reports == [("my-board", "job-1", "half", 0.75)]
