/* The extension module: start and stop, the clock, and the table of functions. */
#include "drain.h"
#include "kernel.h"
#include "metrics.h"
#include "region.h"

enum { API = 1 };

/* ---- start and stop ---- */

static PyObject *core_start(PyObject *Py_UNUSED(module), PyObject *args, PyObject *keywords)
{
    static char *names[] = {"buffer_bytes", "chunk_bytes", "overflow", "max_paths", "directory", NULL};
    Py_ssize_t buffer = 64 << 20, chunk = 1 << 16, max_paths = 4096;
    const char *overflow = "newest", *directory = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$nnsnz:start", names, &buffer, &chunk, &overflow, &max_paths,
                                     &directory))
        return NULL;
    if (recording) {
        PyErr_SetString(PyExc_RuntimeError, "already recording");
        return NULL;
    }
    bool oldest = strcmp(overflow, "oldest") == 0;
    if (!oldest && strcmp(overflow, "newest") != 0)
        return PyErr_Format(PyExc_ValueError, "overflow is 'newest' or 'oldest', not '%s'", overflow);
    if (chunk < CHUNK_MIN || chunk > CHUNK_MAX || chunk % CONTEXT_UNIT)
        return PyErr_Format(PyExc_ValueError, "chunk_bytes is a multiple of %d from %d to %d, not %zd", CONTEXT_UNIT,
                            CHUNK_MIN, CHUNK_MAX, chunk);
    if (max_paths < 1 || max_paths > PATH_PAGE * PATH_PAGES - MAX_SITES - KIND_COUNT - 2)
        return PyErr_Format(PyExc_ValueError, "max_paths is from 1 to %d, not %zd",
                            PATH_PAGE * PATH_PAGES - MAX_SITES - KIND_COUNT - 2, max_paths);
    threads_reset();
    chunks_reset();
    metrics_reset();
    memset(losses, 0, sizeof losses);
    memory_bound = (size_t)buffer;
    chunk_bytes = (uint32_t)chunk;
    overwrite_oldest = oldest;
    if (!chunks_map(directory))
        return PyErr_SetFromErrnoWithFilename(PyExc_OSError, directory);
    if (buffer <= 0 || paths_reset((uint32_t)max_paths) < 0 || !chunk_spare(1))
        return PyErr_Format(PyExc_ValueError, "buffer_bytes=%zd cannot hold one chunk of %zd bytes beside the tables; "
                            "at least %zd are needed", buffer, chunk, 4 * chunk + (1 << 20));
    chunk_spare(2);
    clock_settle();
    if (recording) { /* another thread started while the clock settled */
        PyErr_SetString(PyExc_RuntimeError, "already recording");
        return NULL;
    }
    recording = 1;
    hooks_install();
    Py_RETURN_NONE;
}

static PyObject *core_stop(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    if (recording) {
        hooks_remove();
        span_close_all(FLAG_UNFINISHED);
        recording = 0;
        chunks_drop_spare();
    }
    Py_RETURN_NONE;
}

static PyObject *core_active(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) { return PyBool_FromLong(recording); }

static PyObject *core_after_fork(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    /* Chunks in a file are shared with the parent: this process must not touch them. */
    uint64_t discarded = threads_after_fork() + chunks_discard();
    chunks_reset();
    chunks_map(NULL);
    metrics_reset();
    memset(losses, 0, sizeof losses);
    if (paths && recording)
        paths_reset(paths->cap);
    lose(LOSS_INHERITED, discarded);
    return PyLong_FromUnsignedLongLong(discarded);
}

/* ---- the clock ---- */

static PyObject *core_tick(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    Anchor anchor = clock_tick();
    return Py_BuildValue("KKK", anchor.ticks, anchor.monotonic_ns, anchor.wall_ns);
}

static PyObject *core_now(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(clock_now());
}

static PyObject *core_clock_source(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyUnicode_FromString(clock_line.use_tsc ? "tsc" : "monotonic");
}

/* ---- small readings ---- */

static PyObject *core_path_count(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLong(paths ? paths->count : 1);
}

static PyObject *core_memory(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return Py_BuildValue("nn", (Py_ssize_t)memory_used, (Py_ssize_t)memory_bound);
}

static PyObject *core_kernel_site(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *name, *file;
    int line;
    if (!PyArg_ParseTuple(args, "UUi:kernel_site", &name, &file, &line))
        return NULL;
    return Py_NewRef((PyObject *)site_get(KIND_KERNEL, name, file, line));
}

static PyObject *core_on_first_record(PyObject *Py_UNUSED(module), PyObject *callback)
{
    on_first_record_set(callback == Py_None ? NULL : callback);
    Py_RETURN_NONE;
}

/* ---- the module ---- */

#define FAST_KEYWORDS(function) (PyCFunction)(void (*)(void)) function, METH_FASTCALL | METH_KEYWORDS
static PyMethodDef functions[] = {
    {"region", FAST_KEYWORDS(region_call), "region(name, /, **attrs): a context manager around a stretch of code."},
    {"step", FAST_KEYWORDS(step_call), "step(number=None, name='step', /, **attrs): one training or serving step."},
    {"mark", FAST_KEYWORDS(mark_call), "mark(name, /, **attrs): an instant."},
    {"annotate", FAST_KEYWORDS(annotate_call), "annotate(**attrs): onto the innermost open span of this thread."},
    {"count", FAST_KEYWORDS(count_call), "count(name, n=1, /, **labels): add to a counter."},
    {"gauge", FAST_KEYWORDS(gauge_call), "gauge(name, value, /, **labels): set a gauge."},
    {"observe", FAST_KEYWORDS(observe_call), "observe(name, value, /, **labels): one value of a distribution."},
    {"kernel_site", core_kernel_site, METH_VARARGS, "kernel_site(name, file, line): the site of a kernel."},
    {"hook", hook_call, METH_VARARGS, "hook(function, site, evaluate): record a function's calls in place."},
    {"set_region_decorator", set_region_decorator, METH_O, "Used as region(...)(function): called with both."},
    {"start", (PyCFunction)(void (*)(void))core_start, METH_VARARGS | METH_KEYWORDS, "Begin to record."},
    {"stop", core_stop, METH_NOARGS, "End recording."},
    {"active", core_active, METH_NOARGS, "Whether anything is being recorded."},
    {"take", core_take, METH_NOARGS, "All that was recorded since the last call, as chunks."},
    {"totals", core_totals, METH_NOARGS, "Totals per path."},
    {"metrics", core_metrics, METH_NOARGS, "Metrics per series."},
    {"losses", core_losses, METH_NOARGS, "What was not recorded, by reason."},
    {"threads", core_threads, METH_VARARGS, "Threads that recorded."},
    {"sites", core_sites, METH_VARARGS, "The table of sites."},
    {"path", core_path, METH_O, "A path by its index."},
    {"path_count", core_path_count, METH_NOARGS, "How many paths there are, the root included."},
    {"memory", core_memory, METH_NOARGS, "Bytes in use, and the bound."},
    {"tick", core_tick, METH_NOARGS, "Read the clocks and steer the recorder's."},
    {"now", core_now, METH_NOARGS, "The recorder's time."},
    {"clock_source", core_clock_source, METH_NOARGS, "Where the time comes from."},
    {"after_fork", core_after_fork, METH_NOARGS, "Forget what a fork inherited."},
    {"on_first_record", core_on_first_record, METH_O, "Call back when the next chunk is begun."},
    {NULL, NULL, 0, NULL},
};

static PyObject *flag_tuple(void)
{
    PyObject *tuple = PyTuple_New(16);
    for (int bit = 0; tuple && bit < 16; bit++) {
        PyObject *name = PyUnicode_FromString(flag_names[bit] ? flag_names[bit] : "");
        if (name)
            PyTuple_SET_ITEM(tuple, bit, name);
        else
            Py_CLEAR(tuple);
    }
    return tuple;
}

static int state_init(void)
{
    clock_init();
    if (threads_init() < 0) {
        PyErr_SetString(PyExc_ImportError, "instrument found no free thread-specific key");
        return -1;
    }
    if (sites_init() < 0 || attributes_init() < 0 || region_init() < 0 || kernel_init() < 0 || metrics_init() < 0 ||
        PyType_Ready(&Chunk_Type) < 0)
        return -1;
    return 0;
}

static int add_names(PyObject *module)
{
    PyObject *flags = flag_tuple();
    if (!flags || PyModule_AddObjectRef(module, "FLAG_NAMES", flags) < 0 ||
        PyModule_AddIntConstant(module, "API_VERSION", API) < 0 ||
        PyModule_AddObjectRef(module, "HOOKS_IN_PLACE", HOOKS_IN_PLACE ? Py_True : Py_False) < 0 ||
        PyModule_AddObjectRef(module, "Region", (PyObject *)&Region_Type) < 0 ||
        PyModule_AddObjectRef(module, "Site", (PyObject *)&Site_Type) < 0 ||
        PyModule_AddObjectRef(module, "Marker", (PyObject *)&Marker_Type) < 0 ||
        PyModule_AddObjectRef(module, "Chunk", (PyObject *)&Chunk_Type) < 0) {
        Py_XDECREF(flags);
        return -1;
    }
    Py_DECREF(flags);
    return 0;
}

static int module_exec(PyObject *module)
{
    /* All state is the process's, like its threads and its clock. A module that was dropped and imported again
     * finds it as it was. */
    static PyInterpreterState *owner;
    if (owner && owner != PyInterpreterState_Get()) {
        PyErr_SetString(PyExc_ImportError, "instrument can be loaded by one interpreter of a process only");
        return -1;
    }
    if (!owner && state_init() < 0)
        return -1;
    owner = PyInterpreterState_Get();
    return add_names(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "instrument.recorder._core",
    .m_doc = "The recorder: what annotations call, and what the session's drain reads.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&module_definition); }
