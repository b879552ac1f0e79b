"""Values of each green thread, held weakly or strongly."""

import weakref

from eventlet import corolocal


class WeakLocal(corolocal.local):
    """Holds references only: what is stored lives as long as its owners."""

    def __getattribute__(self, attr):
        rval = corolocal.local.__getattribute__(self, attr)
        if rval:
            # What is stored is a reference, to be called for its object.
            rval = rval()
        return rval

    def __setattr__(self, attr, value):
        value = weakref.ref(value)
        return corolocal.local.__setattr__(self, attr, value)


store = WeakLocal()
weak_store = WeakLocal()
strong_store = corolocal.local()
