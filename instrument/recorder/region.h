/* Regions: what `with` sees. */
#ifndef INSTRUMENT_REGION_H
#define INSTRUMENT_REGION_H

#include "span.h"

typedef struct {
    PyObject_HEAD
    Site *site;
    Blob blob;         /* attributes of the call, encoded */
    int64_t step;      /* NO_STEP but in steps */
    PyObject *enter, *leave; /* borrowed: the type's own __enter__ and __exit__, where the type is this object's alone */
} Region;

extern PyTypeObject Region_Type;

int region_init(void);
PyObject *region_call(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *step_call(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *mark_call(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *annotate_call(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);

/* The function that makes a region's decorator: called with (region, function). */
PyObject *set_region_decorator(PyObject *module, PyObject *decorator);

static inline bool region_carries(const Region *region) { return region->blob.length || region->step != NO_STEP; }

#endif
