"""Train and test data: reading them, checking them against a model, holding more than memory can."""

from executors.data.dataset import Dataset, HeldOut, joined, split
from executors.data.storage import Array

__all__ = ["Array", "Dataset", "HeldOut", "joined", "split"]
