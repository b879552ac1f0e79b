"""The secret that the routers of a mesh share: what one of them has signed, the others believe.

It signs the origins of processes, so that a process which comes from another router keeps its own. The file is made
once, by ``rpcmq init``, and copied to the others.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from secrets import token_hex

from rpcmq.errors import ConfigError
from rpcmq.toml import quoted
from rpcmq.transport.key_files import check_private, read_trusted_toml, write_private

__all__ = ["MESH_SECRET", "make_mesh_secret", "read_mesh_secret"]

#: In the folder of keys.
MESH_SECRET = "mesh.secret"
_HEXADECIMAL = re.compile("[0-9a-f]{64}")


def read_mesh_secret(path: str | os.PathLike[str]) -> str:
    """Return the secret in the file ``path``.

    Raises:
        ConfigError: it cannot be read, others can read it, or it has no secret.
    """
    check_private(path)
    secret = read_trusted_toml(path, {"secret": str}).get("secret")
    if secret is None or not _HEXADECIMAL.fullmatch(secret):
        raise ConfigError(f"{path}: secret: expected 64 hexadecimal digits, as `rpcmq init` writes them")
    return str(secret)


def make_mesh_secret(path: Path) -> None:
    """Make the file ``path`` with a new secret.

    Raises:
        ConfigError: it is there already, or cannot be made.
    """
    comments = "# The routers of a mesh share this: copy it to the folder of keys of each, and keep it secret.\n"
    write_private(path, f"{comments}secret = {quoted(token_hex(32))}\n")
