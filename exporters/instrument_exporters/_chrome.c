/* The run file's span and mark lines as trace events, 0.4 us each.
 *
 * What: `Converter.feed` reads a block of lines and answers what `chrome_events.py` would, for lines that
 * look exactly as the recorder writes them. At the first line that does not, or whose span has no place on
 * its thread's track, it stops; Python takes that line and comes back for the rest.
 * Why: Python takes 10 to 20 us for such a line, 2 us with regular expressions.
 * How: nothing is looked up. `,"step":..` to the end of a line becomes the event's `args` as it is, once it is
 * known to be JSON with fields that we know. The file may hold anything: every read is checked against the end. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "_chrome_tracks.h"

enum {
    MAX_NESTING = 32, /* of values in a line */
};

enum { REGION, KERNEL, STEP, MARK, KINDS };
static const char *const kinds[KINDS] = {"\"region\"", "\"kernel\"", "\"step\"", "\"mark\""};

typedef struct {
    const char *data;
    size_t length;
} Slice;

typedef struct {
    PyObject_HEAD
    uint64_t base, pid;
    PyObject *categories; /* what `category` points into */
    Slice category[KINDS];
    bool profiler_steps;
    Tracks tracks;
    bool busy;
} Converter;

/* ---------------------------------------------------------------- reading */

typedef struct {
    const char *at, *end;
} Cursor;

#define TAKE(cursor, literal) take(cursor, "" literal, sizeof(literal) - 1)

static inline bool take(Cursor *cursor, const char *text, size_t length)
{
    if ((size_t)(cursor->end - cursor->at) < length || memcmp(cursor->at, text, length))
        return false;
    cursor->at += length;
    return true;
}

static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A whole number of at most 18 digits, spelled as JSON wants it. */
static bool take_number(Cursor *cursor, uint64_t *value)
{
    const char *first = cursor->at;
    uint64_t sum = 0;
    while (cursor->at < cursor->end && is_digit(*cursor->at) && cursor->at - first < 19)
        sum = 10 * sum + (uint64_t)(*cursor->at++ - '0');
    *value = sum;
    Py_ssize_t digits = cursor->at - first;
    return digits > 0 && digits < 20 && (digits == 1 || *first != '0') && sum <= INT64_MAX &&
           !(cursor->at < cursor->end && is_digit(*cursor->at));
}

/* "0123456789abcdef" */
static bool take_id(Cursor *cursor, Slice *text, uint64_t *value)
{
    if (cursor->end - cursor->at < 18 || cursor->at[0] != '"' || cursor->at[17] != '"')
        return false;
    *text = (Slice){cursor->at, 18};
    *value = 0;
    for (int i = 1; i <= 16; i++) {
        char c = cursor->at[i];
        int nibble = is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (nibble < 0)
            return false;
        *value = *value << 4 | (uint64_t)nibble;
    }
    cursor->at += 18;
    return true;
}

/* One character beyond ASCII, as RFC 3629 allows it. */
static bool take_utf8(Cursor *cursor)
{
    const unsigned char *at = (const unsigned char *)cursor->at;
    Py_ssize_t left = cursor->end - cursor->at;
    int more = at[0] >= 0xC2 && at[0] <= 0xDF ? 1 : (at[0] & 0xF0) == 0xE0 ? 2 : at[0] >= 0xF0 && at[0] <= 0xF4 ? 3 : 0;
    if (!more || left <= more)
        return false;
    for (int i = 1; i <= more; i++)
        if ((at[i] & 0xC0) != 0x80)
            return false;
    if ((at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] > 0x9F) || (at[0] == 0xF0 && at[1] < 0x90) ||
        (at[0] == 0xF4 && at[1] > 0x8F))
        return false; /* too long a spelling, a surrogate, or beyond Unicode */
    cursor->at += more + 1;
    return true;
}

static bool take_escape(Cursor *cursor)
{
    if (cursor->end - cursor->at < 2)
        return false;
    char kind = cursor->at[1];
    cursor->at += 2;
    if (kind != 'u')
        return kind && strchr("\"\\/bfnrt", kind);
    if (cursor->end - cursor->at < 4 || ((cursor->at[0] | 0x20) == 'd' && cursor->at[1] > '7'))
        return false; /* half of a surrogate pair: Perfetto gives up on the whole trace */
    for (int i = 0; i < 4; i++, cursor->at++) {
        char c = *cursor->at;
        if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F'))
            return false;
    }
    return true;
}

/* A JSON string with its quotes. Not one that ends in a backslash, which Perfetto (v52) does not see the end of:
 * Python spells it in another way. */
static bool take_string(Cursor *cursor, Slice *text)
{
    const char *first = cursor->at, *backslash = NULL;
    if (!TAKE(cursor, "\""))
        return false;
    while (cursor->at < cursor->end) {
        unsigned char c = (unsigned char)*cursor->at;
        if (c == '"') {
            cursor->at++;
            *text = (Slice){first, (size_t)(cursor->at - first)};
            return backslash != cursor->at - 1;
        }
        if (c < 0x20)
            return false;
        if (c == '\\') {
            if (!take_escape(cursor))
                return false;
            if (cursor->at[-1] == '\\')
                backslash = cursor->at;
        } else if (c >= 0x80) {
            if (!take_utf8(cursor))
                return false;
        } else {
            cursor->at++;
        }
    }
    return false;
}

static bool skip_digits(Cursor *cursor)
{
    const char *first = cursor->at;
    while (cursor->at < cursor->end && is_digit(*cursor->at))
        cursor->at++;
    return cursor->at > first;
}

static bool skip_number(Cursor *cursor)
{
    TAKE(cursor, "-");
    if (!TAKE(cursor, "0") && !skip_digits(cursor))
        return false;
    if (TAKE(cursor, ".") && !skip_digits(cursor))
        return false;
    if (TAKE(cursor, "e") || TAKE(cursor, "E")) {
        if (!TAKE(cursor, "+"))
            TAKE(cursor, "-");
        return skip_digits(cursor);
    }
    return true;
}

/* Any JSON value without blanks between its parts. */
static bool skip_value(Cursor *cursor, int depth)
{
    Slice text;
    if (cursor->at == cursor->end || depth > MAX_NESTING)
        return false;
    switch (*cursor->at) {
    case '"':
        return take_string(cursor, &text);
    case 't':
        return TAKE(cursor, "true");
    case 'f':
        return TAKE(cursor, "false");
    case 'n':
        return TAKE(cursor, "null");
    case '[':
        cursor->at++;
        if (TAKE(cursor, "]"))
            return true;
        do {
            if (!skip_value(cursor, depth + 1))
                return false;
        } while (TAKE(cursor, ","));
        return TAKE(cursor, "]");
    case '{':
        cursor->at++;
        if (TAKE(cursor, "}"))
            return true;
        do {
            if (!take_string(cursor, &text) || !TAKE(cursor, ":") || !skip_value(cursor, depth + 1))
                return false;
        } while (TAKE(cursor, ","));
        return TAKE(cursor, "}");
    default:
        return skip_number(cursor);
    }
}

/* What follows the thread id, in the recorder's order: all of it belongs into an event's arguments. */
static bool take_rest(Cursor *cursor, Slice *rest, Slice *step)
{
    const char *first = cursor->at;
    if (TAKE(cursor, ",\"step\":")) {
        const char *number = cursor->at;
        TAKE(cursor, "-");
        if (!TAKE(cursor, "0") && !skip_digits(cursor))
            return false;
        *step = (Slice){number, (size_t)(cursor->at - number)};
    }
    if (TAKE(cursor, ",\"weight\":") && !skip_number(cursor))
        return false;
    if (TAKE(cursor, ",\"status\":") && !skip_value(cursor, 0))
        return false;
    if (TAKE(cursor, ",\"error\":") && !skip_value(cursor, 0))
        return false;
    if (TAKE(cursor, ",\"flags\":") && !skip_value(cursor, 0))
        return false;
    if (TAKE(cursor, ",\"attrs\":") && !skip_value(cursor, 0))
        return false;
    const char *measures = cursor->at;
    if (TAKE(cursor, ",\"measures\":") && !skip_value(cursor, 0))
        return false;
    *rest = (Slice){first, (size_t)(cursor->at - first)};
    /* Device times are events of their own, which Python makes. */
    return cursor->at == measures || !memmem(measures, (size_t)(cursor->at - measures), "\"device_ns\"", 11);
}

typedef struct {
    bool mark;
    Slice id_text, parent_text, name, kind, step, rest;
    uint64_t id, parent, start, dur, pid, tid;
} Line;

/* One line of the recorder's; the cursor then stands behind its newline. */
static bool take_line(Cursor *cursor, Line *line)
{
    Slice path;
    line->parent = 0;
    line->parent_text.length = line->step.length = 0;
    line->mark = TAKE(cursor, "{\"type\":\"mark\"");
    if (!line->mark)
        if (!TAKE(cursor, "{\"type\":\"span\",\"id\":") || !take_id(cursor, &line->id_text, &line->id))
            return false;
    if (TAKE(cursor, ",\"parent\":") && !take_id(cursor, &line->parent_text, &line->parent))
        return false;
    if (!TAKE(cursor, ",\"name\":") || !take_string(cursor, &line->name) || !TAKE(cursor, ",\"kind\":") ||
        !take_string(cursor, &line->kind) || !TAKE(cursor, ",\"path\":") || !take_string(cursor, &path))
        return false;
    if (line->mark) {
        if (!TAKE(cursor, ",\"time\":") || !take_number(cursor, &line->start))
            return false;
        line->dur = 0;
    } else if (!TAKE(cursor, ",\"start\":") || !take_number(cursor, &line->start) || !TAKE(cursor, ",\"dur\":") ||
               !take_number(cursor, &line->dur)) {
        return false;
    }
    return TAKE(cursor, ",\"pid\":") && take_number(cursor, &line->pid) && TAKE(cursor, ",\"tid\":") &&
           take_number(cursor, &line->tid) && take_rest(cursor, &line->rest, &line->step) && TAKE(cursor, "}\n");
}

/* ---------------------------------------------------------------- writing */

typedef struct {
    char *data;
    size_t length, room;
} Output;

static bool output_reserve(Output *out, size_t more)
{
    if (out->room - out->length >= more)
        return true;
    size_t room = out->room + out->room / 2 + more + 4096;
    char *data = PyMem_RawRealloc(out->data, room);
    if (!data)
        return false;
    out->data = data;
    out->room = room;
    return true;
}

#define PUT(out, literal) put(out, (Slice){"" literal, sizeof(literal) - 1})

static inline void put(Output *out, Slice text)
{
    memcpy(out->data + out->length, text.data, text.length);
    out->length += text.length;
}

static void put_number(Output *out, uint64_t value)
{
    char digits[20];
    int at = 20;
    do
        digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    put(out, (Slice){digits + at, (size_t)(20 - at)});
}

/* Nanoseconds as the microseconds that the format wants. */
static void put_us(Output *out, uint64_t ns)
{
    unsigned rest = (unsigned)(ns % 1000);
    put_number(out, ns / 1000);
    char fraction[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10), (char)('0' + rest % 10)};
    put(out, (Slice){fraction, 4});
}

static void put_event(Output *out, const Converter *self, const Line *line, int kind)
{
    bool profiler_step = kind == STEP && self->profiler_steps && line->step.length;
    if (line->mark)
        PUT(out, ",\n{\"ph\":\"i\",\"s\":\"t\",\"name\":");
    else
        PUT(out, ",\n{\"ph\":\"X\",\"name\":");
    if (profiler_step) {
        PUT(out, "\"ProfilerStep#");
        put(out, line->step);
        PUT(out, "\"");
    } else {
        put(out, line->name);
    }
    PUT(out, ",\"cat\":");
    put(out, self->category[kind]);
    PUT(out, ",\"ts\":");
    put_us(out, line->start - self->base);
    if (!line->mark) {
        PUT(out, ",\"dur\":");
        put_us(out, line->dur);
    }
    PUT(out, ",\"pid\":");
    put_number(out, self->pid);
    PUT(out, ",\"tid\":");
    put_number(out, line->tid);
    PUT(out, ",\"args\":{");
    if (!line->mark) {
        PUT(out, "\"id\":");
        put(out, line->id_text);
        put(out, line->rest);
        if (profiler_step) {
            PUT(out, ",\"name\":");
            put(out, line->name);
        }
    } else if (line->parent_text.length) {
        PUT(out, "\"parent\":");
        put(out, line->parent_text);
        put(out, line->rest);
    } else if (line->rest.length) {
        put(out, (Slice){line->rest.data + 1, line->rest.length - 1}); /* without its comma */
    }
    PUT(out, "}}");
}

/* ---------------------------------------------------------------- the converter */

/* -1 for a kind that is none of ours. */
static int kind_of(const Line *line)
{
    for (int i = 0; i < KINDS; i++)
        if (line->kind.length == strlen(kinds[i]) && !memcmp(line->kind.data, kinds[i], line->kind.length))
            return (i == MARK) == line->mark ? i : -1;
    return -1;
}

/* Everything up to the first line that is not ours. */
static bool convert(Converter *self, Cursor *cursor, Output *out, Py_ssize_t *count)
{
    for (; cursor->at < cursor->end; ++*count) {
        Cursor next = *cursor;
        Line line;
        int kind;
        if (!take_line(&next, &line) || (kind = kind_of(&line)) < 0 || line.start < self->base ||
            line.start > INT64_MAX - line.dur)
            return true;
        if (!line.mark) {
            Track *track = track_of(&self->tracks, line.tid);
            if (!track || !place(track, line.parent, (int64_t)line.start, (int64_t)(line.start + line.dur)))
                return true;
        }
        if (!output_reserve(out, (size_t)(next.at - cursor->at) + self->category[kind].length + 256))
            return false;
        put_event(out, self, &line, kind);
        *cursor = next;
    }
    return true;
}

static PyObject *converter_feed(Converter *self, PyObject *args)
{
    PyObject *block;
    Py_ssize_t start;
    if (!PyArg_ParseTuple(args, "Sn:feed", &block, &start))
        return NULL;
    if (start < 0 || start > PyBytes_GET_SIZE(block))
        return PyErr_Format(PyExc_ValueError, "%zd is outside of the block", start);
    if (self->busy)
        return PyErr_Format(PyExc_RuntimeError, "another thread is in this converter");
    Cursor cursor = {PyBytes_AS_STRING(block) + start, PyBytes_AS_STRING(block) + PyBytes_GET_SIZE(block)};
    Output out = {0};
    Py_ssize_t count = 0;
    bool done = false;
    self->busy = true;
    Py_BEGIN_ALLOW_THREADS
    done = convert(self, &cursor, &out, &count);
    Py_END_ALLOW_THREADS
    self->busy = false;
    PyObject *result = NULL;
    if (done)
        result = Py_BuildValue("y#nn", out.data ? out.data : "", (Py_ssize_t)out.length,
                               (Py_ssize_t)(cursor.at - PyBytes_AS_STRING(block)), count);
    else
        PyErr_NoMemory();
    PyMem_RawFree(out.data);
    return result;
}

static PyObject *converter_place(Converter *self, PyObject *args)
{
    unsigned long long number, parent;
    long long start, end;
    if (!PyArg_ParseTuple(args, "KKLL:place", &number, &parent, &start, &end))
        return NULL;
    if (self->busy)
        return PyErr_Format(PyExc_RuntimeError, "another thread is in this converter");
    Track *track = track_of(&self->tracks, number);
    return PyBool_FromLong(track && place(track, parent, start, end));
}

static PyObject *converter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"base", "pid", "categories", "profiler_steps", NULL};
    unsigned long long base, pid;
    PyObject *categories;
    int profiler_steps;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "KKO!p:Converter", names, &base, &pid, &PyTuple_Type, &categories,
                                     &profiler_steps))
        return NULL;
    if (PyTuple_GET_SIZE(categories) != KINDS)
        return PyErr_Format(PyExc_ValueError, "categories are for region, kernel, step and mark");
    Converter *self = (Converter *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->base = base;
    self->pid = pid;
    self->profiler_steps = profiler_steps;
    self->categories = Py_NewRef(categories);
    for (int i = 0; i < KINDS; i++) {
        PyObject *item = PyTuple_GET_ITEM(categories, i);
        if (!PyBytes_Check(item)) {
            Py_DECREF(self);
            return PyErr_Format(PyExc_TypeError, "a category is JSON as bytes");
        }
        self->category[i] = (Slice){PyBytes_AS_STRING(item), (size_t)PyBytes_GET_SIZE(item)};
    }
    return (PyObject *)self;
}

static void converter_dealloc(Converter *self)
{
    tracks_free(&self->tracks);
    Py_XDECREF(self->categories);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef converter_methods[] = {
    {"feed", (PyCFunction)converter_feed, METH_VARARGS, NULL},
    {"place", (PyCFunction)converter_place, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot converter_slots[] = {
    {Py_tp_new, converter_new},
    {Py_tp_dealloc, converter_dealloc},
    {Py_tp_methods, converter_methods},
    {Py_tp_doc, "Lines of the run file to trace events; see _chrome.pyi."},
    {0, NULL},
};

static PyType_Spec converter_spec = {
    .name = "instrument_exporters._chrome.Converter",
    .basicsize = sizeof(Converter),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = converter_slots,
};

static int module_exec(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &converter_spec, NULL);
    if (!type)
        return -1;
    int failed = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "instrument_exporters._chrome",
    .m_size = 0,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__chrome(void)
{
    return PyModuleDef_Init(&module_definition);
}
