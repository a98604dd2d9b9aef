/* Thread states: made at a thread's first record, freed by the drain after the thread has ended. */
#define _GNU_SOURCE
#include "span.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FIRST_FRAMES = 64, MAX_FRAMES = 1 << 24 };

/* What `current` points to before a thread's first record: no room for a frame, none for an event. */
static Frame no_frame;
static ThreadState no_thread = {.top = &no_frame, .bottom = &no_frame, .limit = &no_frame + 1};

_Thread_local ThreadState *current = &no_thread;
ThreadState *threads = NULL;
TotalsTable retired;
uint64_t process_salt;
ThreadRow *thread_rows;
uint32_t thread_row_count;

static uint32_t last_serial;
static pthread_key_t at_exit;
static PyObject *first_record_callback;
static bool first_record_asked; /* the call is pending: one place in Python's short queue is enough */

/* Runs in the ending thread, without the GIL: only the flag may be touched. */
static void thread_ended(void *state) { atomic_store(&((ThreadState *)state)->dead, true); }

static void new_salt(void)
{
    if (getrandom(&process_salt, sizeof process_salt, 0) != sizeof process_salt)
        process_salt = mix64((uint64_t)getpid() << 32 ^ clock_now());
}

int threads_init(void)
{
    new_salt();
    return pthread_key_create(&at_exit, thread_ended) ? -1 : 0;
}

/* ---- frames ---- */

static size_t frames_size(const ThreadState *state) { return (size_t)(state->limit - state->bottom) * sizeof(Frame); }

void frame_drop(ThreadState *state, Frame *frame)
{
    if (frame->carrier)
        Py_CLEAR(frame->carrier);
    if (frame->extra) {
        if (!state->spare_extra && frame->extra->room <= 1024) {
            frame->extra->length = frame->extra->keys = 0;
            state->spare_extra = frame->extra;
        } else {
            blob_free(frame->extra);
            PyMem_RawFree(frame->extra);
        }
        frame->extra = NULL;
    }
}

Blob *frame_extra(ThreadState *state, Frame *frame)
{
    if (!frame->extra) {
        frame->extra = state->spare_extra ? state->spare_extra : PyMem_RawCalloc(1, sizeof(Blob));
        state->spare_extra = NULL;
    }
    return frame->extra;
}

static bool frames_grow(ThreadState *state)
{
    size_t room = (size_t)(state->limit - state->bottom), depth = (size_t)(state->top - state->bottom);
    if (room >= MAX_FRAMES)
        return false;
    Frame *frames = memory_alloc(2 * room * sizeof(Frame));
    if (!frames)
        return false;
    memcpy(frames, state->bottom, (depth + 1) * sizeof(Frame));
    memory_free(state->bottom, room * sizeof(Frame));
    state->bottom = frames;
    state->top = frames + depth;
    state->limit = frames + 2 * room;
    return true;
}

/* ---- states ---- */

/* The name that Python's threading knows this thread by, without making it known; a new reference. */
static PyObject *thread_name(void)
{
    static PyObject *module_name;
    if (!module_name)
        module_name = PyUnicode_InternFromString("threading");
    PyObject *name = NULL, *threading = module_name ? PyImport_GetModule(module_name) : NULL;
    PyObject *active = threading ? PyObject_GetAttrString(threading, "_active") : NULL;
    PyObject *ident = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
    if (active && ident && PyDict_Check(active)) {
        PyObject *thread = PyDict_GetItemWithError(active, ident);
        name = thread ? PyObject_GetAttrString(thread, "_name") : NULL;
    }
    if (name && !PyUnicode_Check(name))
        Py_CLEAR(name);
    PyErr_Clear();
    Py_XDECREF(ident);
    Py_XDECREF(active);
    Py_XDECREF(threading);
    if (!name && syscall(SYS_gettid) == getpid())
        name = PyUnicode_FromString("MainThread");
    return name ? name : PyUnicode_FromString("");
}

void thread_renew_serial(ThreadState *state)
{
    state->serial = ++last_serial;
    state->id_base = process_salt + ((uint64_t)state->serial << 32);
    state->listed = false;
}

/* The state of this thread, made now. NULL without memory. */
static ThreadState *thread_new(void)
{
    PyObject *name = thread_name();
    if (current != &no_thread) { /* looking for the name ran code that records */
        Py_XDECREF(name);
        return current;
    }
    ThreadState *state = PyMem_RawCalloc(1, sizeof *state);
    Frame *frames = state ? memory_alloc(FIRST_FRAMES * sizeof(Frame)) : NULL;
    if (!name || !frames || pthread_setspecific(at_exit, state) != 0) {
        PyErr_Clear();
        Py_XDECREF(name);
        memory_free(frames, FIRST_FRAMES * sizeof(Frame));
        PyMem_RawFree(state);
        return NULL;
    }
    state->bottom = state->top = frames;
    state->limit = frames + FIRST_FRAMES;
    thread_renew_serial(state);
    state->tid = (int32_t)syscall(SYS_gettid);
    state->name = name;
    state->next = threads;
    threads = state;
    return state;
}

COLD bool thread_room(ThreadState **state)
{
    if (current != &no_thread)
        return frames_grow(current);
    ThreadState *fresh = thread_new();
    if (fresh)
        *state = current = fresh;
    return fresh != NULL;
}

COLD bool thread_push_slow(ThreadState **state)
{
    if (thread_room(state))
        return true;
    lose(LOSS_DEPTH, 1);
    if (current != &no_thread) {
        current->skipped++;
        if (current->top->state == FRAME_OPEN)
            current->top->state = FRAME_COVERED; /* the next exit is not its own */
    }
    return false;
}

static void thread_list(ThreadState *state)
{
    state->listed = true;
    if (thread_row_count >= MAX_THREAD_ROWS) {
        lose(LOSS_THREADS, 1);
        return;
    }
    if (!thread_rows && !(thread_rows = PyMem_RawCalloc(MAX_THREAD_ROWS, sizeof *thread_rows)))
        return;
    thread_rows[thread_row_count++] = (ThreadRow){state->serial, state->tid, Py_NewRef(state->name)};
}

void thread_seal(ThreadState *state)
{
    if (!state->chunk)
        return;
    uint32_t count = (uint32_t)((state->head - state->chunk->data) / (ptrdiff_t)sizeof(Event));
    if (!count)
        return;
    chunk_seal(state->chunk, count);
    state->chunk = NULL;
    state->head = state->low = NULL;
}

static int call_first_record(void *Py_UNUSED(argument))
{
    PyObject *callback = first_record_callback;
    first_record_callback = NULL;
    first_record_asked = false;
    PyObject *result = callback ? PyObject_CallNoArgs(callback) : NULL;
    PyErr_Clear(); /* runs between the user's bytecodes: nothing may escape */
    Py_XDECREF(result);
    Py_XDECREF(callback);
    return 0;
}

void on_first_record_set(PyObject *callback) { Py_XSETREF(first_record_callback, Py_XNewRef(callback)); }

/* May run with an exception set, so it calls nothing that could look at it. */
COLD bool thread_next_chunk(ThreadState *state)
{
    if (state == &no_thread)
        return false;
    thread_seal(state);
    if (state->chunk) { /* empty, and yet too small for what should go in */
        return false;
    }
    Chunk *chunk = chunk_get();
    if (!chunk)
        return false;
    if (!state->listed)
        thread_list(state);
    if (first_record_callback && !first_record_asked)
        first_record_asked = Py_AddPendingCall(call_first_record, NULL) == 0;
    chunk->thread = state->serial;
    chunk->tid = state->tid;
    chunk->id_base = state->id_base;
    state->chunk = chunk;
    state->head = chunk->data;
    state->low = chunk->data + chunk->size;
    state->chunk_age++;
    return true;
}

/* Give back what a deep recursion has taken: it would count against the next session's bound. */
static void frames_shrink(ThreadState *state)
{
    size_t room = (size_t)(state->limit - state->bottom);
    Frame *frames = room > FIRST_FRAMES ? PyMem_RawCalloc(FIRST_FRAMES, sizeof(Frame)) : NULL;
    if (!frames)
        return;
    memory_used += FIRST_FRAMES * sizeof(Frame);
    memory_free(state->bottom, room * sizeof(Frame));
    state->bottom = state->top = frames;
    state->limit = frames + FIRST_FRAMES;
}

/* Forget all spans, records and totals of a state; of its stack the usual size stays. */
static void thread_clear(ThreadState *state)
{
    for (; state->top > state->bottom; state->top--)
        frame_drop(state, state->top);
    frames_shrink(state);
    state->bottom->context_age = 0;
    if (state->chunk)
        chunk_recycle(state->chunk);
    state->chunk = NULL;
    state->head = state->low = NULL;
    totals_free(&state->totals);
    state->skipped = 0;
    state->listed = false;
}

static void thread_free(ThreadState *state)
{
    thread_clear(state);
    if (state->spare_extra) {
        blob_free(state->spare_extra);
        PyMem_RawFree(state->spare_extra);
    }
    memory_free(state->bottom, frames_size(state));
    Py_DECREF(state->name);
    PyMem_RawFree(state);
}

void threads_reap(void)
{
    for (ThreadState **link = &threads; *link;) {
        ThreadState *state = *link;
        if (!atomic_load(&state->dead)) {
            link = &state->next;
            continue;
        }
        if (recording) /* nobody will leave them any more */
            span_close_thread(state, clock_now(), FLAG_UNFINISHED);
        thread_seal(state);
        totals_move(&retired, &state->totals);
        *link = state->next;
        thread_free(state);
    }
}

static void rows_clear(void)
{
    while (thread_row_count)
        Py_DECREF(thread_rows[--thread_row_count].name);
}

void threads_reset(void)
{
    threads_reap();
    new_salt(); /* this may be a fork of the process that loaded us: its ids are its own */
    for (ThreadState *state = threads; state; state = state->next) {
        thread_clear(state);
        thread_renew_serial(state);
    }
    totals_free(&retired);
    rows_clear();
}

uint64_t threads_after_fork(void)
{
    uint64_t discarded = 0;
    ThreadState *mine = current == &no_thread ? NULL : current;
    while (threads) {
        ThreadState *state = threads;
        threads = state->next;
        discarded += state->chunk ? (uint64_t)(state->head - state->chunk->data) / sizeof(Event) : 0;
        if (state != mine)
            thread_free(state);
    }
    totals_free(&retired);
    rows_clear();
    new_salt();
    if (mine) {
        if (mine->chunk)
            chunk_recycle(mine->chunk);
        mine->chunk = NULL;
        mine->head = mine->low = NULL;
        totals_free(&mine->totals);
        thread_renew_serial(mine);
        mine->tid = (int32_t)syscall(SYS_gettid);
        mine->bottom->context_age = 0;
        for (Frame *frame = mine->bottom + 1; frame <= mine->top; frame++) {
            frame->state = FRAME_INHERITED;
            frame->path = frame->root = 0; /* what begins above them begins at the root */
        }
        mine->next = NULL;
        threads = mine;
    }
    return discarded;
}
