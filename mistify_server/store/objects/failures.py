"""Failures of S3, with advice for the operator."""

from typing import Final, NamedTuple

_CREDENTIALS: Final = (
    "has refused the credentials; correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile"
)
_NO_CREDENTIALS: Final = (
    "cannot be used without credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
)
_NO_PROFILE: Final = "cannot be used, there is no such profile; correct AWS_PROFILE"
_NO_BUCKET: Final = "cannot be used, there is no such bucket; create it, or correct --artifacts"
_REFUSED: Final = "has refused access; allow the server's key to list, read, write and delete objects"
_REGION: Final = "cannot be used, the bucket is in another region; correct AWS_DEFAULT_REGION"
_BUSY: Final = "is busy; try again later"
_UNREACHABLE: Final = "cannot be reached; check the network and AWS_ENDPOINT_URL"

#: Advice by the codes of S3. The answer to a HEAD request has a status instead.
_BY_CODE: Final = {
    "NoSuchBucket": _NO_BUCKET,
    "404": _NO_BUCKET,
    "AccessDenied": _REFUSED,
    "403": _REFUSED,
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "InvalidToken": _CREDENTIALS,
    "ExpiredToken": _CREDENTIALS,
    "RequestTimeTooSkewed": "has refused the time of this machine; set its clock",
    "PermanentRedirect": _REGION,
    "301": _REGION,
    "SlowDown": _BUSY,
    "ServiceUnavailable": _BUSY,
    "503": _BUSY,
}

#: Advice by the names of botocore's exceptions.
_BY_NAME: Final = {
    "NoCredentialsError": _NO_CREDENTIALS,
    "PartialCredentialsError": _NO_CREDENTIALS,
    "CredentialRetrievalError": _NO_CREDENTIALS,
    "ProfileNotFound": _NO_PROFILE,
    "ConnectTimeoutError": _UNREACHABLE,
    "EndpointConnectionError": _UNREACHABLE,
    "ReadTimeoutError": "does not answer in time; check the network, and try again later",
    "ProxyConnectionError": "cannot be reached; check the proxy in HTTPS_PROXY",
    "SSLError": "cannot be trusted; give its certificate authority in AWS_CA_BUNDLE",
}


#: What nothing but the operator can end; a repeated request is in vain until then.
_REFUSALS: Final = frozenset({_CREDENTIALS, _NO_CREDENTIALS, _NO_PROFILE, _NO_BUCKET, _REFUSED, _REGION})


class Failure(NamedTuple):
    """The meaning of an error of an S3 client, for people.

    Attributes:
        advice: The fault and its remedy, as the end of a sentence that begins with the name of the bucket.
        refused: Whether only the operator can end it; otherwise it may pass.
    """

    advice: str
    refused: bool


def code_of(error: Exception) -> str:
    """Return the code of an error that S3 has answered with; empty for any other error."""
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def failure_of(error: Exception) -> Failure:
    """Return what an error means, which a client of S3 has raised."""
    code, name = code_of(error), type(error).__name__
    if code:
        advice = _BY_CODE.get(code, f"cannot be used ({code}); see the log, and try again later")
    else:
        advice = _BY_NAME.get(name, f"cannot be used ({name}); check the network, and try again later")
    return Failure(advice, advice in _REFUSALS)
