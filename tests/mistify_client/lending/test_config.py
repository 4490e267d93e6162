"""The table `[lending]`."""

from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client.lending.config import read_lending
from tests.support.tokens import write_token


def written(directory: Path, text: str) -> Path:
    path = directory / "monitor.toml"
    path.write_text(text)
    return path


def test_paths_are_relative_to_the_file_and_other_tables_are_left_alone(tmp_path) -> None:
    write_token(tmp_path / "token", "known")
    text = '[targets]\nlatency = "20ms"\n[lending]\nhelpers = ["drone:7470"]\n'
    text += 'token_file = "token"\nca = "ca.pem"\n'
    config = read_lending(written(tmp_path, text))
    assert (config.helpers, config.patience) == (("drone:7470",), 3)
    assert config.rounding_loss == 0.005
    assert config.ca == tmp_path / "ca.pem"
    assert config.token() == "known"


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("", "lending", "a table with the helpers"),
        ("[lending]\nhelpers = []\n", "lending.helpers", "a list of HOST:PORT"),
        ('[lending]\nhelpers = ["drone"]\n', "lending.helpers[0]", "HOST:PORT or tls://HOST:PORT"),
        ('[lending]\nhelpers = ["drone:1"]\npatience = 0.5\n', "lending.patience", "a number from 1"),
        (
            '[lending]\nhelpers = ["drone:1"]\nrounding_loss = 2\n',
            "lending.rounding_loss",
            "a share of the accuracy from 0 to 1",
        ),
        ('[lending]\nhelpers = ["drone:1"]\ndeadline = 3\n', "lending.deadline", ""),
        ("[lending\n", "monitor.toml", "a config"),
    ],
)
def test_bad_tables_are_refused_with_the_place(tmp_path, text, place, expected) -> None:
    with pytest.raises(MistifyError) as caught:
        read_lending(written(tmp_path, text))
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    (problem,) = caught.value.problems
    assert problem.place.endswith(place)
    assert expected in problem.expected


def test_a_missing_token_is_reported(tmp_path) -> None:
    config = read_lending(written(tmp_path, '[lending]\nhelpers = ["drone:1"]\ntoken_file = "absent"\n'))
    with pytest.raises(MistifyError, match="absent"):
        config.token()
