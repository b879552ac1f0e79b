"""Hostile pickles, written opcode by opcode, each with what it tries."""

from __future__ import annotations

import pickle
import struct

P5 = b"\x80\x05"


def text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    if len(raw) < 256:
        return b"\x8c" + bytes([len(raw)]) + raw
    return b"X" + struct.pack("<I", len(raw)) + raw


def name(module: str, qualname: str) -> bytes:
    """Pushes a global."""
    return text(module) + text(qualname) + b"\x93"


def call(module: str, qualname: str, *args: bytes) -> bytes:
    """Pushes the result of calling a global with what ``args`` push."""
    return name(module, qualname) + b"(" + b"".join(args) + b"tR"


def pickled(*body: bytes) -> bytes:
    return P5 + b"".join(body) + b"."


CMD = text("echo owned >&2")
_UUID_CLASS = name("uuid", "UUID")
_INSTANCE = name("tests.payload.samples", "Instance")
_ONE = b"K\x01"
_GETATTR = name("builtins", "getattr")


class _Reduces:
    def __init__(self, *reduction: object) -> None:
        self.reduction = reduction

    def __reduce__(self) -> tuple[object, ...]:
        return self.reduction


def _old(protocol: int) -> bytes:
    import os

    return pickle.dumps(_Reduces(os.system, ("echo owned >&2",)), protocol)


RUNS_CODE: dict[str, bytes] = {
    "os.system": pickled(call("os", "system", CMD)),
    "posix.system": pickled(call("posix", "system", CMD)),
    "nt.system": pickled(call("nt", "system", CMD)),
    "os.popen": pickled(call("os", "popen", CMD)),
    "os.execl": pickled(call("os", "execl", text("/bin/true"), text("true"))),
    "subprocess.Popen": pickled(call("subprocess", "Popen", CMD)),
    "subprocess.check_output": pickled(call("subprocess", "check_output", CMD)),
    "pty.spawn": pickled(call("pty", "spawn", text("/bin/true"))),
    "_posixsubprocess": pickled(call("_posixsubprocess", "fork_exec")),
    "builtins.eval": pickled(call("builtins", "eval", text("1"))),
    "builtins.exec": pickled(call("builtins", "exec", text("pass"))),
    "builtins.compile": pickled(call("builtins", "compile", text("1"), text("f"), text("eval"))),
    "builtins.open": pickled(call("builtins", "open", text("/etc/passwd"))),
    "builtins.__import__": pickled(call("builtins", "__import__", text("os"))),
    "builtins.breakpoint": pickled(call("builtins", "breakpoint")),
    "__builtin__.eval": pickled(call("__builtin__", "eval", text("1"))),
    "exec through a dotted name": pickled(call("builtins", "exec.__call__", text("pass"))),
    "a module through a class": pickled(name("uuid", "UUID.__init__.__globals__")),
    "os through another module": pickled(call("uuid", "os.system", CMD)),
    "sys.modules": pickled(name("sys", "modules")),
    "getattr chain": pickled(call("builtins", "getattr", name("builtins", "print"), text("__self__"))),
    "getattr of a listed class": pickled(call("builtins", "getattr", _UUID_CLASS, text("__init__"))),
    "getattr of ZoneInfo": pickled(call("builtins", "getattr", name("zoneinfo", "ZoneInfo"), text("clear_cache"))),
    "getattr held as a value": pickled(call("builtins", "getattr", name("builtins", "getattr"), text("_build"))),
    "object.__subclasses__": pickled(call("builtins", "object.__subclasses__")),
    "type to make a class": pickled(call("builtins", "type", text("X"), b")", b"}")),
    "operator.attrgetter": pickled(call("operator", "attrgetter", text("system"))),
    "operator.methodcaller": pickled(call("operator", "methodcaller", text("system"), CMD)),
    "functools.partial": pickled(call("functools", "partial", name("os", "system"), CMD)),
    "functools.reduce": pickled(call("functools", "reduce", name("builtins", "getattr"), b")")),
    "map over system": pickled(call("builtins", "map", name("os", "system"), b"]" + CMD + b"a")),
    "importlib.import_module": pickled(call("importlib", "import_module", text("antigravity"))),
    "runpy.run_path": pickled(call("runpy", "_run_code", text("x"))),
    "code.interact": pickled(call("code", "interact")),
    "pdb.run": pickled(call("pdb", "run", text("1"))),
    "timeit.timeit": pickled(call("timeit", "timeit", text("1"))),
    "pickle.loads": pickled(call("pickle", "loads", b"C\x04\x80\x05N.")),
    "_pickle.loads": pickled(call("_pickle", "loads", b"C\x04\x80\x05N.")),
    "dill function": pickled(call("dill._dill", "_create_function", b"N")),
    "marshal.loads": pickled(call("marshal", "loads", b"C\x01N")),
    "types.FunctionType": pickled(call("types", "FunctionType", b"N", b"}")),
    "types.CodeType": pickled(call("types", "CodeType")),
    "ctypes": pickled(call("ctypes", "CDLL", text("libc.so.6"))),
    "copyreg._reconstructor": pickled(
        call("copyreg", "_reconstructor", name("builtins", "object"), name("builtins", "object"), b"N")
    ),
    "copyreg.__newobj__": pickled(call("copyreg", "__newobj__", name("builtins", "object"))),
    "_codecs.encode": pickled(call("_codecs", "encode", text("x"), text("rot13"))),
    "logging config": pickled(call("logging.config", "dictConfig", b"}")),
    "webbrowser": pickled(call("webbrowser", "open", text("http://127.0.0.1/"))),
    "socket": pickled(call("socket", "create_connection", text("127.0.0.1"))),
    "shutil.rmtree": pickled(call("shutil", "rmtree", text("/nonexistent"))),
    "a module that is not loaded": pickled(name("antigravity", "geohash")),
    "a private name": pickled(name("uuid", "_load_system_functions")),
    "an empty name": pickled(name("", "")),
    "a name with surrogates": P5 + b"\x8c\x03\xed\xa0\x80\x8c\x01x\x93.",
    "newobj of a forbidden class": pickled(name("subprocess", "Popen"), b")\x81"),
    "newobj_ex of a forbidden class": pickled(name("subprocess", "Popen"), b")}\x92"),
    "forbidden global as a dict key": pickled(b"}", name("os", "system"), b"Ns"),
    "forbidden global inside state": pickled(_UUID_CLASS, b")\x81}", text("int"), call("os", "system", CMD), b"sb"),
    "protocol 0": _old(0),
    "protocol 1": _old(1),
    "protocol 2": _old(2),
    "protocol 3": _old(3),
    "protocol 4": _old(4),
    "GLOBAL": pickled(b"cos\nsystem\n(", CMD, b"tR"),
    "INST": pickled(b"(", CMD, b"ios\nsystem\n"),
    "OBJ": pickled(b"(cos\nsystem\n", CMD, b"o"),
    "PERSID": pickled(b"Pos.system\n"),
    "BINPERSID": pickled(CMD, b"Q"),
    "EXT1": pickled(b"\x82\x01"),
    "EXT2": pickled(b"\x83\x01\x00"),
    "EXT4": pickled(b"\x84\x01\x00\x00\x00"),
    "after a first STOP": pickled(b"N.", call("os", "system", CMD)),
}
"""All of these want what no allow-list gives."""

ABUSES: dict[str, bytes] = {
    # What is allowed, with arguments that no pickle of a value has.
    "BUILD sets a class attribute": pickled(_INSTANCE, b"N}", text("save"), _ONE, b"s\x86b"),
    "BUILD updates a class's dict": pickled(_INSTANCE, b"}", text("save"), _ONE, b"sb"),
    "BUILD on the class of UUIDs": pickled(_UUID_CLASS, b"N}", text("__str__"), _ONE, b"s\x86b"),
    "BUILD on a C class": pickled(name("datetime", "date"), b"N}", text("today"), _ONE, b"s\x86b"),
    "BUILD on a C class's dict": pickled(name("datetime", "date"), b"}", text("today"), _ONE, b"sb"),
    "BUILD on a function's stand-in": pickled(_GETATTR, b"N}", text("_build"), _ONE, b"s\x86b"),
    "BUILD on a number": pickled(_ONE, b"}", text("x"), _ONE, b"sb"),
    "BUILD with a number": pickled(name("uuid", "UUID"), b")\x81", _ONE, b"b"),
    "BUILD of a UUID with no int": pickled(_UUID_CLASS, b")\x81}b"),
    "a hash of a hollow UUID": pickled(b"}", _UUID_CLASS, b")\x81Ns"),
    "items set on a class": pickled(_INSTANCE, _ONE, _ONE, b"s"),
    "items appended to a class": pickled(_INSTANCE, _ONE, b"a"),
    "items appended to a number": pickled(_ONE, b"(", _ONE, b"e"),
    "items added to a class": pickled(_INSTANCE, b"(", _ONE, b"\x90"),
    "a list as a key": pickled(b"}]Ns"),
    "a stand-in made without a call": pickled(name("decimal", "Decimal"), b")\x81"),
    "a wrong NEWOBJ": pickled(_ONE, b")\x81"),
    "NEWOBJ with a list": pickled(_UUID_CLASS, b"]\x81"),
    "REDUCE with a list": pickled(_UUID_CLASS, b"]R"),
    "REDUCE of a number": pickled(_ONE, b")R"),
    "datetime from garbage": pickled(call("datetime", "datetime", b"C\x0a" + b"\xff" * 10)),
    "date from garbage": pickled(call("datetime", "date", b"C\x04\x00\x00\x00\x00")),
    "timedelta of huge numbers": pickled(call("datetime", "timedelta", b"\x8a\xff" + b"\x7f" * 255)),
    "timezone of a string": pickled(call("datetime", "timezone", text("UTC"))),
    "Decimal of a word": pickled(call("decimal", "Decimal", text("twelve"))),
    "Decimal of a huge exponent": pickled(call("decimal", "Decimal", text("1e" + "9" * 30))),
    "Fraction as text": pickled(call("fractions", "Fraction", text("1e999999999"))),
    "Fraction over zero": pickled(call("fractions", "Fraction", _ONE, b"K\x00")),
    "address of text": pickled(call("ipaddress", "IPv4Address", text("300.0.0.1"))),
    "address of a huge number": pickled(call("ipaddress", "IPv6Address", b"\x8a\xff" + b"\x7f" * 255)),
    "UUID of text": pickled(call("uuid", "UUID", text("no uuid"))),
    "deque that iterates": pickled(call("collections", "deque", text("abc"))),
    "deque of negative length": pickled(call("collections", "deque", b")", b"J\xff\xff\xff\xff")),
    "Counter that iterates": pickled(call("collections", "Counter", text("abc"))),
    "zone outside the database": pickled(
        call("builtins", "getattr", name("zoneinfo", "ZoneInfo"), text("_unpickle")),
        b"(", text("../../../etc/passwd"), _ONE, b"tR",
    ),
    "zone that does not exist": pickled(
        call("builtins", "getattr", name("zoneinfo", "ZoneInfo"), text("_unpickle")),
        b"(", text("No/Such_Zone"), _ONE, b"tR",
    ),
    "exception without its arguments": pickled(call("builtins", "UnicodeDecodeError")),
    "constructor that raises": pickled(call("tests.payload.samples", "BadConstructor", text("x"))),
    # What the unpickler would do by itself.
    "memo of 34 GB": pickled(b"Nr\xff\xff\xff\x7f"),
    "memo of 34 GB, as text": pickled(b"Np2147483647\n"),
    "bytes of 8 EB": P5 + b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "bytearray of 8 EB": P5 + b"\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "text of more than there is": P5 + b"X\xff\xff\xff\xffabc.",
    "number of 2 GB": P5 + b"\x8b\xff\xff\xff\x7f\x01.",
    "number of negative length": P5 + b"\x8b\xff\xff\xff\xff\x01.",
    "frame of more than there is": P5 + b"\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.",
    "frame in a frame": P5 + b"\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x95\xff\x00\x00\x00\x00\x00\x00\x00N.",
    "text that is not UTF-8": P5 + b"\x8c\x02\xff\xff.",
    "decimal number of a million digits": pickled(b"I" + b"9" * 1_000_000 + b"\n"),
    "tuples that overflow the C stack": pickled(b"})" + b"\x85" * 300_000 + b"Ns"),
    "tuples that take years to hash": pickled(
        b"}N\x94" + b"".join(b"h%ch%c\x86\x94" % (n, n) for n in range(60)) + b"Ns"
    ),
    "stack underflow": pickled(b"a"),
    "tuple of nothing": pickled(b"\x87"),
    "mark never set": pickled(b"Nt"),
    "mark never used": pickled(b"("),
    "memo never set": pickled(b"h\x05"),
    "memo never set, large": pickled(b"j\xff\xff\xff\xff"),
    "empty stack at the end": pickled(b"N0"),
    "global from numbers": pickled(_ONE + _ONE + b"\x93"),
    "odd number of items": pickled(b"}(NNNu"),
    "nothing": b"",
    "only a header": P5,
    "only a STOP": b".",
    "text": b"hello",
    "JSON": b'{"a": 1}',
}  # fmt: skip
"""These use what is allowed, or the unpickler itself, in ways in which no value is written."""
