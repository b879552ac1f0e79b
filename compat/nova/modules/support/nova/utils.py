"""Functions that services and their tests used from ``nova.utils``, over all eras; some later became modules."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import importlib
import inspect
import logging
import os
import random
import re
import shutil
import string
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import compat.nova
from compat.nova import primitives

from nova import flags
from nova._addresses import get_shortened_ipv6 as get_shortened_ipv6
from nova._addresses import is_valid_cidr as is_valid_cidr
from nova._addresses import is_valid_ipv4 as is_valid_ipv4
from nova._addresses import is_valid_ipv6 as is_valid_ipv6
from nova._addresses import last_octet as last_octet
from nova._blocks import UndoManager as UndoManager
from nova._blocks import logging_error as logging_error
from nova._blocks import temporary_mutation as temporary_mutation
from nova._blocks import timefunc as timefunc
from nova._blocks import walk_class_hierarchy as walk_class_hierarchy
from nova._structures import check_isinstance as check_isinstance
from nova._structures import convert_to_list_dict as convert_to_list_dict
from nova._structures import flatten_dict as flatten_dict
from nova._structures import get_from_path as get_from_path
from nova._structures import is_none_string as is_none_string
from nova._structures import map_dict_keys as map_dict_keys
from nova._structures import partition_dict as partition_dict
from nova._structures import str_dict_replace as str_dict_replace
from nova._structures import subset_dict as subset_dict
from nova._structures import utf8 as utf8
from nova._structures import xhtml_escape as xhtml_escape
from nova.openstack.common import importutils, jsonutils, lockutils, processutils, strutils, timeutils, uuidutils
from nova.openstack.common.excutils import save_and_reraise_exception as save_and_reraise_exception
from nova.openstack.common.loopingcall import DynamicLoopingCall as DynamicLoopingCall
from nova.openstack.common.loopingcall import FixedIntervalLoopingCall as FixedIntervalLoopingCall
from nova.openstack.common.loopingcall import LoopingCall as LoopingCall
from nova.openstack.common.loopingcall import LoopingCallDone as LoopingCallDone

LOG = logging.getLogger(__name__)
FLAGS = flags.FLAGS

TIME_FORMAT = timeutils.ISO8601_TIME_FORMAT
PERFECT_TIME_FORMAT = primitives.PERFECT_TIME_FORMAT
ISO_TIME_FORMAT = timeutils.ISO8601_TIME_FORMAT
DEFAULT_PASSWORD_SYMBOLS = ("23456789", "ABCDEFGHJKLMNPQRSTUVWXYZ", "abcdefghijkmnopqrstuvwxyz")
EASIER_PASSWORD_SYMBOLS = ("23456789", "ABCDEFGHJKLMNPQRSTUVWXYZ")


def import_class(import_str: str) -> Any:
    """The class, or whatever it is, of that dotted name.

    Raises:
        nova.exception.ClassNotFound: there is none (to Essex; later an ImportError).
    """
    try:
        return importutils.import_class(import_str)
    except ImportError as error:
        if compat.nova.era() not in ("cactus", "diablo", "essex"):
            raise
        from nova import exception

        raise exception.ClassNotFound(class_name=import_str.rpartition(".")[2], exception=error) from None


def import_object(import_str: str, *args: Any, **kwargs: Any) -> Any:
    """An object of that class; of a module's name, the module."""
    try:
        return importlib.import_module(import_str)
    except ImportError:
        return import_class(import_str)(*args, **kwargs)


utcnow = timeutils.utcnow
utcnow_ts = timeutils.utcnow_ts
is_older_than = timeutils.is_older_than
is_newer_than = timeutils.is_newer_than
isotime = timeutils.isotime
parse_isotime = timeutils.parse_isotime
strtime = timeutils.strtime
parse_strtime = timeutils.parse_strtime
normalize_time = timeutils.normalize_time
set_time_override = timeutils.set_time_override
advance_time_delta = timeutils.advance_time_delta
advance_time_seconds = timeutils.advance_time_seconds
clear_time_override = timeutils.clear_time_override
total_seconds = timeutils.total_seconds

dumps = jsonutils.dumps
loads = jsonutils.loads

is_uuid_like = uuidutils.is_uuid_like
to_bytes = strutils.to_bytes
bool_from_str = strutils.bool_from_string
synchronized_with_prefix = lockutils.synchronized_with_prefix


def to_primitive(value: Any, convert_instances: bool = False, level: int = 0) -> Any:
    """``value`` as dicts, lists and scalars; a datetime as ``str`` writes it, as it was before ``jsonutils``."""
    return jsonutils.to_primitive(value, convert_instances, level, time_text=str)


# --- programs -----------------------------------------------------------------------------------


def execute(*cmd: Any, **kwargs: Any) -> tuple[str, str]:
    """See :func:`processutils.execute`; as root by the option ``root_helper``. ``addl_env`` may be a list of pairs.

    Raises:
        nova.exception.ProcessExecutionError: the program ended with an unexpected code.
    """
    if kwargs.get("run_as_root") and not kwargs.get("root_helper"):
        kwargs["root_helper"] = FLAGS.root_helper
    return processutils.execute(*cmd, **kwargs)


def trycmd(*args: Any, **kwargs: Any) -> tuple[str, str]:
    """See :func:`processutils.trycmd`."""
    return processutils.trycmd(*args, **kwargs)


def default_flagfile(filename: str = "nova.conf", args: list[str] | None = None) -> None:
    """Put ``--flagfile=filename`` into the command line, if it names none and the file is here or in ``/etc/nova``."""
    args = sys.argv if args is None else args
    if any("flagfile" in arg for arg in args):
        return
    beside = os.path.join(os.path.dirname(inspect.stack()[1][1]), filename)
    for path in (filename, beside, os.path.join("/etc/nova", filename)):
        if os.path.exists(path):
            args.insert(1, f"--flagfile={path}")
            return


def find_config(config_path: str) -> str:
    """The path of a configuration file, from the usual places.

    Raises:
        nova.exception.ConfigNotFound: it is in none of them.
    """
    state = FLAGS.state_path
    for path in (config_path, os.path.join(state, "etc", "nova", config_path), os.path.join(state, "etc", config_path),
                 os.path.join(state, config_path), os.path.join("/etc/nova", config_path)):  # fmt: skip
        if os.path.exists(path):
            return os.path.abspath(path)
    from nova import exception

    raise exception.ConfigNotFound(path=os.path.abspath(config_path))


# --- locks --------------------------------------------------------------------------------------


def synchronized(name: str, external: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: whoever calls it holds the lock ``name``, ``external``: among all processes of this host."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def held(*args: Any, **kwargs: Any) -> Any:
            # The option is read now: tests set it after the decorator ran.
            with lockutils.lock(name, "nova-", external, FLAGS.lock_path):
                return function(*args, **kwargs)

        return held

    return decorate


def cleanup_file_locks() -> None:
    """Remove what locks left in ``lock_path``: files named after a process that is gone, and locks of this era."""
    folder = FLAGS.lock_path
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        process = re.fullmatch(r".+-(\d+)(?:\.\d+)?", name)
        of_the_dead = process is not None and not _runs(int(process[1]))
        if name.startswith("nova-") and (of_the_dead or name.endswith((".lock", ".sentinel"))):
            delete_if_exists(os.path.join(folder, name))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it runs, as somebody else
    return True


# --- names and secrets --------------------------------------------------------------------------


def gen_uuid() -> uuid.UUID:
    """A random UUID."""
    return uuid.uuid4()


def generate_request_id() -> str:
    """A name for a request."""
    return f"req-{gen_uuid()}"


def generate_uid(topic: str, size: int = 8) -> str:
    """``topic-`` and some random characters."""
    return f"{topic}-{''.join(random.choices(string.ascii_lowercase + string.digits, k=size))}"


def generate_mac_address() -> str:
    """A random address of the range that Nova uses."""
    tail = [0x02, 0x16, 0x3E, random.randint(0, 0x7F), random.randint(0, 0xFF), random.randint(0, 0xFF)]
    return ":".join(f"{byte:02x}" for byte in tail)


def generate_password(length: int | None = None, symbolgroups: Iterable[str] = DEFAULT_PASSWORD_SYMBOLS) -> str:
    """A random password with a character of each group."""
    secure = random.SystemRandom()
    groups = [symbolgroups] if isinstance(symbolgroups, str) else [*symbolgroups]
    length = FLAGS.password_length if length is None else length
    chosen = [secure.choice(group) for group in groups][:length]
    chosen += [secure.choice("".join(groups)) for _ in range(length - len(chosen))]
    secure.shuffle(chosen)
    return "".join(chosen)


def strcmp_const_time(s1: str, s2: str) -> bool:
    """Return whether two texts are equal, in a time that does not say where they differ."""
    return hmac.compare_digest(s1.encode(), s2.encode())


def hash_file(file_like_object: Any) -> str:
    """SHA-1 of a file's rest."""
    checksum = hashlib.sha1(usedforsecurity=False)
    while chunk := file_like_object.read(32768):
        checksum.update(chunk)
    return checksum.hexdigest()


def sanitize_hostname(hostname: str) -> str:
    """A name that a host may have."""
    return re.sub(r"[^\w.-]+", "", re.sub("[ _]", "-", hostname)).lower().strip(".-")


# --- addresses ----------------------------------------------------------------------------------


def get_my_linklocal(interface: str) -> str:
    """The IPv6 address of an interface in its own network.

    Raises:
        nova.exception.Error: it has none, or there is no such interface.
    """
    from nova import exception

    out, _ = execute("ip", "-f", "inet6", "-o", "addr", "show", interface, check_exit_code=False)
    found = re.search(r"inet6 (fe80:[0-9a-f:]+)/", out)
    if found is None:
        raise exception.Error(f"Link Local address is not found.:{interface}")
    return found[1]


# --- files --------------------------------------------------------------------------------------


def abspath(s: str) -> str:
    """A path beside this file."""
    return os.path.join(os.path.dirname(__file__), s)


def novadir() -> str:
    """The directory that holds the package ``nova``."""
    return os.path.abspath(importlib.import_module("nova").__path__[0]).removesuffix("nova")


def delete_if_exists(pathname: str) -> None:
    """Remove a file that may be gone already."""
    with contextlib.suppress(FileNotFoundError):  # gone already
        os.unlink(pathname)


def ensure_tree(path: str) -> None:
    """Make a directory and those above it."""
    os.makedirs(path, exist_ok=True)


def read_cached_file(filename: str, cache_info: dict[str, Any], reload_func: Callable[[Any], Any] | None = None) -> Any:
    """A file's text, read again when it has changed.

    Args:
        cache_info: what is kept for the next time: ``mtime`` and ``data``.
        reload_func: is given the text when it was read.
    """
    mtime = os.path.getmtime(filename)
    if not cache_info or mtime != cache_info.get("mtime"):
        with open(filename, encoding="utf-8") as file:
            cache_info["data"] = file.read()
        cache_info["mtime"] = mtime
        if reload_func is not None:
            reload_func(cache_info["data"])
    return cache_info["data"]


@contextlib.contextmanager
def tempdir(**kwargs: Any) -> Iterator[str]:
    """A directory that is removed afterwards."""
    path = tempfile.mkdtemp(**kwargs)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


# --- functions and classes ----------------------------------------------------------------------


def service_is_up(service: Any) -> bool:
    """Return whether a service's row says that it reported within ``service_down_time`` seconds."""
    at = service["updated_at"] or service["created_at"]
    return bool(abs((utcnow() - at).total_seconds()) <= FLAGS.service_down_time)


def monkey_patch() -> None:
    """Decorate what ``monkey_patch_modules`` says (``module:decorator``), if ``monkey_patch`` is on."""
    if not FLAGS.monkey_patch:
        return
    for pair in FLAGS.monkey_patch_modules:
        module_name, _, decorator_name = pair.partition(":")
        decorator = import_class(decorator_name)
        module = importutils.import_module(module_name)
        for name, value in inspect.getmembers(module):
            if getattr(value, "__module__", None) != module_name:
                continue
            if inspect.isclass(value):
                for method, function in inspect.getmembers(value, inspect.isfunction):
                    setattr(value, method, decorator(f"{module_name}.{name}.{method}", function))
            elif inspect.isfunction(value):
                setattr(module, name, decorator(f"{module_name}.{name}", value))


class LazyPluggable:
    """A module that an option names, imported at first use.

    Args:
        pivot: the option.
        backends: modules by the option's value.
    """

    def __init__(self, pivot: str, **backends: Any) -> None:
        self.__backends = backends
        self.__pivot = pivot
        self.__backend: Any = None

    def __get_backend(self) -> Any:
        if self.__backend is None:
            name = FLAGS[self.__pivot]
            name = getattr(name, "value", name)
            if name not in self.__backends:
                raise ValueError(f"Invalid backend: {name}")
            backend = self.__backends[name]
            self.__backend = importutils.import_module(backend[0] if isinstance(backend, tuple) else backend)
        return self.__backend

    def __getattr__(self, key: str) -> Any:
        return getattr(self.__get_backend(), key)
