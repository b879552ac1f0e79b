"""The tests of minicloud."""

import builtins
setattr(builtins, '_', lambda x: x)
