"""Sources of models and data."""

from pydantic import Field

from mistify.config.data.dataset import DataSettings, trains_on_pseudo_labels
from mistify.config.data.metric import Metric
from mistify_server.tasks.base import Message


class ModelSource(Message):
    """Source of a model: exactly one of `path`, `builtin` and `application`, and its options.

    Attributes:
        path: A file or directory.
        builtin: Name of a built-in model.
        application: Name of an architecture in `keras.applications`.
        classes: Number of classes, if the model's file does not define it.
        input: Height and width of the input images of an architecture in `keras.applications`.
        call: Function in the Python file at `path` that returns a PyTorch network and an example input.
        weights: A file with the weights of such an architecture, or the argument of such a function.
        sequence: Number of tokens in the input texts of a keras_hub preset.
        external_data: The file with the weights of an ONNX file, if they are in a file of their own.
        sizes: Inputs of an ONNX file with their sizes, without the batch, where the file leaves them free.
        channels_first: Whether data and apps may have channels first, as an ONNX file does.
    """

    path: str | None = None
    builtin: str | None = None
    application: str | None = None
    classes: int | None = None
    input: int | None = None
    weights: str | None = None
    sequence: int | None = None
    call: str | None = Field(default=None, exclude_if=lambda name: name is None)
    external_data: str | None = Field(default=None, exclude_if=lambda name: name is None)
    sizes: tuple[tuple[str, tuple[int, ...]], ...] = Field(default=(), exclude_if=lambda sizes: not sizes)
    channels_first: bool = Field(default=False, exclude_if=lambda first: not first)


class DataSource(Message):
    """Training and test data, as files, directories or `builtin:digits-train`, and their settings.

    Missing labels are replaced by pseudo-labels from the source, for generated inputs (`generated:COUNT`) or
    for the user's own. The JSON of labelled data omits these fields.

    Attributes:
        train: Training data; None if the unlabelled inputs replace them.
        test: Test data; None if a part of the unlabelled inputs replaces them.
        unlabelled: Inputs without labels, instead of or in addition to training data.
        answered: Part ("train", "test") -> file with its inputs and pseudo-labels, once it exists.
        settings: Settings of the data, including the validation data: a share of the training data, or a
            path.
        labelled: Whether the targets of the test data are true labels rather than pseudo-labels.
        channels_first: Inputs whose data may have channels first, once an inspection has found them.
    """

    train: str | None = None
    test: str | None = None
    unlabelled: str | None = Field(default=None, exclude_if=lambda name: name is None)
    answered: dict[str, str] = Field(default_factory=dict, exclude_if=lambda files: not files)
    settings: DataSettings = DataSettings()
    labelled: bool = True
    channels_first: tuple[str, ...] = Field(default=(), exclude_if=lambda names: not names)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parts of the data."""
        validation = self.settings.validation
        own = validation if isinstance(validation, str) else None
        named = (self.train, own, self.test, self.unlabelled, *self.answered.values())
        return tuple(name for name in named if name is not None)

    @property
    def trains_on_pseudo_labels(self) -> bool:
        """True if the targets of the training data are pseudo-labels."""
        return trains_on_pseudo_labels(self.train)

    @property
    def teaches_source(self) -> bool:
        """True if the data have labels for the source, not only its predictions or answers to tasks."""
        return not self.trains_on_pseudo_labels and self.settings.tasks is None

    @property
    def has_validation_labels(self) -> bool:
        """True if the targets of the validation data are true labels rather than pseudo-labels."""
        return isinstance(self.settings.validation, str) or not self.trains_on_pseudo_labels

    @property
    def schema_source(self) -> str | None:
        """The labelled data that define classes, columns and kinds of targets for all others, if any."""
        if not self.trains_on_pseudo_labels:
            return self.train
        return self.test if self.labelled else None

    @property
    def metric(self) -> Metric:
        """The metric of the test data; accuracy until an inspection has chosen a suitable one."""
        return self.settings.metric or Metric.ACCURACY

    @property
    def validation_metric(self) -> Metric:
        """The metric of the validation data; agreement if their targets are pseudo-labels."""
        return self.metric if self.has_validation_labels else self.metric.without_labels
