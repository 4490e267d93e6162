"""The teacher from peers: evaluated on the device's own data, judged, then averaged (paper 5.1)."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from mistify.errors import ErrorCode, MistifyError
from mistify_client.rpc.peer_files import PeerFile
from mistify_client.runtime.inputs import Array
from mistify_client.tuning.examples import Split
from mistify_client.tuning.peers.ensemble import Ensemble, Judgement, Predictions, agreement, judge
from mistify_client.tuning.peers.models import PeerModels, PeerOutputs
from mistify_client.tuning.trainer import PackageTrainer

#: Maximum number of examples for judging peers.
_JUDGED: Final = 2_000


class Gathered(NamedTuple):
    """The keys of the outputs of peers that teach, and for each other peer a line with the reason."""

    teachers: tuple[str, ...]
    notes: tuple[str, ...]


class Teachers:
    """The peers of a device.

    Args:
        trainer: Trains the network.
        outputs: The stored predictions of peers for the data.
        packages: The packages that peers have tuned.
    """

    def __init__(
        self, trainer: PackageTrainer, data: Split, outputs: PeerOutputs, packages: PeerModels
    ) -> None:
        self._trainer = trainer
        self._data = data
        self._outputs = outputs
        self._packages = packages

    def gather(self, files: Sequence[PeerFile]) -> Gathered:
        """Choose trusted peers by comparison with the current network of the trainer.

        Raises:
            MistifyError: UNAVAILABLE or STORE_REFUSED, packages cannot be downloaded now.
        """
        keys, notes = {}, []
        for file in files:
            try:
                keys[self._outputs.compute(file, self._packages)] = file.peer.member
            except MistifyError as error:
                if error.code in (ErrorCode.UNAVAILABLE, ErrorCode.STORE_REFUSED):  # not the peer's fault
                    raise
                notes.append(_exclusion_note(file.peer.member, str(error)))
        judgement = self._judge(list(keys))
        notes += [_exclusion_note(keys[key], reason) for key, reason in judgement.left_out.items()]
        self._outputs.keep(judgement.trusted)
        self._packages.keep([file.peer.package for file in files])
        return Gathered(judgement.trusted, tuple(notes))

    def has(self, keys: Sequence[str]) -> bool:
        """Check whether the outputs of all these peers are still stored."""
        return all(map(self._outputs.has, keys))

    def ensemble(self, keys: Sequence[str]) -> Ensemble:
        """Return the teacher from the peers with these keys.

        Raises:
            MistifyError: CORRUPT_PACKAGE, stored predictions are damaged.
        """
        return Ensemble([self._outputs.read(key, self._trainer.manifest) for key in keys])

    def _judge(self, keys: Sequence[str]) -> Judgement:
        """Judge peers on a sample of all data, and the own network on the held-out part.

        Peers have seen none of the data; the own network was trained on the rest.
        """
        examples, kinds = self._data.examples, self._trainer.training.kinds
        rows = np.random.default_rng(0).permutation(len(examples))[:_JUDGED]
        sample, held_out = examples.subset(rows), self._data.held_out
        peers = {key: _rows_of(self._outputs.read(key, self._trainer.manifest), rows) for key in keys}
        own_agreement = agreement(self._trainer.predictions(held_out), held_out.targets, kinds)
        own = self._trainer.predictions(sample)
        return judge(peers, own, sample.targets, kinds, own_agreement)


def _rows_of(predictions: Predictions, rows: Array) -> Predictions:
    return {name: np.asarray(output[rows]) for name, output in predictions.items()}


def _exclusion_note(member: str, reason: str) -> str:
    return f"the peer {member} is left out: {reason}"
