/* Marker: the pieces that a wrapper in Python calls around a function that cannot be hooked in place. */
#include "kernel.h"
#include "region.h"

typedef struct {
    PyObject_HEAD
    Site *site;
    PyObject *carrier; /* a region with attributes whose decorator this is, or NULL */
    Evaluator evaluator;
} Marker;

/* A wrapper adds a Python frame to each call, and Python counts it against the recursion limit. On 3.11 that
 * frame is given back while the wrapped function runs, so recursion goes as deep as without us. */
static inline void recursion_credit(PyThreadState *thread, int frames)
{
#if PY_VERSION_HEX < 0x030C0000
    thread->recursion_remaining += frames;
#else
    thread->py_recursion_remaining += frames;
#endif
}

/* What the call's arguments say, for the enter() that follows; None when there is nothing. */
static PyObject *marker_measure(Marker *marker, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *values = recording ? evaluate(&marker->evaluator, args, (size_t)count, names).values : NULL;
    return values ? values : Py_NewRef(Py_None);
}

static PyObject *marker_enter(Marker *marker, PyObject *const *args, Py_ssize_t count)
{
    PyThreadState *thread = thread_state();
    recursion_credit(thread, 1);
    if (likely(recording)) {
        Frame *frame = span_enter(marker->site, lane_of(thread), marker->carrier);
        if (unlikely(count == 1 && args[0] != Py_None))
            evaluated_apply(&marker->evaluator, (Evaluated){Py_NewRef(args[0])}, frame);
    }
    Py_RETURN_NONE;
}

static PyObject *marker_leave(Marker *marker, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count))
{
    uint64_t end = clock_now();
    PyThreadState *thread = thread_state();
    recursion_credit(thread, -1);
    if (likely(recording))
        span_exit(marker->site, lane_of(thread), end, NULL, 0);
    Py_RETURN_NONE;
}

/* The wrapper's own entry is taken out of the traceback: it shows what it would show without us. */
static void drop_first_traceback(PyObject *exception)
{
    PyObject *traceback = PyException_GetTraceback(exception);
    PyObject *next = traceback ? (PyObject *)((PyTracebackObject *)traceback)->tb_next : NULL;
    if (traceback)
        PyException_SetTraceback(exception, next ? next : Py_None);
    Py_XDECREF(traceback);
}

static PyObject *marker_fail(Marker *marker, PyObject *const *args, Py_ssize_t count)
{
    if (count != 1 || !PyExceptionInstance_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "fail() takes the exception");
        return NULL;
    }
    uint64_t end = clock_now();
    recursion_credit(thread_state(), -1);
    if (recording) {
        uint16_t flags = 0;
        const char *error = span_error((PyObject *)Py_TYPE(args[0]), &flags);
        span_exit(marker->site, frame_lane(), end, error, flags);
    }
    drop_first_traceback(args[0]);
    Py_RETURN_NONE;
}

static PyObject *marker_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    PyObject *site, *evaluate = Py_None;
    if (!PyArg_ParseTuple(args, "O|O:Marker", &site, &evaluate))
        return NULL;
    bool of_region = PyObject_TypeCheck(site, &Region_Type);
    if (!of_region && !PyObject_TypeCheck(site, &Site_Type)) {
        PyErr_SetString(PyExc_TypeError, "Marker() takes a site or a region");
        return NULL;
    }
    Marker *marker = (Marker *)type->tp_alloc(type, 0);
    if (!marker)
        return NULL;
    marker->site = of_region ? ((Region *)site)->site : (Site *)site;
    if (of_region && region_carries((Region *)site))
        marker->carrier = Py_NewRef(site);
    marker->evaluator.function = evaluate == Py_None ? NULL : Py_NewRef(evaluate);
    return (PyObject *)marker;
}

static int marker_traverse(Marker *marker, visitproc visit, void *arg)
{
    Py_VISIT(marker->carrier);
    Py_VISIT(marker->evaluator.function);
    return 0;
}

static int marker_clear(Marker *marker)
{
    Py_CLEAR(marker->carrier);
    Py_CLEAR(marker->evaluator.function);
    return 0;
}

static void marker_dealloc(Marker *marker)
{
    PyObject_GC_UnTrack(marker);
    marker_clear(marker);
    Py_TYPE(marker)->tp_free((PyObject *)marker);
}

/* `+marker` enters and `-marker` leaves: of all ways from byte code into C an operator is the cheapest, and a
 * wrapper takes two with every call. */
static PyObject *marker_positive(Marker *marker) { return marker_enter(marker, NULL, 0); }
static PyObject *marker_negative(Marker *marker) { return marker_leave(marker, NULL, 0); }

static PyNumberMethods marker_operators = {
    .nb_positive = (unaryfunc)marker_positive,
    .nb_negative = (unaryfunc)marker_negative,
};

#define FAST(function) (PyCFunction)(void (*)(void)) function
static PyMethodDef marker_methods[] = {
    {"enter", FAST(marker_enter), METH_FASTCALL, "enter(measured=None): open the span, with what measure() answered."},
    {"leave", FAST(marker_leave), METH_FASTCALL, "leave(): end it."},
    {"fail", FAST(marker_fail), METH_FASTCALL, "fail(exception): end it with an exception."},
    {"measure", FAST(marker_measure), METH_FASTCALL | METH_KEYWORDS,
     "measure(*args, **kwargs): evaluate flops=, bytes= and attrs= with the call's arguments, for enter()."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject Marker_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "instrument.recorder._core.Marker",
    .tp_doc = "Marker(site, evaluate=None): the pieces a wrapper calls around a function it cannot hook.",
    .tp_basicsize = sizeof(Marker),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = marker_new,
    .tp_dealloc = (destructor)marker_dealloc,
    .tp_traverse = (traverseproc)marker_traverse,
    .tp_clear = (inquiry)marker_clear,
    .tp_methods = marker_methods,
    .tp_as_number = &marker_operators,
};
