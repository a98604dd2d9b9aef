/* What recording could cost at best, and what `with` costs on an ordinary C type: the yardsticks of overhead.py. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#define TICKS() __rdtsc()
#else
#include <time.h>
static uint64_t TICKS(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
#endif

/* ---- an empty context manager of an ordinary C type ---- */

static PyObject *empty_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

static PyObject *empty_exit(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self, (void)args, (void)count;
    Py_RETURN_NONE;
}

static PyMethodDef empty_methods[] = {
    {"__enter__", empty_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))empty_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyTypeObject Empty_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "limits.Empty",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_methods = empty_methods,
};

/* An instance of a type of its own whose two entries are builtins: `with` binds nothing. */
static PyMethodDef unbound_enter = {"__enter__", empty_enter, METH_NOARGS, NULL};
static PyMethodDef unbound_exit = {"__exit__", (PyCFunction)(void (*)(void))empty_exit, METH_FASTCALL, NULL};

static PyObject *unbound(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *enter = PyCFunction_New(&unbound_enter, Py_None), *leave = PyCFunction_New(&unbound_exit, Py_None);
    PyObject *type = enter && leave ? PyObject_CallFunction((PyObject *)&PyType_Type, "s(){s(),sO,sO}", "Unbound",
                                                            "__slots__", "__enter__", enter, "__exit__", leave)
                                    : NULL;
    PyObject *instance = type ? PyObject_CallNoArgs(type) : NULL;
    Py_XDECREF(enter);
    Py_XDECREF(leave);
    Py_XDECREF(type);
    return instance;
}

/* ---- the C limit: two clock reads, a frame, a 32-byte store ---- */

typedef struct { uint64_t start, end; uint32_t path, sequence, attributes; uint16_t context, flags; } Event;
enum { EVENTS = 2048 };
static Event ring[EVENTS];
static struct { uint64_t start; uint32_t sequence, path; } frames[64], *volatile top = frames;

static PyObject *c_limit(PyObject *module, PyObject *count_object)
{
    (void)module;
    long count = PyLong_AsLong(count_object);
    if (count < 0)
        return NULL;
    for (long i = 0; i < count; i++) {
        top++;
        top->sequence = (uint32_t)i;
        top->path = 1;
        top->start = TICKS();
        uint64_t end = TICKS();
        Event *event = &ring[i % EVENTS];
        *event = (Event){top->start, end, top->path, top->sequence, 0, 0, 0};
        __asm__ volatile("" ::"r"(event) : "memory");
        top--;
    }
    Py_RETURN_NONE;
}

/* ---- its pieces: the clock alone, and cold caches ---- */

static PyObject *c_clock(PyObject *module, PyObject *count_object)
{
    (void)module;
    long count = PyLong_AsLong(count_object);
    for (long i = 0; i < count; i++) {
        uint64_t start = TICKS(), end = TICKS();
        __asm__ volatile("" ::"r"(start), "r"(end) : "memory");
    }
    return count < 0 ? NULL : Py_NewRef(Py_None);
}

/* Overwrite more than the inner caches hold, one word a line. */
static PyObject *evict(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    enum { BYTES = 6 << 20, LINE = 64 };
    static char block[BYTES];
    for (size_t at = 0; at < BYTES; at += LINE)
        *(volatile uint64_t *)(block + at) += 1;
    Py_RETURN_NONE;
}

static PyObject *nothing(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"unbound", unbound, METH_NOARGS, "An empty context manager that `with` need not bind."},
    {"c_limit", c_limit, METH_O, "Record so many empty spans in C."},
    {"c_clock", c_clock, METH_O, "Read the clock twice, so many times."},
    {"evict", evict, METH_NOARGS, "Overwrite 6 MiB, so that nothing is left in the inner caches."},
    {"nothing", nothing, METH_NOARGS, "What calling C costs."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "limits", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit_limits(void)
{
    PyObject *self = PyType_Ready(&Empty_Type) < 0 ? NULL : PyModule_Create(&module);
    if (self && PyModule_AddObjectRef(self, "Empty", (PyObject *)&Empty_Type) < 0)
        Py_CLEAR(self);
    return self;
}
