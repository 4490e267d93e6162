"""Inputs of apps in the state directory: which are written, who reads them, and what they cost nobody."""

import numpy as np
import pytest

from mistify.package.manifest import TensorInfo
from mistify_client.runtime.samples import (
    RATE,
    InputSamples,
    SampleReader,
    are_fixed,
    remove_samples,
    samples_directory,
)
from tests.support.interleaving import before_line

INPUTS = (
    TensorInfo(name="image", dtype="float32", shape=(-1, 2, 2, 1)),
    TensorInfo(name="number", dtype="int32", shape=(-1,)),
)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def reader(tmp_path):
    reader = SampleReader(tmp_path, INPUTS)
    reader.start()
    return reader


def batch(*numbers):
    images = np.stack([np.full((2, 2, 1), number, np.float32) for number in numbers])
    return {"image": images, "number": np.array(numbers, np.int32)}


def written(samples, clock, numbers):
    for number in numbers:
        samples.offer(batch(number))
        clock.now += 1.01 / RATE


def test_examples_come_back_once_in_order(tmp_path, reader, clock):
    samples = InputSamples(tmp_path, INPUTS, clock)
    written(samples, clock, range(5))
    found = list(reader.new())
    assert [int(one["number"]) for one in found] == [0, 1, 2, 3, 4]
    assert all(np.array_equal(one["image"], np.full((2, 2, 1), one["number"])) for one in found)
    assert list(reader.new()) == []
    written(samples, clock, [7])
    assert [int(one["number"]) for one in reader.new()] == [7]


def test_no_more_than_the_rate_is_written(tmp_path, reader, clock):
    samples = InputSamples(tmp_path, INPUTS, clock)
    for _ in range(1000):
        samples.offer(batch(1))
        clock.now += 0.001
    assert 0.8 * RATE <= len(list(reader.new())) <= RATE + 1


def test_a_slow_reader_gets_the_latest(tmp_path, reader, clock):
    samples = InputSamples(tmp_path, INPUTS, clock)
    written(samples, clock, range(300))
    numbers = [int(one["number"]) for one in reader.new()]
    assert numbers == list(range(172, 300))


def test_nothing_is_written_unless_something_reads(tmp_path, clock):
    samples = InputSamples(tmp_path, INPUTS, clock)
    written(samples, clock, range(200))
    assert not samples_directory(tmp_path).exists()
    reader = SampleReader(tmp_path, INPUTS)
    reader.start()
    written(samples, clock, range(100))
    assert list(reader.new())
    reader.stop()
    assert not samples_directory(tmp_path).exists()
    written(samples, clock, range(100))
    assert not samples_directory(tmp_path).exists()
    reader.start()
    written(samples, clock, range(100))
    assert list(reader.new())


def test_apps_write_nothing_and_leave_nothing_once_the_reader_was_killed(tmp_path, reader, clock):
    samples = InputSamples(tmp_path, INPUTS, clock)
    written(samples, clock, range(100))
    assert list(samples_directory(tmp_path).glob("*-*"))
    reader._readers.close()  # as when its process is killed
    written(samples, clock, range(100))
    assert not list(samples_directory(tmp_path).glob("*-*"))
    later = SampleReader(tmp_path, INPUTS)
    later.start()
    written(samples, clock, range(100))
    assert list(samples_directory(tmp_path).glob("*-*"))


@pytest.mark.parametrize("line", range(8))
def test_no_app_adds_samples_while_they_are_removed(tmp_path, reader, clock, line):
    def others():
        written(InputSamples(tmp_path, INPUTS, clock), clock, range(3))

    others()
    with before_line(remove_samples, line, others):
        reader.stop()
    assert not list(tmp_path.iterdir())


def test_a_reader_that_starts_passes_over_what_is_there(tmp_path, reader, clock):
    samples = InputSamples(tmp_path, INPUTS, clock)
    written(samples, clock, range(5))
    other = SampleReader(tmp_path, INPUTS)
    other.start()
    written(samples, clock, [7])
    assert [int(one["number"]) for one in other.new()] == [7]


def test_several_models_have_files_of_their_own(tmp_path, reader, clock):
    both = [InputSamples(tmp_path, INPUTS, clock) for _ in range(2)]
    for number, samples in enumerate(both):
        samples.offer(batch(number))
    assert sorted(int(one["number"]) for one in reader.new()) == [0, 1]


def test_files_of_ended_processes_are_removed(tmp_path, reader, clock):
    gone = InputSamples(tmp_path, INPUTS, clock)
    gone.offer(batch(1))
    del gone
    assert list(reader.new()) == []
    InputSamples(tmp_path, INPUTS, clock).offer(batch(2))
    assert len(list(samples_directory(tmp_path).glob("*-*"))) == 1


def test_batches_give_an_example_each(tmp_path, reader, clock):
    samples = InputSamples(tmp_path, INPUTS, clock)
    for _ in range(3):
        samples.offer(batch(1, 2, 3))
        clock.now += 1
    assert [int(one["number"]) for one in reader.new()] == [1, 2, 3]


def test_samples_are_written_beside_what_cannot_be_opened(tmp_path, reader, clock):
    (samples_directory(tmp_path) / "1-0").mkdir()
    samples = InputSamples(tmp_path, INPUTS, clock)
    written(samples, clock, [7])
    assert [int(one["number"]) for one in reader.new()] == [7]


@pytest.mark.parametrize("content", [b"", b"other", b"MISTSAM\1" + bytes(100)])
def test_other_files_are_ignored(tmp_path, reader, content):
    (samples_directory(tmp_path) / "1-0").write_bytes(content)
    assert list(reader.new()) == []


def test_a_directory_that_cannot_be_written_stops_no_app(tmp_path, clock):
    samples_directory(tmp_path).write_bytes(b"a file")
    written(InputSamples(tmp_path, INPUTS, clock), clock, range(3))
    assert samples_directory(tmp_path).read_bytes() == b"a file"


def test_inputs_of_any_size_are_not_kept(tmp_path, reader, clock):
    inputs = (TensorInfo(name="tokens", dtype="int32", shape=(-1, -1)),)
    assert not are_fixed(inputs)
    InputSamples(tmp_path, inputs, clock).offer({"tokens": np.zeros((1, 3), np.int32)})
    assert list(reader.new()) == []
