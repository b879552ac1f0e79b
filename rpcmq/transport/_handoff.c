/* A lock of one thread, and one step that wakes the thread of another one and waits.

   To wake a thread and to wait are two steps in Python, and the interpreter's lock is held between them. The thread that
   was woken comes to want it then, waits a second time, and is woken again: four changes of threads where one would do.
   Here the interpreter's lock is let go of first, so that it is free for the thread that is woken. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <time.h>

/* Longest wait (microseconds): a year. */
#define LONGEST 3.2e13

typedef struct {
    PyObject_HEAD
    PyThread_type_lock lock;
    /* Read and written with the interpreter's lock. */
    int is_held;
} HandoffLock;

static PyTypeObject HandoffLockType;

static PyObject *
HandoffLock_new(PyTypeObject *type, PyObject *args, PyObject *options)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, options, ":HandoffLock", names))
        return NULL;
    HandoffLock *self = (HandoffLock *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->lock = PyThread_allocate_lock();
    if (self->lock == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    PyThread_acquire_lock(self->lock, WAIT_LOCK);
    self->is_held = 1;
    return (PyObject *)self;
}

static void
HandoffLock_dealloc(HandoffLock *self)
{
    if (self->lock != NULL) {
        if (self->is_held)
            PyThread_release_lock(self->lock);
        PyThread_free_lock(self->lock);
    }
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
HandoffLock_release(HandoffLock *self, PyObject *Py_UNUSED(ignored))
{
    if (!self->is_held) {
        PyErr_SetString(PyExc_RuntimeError, "the lock was released already");
        return NULL;
    }
    self->is_held = 0;
    PyThread_release_lock(self->lock);
    Py_RETURN_NONE;
}

static double
now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Wait for `self`, for so many seconds (negative: for ever); release `next` before, if it is not NULL. Returns 1 where it
   was released, 0 where it was not in time, and -1 where a signal's handler has raised. */
static int
wait_for(HandoffLock *self, HandoffLock *next, double seconds)
{
    double until = seconds < 0 ? 0 : now() + seconds;
    for (;;) {
        PyLockStatus status;
        PY_TIMEOUT_T microseconds = -1;
        if (seconds >= 0) {
            double left = (until - now()) * 1e6;
            microseconds = left < 0 ? 0 : left > LONGEST ? (PY_TIMEOUT_T)LONGEST : (PY_TIMEOUT_T)left;
        }
        Py_BEGIN_ALLOW_THREADS
        if (next != NULL)
            PyThread_release_lock(next->lock);
        status = PyThread_acquire_lock_timed(self->lock, microseconds, 1);
        Py_END_ALLOW_THREADS
        next = NULL;
        if (status == PY_LOCK_ACQUIRED) {
            self->is_held = 1;
            return 1;
        }
        if (status == PY_LOCK_FAILURE)
            return 0;
        if (Py_MakePendingCalls() < 0)
            return -1;
    }
}

static PyObject *
HandoffLock_acquire(HandoffLock *self, PyObject *args)
{
    int wait = 1;
    double seconds = -1;
    if (!PyArg_ParseTuple(args, "|pd:acquire", &wait, &seconds))
        return NULL;
    int status = wait_for(self, NULL, wait ? seconds : 0);
    return status < 0 ? NULL : PyBool_FromLong(status);
}

static PyMethodDef HandoffLock_methods[] = {
    {"acquire", (PyCFunction)HandoffLock_acquire, METH_VARARGS,
     "Wait until another thread releases it, for so many seconds; return whether one has."},
    {"release", (PyCFunction)HandoffLock_release, METH_NOARGS, "Wake the thread that waits, or is about to."},
    {NULL},
};

static PyTypeObject HandoffLockType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "rpcmq.transport._handoff.HandoffLock",
    .tp_doc = "A lock on which one thread waits. It is held when it is made.",
    .tp_basicsize = sizeof(HandoffLock),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = HandoffLock_new,
    .tp_dealloc = (destructor)HandoffLock_dealloc,
    .tp_methods = HandoffLock_methods,
};

/* The lock whose `release` the function `wake` is; NULL: it is something else. */
static HandoffLock *
lock_of(PyObject *wake)
{
    if (!PyCFunction_CheckExact(wake) || PyCFunction_GET_FUNCTION(wake) != (PyCFunction)HandoffLock_release)
        return NULL;
    return (HandoffLock *)PyCFunction_GET_SELF(wake);
}

static PyObject *
wake_next_and_acquire(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *waiting, *wake;
    HandoffLock *self, *next;
    double seconds = -1;
    if (!PyArg_ParseTuple(args, "OO!|d:wake_next_and_acquire", &waiting, &HandoffLockType, &self, &seconds))
        return NULL;
    for (;;) {
        wake = PyObject_CallMethod(waiting, "popleft", NULL);
        if (wake == NULL) {
            if (!PyErr_ExceptionMatches(PyExc_IndexError))
                return NULL;
            PyErr_Clear();
            Py_RETURN_FALSE;
        }
        next = lock_of(wake);
        if (next != NULL) {
            if (next->is_held)
                break;
        }
        else {
            PyObject *result = PyObject_CallNoArgs(wake);
            if (result != NULL) {
                Py_DECREF(result);
                break;
            }
            if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) {
                Py_DECREF(wake);
                return NULL;
            }
            PyErr_Clear();
        }
        Py_DECREF(wake);  /* woken before */
    }
    if (next != NULL)
        next->is_held = 0;
    int status = wait_for(self, next, seconds);
    Py_DECREF(wake);
    if (status < 0)
        return NULL;
    Py_RETURN_TRUE;
}

static PyMethodDef functions[] = {
    {"wake_next_and_acquire", wake_next_and_acquire, METH_VARARGS,
     "Call the first function of a deque that does not raise RuntimeError, and wait for a lock, for so many seconds. False: "
     "there is none."},
    {NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_handoff", "Locks by which threads hand the interpreter to one another.", -1, functions,
};

PyMODINIT_FUNC
PyInit__handoff(void)
{
    PyObject *made = PyType_Ready(&HandoffLockType) < 0 ? NULL : PyModule_Create(&module);
    if (made != NULL && PyModule_AddObjectRef(made, "HandoffLock", (PyObject *)&HandoffLockType) < 0)
        Py_CLEAR(made);
    return made;
}
