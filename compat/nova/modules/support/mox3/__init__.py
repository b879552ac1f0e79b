"""``mox3``, by which suites from 2013 on import ``mox`` and ``stubout``."""

from __future__ import annotations

import sys

import mox as mox
import stubout as stubout

sys.modules[f"{__name__}.mox"] = mox
sys.modules[f"{__name__}.stubout"] = stubout
