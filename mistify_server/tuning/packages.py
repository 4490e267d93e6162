"""Packages that the members of a group tune."""

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.jobs.job import Goal
from mistify.package.manifest import MANIFEST, NETWORK, Manifest
from mistify.package.weights import Tunable
from mistify.peers.membership import PackageReference
from mistify_server.store.artifacts import artifact_of
from mistify_server.store.directory import Store
from mistify_server.store.tuning import Group


class PublishedModels:
    """Weights of packages according to their manifests, each read once because packages do not change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[tuple[PackageReference, str, int], Tunable] = {}

    def tunable(self, group: Group, package: PackageReference) -> Tunable:
        """Return the tunable weights of a group's package.

        Raises:
            MistifyError: INVALID_PUBLICATION, the package does not belong to the group, differs from the
                tuned one, or has no tunable weights.
        """
        key = package, group.job_id, group.batch
        if key not in self._read:
            self._read[key] = self._tunable(group, package)
        return self._read[key]

    def _tunable(self, group: Group, package: PackageReference) -> Tunable:
        if package.job_id != group.job_id:
            raise _refused("job_id", package.job_id, f"{group.job_id}, the group's job")
        goal = self._goal_of(group, package.goal_id)
        files = {file.name: file for file in goal.files}
        if NETWORK not in files or files[NETWORK].sha256 != package.sha256:
            raise _refused("sha256", package.sha256, _digest_of(goal))
        path = self._store.artifacts.intact(artifact_of(files[MANIFEST]))
        tunable = Manifest.model_validate_json(path.read_bytes()).tunable
        if not tunable:
            raise _refused("goal_id", package.goal_id, "a package whose weights can be tuned")
        return tunable

    def _goal_of(self, group: Group, goal_id: str) -> Goal:
        expected = f"a goal of batch {group.batch} of the job {group.job_id}"
        try:
            goal = self._store.jobs.goal(group.job_id, goal_id)
        except MistifyError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            raise _refused("goal_id", goal_id, expected) from error
        if goal.batch != group.batch:
            raise _refused("goal_id", goal_id, expected)
        return goal


def _digest_of(goal: Goal) -> str:
    digests = [file.sha256 for file in goal.files if file.name == NETWORK]
    return digests[0] if digests else f"no package, because the goal is {goal.state.value}"


def _refused(field: str, value: str, expected: str) -> MistifyError:
    problem = Problem(f"package.{field}", f'"{value}"', expected, "tune a package of the group's job")
    return MistifyError(ErrorCode.INVALID_PUBLICATION, "the package cannot be used", [problem])
