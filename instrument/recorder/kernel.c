/* Hooking plain Python functions in place.
 *
 * A hook replaces the function's vectorcall pointer while something listens, and puts the old one back when
 * nothing does, but only if the pointer is still ours. Such a call takes a C frame, which the interpreter's own
 * calls between Python functions do not, so after MAX_HOOK_DEPTH nested ones the function is lifted out of the
 * hook until that call returns: deep recursion works as without us, and says `truncated`. */
#include "kernel.h"

#if HOOKS_IN_PLACE

typedef struct Hook {
    PyObject *function;      /* borrowed: the weak reference's callback removes the hook */
    PyObject *weakref;
    Site *site;
    vectorcallfunc original;
    Evaluator evaluator;
} Hook;

/* Open addressing by the function's address, at most half full; linear probing, deletion by shifting back. */
static Hook **table;
static size_t table_mask, hook_count;

static size_t slot_of(PyObject *function)
{
    return (size_t)(((uint64_t)(uintptr_t)function >> 4) * 0x9e3779b97f4a7c15u >> 32) & table_mask;
}

static inline Hook *hook_find(PyObject *function)
{
    for (size_t at = slot_of(function); table[at]; at = (at + 1) & table_mask)
        if (table[at]->function == function)
            return table[at];
    return NULL;
}

static vectorcallfunc *vectorcall_of(PyObject *function) { return &((PyFunctionObject *)function)->vectorcall; }

/* ---- the hooked call ---- */

static PyObject *hooked(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *names);

/* Deep recursion: run this one call with the function as the interpreter knows it. */
static COLD PyObject *call_lifted(Hook *hook, Frame *frame, PyObject *const *args, size_t nargsf, PyObject *names)
{
    PyObject *function = hook->function;
    lose(LOSS_RECURSION, 1);
    if (frame)
        frame->flags |= FLAG_TRUNCATED;
    PyFunction_SetVectorcall((PyFunctionObject *)function, hook->original);
    PyObject *result = hook->original(function, args, nargsf, names);
    if (recording && *vectorcall_of(function) == hook->original)
        PyFunction_SetVectorcall((PyFunctionObject *)function, hooked);
    return result;
}

static PyObject *hooked(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Hook *hook = hook_find(function);
    if (unlikely(!recording))
        return hook->original(function, args, nargsf, names);
    Site *site = hook->site;
    uint16_t lane = frame_lane(); /* a plain call begins and ends in one task */
    Evaluated evaluated = {NULL};
    if (hook->evaluator.function)
        evaluated = evaluate(&hook->evaluator, args, nargsf, names);
    Frame *frame = span_enter(site, lane, NULL);
    if (unlikely(evaluated.values != NULL)) {
        evaluated_apply(&hook->evaluator, evaluated, frame);
        frame = frame ? current->top : NULL;
    }
    ThreadState *state = current;
    PyObject *result = likely(++state->hook_depth <= MAX_HOOK_DEPTH)
                           ? hook->original(function, args, nargsf, names)
                           : call_lifted(hook, frame, args, nargsf, names);
    state->hook_depth--;
    if (unlikely(!recording))
        return result; /* stop() has ended the span */
    uint64_t end = clock_now();
    const char *error = NULL;
    uint16_t flags = 0;
    if (unlikely(!result))
        error = span_error(PyErr_Occurred(), &flags);
    span_exit(site, lane, end, error, flags);
    return result;
}

/* ---- the table ---- */

static void table_put(Hook *hook)
{
    size_t at = slot_of(hook->function);
    while (table[at])
        at = (at + 1) & table_mask;
    table[at] = hook;
}

static int table_reserve(void)
{
    if (table && 2 * (hook_count + 1) <= table_mask + 1)
        return 0;
    size_t old_room = table ? table_mask + 1 : 0, room = old_room ? 2 * old_room : 64;
    Hook **old = table, **fresh = PyMem_RawCalloc(room, sizeof *fresh);
    if (!fresh) {
        PyErr_NoMemory();
        return -1;
    }
    table = fresh;
    table_mask = room - 1;
    for (size_t i = 0; i < old_room; i++)
        if (old[i])
            table_put(old[i]);
    PyMem_RawFree(old);
    return 0;
}

static void table_remove(Hook *hook)
{
    size_t hole = slot_of(hook->function);
    while (table[hole] != hook)
        hole = (hole + 1) & table_mask;
    table[hole] = NULL;
    for (size_t at = (hole + 1) & table_mask; table[at]; at = (at + 1) & table_mask) {
        size_t home = slot_of(table[at]->function);
        if (((at - home) & table_mask) >= ((at - hole) & table_mask)) { /* the hole lies on its way */
            table[hole] = table[at];
            table[at] = NULL;
            hole = at;
        }
    }
    hook_count--;
}

/* The function is gone: its address may soon be another's. */
static PyObject *function_died(PyObject *address, PyObject *Py_UNUSED(weakref))
{
    Hook *hook = hook_find(PyLong_AsVoidPtr(address));
    if (hook) {
        /* Not gone yet: the collector clears weak references before it runs finalizers, which may call it. */
        vectorcallfunc *pointer = vectorcall_of(hook->function);
        if (*pointer == hooked)
            *pointer = hook->original;
        table_remove(hook);
        Py_XDECREF(hook->evaluator.function);
        Py_DECREF(hook->weakref);
        PyMem_RawFree(hook);
    }
    Py_RETURN_NONE;
}
static PyMethodDef died_def = {"function_died", function_died, METH_O, NULL};

static int hook_add(PyObject *function, Site *site, PyObject *evaluate)
{
    if (table_reserve() < 0)
        return -1;
    PyObject *address = PyLong_FromVoidPtr(function);
    PyObject *callback = address ? PyCFunction_New(&died_def, address) : NULL;
    PyObject *weakref = callback ? PyWeakref_NewRef(function, callback) : NULL;
    Hook *hook = weakref ? PyMem_RawCalloc(1, sizeof *hook) : NULL;
    Py_XDECREF(address);
    Py_XDECREF(callback);
    if (!hook) {
        Py_XDECREF(weakref);
        return weakref ? (PyErr_NoMemory(), -1) : -1;
    }
    hook->function = function;
    hook->weakref = weakref;
    hook->site = site;
    hook->original = *vectorcall_of(function);
    hook->evaluator.function = evaluate == Py_None ? NULL : Py_NewRef(evaluate);
    hook_count++;
    table_put(hook);
    if (recording)
        PyFunction_SetVectorcall((PyFunctionObject *)function, hooked);
    return 0;
}

PyObject *hook_call(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *function, *site, *evaluate;
    if (!PyArg_ParseTuple(args, "O!O!O:hook", &PyFunction_Type, &function, &Site_Type, &site, &evaluate))
        return NULL;
    if (!(table && hook_find(function)) && hook_add(function, (Site *)site, evaluate) < 0)
        return NULL; /* decorated twice records once: the first hook stays */
    Py_RETURN_NONE;
}

void hooks_install(void)
{
    for (size_t i = 0; table && i <= table_mask; i++) {
        Hook *hook = table[i];
        /* Another tool's pointer becomes the one that we call and put back. */
        if (hook && *vectorcall_of(hook->function) != hooked) {
            hook->original = *vectorcall_of(hook->function);
            PyFunction_SetVectorcall((PyFunctionObject *)hook->function, hooked);
        }
    }
}

void hooks_remove(void)
{
    for (size_t i = 0; table && i <= table_mask; i++)
        if (table[i] && *vectorcall_of(table[i]->function) == hooked)
            PyFunction_SetVectorcall((PyFunctionObject *)table[i]->function, table[i]->original);
}

#else

PyObject *hook_call(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    PyErr_SetString(PyExc_RuntimeError, "functions are hooked in place on CPython 3.12 and later only");
    return NULL;
}

void hooks_install(void) {}
void hooks_remove(void) {}

#endif

int kernel_init(void) { return evaluate_init() < 0 ? -1 : PyType_Ready(&Marker_Type); }
