import keras
import numpy as np
import pytest

from benchmarks.harness.worker import Reached
from benchmarks.porting import snips
from benchmarks.porting.snips import FILES, LENGTH, SHARES, Ported, encoder, figures_of, main, prepare
from executors.structure import analyse

UTTERANCES = {
    "train": [
        ("play some jazz", "O O B-genre", "PlayMusic"),
        ("play some rock", "O O B-genre", "PlayMusic"),
        ("book a table for two ", "O O O O B-people ", "BookRestaurant"),
    ],
    "test": [("play some funk", "O O B-style", "PlayMusic")],
}


@pytest.fixture
def data(tmp_path):
    for part, rows in UTTERANCES.items():
        directory = tmp_path / "snips" / part
        directory.mkdir(parents=True)
        for name, lines in zip(("seq.in", "seq.out", "label"), zip(*rows, strict=True), strict=True):
            (directory / name).write_text("\n".join(lines) + "\n")
    return tmp_path


def test_words_slots_and_intents_are_encoded_as_numbers(data, tmp_path):
    _, source = prepare(data, tmp_path, 0)
    train, test = (dict(np.load(path)) for path in (source.train, source.test))
    # Words that occur twice are known: "play" and "some", in alphabetical order.
    assert train["words"][0][:5].tolist() == [2, 3, 1, 0, 0]
    assert test["words"][0][:4].tolist() == [2, 3, 1, 0]
    # B-genre, B-people, B-style, O
    assert train["slots"][0][:4].tolist() == [3, 3, 0, -1]
    assert train["slots"][2][:6].tolist() == [3, 3, 3, 3, 1, -1]
    assert test["slots"][0][:4].tolist() == [3, 3, 2, -1]
    assert train["intent"].tolist() == [1, 1, 0]
    assert train["words"].shape == (3, LENGTH)


def test_the_network_suits_the_data_and_all_widths_can_be_cut(data, tmp_path):
    model, source = prepare(data, tmp_path, 0)
    network = keras.models.load_model(model.path)
    slots, intent = network(np.load(source.test)["words"])
    assert (slots.shape, intent.shape) == ((1, LENGTH, 4), (1, 2))
    np.testing.assert_allclose(np.asarray(slots).sum(axis=-1), 1, rtol=1e-5)
    structure = analyse(network)
    least = structure.network(dict.fromkeys(structure.groups, 1)).flops
    assert least < 0.02 * structure.network().flops


def test_padding_does_not_affect_the_predictions():
    """Tokens after the utterance do not change its predictions."""
    network = encoder(10, 4, 2, 0)
    words = np.zeros((1, LENGTH), np.int32)
    words[0, :3] = [2, 3, 4]
    before, _ = (np.asarray(output) for output in network(words))
    table = network.get_layer("word").get_weights()[0]
    table[snips.PADDING] += 10
    network.get_layer("word").set_weights([table])
    after, _ = (np.asarray(output) for output in network(words))
    np.testing.assert_allclose(after[:, :3], before[:, :3], atol=1e-5)


def test_the_loss_is_the_median_over_the_seeds():
    """Each goal is compared with the equally trained source of its seed."""
    runs = [
        Ported(
            50.0, source, {share: Reached(half if share == 0.5 else 60.0, share, 10, {}) for share in SHARES}
        )
        for source, half in ((81.0, 77.0), (70.0, 69.0), (75.0, 73.0))
    ]
    figures = figures_of(runs)
    assert figures["exact_match"] == 50.0
    assert figures["exact_match_trained_as_long"] == 75.0
    assert figures["exact_match_at_0.5"] == 73.0
    assert figures["exact_match_at_2"] == 60.0
    assert figures["loss_at_half"] == 2.0  # of 4, 1 and 2


def test_each_seed_has_its_own_network():
    first, second = (encoder(10, 4, 2, seed).get_layer("word").get_weights()[0] for seed in (0, 1))
    assert np.abs(first - second).max() > 0


def test_the_benchmark_is_skipped_without_data(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("MISTIFY_TEST_DATA", raising=False)
    assert main(["--data", str(tmp_path)]) == 77
    assert FILES[0] in "".join(capsys.readouterr().out.split())
