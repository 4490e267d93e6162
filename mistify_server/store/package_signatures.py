"""Signatures of the packages in a store: of a new package, of all others, and their check."""

import logging
from collections.abc import Iterable, Iterator

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.jobs.job import PackageFile
from mistify.package.manifest import MANIFEST
from mistify.package.signature import SIGNATURE_FILE, KeyChain, PackageSignature
from mistify.wording import counted
from mistify_server.store.artifacts import Artifacts, artifact_of, digest_of
from mistify_server.store.directory import Store
from mistify_server.store.jobs import StoredPackage
from mistify_server.store.signing_keys import SIGNING_KEYS, SigningKeys

_log = logging.getLogger(__name__)

_RENEW = "mistify-server signing-keys rotate --stolen, which makes a new key and signs all packages again"


def with_signature(
    files: Iterable[PackageFile], keys: SigningKeys, artifacts: Artifacts
) -> tuple[PackageFile, ...]:
    """Sign a package, and return its files with that of the signature, by name.

    Args:
        files: The files of the package, with its manifest.

    Raises:
        MistifyError: UNAVAILABLE, there is no usable key, or the signature cannot be stored.
    """
    files = tuple(files)
    manifest = next(file.sha256 for file in files if file.name == MANIFEST)
    signed = (*files, _signature(manifest, keys, artifacts))
    return tuple(sorted(signed, key=lambda file: file.name))


def prepare_signing(store: Store) -> None:
    """Make the signing key of a store that has none, and sign packages of versions without signatures.

    Raises:
        MistifyError: UNAVAILABLE, the key is missing or damaged, or cannot be written.
    """
    keys, packages = store.signing_keys, store.jobs.packages()
    if not keys.exist and any(package.signature for package in packages):
        fix = f"restore it from a backup of the store; if there is none: {_RENEW}"
        problem = Problem(SIGNING_KEYS, "no such file", "the keys that signed the packages", fix)
        raise MistifyError(ErrorCode.UNAVAILABLE, "packages cannot be signed", [problem])
    if keys.make():
        _log.info("made the key that signs packages: %s", keys.public().current)
    keys.public()  # refuse a damaged one before jobs wait for it
    unsigned = [package for package in packages if package.signature is None]
    if unsigned:
        _log.info("signing %s of an earlier version", counted(len(unsigned), "package"))
        _sign(store, unsigned)


def sign_again(store: Store) -> None:
    """Sign all packages with the current key, in place of earlier signatures.

    Raises:
        MistifyError: UNAVAILABLE, there is no usable key, or a signature cannot be stored.
    """
    _sign(store, store.jobs.packages())


def signature_faults(store: Store) -> Iterator[str]:
    """Yield what is wrong with the keys and the signatures of a store, and how to fix it."""
    packages = [package for package in store.jobs.packages() if package.signature is not None]
    keys = store.signing_keys
    if not packages and not keys.exist:  # no server of a version with signatures has used the store
        return
    if fault := keys.fault():
        yield fault
        return
    known = keys.public()
    for package in packages:
        if not _is_ours(package, known, store.artifacts):
            where = f'{SIGNATURE_FILE} of the goal "{package.goal_id}" of the job {package.job_id}'
            yield f"{where} is not by a key of {SIGNING_KEYS}; restore that from a backup, or run {_RENEW}"


def _is_ours(package: StoredPackage, known: KeyChain, artifacts: Artifacts) -> bool:
    """Return True if the signature is by one of the server's keys, or lost: that is found by its digest."""
    if package.signature is None:
        return True
    try:
        content = artifacts.intact(artifact_of(package.signature)).read_bytes()
        signature = PackageSignature.model_validate_json(content)
    except MistifyError:
        return True
    except ValueError:
        return False
    is_for_it = signature.manifest == package.manifest and signature.keys.current in known.keys
    return is_for_it and signature.is_valid()


def _sign(store: Store, packages: Iterable[StoredPackage]) -> None:
    signed = {
        (package.job_id, package.goal_id): _signature(package.manifest, store.signing_keys, store.artifacts)
        for package in packages
    }
    store.jobs.set_files(signed)


def _signature(manifest: str, keys: SigningKeys, artifacts: Artifacts) -> PackageFile:
    content = keys.sign(manifest)
    artifact = artifacts.put(content, ".json")
    return PackageFile(SIGNATURE_FILE, len(content), digest_of(artifact))
