"""A monitor does not start with a package of a server that it does not trust."""

import pytest

from mistify.ed25519 import PrivateKey
from mistify.errors import ErrorCode, MistifyError
from mistify_client.monitor.config import MonitorConfig, read_config
from mistify_client.monitor.daemon import Monitor
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from tests.support.signed_packages import sign_package

KEY = PrivateKey.generate()


def started(package, config):
    state = MonitorState.of(package)
    state.directory.mkdir(parents=True, exist_ok=True)
    monitor = Monitor(package, lambda: config, Journal(state.log), sensor=SensorReading)
    monitor.close()


def test_only_a_signed_package_is_monitored(package):
    config = MonitorConfig(trusted=(KEY.public,))
    with pytest.raises(MistifyError, match=KEY.public) as caught:
        started(package, config)
    assert caught.value.code is ErrorCode.UNTRUSTED
    started(package, MonitorConfig())
    sign_package(package, KEY)
    started(package, config)


@pytest.mark.parametrize(
    ("line", "place"), [("[]", "trusted"), ('["ed25519:12"]', "trusted[0]"), ('"all"', "trusted")]
)
def test_mistakes_in_the_config_are_reported(tmp_path, line, place):
    (tmp_path / "monitor.toml").write_text(f"trusted = {line}\n")
    with pytest.raises(MistifyError) as caught:
        read_config(tmp_path / "monitor.toml")
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    (problem,) = caught.value.problems
    assert problem.place == place
