/* Names of attributes, and encoding of values: nothing here calls code of the user's or keeps an object alive. */
#include "attributes.h"

#include <math.h>

enum { CACHE = 256 };

static Key key_table[MAX_KEYS];
static Keyset keyset_table[MAX_KEYSETS];
static uint32_t key_count, keyset_count;
static PyObject *key_by_name, *keyset_by_names; /* str -> int, tuple -> int */
static struct { PyObject *names; uint16_t keyset; } cache[CACHE]; /* by the address of the call's constant tuple */

int attributes_init(void)
{
    key_by_name = PyDict_New();
    keyset_by_names = PyDict_New();
    return key_by_name && keyset_by_names ? 0 : -1;
}

Key *key_at(uint32_t index) { return &key_table[index]; }
Keyset *keyset_at(uint32_t index) { return &keyset_table[index]; }

/* ---- names ---- */

/* An index, or -1 when there are too many or memory is short. Leaves no exception. */
static int32_t remember(PyObject *dict, PyObject *key, uint32_t index)
{
    PyObject *value = PyLong_FromUnsignedLong(index);
    int failed = !value || PyDict_SetItem(dict, key, value) < 0;
    Py_XDECREF(value);
    PyErr_Clear();
    return failed ? -1 : (int32_t)index;
}

static int32_t recall(PyObject *dict, PyObject *key)
{
    PyObject *value = PyDict_GetItemWithError(dict, key);
    PyErr_Clear();
    return value ? (int32_t)PyLong_AsLong(value) : -1;
}

static int32_t key_index(PyObject *name)
{
    int32_t index = recall(key_by_name, name);
    if (index >= 0 || key_count >= MAX_KEYS)
        return index;
    Buffer buffer = {0};
    buffer_json_string(&buffer, name);
    buffer_literal(&buffer, ":");
    if (buffer.failed || remember(key_by_name, name, key_count) < 0) {
        buffer_free(&buffer);
        return -1;
    }
    key_table[key_count] = (Key){Py_NewRef(name), buffer.data, (uint32_t)buffer.length};
    return (int32_t)key_count++;
}

static int32_t keyset_new(PyObject *names)
{
    if (keyset_count >= MAX_KEYSETS)
        return -1;
    Keyset *keyset = &keyset_table[keyset_count];
    keyset->count = (uint8_t)PyTuple_GET_SIZE(names);
    for (int i = 0; i < keyset->count; i++) {
        int32_t key = key_index(PyTuple_GET_ITEM(names, i));
        if (key < 0)
            return -1;
        keyset->keys[i] = (uint16_t)key;
    }
    int32_t index = remember(keyset_by_names, names, keyset_count);
    keyset_count += index >= 0;
    return index;
}

/* The keyset of a tuple of at most MAX_RECORD_KEYS names, or -1. */
static inline int32_t keyset_of(PyObject *names)
{
    uint32_t at = (uint32_t)((uintptr_t)names >> 4) % CACHE;
    if (likely(cache[at].names == names))
        return cache[at].keyset;
    int32_t keyset = recall(keyset_by_names, names);
    if (keyset < 0)
        keyset = keyset_new(names);
    if (keyset >= 0) {
        Py_XSETREF(cache[at].names, Py_NewRef(names)); /* held, so that the address stays its own */
        cache[at].keyset = (uint16_t)keyset;
    }
    return keyset;
}

/* ---- values ---- */

static bool blob_reserve(Blob *blob, uint32_t more)
{
    if (likely(blob->length + more <= blob->room))
        return true;
    uint32_t room = blob->room ? 2 * blob->room : 128;
    while (room < blob->length + more)
        room *= 2;
    if (room > MAX_BLOB || memory_used + (room - blob->room) > memory_bound)
        return false;
    char *data = PyMem_RawRealloc(blob->data, room);
    if (!data)
        return false;
    memory_used += room - blob->room;
    blob->data = data;
    blob->room = room;
    return true;
}

void blob_free(Blob *blob)
{
    PyMem_RawFree(blob->data);
    memory_used -= blob->room;
    *blob = (Blob){0};
}

/* Where the slots of the record under construction begin: the blob may move while it grows. */
typedef struct {
    Blob *blob;
    uint32_t at;
} Slots;

static Tag put_word(Slots slots, int i, const void *word, Tag tag)
{
    memcpy(slots.blob->data + slots.at + 8 * i, word, 8);
    return tag;
}

/* Text, cut to MAX_TEXT bytes at a character's start. */
static Tag put_bytes(Slots slots, int i, const char *text, size_t length, Tag tag)
{
    if (length > MAX_TEXT) {
        lose(LOSS_ATTRIBUTE_SIZE, 1);
        length = MAX_TEXT;
        while (length && ((unsigned char)text[length] & 0xC0) == 0x80)
            length--;
    }
    if (!blob_reserve(slots.blob, padded(length))) {
        lose(LOSS_ATTRIBUTE_SIZE, 1);
        if (tag == TAG_JSON)
            return TAG_NONE; /* nothing is no JSON */
        length = 0;
    }
    char *to = slots.blob->data + slots.blob->length;
    memset(to, 0, padded(length));
    memcpy(to, text, length);
    slots.blob->length += padded(length);
    uint64_t word = length;
    return put_word(slots, i, &word, tag);
}

static Tag put_text(Slots slots, int i, PyObject *text)
{
    if (PyUnicode_IS_COMPACT_ASCII(text))
        return put_bytes(slots, i, (const char *)PyUnicode_1BYTE_DATA(text), (size_t)PyUnicode_GET_LENGTH(text), TAG_TEXT);
    /* Only as many characters as can be kept are encoded: a huge string costs no more than a long one. */
    PyObject *head = PyUnicode_Substring(text, 0, MAX_TEXT + 1);
    PyObject *bytes = head ? PyUnicode_AsEncodedString(head, "utf-8", "backslashreplace") : NULL;
    Tag tag = bytes ? put_bytes(slots, i, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes), TAG_TEXT) : TAG_NONE;
    PyErr_Clear();
    Py_XDECREF(head);
    Py_XDECREF(bytes);
    return tag;
}

/* Anything we do not know is shown by its type alone: its repr could be slow, wait for a device, or raise. A type
 * may have any name: it is cut at a character's start. Returns the length. */
enum { MAX_TYPE_NAME = 128 };
static size_t type_text(PyObject *value, char text[MAX_TYPE_NAME + 2])
{
    const char *dot = strrchr(Py_TYPE(value)->tp_name, '.'), *name = dot ? dot + 1 : Py_TYPE(value)->tp_name;
    size_t length = strlen(name);
    if (length > MAX_TYPE_NAME) {
        length = MAX_TYPE_NAME;
        while (length && ((unsigned char)name[length] & 0xC0) == 0x80)
            length--;
    }
    text[0] = '<';
    memcpy(text + 1, name, length);
    text[length + 1] = '>';
    return length + 2;
}

static Tag put_type_name(Slots slots, int i, PyObject *value)
{
    char text[MAX_TYPE_NAME + 2];
    return put_bytes(slots, i, text, type_text(value, text), TAG_TEXT);
}

/* An integer beyond 64 bits, as JSON readers would take it. */
static double rounded(PyObject *value, int sign)
{
    double number = PyLong_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        number = sign > 0 ? Py_HUGE_VAL : -Py_HUGE_VAL;
    }
    return number;
}

static Tag put_int(Slots slots, int i, PyObject *value)
{
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (!overflow)
        return put_word(slots, i, &number, TAG_INT);
    double near = rounded(value, overflow);
    return put_word(slots, i, &near, TAG_FLOAT);
}

/* numpy's scalars are plain numbers: asking them runs no Python and waits for nothing. Arrays are not asked. */
static PyObject *numpy_number(PyObject *value)
{
    const char *name = Py_TYPE(value)->tp_name;
    if (strncmp(name, "numpy.", 6) != 0)
        return NULL;
    name += 6;
    if (strncmp(name, "float", 5) == 0 || strcmp(name, "longdouble") == 0)
        return PyNumber_Float(value);
    if (strncmp(name, "int", 3) == 0 || strncmp(name, "uint", 4) == 0 || strncmp(name, "long", 4) == 0 ||
        strncmp(name, "ulong", 5) == 0)
        return PyNumber_Index(value);
    if (strncmp(name, "bool", 4) == 0)
        return PyBool_FromLong(PyObject_IsTrue(value) == 1);
    return NULL;
}

PyObject *plain_scalar(PyObject *value)
{
    PyObject *scalar = PyLong_Check(value) || PyFloat_Check(value) ? Py_NewRef(value) : numpy_number(value);
    if (!scalar) {
        PyErr_Clear();
        return NULL;
    }
    PyObject *plain;
    if (PyBool_Check(scalar)) {
        plain = Py_NewRef(scalar);
    } else if (PyFloat_Check(scalar)) {
        plain = PyFloat_FromDouble(PyFloat_AS_DOUBLE(scalar));
    } else {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(scalar, &overflow);
        plain = overflow ? PyFloat_FromDouble(rounded(scalar, overflow)) : PyLong_FromLongLong(number);
    }
    Py_DECREF(scalar);
    return plain;
}

double plain_number(PyObject *value)
{
    PyObject *scalar = PyLong_Check(value) || PyFloat_Check(value) ? Py_NewRef(value) : numpy_number(value);
    double number = Py_NAN;
    if (scalar)
        number = PyFloat_Check(scalar) ? PyFloat_AS_DOUBLE(scalar) : PyLong_AsDouble(scalar);
    if (PyErr_Occurred() || !isfinite(number))
        number = Py_NAN;
    PyErr_Clear();
    Py_XDECREF(scalar);
    return number;
}

static void json_number(Buffer *buffer, PyObject *item)
{
    int overflow = 0;
    long long number = PyLong_Check(item) ? PyLong_AsLongLongAndOverflow(item, &overflow) : 0;
    if (PyFloat_Check(item))
        buffer_double(buffer, PyFloat_AS_DOUBLE(item));
    else if (overflow)
        buffer_double(buffer, rounded(item, overflow));
    else
        buffer_signed(buffer, number);
}

/* The head of a text; *cut when that is not all of it. */
static void json_text(Buffer *buffer, PyObject *text, bool *cut)
{
    PyObject *head = PyUnicode_Substring(text, 0, MAX_ITEM_TEXT);
    *cut |= PyUnicode_GET_LENGTH(text) > MAX_ITEM_TEXT;
    if (head)
        buffer_json_string(buffer, head);
    else
        buffer->failed = true;
    Py_XDECREF(head);
}

static void json_item(Buffer *buffer, PyObject *item, bool *cut)
{
    PyObject *number = PyLong_Check(item) || PyFloat_Check(item) ? NULL : numpy_number(item);
    if (number)
        item = number;
    if (PyBool_Check(item) || item == Py_None) {
        buffer_text(buffer, item == Py_None ? "null" : item == Py_True ? "true" : "false");
    } else if (PyLong_Check(item) || PyFloat_Check(item)) {
        json_number(buffer, item);
    } else if (PyUnicode_Check(item)) {
        json_text(buffer, item, cut);
    } else {
        char text[MAX_TYPE_NAME + 2];
        buffer_json_bytes(buffer, text, type_text(item, text));
    }
    Py_XDECREF(number);
    PyErr_Clear();
}

/* A tuple or list, such as a shape: a JSON array of its first elements. */
static Tag put_sequence(Slots slots, int i, PyObject *sequence)
{
    Py_ssize_t length = PySequence_Fast_GET_SIZE(sequence);
    bool cut = length > MAX_ITEMS;
    if (cut)
        length = MAX_ITEMS;
    Buffer buffer = {0};
    buffer_literal(&buffer, "[");
    for (Py_ssize_t item = 0; item < length; item++) {
        size_t whole = buffer.length; /* half an array would not be JSON */
        if (item)
            buffer_literal(&buffer, ",");
        json_item(&buffer, PySequence_Fast_GET_ITEM(sequence, item), &cut);
        if (buffer.length >= MAX_TEXT) {
            buffer.length = whole;
            cut = true;
            break;
        }
    }
    buffer_literal(&buffer, "]");
    Tag tag = TAG_NONE;
    if (!buffer.failed)
        tag = put_bytes(slots, i, buffer.data, buffer.length, TAG_JSON);
    if (cut || buffer.failed)
        lose(LOSS_ATTRIBUTE_SIZE, 1);
    buffer_free(&buffer);
    return tag;
}

static Tag put_value(Slots slots, int i, PyObject *value)
{
    if (PyLong_CheckExact(value))
        return put_int(slots, i, value);
    if (PyFloat_Check(value)) {
        double number = PyFloat_AS_DOUBLE(value);
        return put_word(slots, i, &number, TAG_FLOAT);
    }
    if (PyUnicode_Check(value))
        return put_text(slots, i, value);
    if (value == Py_None)
        return TAG_NONE;
    if (PyBool_Check(value))
        return value == Py_True ? TAG_TRUE : TAG_FALSE;
    if (PyLong_Check(value))
        return put_int(slots, i, value);
    if (PyTuple_Check(value) || PyList_Check(value))
        return put_sequence(slots, i, value);
    PyObject *number = numpy_number(value);
    if (number) {
        Tag tag = put_value(slots, i, number);
        Py_DECREF(number);
        return tag;
    }
    PyErr_Clear();
    return put_type_name(slots, i, value);
}

/* Whether a later record of a blob says the same names anew. */
static bool superseded(const RecordHeader *header, const char *cursor, const char *end)
{
    for (Record later; record_next(&cursor, end, &later);)
        if (later.header->kind == header->kind && later.header->keyset == header->keyset)
            return true;
    return false;
}

/* A span whose attributes are set over and over keeps the last of each: earlier records make room. */
static COLD void blob_compact(Blob *blob)
{
    const char *end = blob->data + blob->length, *cursor = blob->data;
    char *to = blob->data;
    uint16_t keys = 0;
    for (Record record; record_next(&cursor, end, &record);) {
        const char *from = (const char *)record.header;
        bool named = record.header->kind == RECORD_ATTRS || record.header->kind == RECORD_MEASURES;
        if (named && superseded(record.header, cursor, end))
            continue;
        keys += named ? record.header->count : 0;
        memmove(to, from, (size_t)(cursor - from));
        to += cursor - from;
    }
    blob->length = (uint32_t)(to - blob->data);
    blob->keys = keys;
}

static void encode_record(Blob *blob, RecordKind kind, PyObject *const *values, PyObject *names)
{
    int count = (int)PyTuple_GET_SIZE(names);
    int32_t keyset = keyset_of(names);
    if (unlikely(blob->keys + count > MAX_SPAN_ATTRS || blob->length > MAX_BLOB / 2) && blob->length)
        blob_compact(blob);
    uint32_t start = blob->length, size = 8 + 8 * (uint32_t)count;
    if (keyset < 0 || blob->keys + count > MAX_SPAN_ATTRS || !blob_reserve(blob, size)) {
        lose(LOSS_ATTRIBUTES, (uint64_t)count);
        return;
    }
    RecordHeader header = {(uint16_t)keyset, (uint8_t)count, (uint8_t)kind, 0};
    Slots slots = {blob, start + 8};
    memset(blob->data + start, 0, size);
    blob->length += size;
    for (int i = 0; i < count; i++)
        header.tags |= (uint32_t)put_value(slots, i, values[i]) << (4 * i);
    memcpy(blob->data + start, &header, sizeof header);
    blob->keys += (uint16_t)count;
}

void blob_encode(Blob *blob, RecordKind kind, PyObject *const *values, PyObject *names)
{
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    if (likely(count <= MAX_RECORD_KEYS)) {
        if (count)
            encode_record(blob, kind, values, names);
        return;
    }
    for (Py_ssize_t first = 0; first < count; first += MAX_RECORD_KEYS) {
        Py_ssize_t last = first + MAX_RECORD_KEYS < count ? first + MAX_RECORD_KEYS : count;
        PyObject *slice = PyTuple_GetSlice(names, first, last);
        if (slice)
            encode_record(blob, kind, values + first, slice);
        else
            lose(LOSS_ATTRIBUTES, (uint64_t)(last - first));
        PyErr_Clear();
        Py_XDECREF(slice);
    }
}

void blob_encode_dict(Blob *blob, RecordKind kind, PyObject *dict)
{
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict, &position, &key, &value)) {
        Py_INCREF(value); /* on 3.11 making the tuple may run a finalizer, which may change the dict */
        PyObject *names = PyUnicode_Check(key) ? PyTuple_Pack(1, key) : NULL;
        if (names)
            encode_record(blob, kind, &value, names);
        else
            lose(LOSS_ATTRIBUTES, 1);
        PyErr_Clear();
        Py_XDECREF(names);
        Py_DECREF(value);
    }
}

void blob_number(Blob *blob, RecordKind kind, const char *name, double value)
{
    PyObject *names = Py_BuildValue("(s)", name), *number = PyFloat_FromDouble(value);
    if (names && number)
        encode_record(blob, kind, &number, names);
    else
        lose(LOSS_ATTRIBUTES, 1);
    PyErr_Clear();
    Py_XDECREF(names);
    Py_XDECREF(number);
}

/* ---- records without names ---- */

uint32_t put_word_record(char *to, RecordKind kind, uint64_t word)
{
    RecordHeader header = {0, 1, (uint8_t)kind, TAG_INT};
    memcpy(to, &header, 8);
    memcpy(to + 8, &word, 8);
    return WORD_RECORD_BYTES;
}

void blob_word(Blob *blob, RecordKind kind, uint64_t word)
{
    if (!blob_reserve(blob, WORD_RECORD_BYTES)) {
        lose(LOSS_ATTRIBUTES, 1);
        return;
    }
    blob->length += put_word_record(blob->data + blob->length, kind, word);
}

uint32_t put_error_record(char *to, const char *error)
{
    uint64_t length = strlen(error);
    if (length > ERROR_RECORD_MAX - 16) {
        lose(LOSS_ATTRIBUTE_SIZE, 1);
        length = ERROR_RECORD_MAX - 16;
        while (length && ((unsigned char)error[length] & 0xC0) == 0x80)
            length--;
    }
    RecordHeader header = {0, 1, RECORD_ERROR, TAG_TEXT};
    memcpy(to, &header, 8);
    memcpy(to + 8, &length, 8);
    memset(to + 16, 0, padded(length));
    memcpy(to + 16, error, length);
    return 16 + padded(length);
}

bool record_next(const char **cursor, const char *end, Record *record)
{
    if (*cursor >= end)
        return false;
    record->header = (const RecordHeader *)*cursor;
    record->slots = (const uint64_t *)(*cursor + 8);
    record->texts = *cursor + 8 + 8 * record->header->count;
    const char *next = record->texts;
    for (int i = 0; i < record->header->count; i++) {
        Tag tag = record_tag(record, i);
        if (tag == TAG_TEXT || tag == TAG_JSON)
            next += padded(record->slots[i]);
    }
    *cursor = next;
    return true;
}
