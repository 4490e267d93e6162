"""What the client offers is imported when it is asked for."""

import pytest

import mistify_client
from mistify_client.runtime.model import load


def test_every_name_that_the_client_offers_is_there() -> None:
    assert {name for name in mistify_client.__all__ if getattr(mistify_client, name)} == {
        *(
            "PortedModel",
            "PortingClient",
            "PackageTrainer",
            "TuningClient",
            "load",
            "load_trainer",
            "write_weights",
        )
    }
    assert mistify_client.load is load
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        _ = mistify_client.lod
