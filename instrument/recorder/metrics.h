/* count(), gauge() and observe(): named series, added up in place. */
#ifndef INSTRUMENT_METRICS_H
#define INSTRUMENT_METRICS_H

#include "common.h"

int metrics_init(void);
void metrics_reset(void);
PyObject *count_call(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *gauge_call(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *observe_call(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *core_metrics(PyObject *module, PyObject *unused);

#endif
