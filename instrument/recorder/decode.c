/* Chunks as Python objects: the buffer protocol, and decoding into tuples. */
#include "drain.h"

static PyObject *attribute_value(const Attribute *attribute)
{
    int64_t integer;
    double number;
    switch (attribute->tag) {
    case TAG_FALSE:
        Py_RETURN_FALSE;
    case TAG_TRUE:
        Py_RETURN_TRUE;
    case TAG_INT:
        memcpy(&integer, &attribute->word, 8);
        return PyLong_FromLongLong(integer);
    case TAG_FLOAT:
        memcpy(&number, &attribute->word, 8);
        return PyFloat_FromDouble(number);
    case TAG_TEXT:
        return PyUnicode_DecodeUTF8(attribute->text, (Py_ssize_t)attribute->word, "replace");
    case TAG_JSON: {
        static PyObject *loads;
        if (!loads) {
            PyObject *json = PyImport_ImportModule("json");
            loads = json ? PyObject_GetAttrString(json, "loads") : NULL;
            Py_XDECREF(json);
        }
        return loads ? PyObject_CallFunction(loads, "y#", attribute->text, (Py_ssize_t)attribute->word) : NULL;
    }
    case TAG_NONE:
        break;
    }
    Py_RETURN_NONE;
}

/* A dict of the attributes of one kind, or None. */
static PyObject *attribute_dict(const View *view, RecordKind kind)
{
    Attribute attributes[2 * MAX_SPAN_ATTRS];
    int count = view->attributes ? view_attributes(view, kind, attributes) : 0;
    if (!count)
        Py_RETURN_NONE;
    PyObject *dict = PyDict_New();
    for (int i = 0; dict && i < count; i++) {
        PyObject *value = attribute_value(&attributes[i]);
        if (!value || PyDict_SetItem(dict, key_at(attributes[i].key)->text, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

static PyObject *optional_int(int64_t value, bool there)
{
    if (!there)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(value);
}

static PyObject *decode_one(const View *view)
{
    const Event *event = view->event;
    const Context *context = view->context;
    PyObject *error = view->error ? PyUnicode_DecodeUTF8(view->error, (Py_ssize_t)view->error_length, "replace")
                                  : Py_NewRef(Py_None);
    return Py_BuildValue("KKKIKKHNNNNN", view->id, context->parent_id, view->root, event->path, event->start, event->end,
                         event->flags, optional_int(view->step, view->step != NO_STEP),
                         optional_int((int64_t)context->task, context->task != 0), error,
                         attribute_dict(view, RECORD_ATTRS), attribute_dict(view, RECORD_MEASURES));
}

PyObject *chunk_decode(ChunkObject *self, PyObject *Py_UNUSED(unused))
{
    PyObject *list = PyList_New((Py_ssize_t)self->chunk->count);
    for (uint32_t i = 0; list && i < self->chunk->count; i++) {
        View view = chunk_view(self->chunk, i);
        PyObject *tuple = decode_one(&view);
        if (tuple)
            PyList_SET_ITEM(list, (Py_ssize_t)i, tuple);
        else
            Py_CLEAR(list);
    }
    return list;
}

/* ---- the type ---- */

static void chunk_dealloc(ChunkObject *self)
{
    if (self->chunk)
        chunk_recycle(self->chunk);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static Py_ssize_t chunk_length(ChunkObject *self) { return (Py_ssize_t)self->chunk->count; }

static int chunk_buffer(ChunkObject *self, Py_buffer *view, int flags)
{
    return PyBuffer_FillInfo(view, (PyObject *)self, self->chunk->data,
                             (Py_ssize_t)(self->chunk->count * sizeof(Event)), 1, flags);
}

static PyObject *chunk_get_thread(ChunkObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(self->chunk->thread);
}

static PyObject *chunk_get_tid(ChunkObject *self, void *Py_UNUSED(closure)) { return PyLong_FromLong(self->chunk->tid); }

static PyObject *chunk_get_count(ChunkObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(self->chunk->count);
}

static PySequenceMethods chunk_sequence = {.sq_length = (lenfunc)chunk_length};
static PyBufferProcs chunk_as_buffer = {.bf_getbuffer = (getbufferproc)chunk_buffer};
static PyObject *chunk_get_marks(ChunkObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(self->chunk->marks);
}

static PyMethodDef chunk_methods[] = {
    {"decode", (PyCFunction)chunk_decode, METH_NOARGS, "decode(): one tuple a record, in order of completion."},
    {"jsonl", (PyCFunction)chunk_jsonl, METH_VARARGS,
     "jsonl(wall_offset_ns, following=()): the records of this chunk, and of those, as lines of the run file."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef chunk_getset[] = {
    {"thread", (getter)chunk_get_thread, NULL, "serial number of the thread that wrote it", NULL},
    {"tid", (getter)chunk_get_tid, NULL, "the operating system's thread id", NULL},
    {"count", (getter)chunk_get_count, NULL, "spans and marks in it", NULL},
    {"marks", (getter)chunk_get_marks, NULL, "how many of them are marks", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject Chunk_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "instrument.recorder._core.Chunk",
    .tp_doc = "A sealed piece of one thread's recording.",
    .tp_basicsize = sizeof(ChunkObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)chunk_dealloc,
    .tp_as_sequence = &chunk_sequence,
    .tp_as_buffer = &chunk_as_buffer,
    .tp_methods = chunk_methods,
    .tp_getset = chunk_getset,
};
