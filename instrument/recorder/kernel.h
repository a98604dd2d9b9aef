/* Kernels: functions hooked in place (CPython 3.12+), and the marker that wrappers use elsewhere. */
#ifndef INSTRUMENT_KERNEL_H
#define INSTRUMENT_KERNEL_H

#include "evaluate.h"

#define HOOKS_IN_PLACE (PY_VERSION_HEX >= 0x030C0000)

extern PyTypeObject Marker_Type;

int kernel_init(void);
PyObject *hook_call(PyObject *module, PyObject *args);        /* hook(function, site, evaluate) */
void hooks_install(void); /* something listens */
void hooks_remove(void);  /* nothing does */

#endif
