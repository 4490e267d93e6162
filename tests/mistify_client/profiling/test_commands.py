"""What is said of a command line that fits no table."""

from pydantic import TypeAdapter
from typer.testing import CliRunner

from mistify.devices import DeviceTable, Reading
from mistify.machine import machine
from mistify_client.cli import app
from mistify_client.profiling.samples import samples
from mistify_client.report import write_json


def test_a_table_of_another_device_is_not_sent_under_this_name(tmp_path):
    readings = tuple(
        Reading(chain, integer, 1, 0.5) for integer in (False, True) for chain in samples(integer=integer)
    )
    table = DeviceTable(name="their-board", machine=machine(), runtime="LiteRT", readings=readings)
    path = tmp_path / "table.json"
    write_json(path, TypeAdapter(DeviceTable).dump_python(table, mode="json"))

    def profile(name):
        return CliRunner().invoke(app, ["profile-device", "--name", name, "--table", str(path)])

    refused = profile("my-board")
    assert refused.exit_code == 2
    assert "their-board" in refused.stderr
    assert "--name" in refused.stderr
    assert profile("their-board").exit_code == 0
