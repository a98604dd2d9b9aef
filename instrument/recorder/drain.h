/* The session's side: sealed chunks as Python objects, and what is read from them and beside them. */
#ifndef INSTRUMENT_DRAIN_H
#define INSTRUMENT_DRAIN_H

#include "span.h"

typedef struct {
    PyObject_HEAD
    Chunk *chunk; /* owned */
} ChunkObject;

extern PyTypeObject Chunk_Type;

PyObject *chunk_decode(ChunkObject *self, PyObject *unused);
PyObject *chunk_jsonl(ChunkObject *self, PyObject *args);

/* An event with everything it refers to, ready for either. */
typedef struct {
    const Event *event;
    const Context *context;
    uint64_t id;
    uint64_t root;
    int64_t step;          /* NO_STEP: none */
    const char *error;     /* not terminated; NULL: none */
    uint64_t error_length;
    const char *attributes, *attributes_end;
} View;
View chunk_view(const Chunk *chunk, uint32_t index);

/* The attributes or measures of a view, the last value of each name: at most MAX_SPAN_ATTRS. */
typedef struct {
    uint16_t key;
    Tag tag;
    uint64_t word;    /* number, or length of text */
    const char *text;
} Attribute;
int view_attributes(const View *view, RecordKind kind, Attribute *into);

PyObject *core_take(PyObject *module, PyObject *unused);
PyObject *core_totals(PyObject *module, PyObject *unused);
PyObject *core_losses(PyObject *module, PyObject *unused);
PyObject *core_threads(PyObject *module, PyObject *args);
PyObject *core_sites(PyObject *module, PyObject *args);
PyObject *core_path(PyObject *module, PyObject *index);

#endif
