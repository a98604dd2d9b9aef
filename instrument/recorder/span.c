/* The rare turns of entering and leaving a span. */
#include "span.h"

#include <string.h>

/* After 2^32 spans a thread gets a new serial, so that ids stay unique. Spans that are open now keep the id they
 * had: it goes among their attributes. The frame being entered comes after the wrap. */
COLD void span_sequence_wrapped(ThreadState *state)
{
    for (Frame *frame = state->bottom + 1; frame <= state->top; frame++) {
        uint64_t id = frame_id(state, frame);
        Blob *extra = frame_is_open(frame) && !frame->keeps_id ? frame_extra(state, frame) : NULL;
        if (!extra)
            continue;
        blob_word(extra, RECORD_ID, id);
        frame->keeps_id = true;
    }
    thread_seal(state);
    if (state->chunk) { /* empty: it would carry the old serial */
        chunk_recycle(state->chunk);
        state->chunk = NULL;
        state->head = state->low = NULL;
    }
    thread_renew_serial(state);
    for (Frame *frame = state->bottom; frame <= state->top; frame++)
        frame->context_age = 0;
}

COLD uint64_t span_kept_id(const Frame *frame)
{
    if (!frame->extra) /* it ended, while frames above it are open */
        return 0;
    const char *cursor = frame->extra->data, *end = cursor + frame->extra->length;
    for (Record record; record_next(&cursor, end, &record);)
        if (record.header->kind == RECORD_ID)
            return record.slots[0];
    return 0;
}

/* Frames that were left while others above them were open, now on top. */
COLD void span_pop_gone(ThreadState *state)
{
    while (state->top->state == FRAME_GONE)
        state->top--;
}

/* The innermost frame of a site; of a lane, or of any. */
static Frame *frame_below(ThreadState *state, const Site *site, int32_t lane)
{
    for (Frame *frame = state->top; frame > state->bottom; frame--)
        if (frame->site == site && frame->state != FRAME_GONE && (lane < 0 || frame->lane == lane))
            return frame;
    return NULL;
}

/* The frame of `site` where it is not simply on top: tasks that take turns, or a generator that yields inside a
 * region, let regions pile up above it that are not its children. NULL when there is nothing to record. */
COLD Frame *span_leave_below(ThreadState *state, const Site *site, uint16_t lane)
{
    if (state->skipped) { /* its entry found no room, and was counted then */
        if (!--state->skipped && state->top->state == FRAME_COVERED)
            state->top->state = FRAME_OPEN;
        return NULL;
    }
    Frame *frame = frame_below(state, site, lane);
    if (!frame) /* the context may have changed since entry, as the first ContextVar.set() of a thread does */
        frame = frame_below(state, site, -1);
    if (!frame) {
        lose(LOSS_UNMATCHED_EXIT, 1);
        return NULL;
    }
    if (!frame_is_open(frame)) {
        /* Opened before a fork, in another process: the parent records it. */
        frame_drop(state, frame);
        frame->state = FRAME_GONE;
        span_pop_gone(state);
        return NULL;
    }
    /* What was entered since may have been taken for its children: their times are right, their parents not. */
    for (Frame *above = state->top; above > frame; above--)
        above->flags |= FLAG_SHARED_CONTEXT;
    if (frame != state->top)
        frame->flags |= FLAG_SHARED_CONTEXT;
    return frame;
}

const char *span_error(PyObject *type, uint16_t *flags)
{
    if (!type || !PyType_Check(type) || PyErr_GivenExceptionMatches(type, PyExc_SystemExit) ||
        PyErr_GivenExceptionMatches(type, PyExc_KeyboardInterrupt) ||
        PyErr_GivenExceptionMatches(type, PyExc_GeneratorExit))
        return NULL;
    const char *name = ((PyTypeObject *)type)->tp_name, *dot = strrchr(name, '.');
    name = dot ? dot + 1 : name;
    /* asyncio's, concurrent.futures' and trio's, known by name: importing them is not for us to do. */
    if (strcmp(name, "CancelledError") == 0 || strcmp(name, "Cancelled") == 0) {
        *flags |= FLAG_CANCELLED;
        return NULL;
    }
    *flags |= FLAG_ERROR;
    return name;
}

/* ---- writing ---- */

/* The number of the step that a frame is in. */
static int64_t step_of(const ThreadState *state, const Frame *frame)
{
    const Frame *root = state->bottom + frame->root;
    return frame->root && root->site->kind == KIND_STEP ? carrier_step(root->carrier) : NO_STEP;
}

/* The entry that children of `parent` share, made in this chunk. The caller has checked the room. */
static void write_context(ThreadState *state, Frame *parent)
{
    bool bottom = parent == state->bottom || parent->state == FRAME_INHERITED;
    Context context = {
        .parent_id = bottom ? 0 : frame_id(state, parent),
        .root_id = bottom ? 0 : frame_id(state, state->bottom + parent->root),
        .step = bottom ? NO_STEP : step_of(state, parent),
        .task = 0,
    };
    state->low -= ((uintptr_t)state->low - (uintptr_t)state->chunk->data) % CONTEXT_UNIT + sizeof context;
    memcpy(state->low, &context, sizeof context);
    parent->context = (uint16_t)((state->low - state->chunk->data) / CONTEXT_UNIT);
    parent->context_age = state->chunk_age;
}

/* Write an event with everything that may come with one. False: dropped, and counted. */
__attribute__((noinline)) bool span_write_slow(ThreadState *state, Frame *frame, uint64_t end, const char *error)
{
    Frame *parent = frame - 1;
    const Blob *blobs[2] = {carrier_blob(frame->carrier), frame->extra};
    uint32_t blob_bytes = 0;
    for (int i = 0; i < 2; i++)
        blob_bytes += blobs[i] ? blobs[i]->length : 0;
    int64_t step = frame->site->kind == KIND_STEP ? carrier_step(frame->carrier) : NO_STEP;
    char error_record[ERROR_RECORD_MAX], step_record[WORD_RECORD_BYTES];
    uint32_t error_bytes = error ? put_error_record(error_record, error) : 0;
    uint32_t step_bytes = step != NO_STEP ? put_word_record(step_record, RECORD_STEP, (uint64_t)step) : 0;
    uint32_t fixed = sizeof(Event) + sizeof(Context) + CONTEXT_UNIT; /* the unit: a context begins on one */

    if (blob_bytes + error_bytes + step_bytes > MAX_BLOB || fixed + blob_bytes + error_bytes + step_bytes > chunk_bytes) {
        lose(LOSS_ATTRIBUTE_SIZE, 1);
        blob_bytes = 0;
    }
    uint32_t extra = blob_bytes + error_bytes + step_bytes;
    if (!state->chunk || state->low - state->head < (ptrdiff_t)(fixed + extra))
        if (!thread_next_chunk(state)) {
            lose(LOSS_BUFFER_FULL, 1);
            return false;
        }
    if (parent->context_age != state->chunk_age)
        write_context(state, parent);
    uint32_t attributes = 0;
    if (extra) {
        state->low -= extra;
        char *to = state->low;
        attributes = (uint32_t)(to - state->chunk->data) / 8 | (extra / 8) << ATTRIBUTE_OFFSET_BITS;
        if (step_bytes)
            memcpy(to, step_record, sizeof step_record);
        to += step_bytes;
        if (error_bytes)
            memcpy(to, error_record, error_bytes);
        to += error_bytes;
        for (int i = 0; i < 2 && blob_bytes; i++)
            if (blobs[i] && blobs[i]->length) {
                memcpy(to, blobs[i]->data, blobs[i]->length);
                to += blobs[i]->length;
            }
    }
    Event *event = (Event *)state->head;
    *event = (Event){frame->start, end, frame->path, frame->sequence, attributes, parent->context, frame->flags};
    state->head = (char *)(event + 1);
    return true;
}

void span_mark(Site *site, const Blob *blob)
{
    ThreadState *state = current;
    if (state->top + 1 == state->limit && !thread_room(&state)) {
        lose(LOSS_DEPTH, 1);
        return;
    }
    uint32_t path = path_of(state->top->path, site); /* first, as in span_enter() */
    /* A mark is a span without extent, written from a frame that is never pushed. */
    Frame *frame = state->top + 1;
    uint64_t now = clock_now();
    *frame = (Frame){.start = now, .site = site, .sequence = ++state->sequence,
                     .path = path, .flags = FLAG_MARK};
    if (unlikely(frame->sequence == 0))
        span_sequence_wrapped(state);
    frame->extra = (Blob *)blob;
    if (span_write(state, frame, now, NULL))
        state->chunk->marks++;
    frame->extra = NULL;
}

/* ---- looking at open spans ---- */

/* The innermost open frame that this lane entered, else of any lane; of a site, or of any. */
static Frame *innermost(const Site *site)
{
    Frame *other = NULL;
    uint16_t lane = frame_lane();
    for (Frame *frame = current->top; frame > current->bottom; frame--) {
        if ((site && frame->site != site) || !frame_is_open(frame))
            continue;
        if (frame->lane == lane)
            return frame;
        other = other ? other : frame;
    }
    return other;
}

Frame *span_innermost(const Site *site) { return innermost(site); }
Frame *span_current(void) { return innermost(NULL); }

void span_close_thread(ThreadState *state, uint64_t end, uint16_t flags)
{
    for (Frame *frame = state->top; frame > state->bottom; frame--) {
        frame->flags |= flags;
        if (frame_is_open(frame)) {
            span_write(state, frame, end, NULL);
            Totals *totals = totals_of(&state->totals, frame->path);
            if (totals)
                totals->open++;
        }
        frame_drop(state, frame);
    }
    state->top = state->bottom;
    state->skipped = 0;
}

void span_close_all(uint16_t flags)
{
    uint64_t end = clock_now();
    for (ThreadState *state = threads; state; state = state->next)
        span_close_thread(state, end, flags);
}
