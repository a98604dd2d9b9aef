/* Enter and exit of a span: the hot path, inlined into regions, kernels and markers.
 *
 * The clock is read last on enter and first on exit, so a span measures its body and not the recorder. */
#ifndef INSTRUMENT_SPAN_H
#define INSTRUMENT_SPAN_H

#include "carrier.h"
#include "thread.h"

/* Rare turns of the two; see span.c. */
Frame *span_leave_below(ThreadState *state, const Site *site, uint16_t lane);
bool span_write_slow(ThreadState *state, Frame *frame, uint64_t end, const char *error);
void span_sequence_wrapped(ThreadState *state);
void span_pop_gone(ThreadState *state);

/* The name of an exception's type if leaving with it is an error, else NULL; sets *flags. */
const char *span_error(PyObject *type, uint16_t *flags);

void span_mark(Site *site, const Blob *blob);
void span_close_thread(ThreadState *state, uint64_t end, uint16_t flags); /* end every open span of a thread */
void span_close_all(uint16_t flags);     /* and of every thread */
Frame *span_innermost(const Site *site); /* the innermost open frame of a site in this thread, or NULL */
Frame *span_current(void);               /* the innermost open frame, or NULL */

uint64_t span_kept_id(const Frame *frame); /* of a span that was open when the sequence wrapped */

static inline uint64_t frame_id(const ThreadState *state, const Frame *frame)
{
    if (unlikely(frame->keeps_id))
        return span_kept_id(frame);
    return span_id(state->id_base, frame->sequence);
}

/* Open a span. NULL: not recorded, and counted. `carrier` is borrowed; the frame takes its own reference. */
static inline Frame *span_enter(Site *site, uint16_t lane, PyObject *carrier)
{
    /* First: on 3.11 making a new path may run finalizers, which may record and grow the stack. */
    uint32_t path = path_of(current->top->path, site);
    ThreadState *state = current;
    if (unlikely(state->top + 1 == state->limit) && !thread_push_slow(&state))
        return NULL;
    Frame *parent = state->top, *frame = parent + 1;
    frame->children_ns = 0;
    frame->site = site;
    frame->carrier = Py_XNewRef(carrier);
    frame->extra = NULL;
    frame->sequence = ++state->sequence;
    if (unlikely(frame->sequence == 0))
        span_sequence_wrapped(state);
    frame->path = path;
    frame->context_age = 0;
    frame->root = likely(parent->root && site->kind != KIND_STEP) ? parent->root
                                                                  : (uint32_t)(frame - state->bottom);
    frame->flags = 0;
    frame->lane = lane;
    frame->state = FRAME_OPEN;
    frame->keeps_id = false;
    state->top = frame;
    if (unlikely(site->sink != NULL)) {
        site_sink_call(site, true, frame_id(state, frame));
        frame = state->top; /* the callback may have grown the stack */
    }
    frame->start = clock_now();
    return frame;
}

/* Write the event of a closed frame. Does not touch the stack. False: dropped, and counted. */
static inline bool span_write(ThreadState *state, Frame *frame, uint64_t end, const char *error)
{
    Frame *parent = frame - 1;
    Event *event = (Event *)state->head;
    if (likely(parent->context_age == state->chunk_age && (char *)(event + 1) <= state->low &&
               !frame->carrier && !frame->extra && !error && frame->site->kind != KIND_STEP)) {
        event->start = frame->start;
        event->end = end;
        event->path = frame->path;
        event->sequence = frame->sequence;
        event->attributes = 0;
        event->context = parent->context;
        event->flags = frame->flags;
        state->head = (char *)(event + 1);
        return true;
    }
    return span_write_slow(state, frame, end, error);
}

/* Close the innermost span, which must be of `site`; `end` was read by the caller. */
static inline void span_exit(Site *site, uint16_t lane, uint64_t end, const char *error, uint16_t flags)
{
    ThreadState *state = current;
    Frame *frame = state->top;
    if (unlikely(frame->site != site || frame->state != FRAME_OPEN || frame->lane != lane)) {
        frame = span_leave_below(state, site, lane);
        if (!frame)
            return;
    }
    frame->flags |= flags;
    if (unlikely(site->sink != NULL)) {
        ptrdiff_t position = frame - state->bottom;
        site_sink_call(site, false, frame_id(state, frame));
        frame = state->bottom + position; /* the callback may have grown the stack */
        if (frame > state->top)
            return; /* or ended the session, and with it this span */
    }
    uint64_t ns = end > frame->start ? end - frame->start : 0;
    Frame *parent = frame - 1;
    parent->children_ns += ns;
    Totals *totals = totals_of(&state->totals, frame->path);
    if (likely(totals != NULL))
        totals_add(totals, ns, ns > frame->children_ns ? ns - frame->children_ns : 0, flags & FLAG_ERROR);
    state->last_site = site;
    state->last_ns = ns;
    site->last_ns = ns;
    span_write(state, frame, end, error);
    if (unlikely(frame->carrier || frame->extra))
        frame_drop(state, frame);
    if (likely(frame == state->top)) {
        state->top = frame - 1;
        if (unlikely(frame[-1].state == FRAME_GONE))
            span_pop_gone(state);
    } else {
        frame->state = FRAME_GONE; /* frames above are still open: it goes when they do */
    }
}

#endif
