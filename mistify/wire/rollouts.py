"""Conversion of roll-outs to protobuf and back; the counterpart of `porting` for `rollouts.proto`."""

from mistify.rollouts import NewRollout, RolloutProgress
from mistify.v1 import rollouts_pb2 as pb
from mistify.wire.messages import Converter

_CONVERTER = Converter()


def new_rollout_to_proto(new: NewRollout) -> pb.StartRolloutRequest:
    """Return a roll-out to start as a message."""
    return _CONVERTER.to_message(new, pb.StartRolloutRequest)


def new_rollout_from_proto(message: pb.StartRolloutRequest) -> NewRollout:
    """Return the roll-out to start in a message."""
    return _CONVERTER.from_message(message, NewRollout)


def progress_to_proto(progress: RolloutProgress) -> pb.RolloutProgress:
    """Return a roll-out with its devices as a message."""
    return _CONVERTER.to_message(progress, pb.RolloutProgress)


def progress_from_proto(message: pb.RolloutProgress) -> RolloutProgress:
    """Return the roll-out with its devices in a message.

    Raises:
        MistifyError: INVALID_MESSAGE, its state is unknown to this version.
    """
    return _CONVERTER.from_message(message, RolloutProgress)
