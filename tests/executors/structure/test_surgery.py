import numpy as np
import pytest

from executors.structure import analyse

from .architectures import FAMILIES
from .networks import alternate, check_clone, check_fold, check_narrow, check_widen, randomised, unmasked


def source_of(family, seed=0):
    build, _ = FAMILIES[family]
    return randomised(build(unmasked), seed)


@pytest.mark.parametrize("family", FAMILIES)
def test_groups_are_those_a_human_names(family):
    _, groups = FAMILIES[family]
    assert analyse(source_of(family)).widths == groups


@pytest.mark.parametrize("family", FAMILIES)
def test_narrowed_equals_masked(family):
    build, groups = FAMILIES[family]
    check_narrow(build, {name: alternate(size, i) for i, (name, size) in enumerate(groups.items())})


@pytest.mark.parametrize("family", FAMILIES)
def test_narrowed_to_one_unit_equals_masked(family):
    build, groups = FAMILIES[family]
    check_narrow(build, {name: np.arange(size) == size - 1 for name, size in groups.items()})


@pytest.mark.parametrize("family", FAMILIES)
def test_widened_equals_source(family):
    check_widen(source_of(family))


@pytest.mark.parametrize("family", FAMILIES)
def test_folded_equals_source(family):
    check_fold(source_of(family))


@pytest.mark.parametrize("family", FAMILIES)
def test_clone_equals_source(family):
    check_clone(source_of(family))
