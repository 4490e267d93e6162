from contextlib import ExitStack

import pytest

from mistify_client.monitor.config import ServerConfig
from mistify_client.monitor.replacement.access import ServerAccess
from mistify_client.rpc.porting import PortingClient
from tests.support.interleaving import before_line


@pytest.mark.parametrize("step", range(5))
def test_a_call_may_end_during_any_step_of_stop(step):
    access = ServerAccess(ServerConfig(server="127.0.0.1:1"), PortingClient)
    call = ExitStack()
    call.enter_context(access.connected())
    with call, before_line(ServerAccess.stop, step, call.close):
        access.stop()
    assert access.stopped
