"""Evolution improves populations."""

import numpy as np
import pytest

from executors.search import Evolution, initial_population

GROUPS, BLOCKS = 6, 3


def evolution(seed=0, crossover_rate=0.7, mutation=0.08):
    return Evolution(GROUPS, crossover_rate, mutation, np.random.default_rng(seed))


def test_the_first_founder_keeps_all_proportions():
    first, *others = initial_population(GROUPS, BLOCKS, 20, np.random.default_rng(0))
    assert first.tolist() == [0] * GROUPS + [1] * BLOCKS
    assert all(set(genes[GROUPS:]) <= {0, 1} for genes in others)
    assert np.std([genes[:GROUPS] for genes in others]) == pytest.approx(0.5, rel=0.2)


def test_there_may_be_no_founders():
    assert initial_population(GROUPS, BLOCKS, 0, np.random.default_rng(0)) == []


def test_one_gene_changes_even_at_a_mutation_rate_of_zero():
    some = evolution(mutation=0.0)
    parents = [np.full(GROUPS + BLOCKS, 0.0), np.full(GROUPS + BLOCKS, 1.0)]
    strange = []
    for _ in range(200):
        child = some.child(parents)
        strange.append(sum(gene not in (0, 1) for gene in child[:GROUPS]))
        assert set(child[GROUPS:]) <= {0, 1}
    assert set(strange) == {0, 1}  # 0 if the changed gene is a block


def test_without_crossover_a_child_has_a_single_parent():
    some = evolution(crossover_rate=0.0, mutation=0.0)
    parents = [np.full(GROUPS + BLOCKS, 0.0), np.full(GROUPS + BLOCKS, 1.0)]
    for _ in range(100):
        child = some.child(parents)
        assert min(np.sum(child != parent) for parent in parents) <= 1


def test_evolution_finds_the_most_promising_genes():
    """Widths near given targets, without the second block."""
    target = np.array([-1.0, -0.2, -2.0, 0.0, -0.5, -1.5, 1, 0, 1])

    def promise(population):
        return -np.array([np.abs(genes - target).sum() for genes in population])

    some = evolution()
    start = initial_population(GROUPS, BLOCKS, 12, np.random.default_rng(0))
    actual = some.evolved(start, 80, lambda genes: genes, promise)
    assert len(actual) == 12
    assert promise(actual).tolist() == sorted(promise(actual), reverse=True)
    assert promise(actual)[0] > promise(start).max() / 4
    assert actual[0][GROUPS:].tolist() == [1, 0, 1]


def test_impossible_limits_give_no_children():
    some = evolution()
    start = initial_population(GROUPS, BLOCKS, 5, np.random.default_rng(0))
    actual = some.evolved(
        start, 3, lambda genes: None, lambda population: np.arange(len(population), 0, -1.0)
    )
    assert [genes.tolist() for genes in actual] == [genes.tolist() for genes in start]
