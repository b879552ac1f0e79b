"""The codec that the settings of a client describe."""

from __future__ import annotations

from rpcmq.config import ClientConfig
from rpcmq.payload import Codec, ExceptionRegistry, Format
from rpcmq.payload.default_allow_list import DEFAULT_ALLOW_LIST

__all__ = ["codec_for"]


def codec_for(config: ClientConfig, exceptions: ExceptionRegistry | None = None) -> Codec:
    """The codec that ``config`` describes."""
    accepted = Format.JSON.bit | Format.PICKLE.bit | (Format.DILL.bit if config.accept_dill else 0)
    return Codec(
        prefer=Format[config.format.upper()],
        accepted=accepted,
        allow=DEFAULT_ALLOW_LIST.allowing(*config.allow) if config.allow else DEFAULT_ALLOW_LIST,
        exceptions=exceptions or ExceptionRegistry(),
    )
