/* The run file's span and mark lines, written without the interpreter. */
#include "drain.h"

#include <unistd.h>

static void put_attribute(Buffer *out, const Attribute *attribute)
{
    int64_t integer;
    double number;
    switch (attribute->tag) {
    case TAG_NONE:
        buffer_literal(out, "null");
        break;
    case TAG_FALSE:
        buffer_literal(out, "false");
        break;
    case TAG_TRUE:
        buffer_literal(out, "true");
        break;
    case TAG_INT:
        memcpy(&integer, &attribute->word, 8);
        buffer_signed(out, integer);
        break;
    case TAG_FLOAT:
        memcpy(&number, &attribute->word, 8);
        buffer_double(out, number);
        break;
    case TAG_TEXT:
        buffer_json_bytes(out, attribute->text, attribute->word);
        break;
    case TAG_JSON:
        buffer_bytes(out, attribute->text, attribute->word);
        break;
    }
}

static void put_attributes(Buffer *out, const View *view, RecordKind kind, const char *name)
{
    Attribute attributes[2 * MAX_SPAN_ATTRS];
    int count = view_attributes(view, kind, attributes);
    for (int i = 0; i < count; i++) {
        buffer_text(out, i ? "," : name);
        const Key *key = key_at(attributes[i].key);
        buffer_bytes(out, key->json, key->json_length);
        put_attribute(out, &attributes[i]);
    }
    if (count)
        buffer_literal(out, "}");
}

static void put_flags(Buffer *out, uint16_t flags)
{
    bool first = true;
    for (int bit = 0; bit < 16; bit++)
        if (flags >> bit & 1 && flag_names[bit]) {
            buffer_text(out, first ? ",\"flags\":[\"" : ",\"");
            buffer_text(out, flag_names[bit]);
            buffer_literal(out, "\"");
            first = false;
        }
    if (!first)
        buffer_literal(out, "]");
}

static void put_line(Buffer *out, const Chunk *chunk, const View *view, uint64_t wall_offset, const Buffer *where)
{
    const Event *event = view->event;
    const Path *path = path_at(chunk->paths, event->path);
    bool mark = event->flags & FLAG_MARK;
    if (mark) {
        buffer_literal(out, "{\"type\":\"mark\",");
    } else {
        buffer_literal(out, "{\"type\":\"span\",\"id\":");
        buffer_id(out, view->id);
        buffer_literal(out, ",");
    }
    if (view->context->parent_id) {
        buffer_literal(out, "\"parent\":");
        buffer_id(out, view->context->parent_id);
        buffer_literal(out, ",");
    }
    buffer_bytes(out, path->json, path->json_length);
    if (mark) {
        buffer_literal(out, ",\"time\":");
        buffer_unsigned(out, event->start + wall_offset);
    } else {
        buffer_literal(out, ",\"start\":");
        buffer_unsigned(out, event->start + wall_offset);
        buffer_literal(out, ",\"dur\":");
        buffer_unsigned(out, event->end > event->start ? event->end - event->start : 0);
    }
    buffer_bytes(out, where->data, where->length);
    if (view->step != NO_STEP) {
        buffer_literal(out, ",\"step\":");
        buffer_signed(out, view->step);
    }
    if (event->flags & FLAG_ERROR)
        buffer_literal(out, ",\"status\":\"error\"");
    if (view->error) {
        buffer_literal(out, ",\"error\":");
        buffer_json_bytes(out, view->error, view->error_length);
    }
    if (event->flags)
        put_flags(out, event->flags);
    if (view->attributes) {
        put_attributes(out, view, RECORD_ATTRS, ",\"attrs\":{");
        put_attributes(out, view, RECORD_MEASURES, ",\"measures\":{");
    }
    buffer_literal(out, "}\n");
}

/* `where` is ,"pid":…,"tid":… : the same for a whole chunk. */
static void put_chunk(Buffer *out, const Chunk *chunk, uint64_t wall_offset)
{
    Buffer where = {0};
    buffer_literal(&where, ",\"pid\":");
    buffer_unsigned(&where, (uint64_t)getpid());
    buffer_literal(&where, ",\"tid\":");
    buffer_unsigned(&where, (uint64_t)chunk->tid);
    out->failed |= where.failed;
    buffer_reserve(out, (size_t)chunk->count * 160);
    for (uint32_t i = 0; i < chunk->count && !out->failed; i++) {
        View view = chunk_view(chunk, i);
        put_line(out, chunk, &view, wall_offset, &where);
    }
    buffer_free(&where);
}

/* The chunks whose memory must not go while the GIL is released: a tuple of this one and those after it. */
static PyObject *chunk_row(ChunkObject *self, PyObject *following)
{
    PyObject *first = PyTuple_Pack(1, self), *rest = first ? PySequence_Tuple(following) : NULL;
    PyObject *row = rest ? PySequence_Concat(first, rest) : NULL;
    Py_XDECREF(first);
    Py_XDECREF(rest);
    for (Py_ssize_t i = 0; row && i < PyTuple_GET_SIZE(row); i++)
        if (!PyObject_TypeCheck(PyTuple_GET_ITEM(row, i), &Chunk_Type)) {
            PyErr_SetString(PyExc_TypeError, "jsonl() takes chunks");
            Py_CLEAR(row);
        }
    return row;
}

PyObject *chunk_jsonl(ChunkObject *self, PyObject *args)
{
    long long wall_offset;
    PyObject *following = NULL;
    if (!PyArg_ParseTuple(args, "L|O:jsonl", &wall_offset, &following))
        return NULL;
    PyObject *row = following ? chunk_row(self, following) : PyTuple_Pack(1, self);
    if (!row)
        return NULL;
    Buffer out = {0};
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(row) && !out.failed; i++)
        put_chunk(&out, ((ChunkObject *)PyTuple_GET_ITEM(row, i))->chunk, (uint64_t)wall_offset);
    Py_END_ALLOW_THREADS
    PyObject *bytes = out.failed ? PyErr_NoMemory() : PyBytes_FromStringAndSize(out.data, (Py_ssize_t)out.length);
    buffer_free(&out);
    Py_DECREF(row);
    return bytes;
}
