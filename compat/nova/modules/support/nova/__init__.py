"""What a legacy service finds under the name `nova` where there is no Nova: its RPC, and what that was used with."""

import builtins
import gettext

# Nova's modules take `_` for granted.
if not hasattr(builtins, "_"):
    gettext.install("nova")
