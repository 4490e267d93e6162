import sys
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_server.engines.local import LocalEngine
from mistify_server.engines.opening import open_engine


async def refusal(site: Any, name: str) -> MistifyError:
    with pytest.raises(MistifyError) as raised:
        async with open_engine(name, site.store):
            pass
    return raised.value


async def test_the_local_engine_has_one_slot_by_default(site: Any) -> None:
    async with open_engine("local", site.store) as one, open_engine("local", site.store, slots=3) as three:
        assert isinstance(one, LocalEngine)
        assert (one.slots, three.slots) == (1, 3)


@pytest.mark.parametrize("name", ["", "Local", "ray:/head:10001", "tcp://head:10001"])
async def test_an_unknown_engine_is_refused(site: Any, name: str) -> None:
    error = await refusal(site, name)
    assert error.code is ErrorCode.INVALID_CONFIG
    assert f'got the engine "{name}"; expected local, ray or ray://HOST:PORT' in error.message


async def test_without_ray_the_error_says_what_to_install(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mistify_server.engines.ray", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    error = await refusal(site, "ray")
    assert error.code is ErrorCode.INVALID_CONFIG
    assert "pip install 'mistify-porting[ray]'" in error.message
