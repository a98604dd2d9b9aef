/* What the drain reads beside the chunks' contents: totals, losses, threads, sites, paths. */
#include "drain.h"

PyObject *core_take(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    threads_reap();
    uint32_t running = 0;
    for (ThreadState *state = threads; state; state = state->next, running++)
        thread_seal(state);
    PyObject *list = PyList_New(0);
    for (Chunk *chunk; list && (chunk = chunk_take());) {
        ChunkObject *object = PyObject_New(ChunkObject, &Chunk_Type);
        if (!object) {
            lose(LOSS_BUFFER_FULL, chunk->count);
            chunk_recycle(chunk);
            Py_CLEAR(list);
            break;
        }
        object->chunk = chunk;
        if (PyList_Append(list, (PyObject *)object) < 0) {
            lose(LOSS_BUFFER_FULL, chunk->count);
            Py_CLEAR(list);
        }
        Py_DECREF(object);
    }
    if (recording)
        chunk_spare(running + 1); /* so that no thread waits for a page to be made */
    return list;
}

/* ---- totals ---- */

/* The totals of one path over all threads, summed without asking for memory that may not be there. */
typedef struct {
    Totals totals;
    uint64_t counts[OCTAVES * BUCKETS];
} Sum;

static void sum_add(Sum *sum, const TotalsTable *table, uint32_t path)
{
    const Totals *totals = path < table->room ? table->by_path[path] : NULL;
    if (!totals)
        return;
    totals_sum(&sum->totals, totals);
    const Histogram *histogram = totals->histogram;
    for (unsigned i = 0; histogram && i < histogram->octaves * (unsigned)BUCKETS; i++)
        sum->counts[histogram->first * BUCKETS + i] += histogram->counts[i];
}

static PyObject *histogram_list(const Sum *sum)
{
    PyObject *list = PyList_New(0);
    for (unsigned i = 0; list && i < OCTAVES * BUCKETS; i++) {
        if (!sum->counts[i])
            continue;
        PyObject *pair = Py_BuildValue("KK", histogram_low(i), sum->counts[i]);
        if (!pair || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

/* Spans that are open now, by path (those that stop() closed are in the totals); NULL with an exception. */
static uint32_t *count_open(uint32_t count)
{
    uint32_t *open = PyMem_RawCalloc(count, sizeof *open);
    if (!open) {
        PyErr_NoMemory();
        return NULL;
    }
    for (ThreadState *state = threads; recording && state; state = state->next)
        for (Frame *frame = state->top; frame > state->bottom; frame--)
            open[frame->path] += frame_is_open(frame);
    return open;
}

static PyObject *totals_row(uint32_t path, const Sum *sum, uint32_t open)
{
    const Totals *totals = &sum->totals;
    PyObject *histogram = histogram_list(sum);
    return histogram ? Py_BuildValue("IKKIKKKKNKdd", path, totals->count, totals->errors, open, totals->sum_ns,
                                     totals->self_ns, totals->count ? totals->min_ns : 0, totals->max_ns, histogram,
                                     totals->measured, totals->flops, totals->bytes)
                     : NULL;
}

PyObject *core_totals(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    if (!paths)
        return PyList_New(0);
    threads_reap();
    /* Paths may be added while Python objects are made: those that `open` knows nothing of are not looked at. */
    uint32_t count = paths->count;
    uint32_t *open = count_open(count);
    Sum *sum = PyMem_RawMalloc(sizeof *sum);
    PyObject *list = open && sum ? PyList_New(0) : NULL;
    if (!list && !PyErr_Occurred())
        PyErr_NoMemory();
    for (uint32_t path = 1; list && path < count; path++) {
        memset(sum, 0, sizeof *sum);
        sum->totals.min_ns = UINT64_MAX;
        sum_add(sum, &retired, path);
        for (ThreadState *state = threads; state; state = state->next)
            sum_add(sum, &state->totals, path);
        open[path] += (uint32_t)sum->totals.open;
        if (!sum->totals.count && !open[path])
            continue;
        PyObject *row = totals_row(path, sum, open[path]);
        if (!row || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    PyMem_RawFree(sum);
    PyMem_RawFree(open);
    return list;
}

/* ---- tables ---- */

PyObject *core_losses(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    PyObject *dict = PyDict_New();
    for (int reason = 0; dict && reason < LOSS_COUNT; reason++) {
        if (!losses[reason])
            continue;
        PyObject *count = PyLong_FromUnsignedLongLong(losses[reason]);
        if (!count || PyDict_SetItemString(dict, loss_names[reason], count) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(count);
    }
    return dict;
}

PyObject *core_threads(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_ssize_t first = 0;
    if (!PyArg_ParseTuple(args, "|n:threads", &first))
        return NULL;
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = first < 0 ? 0 : first; list && i < (Py_ssize_t)thread_row_count; i++) {
        PyObject *row = Py_BuildValue("IiO", thread_rows[i].serial, thread_rows[i].tid, thread_rows[i].name);
        if (!row || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

PyObject *core_sites(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_ssize_t first = 0;
    if (!PyArg_ParseTuple(args, "|n:sites", &first))
        return NULL;
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = first < 0 ? 0 : first; list && i < (Py_ssize_t)site_count; i++)
        if (PyList_Append(list, (PyObject *)sites[i]) < 0)
            Py_CLEAR(list);
    return list;
}

PyObject *core_path(PyObject *Py_UNUSED(module), PyObject *argument)
{
    Py_ssize_t index = PyNumber_AsSsize_t(argument, PyExc_IndexError);
    if (index == -1 && PyErr_Occurred())
        return NULL;
    if (!paths || index < 1 || index >= (Py_ssize_t)paths->count) {
        PyErr_SetString(PyExc_IndexError, "no such path");
        return NULL;
    }
    const Path *path = path_at(paths, (uint32_t)index);
    PyObject *text = path_string(paths, (uint32_t)index);
    return text ? Py_BuildValue("OsNII", sites[path->site]->name, kind_names[sites[path->site]->kind], text,
                                path->parent, path->site)
                : NULL;
}
