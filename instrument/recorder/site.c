/* The table of sites, their overflow, and their sinks. */
#include "site.h"

#include <structmember.h>

Site **sites = NULL;
uint32_t site_count = 0;
const char *const kind_names[KIND_COUNT] = {"region", "kernel", "step", "mark"};

enum { NAME_CACHE = 256 };
static struct { PyObject *name; Site *site; } name_cache[NAME_CACHE]; /* by the address of the constant name */
static PyObject *by_key;             /* (kind, name[, file, line]) -> Site */
static Site *overflow[KIND_COUNT];   /* made in advance, so that they always exist */
static bool overflow_warned;

/* File and line of the Python code that runs now; ("", 0) from C. Leaves no exception. */
static PyObject *caller_file(int *line)
{
    PyFrameObject *frame = PyEval_GetFrame();
    *line = 0;
    if (!frame)
        return PyUnicode_FromString("");
    PyCodeObject *code = PyFrame_GetCode(frame);
    *line = PyFrame_GetLineNumber(frame);
    PyObject *file = Py_NewRef(code->co_filename);
    Py_DECREF(code);
    return file;
}

static Site *site_new(Kind kind, PyObject *name, PyObject *file, int line)
{
    Site *site = PyObject_New(Site, &Site_Type);
    if (!site)
        return NULL;
    site->from_path = UINT32_MAX;
    site->path = 0;
    site->sink = NULL;
    site->last_ns = 0;
    site->kind = kind;
    site->next_step = 0;
    site->name = Py_NewRef(name);
    site->scope = PyUnicode_FromString("");
    site->file = Py_XNewRef(file);
    site->line = line;
    if (!site->file)
        site->file = caller_file(&site->line);
    /* Only now: on 3.11 an allocation may run a finalizer that makes a site itself. */
    if (!site->scope || !site->file || site_count >= MAX_SITES + KIND_COUNT) {
        Py_DECREF(site);
        return NULL;
    }
    site->index = site_count;
    sites[site_count++] = site; /* the table's own reference: sites never die */
    return site;
}

/* One warning for the whole process: the call site whose names vary. Leaves no exception. */
static COLD void warn_overflow(PyObject *name)
{
    if (overflow_warned)
        return;
    overflow_warned = true;
    int line;
    PyObject *file = caller_file(&line);
    if (!file || PyErr_WarnFormat(PyExc_RuntimeWarning, 1,
            "instrument: more than %d names; %R (at %U:%d) and later ones share one site. "
            "Names are constant: put what varies into attributes", MAX_SITES, name, file, line) < 0)
        PyErr_Clear(); /* also when warnings are errors: user code wins */
    Py_XDECREF(file);
}

Site *site_get(Kind kind, PyObject *name, PyObject *file, int line)
{
    PyObject *key = file ? Py_BuildValue("iOOi", kind, name, file, line) : Py_BuildValue("iO", kind, name);
    Site *site = NULL;
    if (key) {
        site = (Site *)PyDict_GetItemWithError(by_key, key);
        if (!site && !PyErr_Occurred()) {
            if (site_count >= MAX_SITES + KIND_COUNT) {
                warn_overflow(name);
            } else {
                site = site_new(kind, name, file, line);
                if (site && PyDict_SetItem(by_key, key, (PyObject *)site) < 0)
                    PyErr_Clear(); /* it works; it will only be made again */
            }
        }
        Py_DECREF(key);
    }
    if (site)
        return site;
    PyErr_Clear();
    lose(LOSS_SITES, 1);
    return overflow[kind];
}

PyObject *name_text(PyObject *name)
{
    return PyUnicode_CheckExact(name) ? Py_NewRef(name)
           : PyUnicode_Check(name)    ? PyUnicode_FromObject(name)
                                      : PyUnicode_FromFormat("(%s)", Py_TYPE(name)->tp_name);
}

static inline unsigned name_slot(Kind kind, PyObject *name)
{
    return (unsigned)(((uintptr_t)name >> 4) + kind) % NAME_CACHE;
}

static COLD Site *site_named_slow(Kind kind, PyObject *name)
{
    PyObject *text = name_text(name);
    Site *site = text ? site_get(kind, text, NULL, 0) : NULL;
    if (text == name && site != overflow[kind]) { /* each use of an overflow site is counted */
        unsigned at = name_slot(kind, name);
        name_cache[at].site = site;
        Py_XSETREF(name_cache[at].name, Py_NewRef(name)); /* held, so that the address stays its own */
    }
    Py_XDECREF(text);
    return site;
}

Site *site_named(Kind kind, PyObject *name)
{
    unsigned at = name_slot(kind, name);
    if (likely(name_cache[at].name == name && name_cache[at].site->kind == kind))
        return name_cache[at].site;
    return site_named_slow(kind, name);
}

void sites_forget_paths(void)
{
    for (uint32_t i = 0; i < site_count; i++)
        sites[i]->from_path = UINT32_MAX;
}

int sites_init(void)
{
    if (PyType_Ready(&Site_Type) < 0)
        return -1;
    by_key = PyDict_New();
    sites = PyMem_RawCalloc(MAX_SITES + KIND_COUNT, sizeof *sites);
    PyObject *name = PyUnicode_FromString("(overflow)"), *file = PyUnicode_FromString("");
    if (!by_key || !sites || !name || !file)
        return -1;
    for (Kind kind = 0; kind < KIND_COUNT; kind++)
        if (!(overflow[kind] = site_new(kind, name, file, 0)))
            return -1;
    Py_DECREF(name);
    Py_DECREF(file);
    return 0;
}

/* ---- sinks ---- */

static void sink_free(Site *site)
{
    Sink *sink = site->sink;
    if (!sink)
        return;
    site->sink = NULL;
    Py_XDECREF(sink->enter);
    Py_XDECREF(sink->leave);
    PyMem_RawFree(sink);
}

int site_set_sink(Site *site, PyObject *enter, PyObject *leave)
{
    sink_free(site);
    if (enter == Py_None && leave == Py_None)
        return 0;
    Sink *sink = PyMem_RawCalloc(1, sizeof *sink);
    if (!sink) {
        PyErr_NoMemory();
        return -1;
    }
    sink->enter = enter == Py_None ? NULL : Py_NewRef(enter);
    sink->leave = leave == Py_None ? NULL : Py_NewRef(leave);
    site->sink = sink;
    return 0;
}

COLD void site_sink_call(Site *site, bool entering, uint64_t span_id)
{
    PyObject *call = entering ? site->sink->enter : site->sink->leave;
    if (!call)
        return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Py_INCREF(call); /* it may take itself off */
    PyObject *id = PyLong_FromUnsignedLongLong(span_id);
    PyObject *result = id ? PyObject_CallOneArg(call, id) : NULL;
    Py_XDECREF(id);
    Py_DECREF(call);
    if (!result) {
        callback_failed();
        lose(LOSS_SINK, 1);
        if (site->sink && ++site->sink->failures >= 3)
            sink_free(site);
    }
    Py_XDECREF(result);
    PyErr_Restore(type, value, traceback);
}

/* ---- the Python type ---- */

static PyObject *site_kind(Site *site, void *Py_UNUSED(closure))
{
    return PyUnicode_FromString(kind_names[site->kind]);
}

static PyObject *site_repr(Site *site)
{
    return PyUnicode_FromFormat("<instrument %s %R at %U:%d>", kind_names[site->kind], site->name, site->file,
                                site->line);
}

static PyObject *site_set_sink_method(PyObject *self, PyObject *args)
{
    PyObject *enter, *leave;
    if (!PyArg_ParseTuple(args, "OO:set_sink", &enter, &leave) || site_set_sink((Site *)self, enter, leave) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef site_methods[] = {
    {"set_sink", site_set_sink_method, METH_VARARGS, "set_sink(enter, leave): call them with each span's id."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef site_members[] = {
    {"index", T_UINT, offsetof(Site, index), READONLY, "position in the table of sites"},
    {"name", T_OBJECT, offsetof(Site, name), READONLY, "the constant name"},
    {"scope", T_OBJECT, offsetof(Site, scope), READONLY, "dotted name of the library that put it there"},
    {"file", T_OBJECT, offsetof(Site, file), READONLY, "source file of the first caller"},
    {"line", T_INT, offsetof(Site, line), READONLY, "line in that file"},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef site_getset[] = {
    {"kind", (getter)site_kind, NULL, "region, kernel, step or mark", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject Site_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "instrument.recorder._core.Site",
    .tp_doc = "One annotation in the source. Immortal.",
    .tp_basicsize = sizeof(Site),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_repr = (reprfunc)site_repr,
    .tp_members = site_members,
    .tp_methods = site_methods,
    .tp_getset = site_getset,
};
