"""Preparation of images and texts as inputs of a package."""

from collections.abc import Sequence

import numpy as np

from mistify.config.data.dataset import TextSettings
from mistify.config.data.preparation import TokenPreparation
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.package.manifest import TensorInfo
from mistify.package.opened import Package
from mistify.tokenizer import PADDING, Tokenizer
from mistify_client.runtime.images import prepared_image
from mistify_client.runtime.inputs import Array


class InputPreparation:
    """The preparation of images and texts as inputs of one version of a package.

    A vocabulary is read when it is first needed.
    """

    def __init__(self, package: Package) -> None:
        self._package = package
        self._tokenizers: dict[str, Tokenizer] = {}

    def prepared(self, raw: Array | str, name: str | None = None) -> Array:
        """Return an image or a text as an input with one example.

        Args:
            raw: An image for `prepared_image`, or a text.
            name: Name of the input; None for the only input that takes images, or texts.

        Raises:
            MistifyError: NOT_FOUND, the manifest describes no such preparation; INVALID_DATASET, the image is
                invalid; CORRUPT_PACKAGE, the vocabulary is missing or damaged.
        """
        manifest = self._package.manifest
        infos = {info.name: info for info in manifest.inputs}
        images = {key: each.image for key, each in manifest.preparation.items() if each.image is not None}
        texts = {key: each.tokens for key, each in manifest.preparation.items() if each.tokens is not None}
        known = list(texts if isinstance(raw, str) else images)
        wanted = known[0] if name is None and len(known) == 1 else name
        if wanted is None or wanted not in known:
            raise _undescribed(wanted, list(infos), known, "text" if isinstance(raw, str) else "image")
        if isinstance(raw, str):
            return self._token_ids(raw, texts[wanted], infos[wanted])
        return prepared_image(raw, images[wanted], infos[wanted])

    def _token_ids(self, text: str, preparation: TokenPreparation, info: TensorInfo) -> Array:
        """Return the ids of a text's tokens [1, length], in the dtype of the input."""
        length = preparation.length or info.shape[1]
        ids = self._tokenizer(preparation.vocabulary).text(text, length)
        return np.array([[*ids, *[PADDING] * (length - len(ids))]], info.dtype)

    def _tokenizer(self, vocabulary: str) -> Tokenizer:
        if vocabulary not in self._tokenizers:
            self._package.read(vocabulary)  # verifies it
            settings = TextSettings(vocabulary=str(self._package.directory / vocabulary))
            self._tokenizers[vocabulary] = Tokenizer(settings)
        return self._tokenizers[vocabulary]


def _undescribed(wanted: str | None, inputs: Sequence[str], known: Sequence[str], kind: str) -> MistifyError:
    example = '{"image": {}}' if kind == "image" else '{"tokens": {"vocabulary": "vocab.txt"}}'
    problem = Problem(
        wanted or "the input",
        "an image" if kind == "image" else "a text",
        f"the name of one of {', '.join(known)}"
        if known
        else "arrays as the source takes them: no such preparation is described",
        "name it" if known else f'declare it in the config: "preparation": {{"{inputs[0]}": {example}}}',
    )
    return MistifyError(ErrorCode.NOT_FOUND, "the package does not say how to prepare it", [problem])
