import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client.monitor.state.targets import (
    LiveTargets,
    Targets,
    parse_changes,
    read_changes,
    write_changes,
)


def test_targets_have_units():
    targets = Targets(latency="0.02s", accuracy="80%", memory="2MB", energy="3uJ")
    assert (targets.latency, targets.accuracy, targets.memory, targets.energy) == (20.0, 0.8, 2e6, 0.003)


def test_changes_are_parsed_from_the_command_line():
    assert parse_changes(["latency=20ms", "memory = none"]) == {"latency": "20ms", "memory": None}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("latency", "target: got 'latency'; expected NAME=VALUE"),
        ("latency=20 parsecs", "latency: got \"20 parsecs\".*the unit 'parsecs' is unknown"),
        ("latency=0.5x", r'latency: got "0.5x"; expected a time such as "30ms" \([a-z ]*\); the unit \'x\''),
        ("latency=fast", r'latency: got "fast"; expected a time such as "30ms" \([a-z ]*\); write a number'),
        ("energy=0.5x", r'energy: got "0.5x"; expected an energy such as "2mJ" \([a-z ]*\); the unit \'x\''),
        ("latency=-1ms", "the number has to be above 0"),
        ("latncy=20ms", 'latncy: .*did you mean "latency"'),
        ("accuracy=", 'accuracy: got ""'),
    ],
)
def test_wrong_assignments_are_refused(assignment, message):
    with pytest.raises(MistifyError, match=message) as caught:
        parse_changes([assignment])
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_changes_in_the_file_override_the_config(tmp_path):
    path = tmp_path / "targets.json"
    live = LiveTargets(Targets(latency="20ms", accuracy="80%"), path)
    assert not live.refresh()
    write_changes(path, {"latency": "5ms"})
    assert live.refresh()
    assert live.current == Targets(latency="5ms", accuracy="80%")
    assert not live.refresh()
    write_changes(path, {"latency": "5ms", "accuracy": None})
    live.refresh()
    assert live.current == Targets(latency="5ms")
    write_changes(path, {})
    live.refresh()
    assert live.current == Targets(latency="20ms", accuracy="80%")


@pytest.mark.parametrize("content", ["{", "[]", '{"latency": "soon"}', '{"latncy": "5ms"}', "\udcff"])
def test_an_invalid_file_does_not_change_the_targets(tmp_path, content):
    path = tmp_path / "targets.json"
    live = LiveTargets(Targets(latency="20ms"), path)
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(MistifyError, match=r"latency|latncy|mistify target --reset"):
        live.refresh()
    assert live.current == Targets(latency="20ms")
    assert not live.refresh()


def test_changes_survive_a_power_cut(tmp_path, synced):
    write_changes(tmp_path / "targets.json", {"latency": "5ms"})
    assert synced == [path.stat().st_ino for path in (tmp_path / "targets.json", tmp_path)]


def test_changes_are_read_back_from_their_file(tmp_path):
    changes = {"latency": "1.5ms", "memory": None}
    write_changes(tmp_path / "targets.json", changes)
    assert read_changes(tmp_path / "targets.json") == changes
    assert read_changes(tmp_path / "none.json") == {}
