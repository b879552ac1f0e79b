"""Stand-in for `nova` where no Nova tree exists: its RPC, and the modules commonly used with it."""

import builtins
import gettext

# Nova's modules take `_` for granted.
if not hasattr(builtins, "_"):
    gettext.install("nova")
