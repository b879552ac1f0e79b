"""Build the payload checker of a process from its trust settings."""

from __future__ import annotations

import logging

from rpcmq.client.payloads import Payloads
from rpcmq.client.trusted_payloads import TrustedPayloads
from rpcmq.config import ClientConfig
from rpcmq.errors import ConfigError
from rpcmq.payload import Codec
from rpcmq.payload.audit import Audit
from rpcmq.payload.trust import Policy, read_policy
from rpcmq.transport.mac_files import read_mac_keys
from rpcmq.transport.process_exit import call_at_exit, forget_at_exit
from rpcmq.transport.shell import Shell

__all__ = ["AuditFile", "payload_checker_for"]

log = logging.getLogger("rpcmq.trust")

#: Longest delay before an audit file is written (seconds).
_WRITE_EVERY = 5.0


class AuditFile:
    """Writes an audit every few seconds while there is something new, when it is closed, and at exit."""

    def __init__(self, audit: Audit, path: str, shell: Shell) -> None:
        self._audit = audit
        self._path = path
        self._timer = shell.call_every(_WRITE_EVERY, self._write)
        call_at_exit(self._write)

    def close(self) -> None:
        """Write pending changes, and stop."""
        self._timer.stop()
        self._timer.close()
        forget_at_exit(self._write)
        self._write()

    def _write(self) -> None:
        try:
            self._audit.write()
        except (ConfigError, OSError) as error:
            log.error("audit not written to %s: %s", self._path, error)


def payload_checker_for(
    config: ClientConfig, codec: Codec, identity: str, shell: Shell, known: Payloads | None = None
) -> tuple[Payloads, AuditFile | None]:
    """The payload checker that ``config`` describes, and the file of its audit if there is one to be written.

    Args:
        known: the payload checker of another link of the process: it is used, since it remembers what came before.

    Raises:
        ConfigError: a file is missing or wrong, or something is to be signed and there are no keys.
    """
    if known is not None:
        return known, None
    if not (config.trust_file or config.mac_file or config.trust_audit):
        return Payloads(codec), None
    policy = read_policy(config.trust_file) if config.trust_file else Policy()
    keys = read_mac_keys(config.mac_file) if config.mac_file else None
    if policy.needs_keys and keys is None:
        raise ConfigError(
            f"{config.trust_file}: wants signed payloads (require or keys), and this process has no keys to check "
            "them with: give a mac_file (RPCMQ_MAC_FILE); `rpcmq trust key FILE NAME` makes one"
        )
    audit = Audit(config.trust_audit) if config.trust_audit else None
    payloads = TrustedPayloads(codec, policy, keys, identity, audit)
    return payloads, AuditFile(audit, config.trust_audit, shell) if audit is not None else None
