/* Regions: what `with` sees. */
#ifndef INSTRUMENT_REGION_H
#define INSTRUMENT_REGION_H

#include "span.h"

extern PyTypeObject Region_Type;

int region_init(void);
PyObject *region_call(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *step_call(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *mark_call(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *annotate_call(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);

/* The function that makes a region's decorator: called with (region, function). */
PyObject *set_region_decorator(PyObject *module, PyObject *decorator);

#endif
