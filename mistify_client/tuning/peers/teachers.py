"""From the models of peers to a teacher: run, judged on the device's own data, averaged (paper 5.1)."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from mistify.errors import ErrorCode, MistifyError
from mistify.package.training import Training
from mistify_client.rpc.peer_files import PeerFile
from mistify_client.runtime.inputs import Array
from mistify_client.tuning.examples import Examples, Split
from mistify_client.tuning.peers.ensemble import Ensemble, Judgement, Told, agreement, judge
from mistify_client.tuning.peers.models import PeerModels, PeerOutputs
from mistify_client.tuning.trainer import Trainer

#: Examples on which peers are judged, and those that are told of at a time.
_JUDGED: Final = 2_000
_CHUNK: Final = 64


class Gathered(NamedTuple):
    """Peers that teach, by the names of their outputs; and why others do not, a line for each."""

    teachers: tuple[str, ...]
    notes: tuple[str, ...]


class Teachers:
    """The peers of a device.

    Args:
        trainer: of the network that is tuned.
        data: of the device.
        outputs: what peers say of the data.
        packages: what peers have tuned.
    """

    def __init__(self, trainer: Trainer, data: Split, outputs: PeerOutputs, packages: PeerModels) -> None:
        self._trainer = trainer
        self._data = data
        self._outputs = outputs
        self._packages = packages

    def gather(self, files: Sequence[PeerFile]) -> Gathered:
        """Those of some peers that can be trusted, compared with the network as its trainer has it now.

        Raises:
            MistifyError: UNAVAILABLE, packages cannot be fetched.
        """
        keys, notes = {}, []
        for file in files:
            try:
                keys[self._outputs.compute(file, self._packages)] = file.peer.member
            except MistifyError as error:
                if error.code is ErrorCode.UNAVAILABLE:
                    raise
                notes.append(_left_out(file.peer.member, str(error)))
        judgement = self._judge(list(keys))
        notes += [_left_out(keys[key], reason) for key, reason in judgement.left_out.items()]
        self._outputs.keep(judgement.trusted)
        return Gathered(judgement.trusted, tuple(notes))

    def has(self, keys: Sequence[str]) -> bool:
        """Whether the outputs of all these peers are still there."""
        return all(map(self._outputs.has, keys))

    def ensemble(self, keys: Sequence[str]) -> Ensemble:
        """The teacher that some peers are."""
        return Ensemble([self._outputs.read(key, self._trainer.manifest) for key in keys])

    def _judge(self, keys: Sequence[str]) -> Judgement:
        """The peers have seen none of the data; the own network is asked what it was not trained on."""
        examples, training, infer = self._data.examples, self._trainer.training, self._trainer.infer
        rows = np.random.default_rng(0).permutation(len(examples))[:_JUDGED]
        judged, held_out = examples.subset(rows), self._data.held_out
        told = {key: _at(self._outputs.read(key, self._trainer.manifest), rows) for key in keys}
        own = agreement(told_by(infer, training, held_out), held_out.targets, training.kinds)
        return judge(told, told_by(infer, training, judged), judged.targets, training.kinds, own)


def told_by(infer: Callable[..., dict[str, Array]], training: Training, examples: Examples) -> Told:
    """What a network says of examples, by output: probabilities or figures."""
    parts = [infer(chunk.inputs) for chunk in examples.chunks(_CHUNK)]
    return {
        name: kind.predictions(np.concatenate([part[name] for part in parts]))
        for name, kind in training.kinds.items()
    }


def _at(told: Told, rows: Array) -> Told:
    return {name: np.asarray(output[rows]) for name, output in told.items()}


def _left_out(member: str, reason: str) -> str:
    return f"the peer {member} is left out: {reason}"
