/* Metrics: at most 16 labels, 64 sets of labels a name, 1,024 names of a kind, and 4,096 series in all; what is
 * beyond, or is no finite number, is counted. */
#include "metrics.h"

#include "attributes.h"

#include <math.h>

enum { COUNT, GAUGE, OBSERVE, METRIC_KINDS, MAX_LABELS = 16, MAX_LABEL_SETS = 64, MAX_NAMES = 1024, MAX_SERIES = 4096 };
static const char *const metric_names[METRIC_KINDS] = {"count", "gauge", "observe"};

typedef struct {
    PyObject_HEAD
    uint64_t points;
    double sum, min, max, last;
} Series;

static PyTypeObject Series_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "instrument.recorder._core.Series",
    .tp_basicsize = sizeof(Series),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)PyObject_Free,
};

/* Per kind: name -> {(labels, types) -> Series}; labels are a sorted tuple of (key, value) pairs. */
static PyObject *by_name[METRIC_KINDS];
static PyObject *no_labels;
static uint32_t series_count;

int metrics_init(void)
{
    no_labels = Py_BuildValue("(()())");
    for (int kind = 0; kind < METRIC_KINDS; kind++)
        if (!(by_name[kind] = PyDict_New()))
            return -1;
    return no_labels && PyType_Ready(&Series_Type) == 0 ? 0 : -1;
}

void metrics_reset(void)
{
    for (int kind = 0; kind < METRIC_KINDS; kind++)
        PyDict_Clear(by_name[kind]);
    series_count = 0;
}

/* A label's value as it is kept: a plain scalar, or the name of its type. A new reference. */
static PyObject *label_value(PyObject *value)
{
    if (PyUnicode_CheckExact(value) && PyUnicode_GET_LENGTH(value) <= MAX_TEXT)
        return Py_NewRef(value);
    if (PyUnicode_Check(value))
        return PyUnicode_Substring(value, 0, MAX_TEXT);
    if (value == Py_None)
        return Py_NewRef(value);
    PyObject *number = plain_scalar(value);
    if (number && PyFloat_Check(number) && !isfinite(PyFloat_AS_DOUBLE(number))) { /* NaN equals no other label */
        double odd = PyFloat_AS_DOUBLE(number);
        Py_DECREF(number);
        return PyUnicode_FromString(isnan(odd) ? "NaN" : odd > 0 ? "Infinity" : "-Infinity");
    }
    if (number || PyErr_Occurred())
        return number;
    const char *name = Py_TYPE(value)->tp_name, *dot = strrchr(name, '.');
    return PyUnicode_FromFormat("<%s>", dot ? dot + 1 : name);
}

/* The types of the labels' values: 1, 1.0 and True are equal, and yet not the same label. */
static PyObject *types_of(PyObject *pairs)
{
    PyObject *types = PyTuple_New(PyTuple_GET_SIZE(pairs));
    for (Py_ssize_t i = 0; types && i < PyTuple_GET_SIZE(pairs); i++)
        PyTuple_SET_ITEM(types, i, Py_NewRef(Py_TYPE(PyTuple_GET_ITEM(PyTuple_GET_ITEM(pairs, i), 1))));
    return types;
}

static PyObject *labels_key(PyObject *const *values, PyObject *names)
{
    PyObject *pairs = PyList_New(0);
    for (Py_ssize_t i = 0; pairs && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *value = label_value(values[i]);
        PyObject *pair = value ? PyTuple_Pack(2, PyTuple_GET_ITEM(names, i), value) : NULL;
        if (!pair || PyList_Append(pairs, pair) < 0)
            Py_CLEAR(pairs);
        Py_XDECREF(value);
        Py_XDECREF(pair);
    }
    PyObject *sorted = pairs && PyList_Sort(pairs) == 0 ? PyList_AsTuple(pairs) : NULL;
    PyObject *types = sorted ? types_of(sorted) : NULL;
    PyObject *key = types ? PyTuple_Pack(2, sorted, types) : NULL;
    Py_XDECREF(types);
    Py_XDECREF(sorted);
    Py_XDECREF(pairs);
    return key;
}

/* The item of a dict, made by `make` if it is not there and there is room; borrowed, or NULL. */
static PyObject *item_or_new(PyObject *dict, PyObject *key, Py_ssize_t room, PyObject *(*make)(void))
{
    PyObject *item = PyDict_GetItemWithError(dict, key);
    if (item || PyErr_Occurred() || PyDict_GET_SIZE(dict) >= room)
        return item;
    item = make();
    if (item && PyDict_SetItem(dict, key, item) < 0)
        Py_CLEAR(item);
    Py_XDECREF(item); /* the dict holds it */
    return item;
}

static PyObject *new_series(void)
{
    Series *series = series_count < MAX_SERIES ? PyObject_New(Series, &Series_Type) : NULL;
    if (series) {
        series_count++;
        series->points = 0;
        series->sum = series->last = 0;
        series->min = Py_HUGE_VAL;
        series->max = -Py_HUGE_VAL;
    }
    return (PyObject *)series;
}

static Series *find_series(int kind, PyObject *name, PyObject *const *values, PyObject *names)
{
    if (names && PyTuple_GET_SIZE(names) > MAX_LABELS)
        return NULL;
    PyObject *series = PyUnicode_CheckExact(name) && PyUnicode_GET_LENGTH(name) <= MAX_TEXT ? item_or_new(by_name[kind], name, MAX_NAMES, PyDict_New) : NULL;
    PyObject *key = !series ? NULL : names ? labels_key(values, names) : Py_NewRef(no_labels);
    Series *found = key ? (Series *)item_or_new(series, key, MAX_LABEL_SETS, new_series) : NULL;
    Py_XDECREF(key);
    PyErr_Clear();
    return found;
}

static PyObject *point(int kind, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (count < 1 || count > 2 || (kind != COUNT && count != 2)) {
        PyErr_Format(PyExc_TypeError, "%s() takes a name and a value; labels are keywords", metric_names[kind]);
        return NULL;
    }
    if (!recording)
        Py_RETURN_NONE;
    double value = count > 1 ? plain_number(args[1]) : 1;
    Series *series = isfinite(value) ? find_series(kind, args[0], args + count, names) : NULL;
    if (series) {
        series->points++;
        series->sum += value;
        series->min = value < series->min ? value : series->min;
        series->max = value > series->max ? value : series->max;
        series->last = value;
    } else {
        lose(LOSS_METRICS, 1);
    }
    Py_RETURN_NONE;
}

#define VERB(name, kind)                                                                                      \
    PyObject *name##_call(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names) \
    {                                                                                                         \
        return point(kind, args, count, names);                                                               \
    }
VERB(count, COUNT)
VERB(gauge, GAUGE)
VERB(observe, OBSERVE)

PyObject *core_metrics(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    PyObject *list = PyList_New(0);
    for (int kind = 0; list && kind < METRIC_KINDS; kind++) {
        PyObject *name, *all;
        Py_ssize_t at = 0;
        while (list && PyDict_Next(by_name[kind], &at, &name, &all)) {
            PyObject *labels, *item;
            Py_ssize_t each = 0;
            while (list && PyDict_Next(all, &each, &labels, &item)) {
                Series *series = (Series *)item;
                PyObject *dict = PyDict_New();
                if (dict && PyDict_MergeFromSeq2(dict, PyTuple_GET_ITEM(labels, 0), 1) < 0)
                    Py_CLEAR(dict);
                PyObject *row = dict ? Py_BuildValue("sONKdddd", metric_names[kind], name, dict, series->points,
                                                     series->sum, series->min, series->max, series->last)
                                     : NULL;
                if (!row || PyList_Append(list, row) < 0)
                    Py_CLEAR(list);
                Py_XDECREF(row);
            }
        }
    }
    return list;
}
