/* region(), step(), mark(), annotate() and the objects that `with` enters.
 *
 * `with` binds __enter__ and __exit__ to the object first, which costs more than recording does. A builtin in a
 * class namespace is not bound, so each name gets a tiny type whose two entries are builtins already tied to the
 * one region object (MAX_BOUND_TYPES of them; CPython's type cache thrashes beyond). Calls with attributes take
 * such objects from a pool, since their attributes live in the object until the span ends. */
#include "region.h"

enum { NAME_CACHE = 512, POOL = 16 };

static struct { PyObject *name, *region; } name_cache[NAME_CACHE]; /* by the address of the constant name */
static PyObject *region_by_name; /* str -> Region */
static Region *pool[POOL];
static unsigned pool_next;
static PyObject *decorator, *usual_step;
static uint32_t bound_types;

/* ---- enter and exit ---- */

static PyObject *region_enter(PyObject *self, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count))
{
    Region *region = (Region *)self;
    if (likely(recording))
        span_enter(region->site, frame_lane(), region_carries(region) ? self : NULL);
    return Py_NewRef(self);
}

static PyObject *region_exit(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (likely(recording)) {
        uint64_t end = clock_now();
        const char *error = NULL;
        uint16_t flags = 0;
        /* (type, value, traceback), with the object itself before them when called through its type. */
        if (unlikely(count >= 3 && args[count - 3] != Py_None))
            error = span_error(args[count - 3], &flags);
        span_exit(((Region *)self)->site, frame_lane(), end, error, flags);
    }
    Py_RETURN_NONE;
}

static PyMethodDef enter_def = {"__enter__", (PyCFunction)(void (*)(void))region_enter, METH_FASTCALL, NULL};
static PyMethodDef exit_def = {"__exit__", (PyCFunction)(void (*)(void))region_exit, METH_FASTCALL, NULL};

/* ---- making regions ---- */

static Region *region_alloc(PyTypeObject *type, Site *site)
{
    Region *region = (Region *)type->tp_alloc(type, 0);
    if (region) {
        region->site = site;
        region->step = NO_STEP;
    }
    return region;
}

/* A region with a type of its own. NULL without an exception set when that fails. */
static Region *region_bound(Site *site)
{
    PyObject *type = PyObject_CallFunction((PyObject *)&PyType_Type, "s(O){s(),ss}", "Region", &Region_Type,
                                           "__slots__", "__module__", "instrument");
    Region *region = type ? region_alloc((PyTypeObject *)type, site) : NULL;
    PyObject *enter = region ? PyCFunction_New(&enter_def, (PyObject *)region) : NULL;
    PyObject *leave = enter ? PyCFunction_New(&exit_def, (PyObject *)region) : NULL;
    if (!leave || PyObject_SetAttrString(type, "__enter__", enter) < 0 ||
        PyObject_SetAttrString(type, "__exit__", leave) < 0) {
        PyErr_Clear();
        Py_CLEAR(region);
    } else {
        region->enter = enter; /* both held by the type */
        region->leave = leave;
    }
    Py_XDECREF(enter);
    Py_XDECREF(leave);
    Py_XDECREF(type);
    return region;
}

/* The shared region of a name, as a borrowed reference; NULL with an exception only without memory. */
static COLD Region *region_lookup(PyObject *name)
{
    PyObject *text = name_text(name);
    if (!text)
        return NULL;
    Region *region = (Region *)PyDict_GetItemWithError(region_by_name, text);
    if (!region && !PyErr_Occurred()) {
        Site *site = site_get(KIND_REGION, text, NULL, 0);
        if (bound_types < MAX_BOUND_TYPES && (region = region_bound(site)))
            bound_types++;
        else
            region = region_alloc(&Region_Type, site);
        /* Overflowing names are not remembered: they would grow without bound. */
        if (region && PyUnicode_Compare(site->name, text) == 0) {
            if (PyDict_SetItem(region_by_name, text, (PyObject *)region) == 0)
                Py_DECREF(region);
            else
                Py_CLEAR(region);
        } else if (region) {
            static Region *shared;
            Py_XSETREF(shared, region);
        }
    }
    if (region && text == name) {
        unsigned at = (unsigned)((uintptr_t)name >> 4) % NAME_CACHE;
        if (PyDict_Contains(region_by_name, name) == 1) {
            Py_XSETREF(name_cache[at].name, Py_NewRef(name));
            Py_XSETREF(name_cache[at].region, Py_NewRef(region));
        }
    }
    Py_DECREF(text);
    return region;
}

static inline Region *region_of(PyObject *name)
{
    unsigned at = (unsigned)((uintptr_t)name >> 4) % NAME_CACHE;
    if (likely(name_cache[at].name == name))
        return (Region *)name_cache[at].region;
    return region_lookup(name);
}

/* An object for one call: from the pool where one is idle. A new reference, or NULL with an exception. */
static Region *carrier_for(Site *site)
{
    for (unsigned tries = 0; tries < POOL; tries++) {
        unsigned at = pool_next++ % POOL;
        Region *carrier = pool[at];
        if (!carrier) {
            if (!(carrier = pool[at] = region_bound(site)))
                break;
        }
        /* Idle: known to the pool and to its two builtins only, and nobody holds one of these, as `with` does. */
        if (Py_REFCNT(carrier) == 3 && Py_REFCNT(carrier->leave) == 1 && Py_REFCNT(carrier->enter) == 1) {
            carrier->site = site;
            carrier->blob.length = carrier->blob.keys = 0;
            carrier->step = NO_STEP;
            return (Region *)Py_NewRef(carrier);
        }
    }
    return region_alloc(&Region_Type, site);
}

/* ---- the public functions ---- */

static bool one_name(const char *function, Py_ssize_t count)
{
    if (likely(count == 1))
        return true;
    PyErr_Format(PyExc_TypeError, "%s() takes one positional argument, its name (%zd given); attributes are keywords",
                 function, count);
    return false;
}

PyObject *region_call(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (unlikely(!one_name("region", count)))
        return NULL;
    Region *region = region_of(args[0]);
    if (likely(!names || !region))
        return Py_XNewRef(region);
    Region *carrier = carrier_for(region->site);
    if (carrier)
        blob_encode(&carrier->blob, RECORD_ATTRS, args + 1, names);
    return (PyObject *)carrier;
}

PyObject *step_call(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (count > 2) {
        PyErr_SetString(PyExc_TypeError, "step() takes a number and a name; attributes are keywords");
        return NULL;
    }
    PyObject *number = count > 0 ? args[0] : Py_None;
    PyObject *name = count > 1 ? args[1] : usual_step;
    Site *site = site_named(KIND_STEP, name);
    Region *carrier = site ? carrier_for(site) : NULL;
    if (!carrier)
        return NULL;
    PyObject *index = number == Py_None ? NULL : PyLong_CheckExact(number) ? Py_NewRef(number) : PyNumber_Index(number);
    int overflow = 0;
    long long value = index ? PyLong_AsLongLongAndOverflow(index, &overflow) : site->next_step;
    if ((!index && number != Py_None) || overflow) { /* not a number: the step goes on counting */
        PyErr_Clear();
        lose(LOSS_ATTRIBUTES, 1);
        value = site->next_step;
    }
    Py_XDECREF(index);
    carrier->step = value;
    site->next_step = value < INT64_MAX ? value + 1 : value;
    if (names)
        blob_encode(&carrier->blob, RECORD_ATTRS, args + count, names);
    return (PyObject *)carrier;
}

PyObject *mark_call(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (unlikely(!one_name("mark", count)))
        return NULL;
    if (recording) {
        Site *site = site_named(KIND_MARK, args[0]);
        if (!site)
            return NULL;
        Blob blob = {0};
        if (names)
            blob_encode(&blob, RECORD_ATTRS, args + 1, names);
        span_mark(site, names ? &blob : NULL);
        blob_free(&blob);
    }
    Py_RETURN_NONE;
}

static void annotate_frame(Frame *frame, PyObject *const *values, PyObject *names)
{
    Blob *extra = frame ? frame_extra(current, frame) : NULL;
    if (!frame)
        lose(LOSS_SET_WITHOUT_SPAN, 1);
    else if (!extra)
        lose(LOSS_ATTRIBUTES, (uint64_t)PyTuple_GET_SIZE(names));
    else
        blob_encode(extra, RECORD_ATTRS, values, names);
}

PyObject *annotate_call(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (count) {
        PyErr_SetString(PyExc_TypeError, "annotate() takes attributes as keywords only");
        return NULL;
    }
    if (recording && names)
        annotate_frame(span_current(), args, names);
    Py_RETURN_NONE;
}

PyObject *set_region_decorator(PyObject *Py_UNUSED(module), PyObject *function)
{
    Py_XSETREF(decorator, Py_NewRef(function));
    Py_RETURN_NONE;
}

/* ---- the type ---- */

static PyObject *region_set(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (count) {
        PyErr_SetString(PyExc_TypeError, "set() takes attributes as keywords only");
        return NULL;
    }
    if (recording && names)
        annotate_frame(span_innermost(((Region *)self)->site), args, names);
    Py_RETURN_NONE;
}

static PyObject *region_get_recording(Region *region, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(recording && span_innermost(region->site) != NULL);
}

static PyObject *region_get_seconds(Region *region, void *Py_UNUSED(closure))
{
    const Frame *frame = recording ? span_innermost(region->site) : NULL;
    uint64_t ns = frame                                ? clock_now() - frame->start
                  : current->last_site == region->site ? current->last_ns
                                                       : region->site->last_ns;
    return PyFloat_FromDouble((double)ns / 1e9);
}

static PyObject *region_get_name(Region *region, void *Py_UNUSED(closure)) { return Py_NewRef(region->site->name); }

static PyObject *region_decorate(PyObject *self, PyObject *args, PyObject *keywords)
{
    PyObject *function;
    static char *names[] = {"", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O:region", names, &function))
        return NULL;
    if (!decorator) {
        PyErr_SetString(PyExc_RuntimeError, "instrument was not imported as a whole");
        return NULL;
    }
    return PyObject_CallFunctionObjArgs(decorator, self, function, NULL);
}

static PyObject *region_repr(Region *region)
{
    return PyUnicode_FromFormat("<instrument %s %R>", kind_names[region->site->kind], region->site->name);
}

static void region_dealloc(Region *region)
{
    blob_free(&region->blob);
    Py_TYPE(region)->tp_free((PyObject *)region); /* a type of its own is released by its own destructor */
}

static PyMethodDef region_methods[] = {
    {"__enter__", (PyCFunction)(void (*)(void))region_enter, METH_FASTCALL, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))region_exit, METH_FASTCALL, NULL},
    {"set", (PyCFunction)(void (*)(void))region_set, METH_FASTCALL | METH_KEYWORDS,
     "set(**attrs): add attributes to this site's innermost open span in this thread."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef region_getset[] = {
    {"name", (getter)region_get_name, NULL, "the constant name", NULL},
    {"recording", (getter)region_get_recording, NULL, "whether this site has an open span in this thread", NULL},
    {"seconds", (getter)region_get_seconds, NULL,
     "seconds since entry of this site's innermost open span, else the length of its last one; 0.0 before any", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject Region_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "instrument.Region",
    .tp_doc = "One stretch of code, as a context manager or a decorator; shared, re-entrant, thread-safe.",
    .tp_basicsize = sizeof(Region),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_dealloc = (destructor)region_dealloc,
    .tp_repr = (reprfunc)region_repr,
    .tp_call = region_decorate,
    .tp_methods = region_methods,
    .tp_getset = region_getset,
};

int region_init(void)
{
    region_by_name = PyDict_New();
    usual_step = PyUnicode_InternFromString("step");
    return region_by_name && usual_step && PyType_Ready(&Region_Type) == 0 ? 0 : -1;
}
