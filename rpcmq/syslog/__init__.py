"""A front end for syslog: each message of RFC 5424 becomes an event. It uses the public API of rpcmq only."""

from __future__ import annotations

from rpcmq.syslog.front_end import FrontEnd
from rpcmq.syslog.messages import MalformedMessage, SyslogMessage, parse_message
from rpcmq.syslog.settings import SyslogSettings, load_settings

__all__ = ["FrontEnd", "MalformedMessage", "SyslogMessage", "SyslogSettings", "load_settings", "parse_message"]
