/* Calling a kernel's flops=, bytes= and attrs=, and putting the answers on its span. */
#include "evaluate.h"

static void failed(Evaluator *evaluator)
{
    PyErr_Clear();
    lose(LOSS_EVALUATE, 1);
    if (++evaluator->failures >= 3)
        Py_CLEAR(evaluator->function);
}

Evaluated evaluate(Evaluator *evaluator, PyObject *const *args, size_t nargsf, PyObject *names)
{
    PyObject *function = evaluator->function;
    if (!function)
        return (Evaluated){NULL};
    Py_INCREF(function); /* a recursive call may switch it off */
    /* The caller's offset flag must not travel: the callee may write below the vector. */
    PyObject *values = PyObject_Vectorcall(function, args, (size_t)PyVectorcall_NARGS(nargsf), names);
    Py_DECREF(function);
    if (!values || !PyTuple_Check(values) || PyTuple_GET_SIZE(values) != 3) {
        Py_CLEAR(values);
        failed(evaluator);
    }
    return (Evaluated){values};
}

/* A number; NAN with an exception when it is none. Asks nothing of tensors: only Python's and numpy's numbers. */
static double as_number(PyObject *value)
{
    if (PyFloat_Check(value))
        return PyFloat_AS_DOUBLE(value);
    if (PyLong_Check(value) || strncmp(Py_TYPE(value)->tp_name, "numpy.", 6) == 0)
        return PyFloat_AsDouble(value);
    PyErr_SetString(PyExc_TypeError, "not a number");
    return Py_NAN;
}

/* One measure: a number, or a dict from dtype to number, whose sum is the measure. False when it is neither. */
static bool put_measure(Blob *blob, const char *name, PyObject *value, double *sum)
{
    if (value == Py_None)
        return true;
    if (!PyDict_Check(value)) {
        *sum = as_number(value);
        if (PyErr_Occurred())
            return false;
        blob_number(blob, RECORD_MEASURES, name, *sum);
        return true;
    }
    PyObject *key, *item;
    Py_ssize_t position = 0;
    *sum = 0;
    while (PyDict_Next(value, &position, &key, &item)) {
        double number = as_number(item);
        const char *dtype = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : NULL;
        if (!dtype || PyErr_Occurred())
            return false;
        char full[64];
        snprintf(full, sizeof full, "%s.%.40s", name, dtype);
        blob_number(blob, RECORD_MEASURES, full, number);
        *sum += number;
    }
    blob_number(blob, RECORD_MEASURES, name, *sum);
    return true;
}

void evaluated_apply(Evaluator *evaluator, Evaluated evaluated, Frame *frame)
{
    PyObject *values = evaluated.values;
    if (!values)
        return;
    Blob *extra = frame ? frame_extra(current, frame) : NULL;
    double flops = 0, bytes = 0;
    if (extra && PyTuple_Check(values) && PyTuple_GET_SIZE(values) == 3) {
        bool good = put_measure(extra, "flops", PyTuple_GET_ITEM(values, 0), &flops) &&
                    put_measure(extra, "bytes", PyTuple_GET_ITEM(values, 1), &bytes);
        PyObject *attrs = PyTuple_GET_ITEM(values, 2);
        if (good && PyDict_Check(attrs))
            blob_encode_dict(extra, RECORD_ATTRS, attrs);
        else if (!good || attrs != Py_None)
            failed(evaluator);
        Totals *totals = good && (PyTuple_GET_ITEM(values, 0) != Py_None || PyTuple_GET_ITEM(values, 1) != Py_None)
                             ? totals_of(&current->totals, frame->path) : NULL;
        if (totals) {
            totals->measured++;
            totals->flops += flops;
            totals->bytes += bytes;
        }
    }
    Py_DECREF(values); /* may run destructors of the user's, and these may have grown the stack */
    if (frame)
        current->top->start = clock_now();
}
