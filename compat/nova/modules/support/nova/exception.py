"""Nova's exceptions, those that services commonly raise or catch, and decorators that turn others into them.

``NovaException`` says its text once, with places for keywords: ``message`` to Folsom, ``msg_fmt`` after that;
either is taken. To Diablo the root was ``Error``. The table at the end has name, base, text and code of the rest.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any

import compat.nova
from compat.nova import options

from nova.openstack.common.processutils import ProcessExecutionError as ProcessExecutionError

LOG = logging.getLogger(__name__)


class Error(Exception):
    """Root of Cactus' and Diablo's exceptions."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message)
        self.message = message


class ApiError(Error):
    """An answer of the EC2 API."""

    def __init__(self, message: str = "Unknown", code: Any = None) -> None:
        self.msg = message
        self.code = code
        super().__init__(f"{code}: {message}" if code else message)


class DBError(Exception):
    """An error of the database, which is in ``inner_exception``."""

    def __init__(self, inner_exception: BaseException | None = None) -> None:
        self.inner_exception = inner_exception
        super().__init__(str(inner_exception))


class EC2APIError(Error):
    """An answer of the EC2 API (Folsom+)."""

    def __init__(self, message: str = "Unknown", code: Any = None) -> None:
        self.msg = message
        self.code = code
        super().__init__(f"{code}: {message}" if code else message)


class NovaException(Exception):
    """Root of the exceptions since Diablo.

    Args:
        message: the text; None: that of the class with ``kwargs`` in its places.
        kwargs: ``code`` replaces the class's HTTP code.

    Raises:
        KeyError, TypeError: the text does not fit ``kwargs``, and the option ``fatal_exception_format_errors`` is on.
    """

    message = "An unknown exception occurred."
    msg_fmt: str | None = None
    code = 500
    headers: dict[str, str] = {}  # noqa: RUF012 - subclasses replace it
    safe = False

    def __init__(self, message: Any = None, **kwargs: Any) -> None:
        self.kwargs = kwargs
        self.kwargs.setdefault("code", getattr(self, "code", None))
        if message is None:
            template = self.msg_fmt or self.message
            try:
                message = template % kwargs
            except Exception:
                LOG.exception("Exception in string format operation: %r, %r", template, kwargs)
                if _fatal_format_errors():
                    raise
                # At least the text itself goes out.
                message = template
        self._error_string = message
        super().__init__(message)

    def __str__(self) -> str:
        return str(self._error_string)

    def format_message(self) -> str:
        """The text alone, also of what was rebuilt from another process with its traceback in the text."""
        return str(self) if not type(self).__name__.endswith("_Remote") else str(self.args[0])


class ConvertedException(Exception):
    """An answer of the web API, whose base is WebOb's in a tree."""

    def __init__(self, code: int = 0, title: str = "", explanation: str = "") -> None:
        self.code = code
        self.title = title
        self.explanation = explanation
        super().__init__(explanation)


def _fatal_format_errors() -> bool:
    return any(getattr(conf, "fatal_exception_format_errors", False) for conf in options.configurations())


# --- decorators ---------------------------------------------------------------------------------


def wrap_exception(
    notifier: Any = None, publisher_id: str | None = None, event_type: str | None = None, level: str | None = None
) -> Any:
    """Decorator: what a method raises is sent as a notification, and goes on.

    Args:
        notifier: module or object with ``notify``. A function here makes this Cactus' decorator, without arguments.
            That one and Diablo's log what is of no class of Nova's and raise it as ``Error``.
        event_type: None: the method's name.
        level: priority; None: ERROR.
    """
    if callable(notifier) and not hasattr(notifier, "notify"):
        return wrap_exception()(notifier)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            era = compat.nova.era()
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if notifier is not None:
                    said = (publisher_id, event_type or function.__name__, level or getattr(notifier, "ERROR", "ERROR"))
                    _notify_failure(notifier, said, era, error, args, kwargs)
                if era in ("cactus", "diablo") and not isinstance(error, Error | NovaException):
                    LOG.exception("Uncaught exception")
                    raise Error(str(error)) from error
                raise

        return wrapped

    return decorate


def _notify_failure(
    notifier: Any, said: tuple[Any, ...], era: str, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """From Folsom on the context goes first, and the payload's ``args`` are the keywords."""
    try:
        if era in ("cactus", "diablo", "essex"):
            notifier.notify(*said, {"args": args, "exception": error} | kwargs)
        else:
            context = kwargs.get("context", args[1] if len(args) > 1 else None)
            named = {name: value for name, value in kwargs.items() if name != "context"}
            notifier.notify(context, *said, {"args": named, "exception": error})
    except Exception:
        # It must not hide the error.
        LOG.exception("the notification of %s was not sent", said[1])


def wrap_db_error(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: what SQLAlchemy raises goes on as ``DBError``; text it cannot take, as InvalidUnicodeParameter."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except UnicodeEncodeError:
            raise globals()["InvalidUnicodeParameter"]() from None
        except Exception as error:
            if type(error).__module__.partition(".")[0] == "sqlalchemy":
                LOG.exception("DB exception wrapped.")
                raise DBError(error) from error
            raise

    return wrapped


# --- introductions and queries -----------------------------------------------------------------------------------

_TABLE = """
NotAuthorized NovaException 403 Not authorized.
AdminRequired NotAuthorized 403 User does not have admin privileges
PolicyNotAuthorized NotAuthorized 403 Policy doesn't allow %(action)s to be performed.
PolicyNotAllowed NotAuthorized 403 Policy Doesn't allow %(action)s to be performed.
ImageNotActive NovaException 500 Image %(image_id)s is not active.
ImageNotAuthorized NovaException 500 Not authorized for image %(image_id)s.
DecryptionFailure NovaException 500 Failed to decrypt text
VirtualInterfaceCreateException NovaException 500 Virtual Interface creation failed
GlanceConnectionFailed NovaException 500 Connection to glance host %(host)s:%(port)s failed: %(reason)s
MelangeConnectionFailed NovaException 500 Connection to melange failed: %(reason)s
Invalid NovaException 400 Unacceptable parameters.
InvalidSnapshot Invalid 400 Invalid snapshot: %(reason)s
InvalidVolume Invalid 400 Invalid volume: %(reason)s
VolumeUnattached Invalid 400 Volume %(volume_id)s is not attached to anything
InvalidKeypair Invalid 400 Keypair data is invalid
InvalidRequest Invalid 400 The request is invalid.
InvalidSignature Invalid 400 Invalid signature %(signature)s for user %(user)s.
InvalidInput Invalid 400 Invalid input received: %(reason)s
InvalidInstanceType Invalid 400 Invalid instance type %(instance_type)s.
InvalidVolumeType Invalid 400 Invalid volume type: %(reason)s
InvalidMetadata Invalid 400 Invalid metadata: %(reason)s
InvalidMetadataSize Invalid 400 Invalid metadata size: %(reason)s
InvalidPortRange Invalid 400 Invalid port range %(from_port)s:%(to_port)s. %(msg)s
InvalidIpProtocol Invalid 400 Invalid IP protocol %(protocol)s.
InvalidContentType Invalid 400 Invalid content type %(content_type)s.
InvalidCidr Invalid 400 Invalid cidr %(cidr)s.
InvalidAggregateAction Invalid 400 Cannot perform action '%(action)s' on aggregate %(aggregate_id)s. Reason: %(reason)s.
InvalidGroup Invalid 400 Group not valid. Reason: %(reason)s
InvalidUUID Invalid 400 Expected a uuid but received %(uuid)s.
InvalidUnicodeParameter Invalid 400 Invalid Parameter: Unicode is not supported by the current database.
InvalidParameterValue Invalid 400 %(err)s
InvalidEc2Id Invalid 400 Ec2 id %(ec2_id)s is unacceptable.
InvalidDevicePath Invalid 400 The supplied device path (%(path)s) is invalid.
InstanceInvalidState Invalid 400 Instance %(instance_uuid)s in %(attr)s %(state)s. Cannot %(method)s in this state.
InstanceNotRunning Invalid 400 Instance %(instance_id)s is not running.
InstanceNotSuspended Invalid 400 Instance %(instance_id)s is not suspended.
InstanceNotInRescueMode Invalid 400 Instance %(instance_id)s is not in rescue mode
InstanceSuspendFailure Invalid 400 Failed to suspend instance: %(reason)s
InstanceResumeFailure Invalid 400 Failed to resume server: %(reason)s.
InstanceRebootFailure Invalid 400 Failed to reboot instance: %(reason)s
InstanceTerminationFailure Invalid 400 Failed to terminate instance: %(reason)s
InstanceUnacceptable Invalid 400 Instance %(instance_id)s is unacceptable: %(reason)s
ImageUnacceptable Invalid 400 Image %(image_id)s is unacceptable: %(reason)s
ServiceUnavailable Invalid 400 Service is unavailable at this time.
VolumeServiceUnavailable ServiceUnavailable 400 Volume service is unavailable at this time.
ComputeServiceUnavailable ServiceUnavailable 400 Compute service of %(host)s is unavailable at this time.
ConductorServiceUnavailable ServiceUnavailable 400 Conductor service is unavailable at this time.
UnableToMigrateToSelf Invalid 400 Unable to migrate instance (%(instance_id)s) to current host (%(host)s).
DestinationHostUnavailable Invalid 400 Destination compute host is unavailable at this time.
SourceHostUnavailable Invalid 400 Original compute host is unavailable at this time.
InvalidHypervisorType Invalid 400 The supplied hypervisor type of is invalid.
InvalidCPUInfo Invalid 400 Unacceptable CPU info: %(reason)s
ConstraintNotMet NovaException 412 Constraint not met.
NotFound NovaException 404 Resource could not be found.
FlagNotSet NotFound 404 Required flag %(flag)s not set.
InstanceNotFound NotFound 404 Instance %(instance_id)s could not be found.
InstanceInfoCacheNotFound NotFound 404 Info cache for instance %(instance_uuid)s could not be found.
InstanceMetadataNotFound NotFound 404 Instance %(instance_uuid)s has no metadata with key %(metadata_key)s.
InstanceTypeNotFound NotFound 404 Instance type %(instance_type_id)s could not be found.
InstanceTypeNotFoundByName InstanceTypeNotFound 404 Instance type with name %(instance_type_name)s could not be found.
InstanceFaultNotFound NotFound 404 Instance %(instance_uuid)s has no fault.
NodeNotFound NotFound 404 Node %(node_id)s could not be found.
NodeNotFoundByUUID NotFound 404 Node with UUID %(node_uuid)s could not be found.
FlavorNotFound NotFound 404 Flavor %(flavor_id)s could not be found.
VolumeNotFound NotFound 404 Volume %(volume_id)s could not be found.
VolumeNotFoundForInstance VolumeNotFound 404 Volume not found for instance %(instance_id)s.
VolumeTypeNotFound NotFound 404 Volume type %(volume_type_id)s could not be found.
VolumeTypeNotFoundByName VolumeTypeNotFound 404 Volume type with name %(volume_type_name)s could not be found.
SnapshotNotFound NotFound 404 Snapshot %(snapshot_id)s could not be found.
ISCSITargetNotFoundForVolume NotFound 404 No target id found for volume %(volume_id)s.
DiskNotFound NotFound 404 No disk at %(location)s
ImageNotFound NotFound 404 Image %(image_id)s could not be found.
KernelNotFoundForImage ImageNotFound 404 Kernel not found for image %(image_id)s.
UserNotFound NotFound 404 User %(user_id)s could not be found.
ProjectNotFound NotFound 404 Project %(project_id)s could not be found.
ProjectMembershipNotFound NotFound 404 User %(user_id)s is not a member of project %(project_id)s.
UserRoleNotFound NotFound 404 Role %(role_id)s could not be found.
StorageRepositoryNotFound NotFound 404 Cannot find SR to read/write VDI.
NetworkNotFound NotFound 404 Network %(network_id)s could not be found.
NetworkNotFoundForBridge NetworkNotFound 404 Network could not be found for bridge %(bridge)s
NetworkNotFoundForUUID NetworkNotFound 404 Network could not be found for uuid %(uuid)s
NetworkNotFoundForCidr NetworkNotFound 404 Network could not be found with cidr %(cidr)s.
NetworkNotFoundForInstance NetworkNotFound 404 Network could not be found for instance %(instance_id)s.
NoNetworksFound NotFound 404 No networks defined.
PortNotFound NotFound 404 Port id %(port_id)s could not be found.
DatastoreNotFound NotFound 404 Could not find the datastore reference(s) which the VM uses.
FixedIpNotFound NotFound 404 No fixed IP associated with id %(id)s.
FixedIpNotFoundForAddress FixedIpNotFound 404 Fixed ip not found for address %(address)s.
FixedIpNotFoundForInstance FixedIpNotFound 404 Instance %(instance_id)s has zero fixed ips.
FixedIpNotFoundForHost FixedIpNotFound 404 Network host %(host)s has zero fixed ips in network %(network_id)s.
NoMoreFixedIps Error - Zero fixed ips available.
NoFixedIpsDefined NotFound 404 Zero fixed ips could be found.
FloatingIpNotFound NotFound 404 Floating ip not found for id %(id)s.
FloatingIpNotFoundForAddress FloatingIpNotFound 404 Floating ip not found for address %(address)s.
FloatingIpNotFoundForHost FloatingIpNotFound 404 Floating ip not found for host %(host)s.
FloatingIpDNSExists Invalid 400 The DNS entry %(name)s already exists in domain %(domain)s.
NoMoreFloatingIps FloatingIpNotFound 404 Zero floating ips available.
FloatingIpAssociated NovaException 500 Floating ip %(address)s is associated.
FloatingIpNotAssociated NovaException 500 Floating ip %(address)s is not associated.
NoFloatingIpsDefined NotFound 404 Zero floating ips exist.
KeypairNotFound NotFound 404 Keypair %(name)s not found for user %(user_id)s
CertificateNotFound NotFound 404 Certificate %(certificate_id)s not found.
ServiceNotFound NotFound 404 Service %(service_id)s could not be found.
HostNotFound NotFound 404 Host %(host)s could not be found.
ComputeHostNotFound HostNotFound 404 Compute host %(host)s could not be found.
HostBinaryNotFound NotFound 404 Could not find binary %(binary)s on host %(host)s.
AuthTokenNotFound NotFound 404 Auth token %(token)s could not be found.
AccessKeyNotFound NotFound 404 Access Key %(access_key)s could not be found.
QuotaNotFound NotFound 404 Quota could not be found
ProjectQuotaNotFound QuotaNotFound 404 Quota for project %(project_id)s could not be found.
QuotaClassNotFound QuotaNotFound 404 Quota class %(class_name)s could not be found.
QuotaResourceUnknown QuotaNotFound 404 Unknown quota resources %(unknown)s.
ReservationNotFound QuotaNotFound 404 Quota reservation %(uuid)s could not be found.
SecurityGroupNotFound NotFound 404 Security group %(security_group_id)s not found.
SecurityGroupNotFoundForProject SecurityGroupNotFound 404 No security group %(security_group_id)s in %(project_id)s.
SecurityGroupNotFoundForRule SecurityGroupNotFound 404 Security group with rule %(rule_id)s not found.
MigrationNotFound NotFound 404 Migration %(migration_id)s could not be found.
MigrationNotFoundByStatus MigrationNotFound 404 Migration not found for instance %(instance_id)s with status %(status)s.
ConsolePoolNotFound NotFound 404 Console pool %(pool_id)s could not be found.
ConsoleNotFound NotFound 404 Console %(console_id)s could not be found.
ConsoleTypeInvalid Invalid 400 Invalid console type %(console_type)s
SchedulerCostFunctionNotFound NotFound 404 Scheduler cost function %(cost_fn_str)s could not be found.
SchedulerHostFilterNotFound NotFound 404 Scheduler Host Filter %(filter_name)s could not be found.
AggregateNotFound NotFound 404 Aggregate %(aggregate_id)s could not be found.
AggregateHostNotFound NotFound 404 Aggregate %(aggregate_id)s has no host %(host)s.
AgentBuildNotFound NotFound 404 No agent-build associated with id %(id)s.
ConfigNotFound NotFound 404 Could not find config at %(path)s
PasteAppNotFound NotFound 404 Could not load paste app '%(name)s' from %(path)s
ClassNotFound NotFound 404 Class %(class_name)s could not be found: %(exception)s
FileNotFound NotFound 404 File %(file_path)s could not be found.
NoFilesFound NotFound 404 Zero files could be found.
DBNotAllowed NovaException 500 %(binary)s attempted direct database access which is not allowed by policy
NotAllowed NovaException 500 Action not allowed.
NotImplementedByDriver NovaException 500 %(action)s is not implemented.
GlobalRoleNotAllowed NotAllowed 500 Unable to use global role %(role_id)s
ImageRotationNotAllowed NovaException 500 Rotation is not allowed for snapshots
RotationRequiredForBackup NovaException 500 Rotation param is required for backup image_type
Duplicate NovaException 409 Resource exists already.
KeyPairExists Duplicate 409 Key pair %(key_name)s already exists.
UserExists Duplicate 409 User %(user)s already exists.
ProjectExists Duplicate 409 Project %(project)s already exists.
InstanceExists Duplicate 409 Instance %(name)s already exists.
InstanceTypeExists Duplicate 409 Instance Type %(name)s already exists.
FixedIpAlreadyInUse Duplicate 409 Fixed IP address %(address)s is already in use.
ServiceExists Duplicate 409 Service %(topic)s on host %(host)s already exists.
AggregateNameExists Duplicate 409 Aggregate %(aggregate_name)s already exists.
AggregateHostExists Duplicate 409 Aggregate %(aggregate_id)s already has host %(host)s.
VolumeTypeExists Duplicate 409 Volume Type %(name)s already exists.
InvalidSharedStorage NovaException 500 %(path)s is not on shared storage: %(reason)s
InvalidLocalStorage NovaException 500 %(path)s is not on local storage: %(reason)s
MigrationError NovaException 500 Migration error: %(reason)s
MigrationPreCheckError MigrationError 500 Migration pre-check error: %(reason)s
MalformedRequestBody NovaException 500 Malformed message body: %(reason)s
CannotResizeToSameFlavor NovaException 500 When resizing, instances must change flavor!
CannotResizeToSameSize NovaException 500 When resizing, instances must change size!
CannotResizeDisk NovaException 500 Server disk was unable to be resized because: %(reason)s
ImageTooLarge NovaException 500 Image is larger than instance type allows
InstanceTypeMemoryTooSmall NovaException 500 Instance type's memory is too small for requested image.
InstanceTypeDiskTooSmall NovaException 500 Instance type's disk is too small for requested image.
InsufficientFreeMemory NovaException 500 Insufficient free memory on compute node to start %(uuid)s.
CouldNotFetchMetrics NovaException 500 Could not fetch bandwidth/cpu/disk metrics for this host.
NoValidHost NovaException 500 No valid host was found. %(reason)s
HostNotAvailable NovaException 500 Host %(host)s is not available
WillNotSchedule NovaException 500 Host %(host)s is not up or doesn't exist.
QuotaError NovaException 413 Quota exceeded: code=%(code)s
OverQuota QuotaError 413 Quota exceeded for resources: %(overs)s
TooManyInstances QuotaError 413 Quota exceeded for %(overs)s: %(used)d + %(req)s of %(allowed)d %(resource)s
FloatingIpLimitExceeded QuotaError 413 Maximum number of floating ips exceeded
SecurityGroupLimitExceeded QuotaError 413 Maximum number of security groups or rules exceeded
KeypairLimitExceeded QuotaError 413 Maximum number of key pairs exceeded
MetadataLimitExceeded QuotaError 413 Maximum number of metadata items exceeds %(allowed)d
UnexpectedTaskStateError NovaException 500 unexpected task state: %(actual)s, not %(expected)s
InstanceActionNotFound NovaException 500 Action for request_id %(request_id)s on instance %(instance_uuid)s not found
InstanceNotReady NovaException 500 Instance %(instance_id)s is not ready
AggregateError NovaException 500 Aggregate %(aggregate_id)s: action '%(action)s' caused an error: %(reason)s.
BareMetalException NovaException 500 Bare metal: %(reason)s
TimeoutException NovaException 500 Timed out: %(reason)s
UnsupportedVirtType Invalid 400 Virtualization type '%(virt)s' is not supported by this compute driver
RescheduledException NovaException 500 Build of instance %(instance_uuid)s was re-scheduled: %(reason)s
BuildAbortException NovaException 500 Build of instance %(instance_uuid)s aborted: %(reason)s
SwiftConnectionError NovaException 500 Connection to object storage failed: %(reason)s
VolumeBackendAPIException NovaException 500 Bad response of the volume backend: %(data)s
"""


def _define(name: str, base: str, code: str, text: str) -> None:
    body: dict[str, Any] = {"__module__": __name__, "__doc__": text, "message": text}
    if code != "-":
        body["code"] = int(code)
    sys.modules[__name__].__dict__[name] = type(name, (globals()[base],), body)


for _line in _TABLE.strip().splitlines():
    _define(*_line.split(" ", 3))

# Names of other eras for the same.
globals()["KeyPairNotFound"] = globals()["KeypairNotFound"]
globals()["Forbidden"] = globals()["NotAuthorized"]


def __getattr__(name: str) -> Any:
    """For whoever checks types: every exception of the table."""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
