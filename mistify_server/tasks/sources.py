"""Where models and data come from."""

from mistify.config.dataset import DataSettings
from mistify.config.metric import Metric
from mistify_server.tasks.base import Message


class ModelSource(Message):
    """Where the source model comes from: one of `path`, `builtin` and `application`, and its options.

    Attributes:
        path: A file or directory.
        builtin: The name of a built-in model.
        application: The name of an architecture of `keras.applications`.
        classes: The classes that the model is given, where its file does not say.
        input: Height and width of the images that an architecture of `keras.applications` takes.
        weights: A file with the weights of such an architecture.
        sequence: Tokens of the texts that a preset of keras_hub takes.
    """

    path: str | None = None
    builtin: str | None = None
    application: str | None = None
    classes: int | None = None
    input: int | None = None
    weights: str | None = None
    sequence: int | None = None


class DataSource(Message):
    """Train and test data: files, directories, or `builtin:digits-train`; and how they are used."""

    train: str
    test: str
    settings: DataSettings = DataSettings()

    @property
    def metric(self) -> Metric:
        """What is measured, once the data were inspected."""
        return self.settings.metric or Metric.ACCURACY
