"""Following a job: ids that a server must not send."""

from dataclasses import replace

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client.porting.follow import follow
from mistify_client.porting.progress import LineDisplay
from mistify_client.rpc.porting import PortingClient


@pytest.mark.parametrize("name", ["../../stolen", "{}/stolen", ".."])
def test_a_server_does_not_choose_where_packages_are_written(service, tmp_path, name):
    name = name.format(tmp_path)
    half, tenth = service.fake.job.goals
    job = replace(service.fake.job, goals=(replace(half, id=name), tenth))
    service.fake.job = job
    service.fake.events = [
        replace(event, goal_id=name) if event.goal_id == "half" else event for event in service.fake.events
    ]
    out = tmp_path / "here" / "out"
    out.mkdir(parents=True)
    with PortingClient(service.address) as client, pytest.raises(MistifyError) as caught:
        follow(client, job, out, LineDisplay(lambda line: None))
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
    assert repr(name) in str(caught.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
