"""The scope that each call over gRPC needs; calls that are not listed here are refused."""

from collections.abc import Mapping
from typing import Final

from mistify_server.identity.callers import Scope

#: Services that need no token.
PUBLIC_SERVICES: Final = ("grpc.health.v1.Health",)

_PORTING: Final = {
    "SubmitBatch": Scope.SUBMIT,
    "Plan": Scope.SUBMIT,
    "AddGoals": Scope.SUBMIT,
    "CancelJob": Scope.SUBMIT,
    "PauseJob": Scope.SUBMIT,
    "ResumeJob": Scope.SUBMIT,
    "ChangeJob": Scope.SUBMIT,
    "RemoveJob": Scope.SUBMIT,
    "RestoreJob": Scope.SUBMIT,
    "GetJob": Scope.READ,
    "ListJobs": Scope.READ,
    "WatchJob": Scope.READ,
    "GetGoalDetails": Scope.READ,
    "FetchPackage": Scope.READ,
    "FetchReport": Scope.READ,
    "GetConfig": Scope.READ,
    "GetSigningKeys": Scope.READ,
    "GetCaller": Scope.READ,
}
_DEVICES: Final = {
    "RegisterDevice": Scope.SUBMIT,
    "ReportLatency": Scope.REPORT,
    "ReportStatus": Scope.REPORT,
    "ListDevices": Scope.READ,
}
_ROLLOUTS: Final = {
    "StartRollout": Scope.ADMIN,
    "PauseRollout": Scope.ADMIN,
    "ResumeRollout": Scope.ADMIN,
    "RollBack": Scope.ADMIN,
    "ListRollouts": Scope.READ,
    "GetRollout": Scope.READ,
}
_FILES: Final = {"FindFiles": Scope.SUBMIT, "UploadFile": Scope.SUBMIT}
_TUNING: Final = dict.fromkeys(("Join", "Publish", "Peers", "Leave"), Scope.TUNE)

_OF_SERVICES: Final = {
    "Porting": _PORTING,
    "Devices": _DEVICES,
    "Rollouts": _ROLLOUTS,
    "Files": _FILES,
    "Tuning": _TUNING,
}

#: Path of a call -> the scope that it needs.
SCOPES: Final[Mapping[str, Scope]] = {
    f"/mistify.v1.{service}/{call}": scope
    for service, calls in _OF_SERVICES.items()
    for call, scope in calls.items()
}
