"""Searches in spaces with a known best subnet."""

import numpy as np
import pytest

from mistify_client.subnets.search.additive import best_sums, corrected, lost_alone
from mistify_client.subnets.search.candidates import Candidate, Candidates, SubnetScore
from mistify_client.subnets.search.strategies import Strategy, search
from mistify_client.subnets.space import SubnetSpace
from tests.mistify_client.subnets.spaces import known


class Scorer:
    """A scorer that adds the losses of a subnet's variants, and records the batches."""

    def __init__(self, own, lost=None):
        self.lost = lost or own.lost_by
        self.batches = []

    def __call__(self, subnets):
        self.batches.append(list(subnets))
        return [SubnetScore(1 - self.lost(subnet), 2 + self.lost(subnet)) for subnet in subnets]

    @property
    def scored(self):
        return [subnet for batch in self.batches for subnet in batch]


def best_within(own, budget_ms, lost):
    fitting = [subnet for subnet in own.space if own.table.latency_ms(subnet) <= budget_ms]
    return min(map(lost, fitting))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_sums_equal_those_of_a_brute_force_search(seed, whole):
    """A space of 1,320 subnets, for every budget, including many subnets of equal latency."""
    own = known(6, seed=seed)
    if whole:
        for digest, latency_ms in own.table.latencies_ms.items():
            own.table.latencies_ms[digest] = float(round(3 * latency_ms))
    front = best_sums(own.space, own.table, own.lost)
    everything = sorted((own.table.latency_ms(one), own.lost_by(one)) for one in own.space)
    expected, best = [], float("inf")
    for latency_ms, lost in everything:
        if lost < best - 1e-12:
            expected.append((latency_ms, lost))
            best = lost
    np.testing.assert_allclose(front.latencies_ms, [latency for latency, _ in expected])
    np.testing.assert_allclose(front.lost, [lost for _, lost in expected], atol=1e-12)
    for place in range(len(expected)):
        subnet = front.subnet(place)
        assert own.table.latency_ms(subnet) == pytest.approx(front.latencies_ms[place])
        assert own.lost_by(subnet) == pytest.approx(front.lost[place])


def test_variants_are_scored_alone_in_the_original_network():
    own = known(5)
    scorer = Scorer(own)
    lost = lost_alone(own.space, Candidates(own.table, scorer))
    assert lost == pytest.approx(own.lost)
    (batch,) = scorer.batches
    originals = set(own.space.original)
    assert all(len(set(subnet) - originals) <= 1 for subnet in batch)
    assert len(batch) == 1 + len(own.space.variants) - len(originals)


@pytest.mark.parametrize("strategy", list(Strategy))
def test_the_network_of_the_package_is_among_the_first_candidates(strategy):
    """It is better than its variants suggest, so that the search would not find it."""
    own = known(6)
    served = own.space.random(np.random.default_rng(3))
    store = own.space.store.model_copy(update={"served": tuple(one.file for one in served)})
    scorer = Scorer(own, lambda subnet: -1.0 if subnet == served else own.lost_by(subnet))
    budget = own.table.latency_ms(served)
    found = search(SubnetSpace(store), own.table, scorer, budget, strategy, population=10, most=20)
    assert served in scorer.batches[0]
    assert max(found, key=lambda one: one.fitness(budget)).subnet == served


@pytest.mark.parametrize("share", [0.4, 0.6, 0.8, 1.0])
def test_additive_search_finds_the_best_subnet_if_losses_are_additive(share):
    own = known(6)
    scorer = Scorer(own)
    budget = share * own.original_ms
    found = search(own.space, own.table, scorer, budget)
    best = max(found, key=lambda one: one.fitness(budget))
    assert best.latency_ms <= budget
    assert 1 - best.score.accuracy == pytest.approx(best_within(own, budget, own.lost_by))
    assert len(scorer.scored) == len(set(scorer.scored)) <= len(own.space.variants) + 32


def test_additive_search_verifies_its_sums():
    """The subnet with the best sum is worse than predicted, and not the best of those scored."""
    own = known(6)
    budget = 0.6 * own.original_ms
    front = best_sums(own.space, own.table, own.lost)
    liar = front.subnet(int(np.searchsorted(front.latencies_ms, budget)) - 1)

    def lost(subnet):
        return own.lost_by(subnet) + (0.5 if subnet == liar else 0.0)

    found = search(own.space, own.table, Scorer(own, lost), budget)
    best = max(found, key=lambda one: one.fitness(budget))
    assert liar in [one.subnet for one in found]
    assert best.subnet != liar
    assert best.score.accuracy > 1 - lost(liar)


@pytest.mark.sampled
@pytest.mark.parametrize("nearby", [True, False])
@pytest.mark.parametrize(("strategy", "factor"), [(Strategy.EVOLUTION, 1.5), (Strategy.ANNEALING, 1.7)])
def test_other_strategies_come_close_to_the_best_of_millions_of_subnets(strategy, nearby, factor):
    """The best of 400 subnets sampled near the budget loses more than twice as much as the optimum."""
    own = known(12)
    budget = 0.6 * own.original_ms
    front = best_sums(own.space, own.table, own.lost)
    least = front.lost[int(np.searchsorted(front.latencies_ms, budget)) - 1]
    lost = []
    for seed in range(4):
        scorer = Scorer(own)
        settings = {"nearby": nearby, "population": 20, "most": 400, "seed": seed}
        found = search(own.space, own.table, scorer, budget, strategy, **settings)
        best = max(found, key=lambda one: one.fitness(budget))
        assert best.latency_ms <= budget
        assert len(scorer.scored) == len(set(scorer.scored)) == len(found) <= 400
        assert max(map(len, scorer.batches)) <= 20
        lost.append(1 - best.score.accuracy)
    assert np.median(lost) <= factor * least


def interacting(own):
    """Return non-additive losses: replacing two adjacent blocks loses more."""

    def lost(subnet):
        replaced = [one not in own.space.original for one in subnet]
        return own.lost_by(subnet) * (1 + 0.2 * sum(map(int.__mul__, replaced[1:], replaced)))

    return lost


def disturbing(own, seed):
    """Return non-additive losses: each variant loses more if another variant follows."""
    more = dict(zip(own.space.variants, np.random.default_rng(seed).uniform(0, 0.08, 1000), strict=False))

    def lost(subnet):
        replaced = [one for one in subnet if one not in own.space.original]
        return own.lost_by(subnet) + sum(more[one] for one in replaced[:-1])

    return lost


def test_additive_search_is_nearly_optimal_for_non_additive_losses():
    """Compared with brute force over 1,320 subnets, and among millions with as many of the best sums."""
    for seed in range(4):
        own = known(6, seed=seed)
        lost, budget = disturbing(own, seed), 0.5 * own.original_ms
        found = search(own.space, own.table, Scorer(own, lost), budget)
        reached = min(lost(one.subnet) for one in found if one.latency_ms <= budget)
        assert reached <= 1.1 * best_within(own, budget, lost)
    shares = []
    for seed in range(4):
        own = known(12, seed=seed)
        lost, budget = disturbing(own, seed), 0.5 * own.original_ms
        found = search(own.space, own.table, Scorer(own, lost), budget)
        front = best_sums(own.space, own.table, own.lost)
        fitting = int(np.searchsorted(front.latencies_ms, budget, side="right"))
        sums = min(lost(front.subnet(place)) for place in range(max(0, fitting - 24), fitting))
        shares.append(min(lost(one.subnet) for one in found if one.latency_ms <= budget) / sums)
    assert np.median(shares) < 0.85


def test_losses_of_variants_are_corrected_by_the_measured_loss_of_a_subnet():
    """A subnet of two variants lost 0.23 more than their sum, which is split between them with shrinkage."""
    own = known(2, merged=())
    whole = Candidate(own.space.original, 1.0, SubnetScore(0.9, 2.0))
    first, second = (next(one for one in own.space.variants[2:] if one.start == at) for at in range(2))
    subnet = (first, second)
    scored = Candidate(subnet, 1.0, SubnetScore(0.5, 2.0 + own.lost_by(subnet) + 0.23))
    lost = corrected(own.lost, whole, [scored])
    expected = own.lost | {one: own.lost[one] + 0.23 / (2 + 0.3) for one in subnet}
    assert lost == pytest.approx(expected)
    assert corrected(own.lost, whole, []) == own.lost


@pytest.mark.slow
def test_the_neighbourhood_needs_fewer_candidates():
    """Candidates needed to match the final result of a search without neighbourhood, over several seeds."""
    own = known(12)
    lost, budget = interacting(own), 0.5 * own.original_ms

    def progress(nearby, seed):
        found = search(
            own.space, own.table, Scorer(own, lost), budget, Strategy.EVOLUTION,
            nearby=nearby, population=20, most=400, seed=seed,
        )  # fmt: skip
        return np.maximum.accumulate([one.fitness(budget) for one in found])

    needed = []
    for seed in range(5):
        reached = progress(False, seed)[-1]
        needed.append(int(np.argmax(progress(True, seed) >= reached)) + 1)
    assert np.median(needed) < 200


@pytest.mark.parametrize("strategy", Strategy)
def test_searches_are_reproducible_by_seed(strategy):
    own = known(8)
    one, other = (
        search(own.space, own.table, Scorer(own), 0.6 * own.original_ms, strategy, most=100) for _ in range(2)
    )
    assert one == other


@pytest.mark.parametrize("strategy", Strategy)
def test_a_small_space_is_searched_exhaustively(strategy):
    own = known(2, shrunk=1, merged=())
    found = search(own.space, own.table, Scorer(own), own.original_ms, strategy, band=1.0)
    assert {one.subnet for one in found} <= set(own.space)
    best = max(found, key=lambda one: one.fitness(own.original_ms))
    assert best.subnet == own.space.original
