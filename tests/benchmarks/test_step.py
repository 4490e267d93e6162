"""What `step` compares with."""

from benchmarks.step import SOURCE, multiply_adds
from benchmarks.tuning_step import resnet8


def test_the_roof_is_of_the_multiply_adds_of_all_layers():
    first = 32 * 32 * 9 * 3 * 16
    stages = [
        32 * 32 * (9 * 16 * 16 + 9 * 16 * 16),
        16 * 16 * (9 * 16 * 32 + 9 * 32 * 32 + 16 * 32),
        8 * 8 * (9 * 32 * 64 + 9 * 64 * 64 + 32 * 64),
    ]
    assert multiply_adds(resnet8(SOURCE)) == first + sum(stages) + 64 * 10
