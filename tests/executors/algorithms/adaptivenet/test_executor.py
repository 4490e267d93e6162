"""AdaptiveNet on the server: the preparation, and subnets for goals."""

from dataclasses import replace

import keras
import numpy as np
import pytest

from executors.algorithms.adaptivenet import ALGORITHM
from executors.algorithms.adaptivenet.executor import AdaptiveNetExecutor
from executors.algorithms.adaptivenet.params import AdaptiveNetParams
from executors.algorithms.adaptivenet.selection import LoadedSupernet, Scorer, Subnets, corrected
from executors.algorithms.adaptivenet.supernet import Supernet
from executors.contract.package_parts import PackageParts
from executors.contract.params import parse_params
from executors.contract.preparation import PreparationProgress
from executors.structure import analyse, copied, freeze, model_of
from executors.training.evaluation import Evaluation
from mistify.config.data.metric import Metric
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS, MEMORY, exceeded, meets
from mistify.errors import MistifyError
from tests.executors.algorithms.adaptivenet.conftest import PARAMS

WITH_BLOCKS = PARAMS.model_copy(update={"blocks": True})


def adapted(assignment, params=PARAMS, executor=None):
    """Return the network of an edge, and the number of its steps."""
    executor, steps = executor or AdaptiveNetExecutor(params), 0
    executor.init(assignment)
    while not meets(executor.measure(), assignment.budget):
        steps += executor.iterate()
    return executor.network(), steps


@pytest.mark.sampled
@pytest.mark.parametrize("limit", [(0.6, 0.15), (0.75, 0.06), (0.9, 0.03)])
def test_a_goal_is_met_by_a_subnet_without_training_steps(assigned, prepared, deep, deep_setup, limit):
    (share, most_lost), (content, progress) = limit, prepared
    assert progress.step == PARAMS.distil_steps + PARAMS.path_steps
    score = Evaluation(deep).score(deep_setup.validation, Metric.ACCURACY)
    assignment = assigned(share, content)
    network, steps = adapted(assignment)
    assert steps == 0
    assert 0.8 * assignment.budget[FLOPS] < costs_of(analyse(network).network(), ())[FLOPS]
    assert Evaluation(network).score(deep_setup.validation, Metric.ACCURACY) > score - most_lost
    names = {layer.name for layer in network.layers}
    assert any("-shrink-0.5-" in name or "-merge-2-" in name for name in names)


def test_what_other_goals_left_loaded_does_not_change_a_subnet(assigned, prepared):
    """Not even the candidates, although losses are measured only once."""

    def chosen(executor, share):
        network, _ = adapted(assigned(share, prepared[0]), executor=executor)
        return network, executor._subnets[1]._scored

    kept = AdaptiveNetExecutor(PARAMS)
    alone, scored = chosen(AdaptiveNetExecutor(PARAMS), 0.7)
    for share in (0.9, 0.6):
        chosen(kept.for_edge(), share)
    shared, scored_again = chosen(kept.for_edge(), 0.7)
    assert scored_again == scored
    assert [layer.name for layer in shared.layers] == [layer.name for layer in alone.layers]
    for array, again in zip(alone.get_weights(), shared.get_weights(), strict=True):
        np.testing.assert_array_equal(again, array)


@pytest.mark.slow
def test_limits_that_a_subnet_exactly_meets_are_met(assigned, prepared):
    """Although the memory of a network is not the sum over its blocks."""
    assignment = assigned(0.5, prepared[0])
    supernet, losses = Supernet.loaded(prepared[0], assignment.source, PARAMS.largest)
    rng = np.random.default_rng(0)
    for _ in range(6):
        some = analyse(model_of(supernet.graph(supernet.space.random(rng)))).network()
        limits = {axis: costs_of(some, ())[axis] for axis in (MEMORY, FLOPS)}
        best = Subnets(LoadedSupernet(supernet, losses)).best(replace(assignment, budget=limits))
        assert not exceeded(costs_of(analyse(best).network(), ()), limits)


def every_subnet(space, position=0):
    if position == space.blocks:
        yield ()
    for number in space.starting.get(position, ()):
        for rest in every_subnet(space, space.places[number].end):
            yield (number, *rest)


@pytest.mark.slow
def test_the_subnet_of_a_goal_is_nearly_optimal(assigned, prepared, deep_setup, deep):
    """Compared with brute force; a tighter goal never has a better subnet than a looser one."""
    content, _ = prepared
    source = assigned(1.0).source
    supernet, losses = Supernet.loaded(content, source, PARAMS.largest)
    scorer = Scorer(supernet, deep, deep_setup)
    of_all = {
        subnet: (analyse(model_of(supernet.graph(subnet))).network().flops, scorer.divergence(subnet))
        for subnet in every_subnet(supernet.space)
    }
    assert len(of_all) == supernet.space.count()
    subnets, before = Subnets(LoadedSupernet(supernet, losses)), np.inf
    for share in (0.5, 0.6, 0.7, 0.8, 0.9):
        assignment = assigned(share)
        chosen = supernet.subnet_of(subnets.best(assignment))
        flops, lost = of_all[chosen]
        limit = assignment.budget[FLOPS]
        within = sorted(lost for flops, lost in of_all.values() if flops <= limit)
        assert flops <= limit
        assert lost <= within[min(3, len(within) - 1)]
        assert lost <= before
        before = lost


def test_losses_of_variants_are_corrected_by_the_measured_losses_of_subnets():
    """Both variants together lose more than their sum, and the network's own blocks lose nothing."""
    alone = [0.0, 0.0, 0.1, 0.2]
    assert corrected(alone, {}, 2) == alone
    first = corrected(alone, {(2, 3): 0.6}, 2)
    assert first[:2] == [0.0, 0.0]
    assert 0.5 < first[2] + first[3] < 0.6
    assert first[2] - 0.1 == pytest.approx(first[3] - 0.2)
    assert corrected(alone, {(2, 3): 0.6, (2, 1): 0.1}, 2)[2] < first[2]


def test_the_preparation_does_not_depend_on_limits_or_settings_of_edges():
    own = ALGORITHM.prepared_from(PARAMS, {FLOPS: 1.0})
    for other in ({"blocks": True}, {"tune_steps": 5}, {"adapt_steps": 5}):
        changed = PARAMS.model_copy(update=other)
        assert ALGORITHM.prepared_from(changed, {MEMORY: 2.0}) == own
    for other in ({"distil_steps": 5}, {"batch_size": 5}, {"largest": 0.5}):
        assert ALGORITHM.prepared_from(PARAMS.model_copy(update=other), {FLOPS: 1.0}) != own


@pytest.mark.slow
def test_a_learning_rate_for_gradient_descent_does_not_ruin_the_supernet(assigned):
    """It is trained with Adam, for which such a rate is too high."""

    def trained_with(**settings):
        keras.utils.set_random_seed(3)
        params = PARAMS.model_copy(update={"distil_steps": 1, "path_steps": 2, **settings})
        return AdaptiveNetExecutor(params).prepare(assigned(0.5), PreparationProgress())

    usual = trained_with()
    assert trained_with(learning_rate=0.05) == usual
    assert trained_with(optimizer="adam", learning_rate=0.05) != usual


def test_the_cheapest_subnet_is_cut_for_tighter_limits(assigned, prepared, deep_setup):
    content, _ = prepared
    params = PARAMS.model_copy(update={"adapt_steps": 60, "cuts": 2})
    network, steps = adapted(assigned(0.2, content), params)
    assert steps == 60
    assert any("-shrink-0.5-" in layer.name or "-merge-2-" in layer.name for layer in network.layers)


@pytest.mark.slow
def test_an_interrupted_preparation_resumes(assigned, prepared):
    """It resumes after any of its parts without repeating completed parts."""

    class Stopped(PreparationProgress):
        def keep(self, name, content):
            super().keep(name, content)
            if self.step >= 100:
                raise KeyboardInterrupt

    stopped = Stopped()
    keras.utils.set_random_seed(3)
    with pytest.raises(KeyboardInterrupt):
        AdaptiveNetExecutor(PARAMS).prepare(assigned(0.5), stopped)
    resumed = PreparationProgress()
    resumed._parts = dict(stopped._parts)
    reported = []
    resumed.report = lambda step, total, loss=None: reported.append(step)
    content = AdaptiveNetExecutor(PARAMS).prepare(assigned(0.5), resumed)
    assert min(reported) > stopped.step == 105
    assert max(reported) == PARAMS.distil_steps + PARAMS.path_steps
    assert content == prepared[0]


def test_a_network_without_blocks_is_cut(trained, training_setup, assigned):
    params = PARAMS.model_copy(update={"largest": 1.0, "adapt_steps": 12, "cuts": 1})
    source = analyse(trained)
    limit = {FLOPS: 0.6 * costs_of(source.network(), ())[FLOPS]}
    assignment = replace(assigned(0.5), model=trained, source=source, setup=training_setup, budget=limit)
    assert AdaptiveNetExecutor(params).prepare(assignment, PreparationProgress()) == b""
    network, steps = adapted(assignment, params)
    assert steps == 12
    assert costs_of(analyse(network).network(), ())[FLOPS] <= limit[FLOPS]


def test_frozen_layers_are_not_changed(assigned, prepared, deep):
    """Layers are frozen in the edge's network, like the shared base of branches."""
    own = copied(deep)
    first = next(layer for layer in own.layers if isinstance(layer, keras.layers.Conv2D))
    kernel = first.kernel.numpy() + 1
    first.set_weights([kernel])
    freeze(own, {first.name})
    params = PARAMS.model_copy(update={"adapt_steps": 12, "cuts": 1})
    network, _ = adapted(replace(assigned(0.8, prepared[0]), model=own), params)
    np.testing.assert_array_equal(network.get_layer(first.name).kernel, kernel)


@pytest.mark.parametrize("place", ["merge", "shrink"])
def test_a_setting_is_given_only_once(place):
    amount = {"merge": 2, "shrink": 0.5}[place]
    with pytest.raises(MistifyError, match=f"{place}.*each number once"):
        parse_params(AdaptiveNetParams, {place: [amount, amount]})
    with pytest.raises(MistifyError, match=f'use the setting "{place}" instead'):
        parse_params(AdaptiveNetParams, {"variants": {place: [amount]}})


def test_packages_contain_the_blocks_of_the_network(prepared, deep):
    executor, source = AdaptiveNetExecutor(WITH_BLOCKS), analyse(deep)
    supernet, _ = Supernet.loaded(prepared[0], source, PARAMS.largest)
    network = model_of(supernet.graph(supernet.space.random(np.random.default_rng(0))))
    parts = executor.package_parts(source, prepared[0], network)
    by_file = {block.file: block for block in parts.blocks}
    served = [by_file[file] for file in parts.served]
    assert [block.start for block in served] == [0, *(block.end for block in served[:-1])]
    assert served[-1].end == max(block.end for block in parts.blocks)
    flops = sum(block.estimate.flops for block in served)
    assert flops == costs_of(analyse(network).network(), ())[FLOPS]
    assert not executor.package_parts(source, prepared[0], keras.Sequential([keras.Input((2,))])).served


def test_packages_have_no_blocks_if_disabled_or_impossible(prepared, deep):
    source = analyse(deep)
    assert AdaptiveNetExecutor(PARAMS).package_parts(source, prepared[0], deep) == PackageParts()
    parts = AdaptiveNetExecutor(WITH_BLOCKS).package_parts(source, b"", deep)
    assert not parts.blocks
    assert "without blocks" in parts.note
