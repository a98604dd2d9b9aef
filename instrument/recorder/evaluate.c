/* Calling a kernel's flops=, bytes= and attrs=, and putting the answers on its span. */
#include "evaluate.h"

#include <math.h>

static void failed(Evaluator *evaluator)
{
    callback_failed();
    lose(LOSS_EVALUATE, 1);
    if (++evaluator->failures >= 3)
        Py_CLEAR(evaluator->function);
}

/* Whether the exception says that the arguments do not fit the signature: then nothing has run, so there is no
 * traceback yet, and the kernel itself is about to say the same. */
static bool call_is_wrong(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    bool wrong = type && !traceback && PyErr_GivenExceptionMatches(type, PyExc_TypeError);
    PyErr_Restore(type, value, traceback);
    return wrong;
}

Evaluated evaluate(Evaluator *evaluator, PyObject *const *args, size_t nargsf, PyObject *names)
{
    PyObject *function = evaluator->function;
    if (!function || PyTuple_CheckExact(function)) /* nothing, or constants */
        return (Evaluated){Py_XNewRef(function)};
    Py_INCREF(function); /* a recursive call may switch it off */
    /* The caller's offset flag must not travel: the callee may write below the vector. */
    PyObject *values = PyObject_Vectorcall(function, args, (size_t)PyVectorcall_NARGS(nargsf), names);
    Py_DECREF(function);
    if (!values && call_is_wrong())
        PyErr_Clear();
    else if (!values || !PyTuple_Check(values) || PyTuple_GET_SIZE(values) != 3) {
        Py_CLEAR(values);
        failed(evaluator);
    }
    return (Evaluated){values};
}

/* Adds a finite number; false for anything else. */
static bool add_number(PyObject *value, double *sum)
{
    double number = plain_number(value);
    if (isnan(number))
        return false;
    *sum += number;
    return true;
}

/* What a measure sums to: nothing, a number, or a dict from dtype to number. False when it is none of them. */
static bool measure_sum(PyObject *value, double *sum)
{
    *sum = 0;
    if (value == Py_None)
        return true;
    if (!PyDict_Check(value))
        return add_number(value, sum);
    PyObject *key, *item;
    for (Py_ssize_t position = 0; PyDict_Next(value, &position, &key, &item);)
        if (!PyUnicode_Check(key) || !PyUnicode_AsUTF8(key) || !add_number(item, sum))
            return false;
    return true;
}

/* Names of what is given: flops, bytes, or both. */
static PyObject *flops_name, *bytes_name, *both_names;

int evaluate_init(void)
{
    flops_name = Py_BuildValue("(s)", "flops");
    bytes_name = Py_BuildValue("(s)", "bytes");
    both_names = Py_BuildValue("(ss)", "flops", "bytes");
    return flops_name && bytes_name && both_names ? 0 : -1;
}

/* The parts of a measure that was given per dtype. */
static void put_parts(Blob *blob, const char *name, PyObject *value)
{
    PyObject *key, *item;
    for (Py_ssize_t position = 0; PyDict_Check(value) && PyDict_Next(value, &position, &key, &item);) {
        PyObject *full = PyUnicode_FromFormat("%s.%.128U", name, key);
        double number = 0;
        add_number(item, &number);
        if (full)
            blob_number(blob, RECORD_MEASURES, PyUnicode_AsUTF8(full), number);
        else
            lose(LOSS_ATTRIBUTES, 1);
        PyErr_Clear();
        Py_XDECREF(full);
    }
}

/* Measures that were found right. */
static void put_measures(Blob *blob, PyObject *flops, double flops_sum, PyObject *bytes, double bytes_sum)
{
    PyObject *numbers[2] = {NULL, NULL};
    int count = 0;
    if (flops != Py_None)
        numbers[count++] = PyFloat_FromDouble(flops_sum);
    if (bytes != Py_None)
        numbers[count++] = PyFloat_FromDouble(bytes_sum);
    if (numbers[0] && (count == 1 || numbers[1]))
        blob_encode(blob, RECORD_MEASURES, numbers, count == 2 ? both_names : flops != Py_None ? flops_name : bytes_name);
    else
        lose(LOSS_ATTRIBUTES, (uint64_t)count);
    PyErr_Clear();
    Py_XDECREF(numbers[0]);
    Py_XDECREF(numbers[1]);
    put_parts(blob, "flops", flops);
    put_parts(blob, "bytes", bytes);
}

void evaluated_apply(Evaluator *evaluator, Evaluated evaluated, Frame *frame)
{
    PyObject *values = evaluated.values;
    if (!values)
        return;
    Blob *extra = frame ? frame_extra(current, frame) : NULL;
    if (extra) {
        PyObject *flops = PyTuple_GET_ITEM(values, 0), *bytes = PyTuple_GET_ITEM(values, 1);
        PyObject *attrs = PyTuple_GET_ITEM(values, 2);
        double flops_sum, bytes_sum;
        if (measure_sum(flops, &flops_sum) && measure_sum(bytes, &bytes_sum) &&
            (attrs == Py_None || PyDict_Check(attrs))) {
            /* First: on 3.11 what follows may run finalizers, which may record and move the frames. */
            bool measured = flops != Py_None || bytes != Py_None;
            Totals *totals = measured ? totals_of(&current->totals, frame->path) : NULL;
            if (totals) {
                totals->measured++;
                totals->flops += flops_sum;
                totals->bytes += bytes_sum;
            }
            if (measured)
                put_measures(extra, flops, flops_sum, bytes, bytes_sum);
            if (attrs != Py_None)
                blob_encode_dict(extra, RECORD_ATTRS, attrs);
        } else {
            failed(evaluator);
        }
    }
    Py_DECREF(values); /* may run destructors of the user's, and these may have grown the stack */
    if (frame)
        current->top->start = clock_now();
}
