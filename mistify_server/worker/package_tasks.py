"""Package tasks, which turn a goal's checkpoint into the files that devices load (paper 7)."""

from functools import partial

import keras

from executors.contract.params import Params
from executors.data import Dataset, HeldOut
from executors.sources.contract import SourceModel
from executors.structure import Structure, Widths, analyse
from executors.structure.fingerprint import digest_of
from executors.structure.reading.reader import read_graph
from executors.timing import activity
from executors.training.evaluation import evaluate
from mistify.config.package.quantization import QuantizationConfig
from mistify.jobs.job import ProgressUpdate
from mistify_server.store.artifacts import Artifacts
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.results import BranchResult, PackageResult
from mistify_server.tasks.tasks import PackageTask
from mistify_server.worker.adaptation.progress import reporter
from mistify_server.worker.cache import SourceCache, parts_of
from mistify_server.worker.checkpoints import Checkpoints
from mistify_server.worker.packaging.assemble import store_package
from mistify_server.worker.packaging.conversion.branches import Branches, BranchNetwork
from mistify_server.worker.packaging.conversion.slice_source import SliceSource
from mistify_server.worker.packaging.conversion.templates import ConversionTemplates
from mistify_server.worker.packaging.layers import layer_table, profile_of
from mistify_server.worker.packaging.models import NO_RANGES, Ready, needs_converter, package_model
from mistify_server.worker.packaging.unchanged import package_unchanged
from mistify_server.worker.params import params_of
from mistify_server.worker.prepared_conversions import PreparedConversions
from mistify_server.worker.training_setups import TrainingSetups


class Packager:
    """Makes packages.

    Args:
        artifacts: Stores the files of packages.
        cache: Loads the data.
        checkpoints: Loads the networks.
        setups: Prepares the data and settings for training.
        conversions: Converts the networks from which slices are cut.
        templates: Writes networks that are like earlier ones without conversion.
        on_progress: Receives the progress.
    """

    def __init__(
        self,
        artifacts: Artifacts,
        cache: SourceCache,
        checkpoints: Checkpoints,
        setups: TrainingSetups,
        conversions: PreparedConversions,
        *,
        templates: ConversionTemplates,
        on_progress: OnProgress,
    ) -> None:
        self._artifacts = artifacts
        self._cache = cache
        self._checkpoints = checkpoints
        self._setups = setups
        self._conversions = conversions
        self._templates = templates
        self._on_progress = on_progress

    @activity("packaging")
    def package(self, task: PackageTask) -> PackageResult:
        """Make a package, and return the digests of its files with its figures."""
        report = reporter(self._on_progress, task.recipe.data.validation_metric)
        report(ProgressUpdate("packaging", 0, 1, task.costs, task.accuracy))
        source = self._checkpoints.source(task.recipe.teacher)
        if source.network is None:
            return self._package_unchanged(task, source)
        return self._package(task, source, source.network)

    def _package_unchanged(self, task: PackageTask, source: SourceModel) -> PackageResult:
        learning, test = parts_of(task.recipe.data, source.signature)
        train, validation = self._cache.learning(learning)
        held_out = HeldOut(validation, self._cache.data(test))
        return store_package(package_unchanged(source, task, train, held_out), task, self._artifacts)

    def _package(self, task: PackageTask, source: SourceModel, teacher: keras.Model) -> PackageResult:
        recipe = task.recipe
        params = params_of(recipe)
        setup = self._setups.prepare(recipe, params, task.spec.task, distilled=task.spec.needs_training)
        task = task.model_copy(update={"recipe": recipe.with_settings(setup.settings)})
        if task.branches:
            task = self._of_own_branch(task, task.branches, setup.validation)
        model = self._checkpoints.shared(task.checkpoint)
        branches = self._load_branches(task.branches) if task.branches else None
        test = self._setups.test(recipe, task.spec.task)
        parts = self._setups.executor(recipe, params).package_parts(
            self._setups.source(recipe, params, task.spec.task),
            self._checkpoints.load_prepared(recipe.prepared),
            model,
        )
        structure = analyse(model)
        keras.utils.set_random_seed(recipe.seed)  # independent of what was loaded before
        package = package_model(
            model,
            task,
            setup,
            test,
            training_steps=_training_steps(params),
            branches=branches,
            interface=source.interface,
            ranges=source.ranges if source.ranges and _is_same(model, teacher) else NO_RANGES,
            parts=parts,
            slices=SliceSource(
                partial(self._conversions.cuttable, recipe, params),
                partial(self._conversions.assembler, recipe),
                self._checkpoints.units(task.checkpoint),
            ),
            written=self._written_as(task, structure, self._setups.source(recipe, params).widths),
        )
        made = store_package(package, task, self._artifacts)
        reason = task.branches.reason if task.branches else ""
        unanswered = self._setups.note(recipe, task.spec.task)
        whole = self._setups.source(recipe, params)
        layers = layer_table(whole, structure, profile_of(task))
        return made.model_copy(
            update={
                "note": "; ".join(filter(None, (made.note, reason, parts.note, unanswered))),
                "layers": layers,
            }
        )

    def _written_as(self, task: PackageTask, structure: Structure, source: Widths) -> Ready:
        """Return a function that writes a network into a template, if goals share their conversion.

        The random state does not depend on whether a template was made.
        """

        def written(quantization: QuantizationConfig) -> bytes | None:
            network = self._templates.written(structure, quantization, source)
            keras.utils.set_random_seed(task.recipe.seed)
            return network

        return written if task.shares_conversion else needs_converter

    def _of_own_branch(self, task: PackageTask, branches: BranchResult, validation: Dataset) -> PackageTask:
        """Return the task for the goal's own branch, which has the shared base."""
        own = next(branch for branch in branches.branches if branch.share == 1)
        accuracy = evaluate(self._checkpoints.shared(own.checkpoint), validation, task.recipe.data.metric)
        return task.model_copy(
            update={"checkpoint": own.checkpoint, "costs": own.costs, "accuracy": accuracy}
        )

    def _load_branches(self, branches: BranchResult) -> Branches:
        """Return the networks of a multi-branch package."""
        networks = (
            BranchNetwork(branch.share, self._checkpoints.load(branch.checkpoint), branch.costs)
            for branch in branches.branches
        )
        return Branches(branches.base, tuple(networks))


def _is_same(model: keras.Model, other: keras.Model) -> bool:
    """Check whether two networks have the same layers and weights."""
    one, another = (digest_of(read_graph(network)) for network in (model, other))
    return one == another


def _training_steps(params: Params) -> int:
    """Return the number of training steps for the precision or compression of a package."""
    if params.tune_steps or "tune_steps" in params.model_fields_set:
        return params.tune_steps
    # An algorithm may skip tuning by default because its networks are already trained, but not for this.
    return Params().tune_steps
