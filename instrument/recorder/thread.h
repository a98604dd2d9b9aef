/* What each thread carries: its stack of open spans, its chunk, its totals. Reached by one thread-local pointer,
 * which is never NULL: before the first record it points to an empty state whose stack is "full". */
#ifndef INSTRUMENT_THREAD_H
#define INSTRUMENT_THREAD_H

#include "attributes.h"
#include "chunk.h"
#include "clock.h"
#include "totals.h"

/* An open span: one cache line. Frames are contiguous, so a frame's parent is the one below it. */
typedef struct Frame {
    uint64_t start;
    uint64_t children_ns;  /* time of children that ended, for self time */
    Site *site;            /* NULL in the bottom frame, which stands for "no span" */
    PyObject *carrier;     /* owned: the region object with this entry's attributes, or NULL */
    Blob *extra;           /* owned: attributes set while open, or NULL */
    uint32_t sequence;
    uint32_t path;
    uint32_t context_age;  /* the chunk in which `context` is valid for children of this frame */
    uint32_t root;         /* position in the stack of the root of this frame; 0 in the bottom frame */
    uint16_t context;
    uint16_t flags;
    uint16_t lane;         /* which of the tasks that share the thread entered it; see frame_lane() */
    uint8_t state;
    bool keeps_id;         /* its id is in `extra`: it was open when the thread's sequence wrapped */
} Frame;
_Static_assert(sizeof(Frame) == 64, "a frame is one cache line");

enum { /* Frame.state */
    FRAME_OPEN = 0,
    FRAME_GONE = 1,      /* left while frames above it were open; popped with them */
    FRAME_INHERITED = 2, /* opened by the parent of a fork: left in silence */
    FRAME_COVERED = 3    /* open, and below entries that found no room: their exits come first */
};
static inline bool frame_is_open(const Frame *frame)
{
    return frame->state == FRAME_OPEN || frame->state == FRAME_COVERED;
}

/* The interpreter's state of this thread, which holds the GIL, without the check that it does. */
static inline PyThreadState *thread_state(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return PyThreadState_GetUnchecked();
#else
    return _PyThreadState_UncheckedGet();
#endif
}

/* Tells apart the tasks of one thread: asyncio runs each in a contextvars.Context of its own. */
static inline uint16_t lane_of(PyThreadState *thread) { return (uint16_t)((uintptr_t)thread->context >> 4); }
static inline uint16_t frame_lane(void) { return lane_of(thread_state()); }

typedef struct ThreadState {
    /* Hot. */
    Frame *top, *bottom, *limit; /* limit: one past the last usable frame */
    char *head, *low;            /* next event; lowest byte in use at the top of the chunk */
    uint32_t chunk_age;          /* counts chunks; 0 only before the first */
    uint32_t sequence;           /* of the last span entered */
    TotalsTable totals;
    Site *last_site;             /* for Region.seconds after exit */
    uint64_t last_ns;
    uint32_t hook_depth;         /* hooked kernel calls in progress */
    uint32_t skipped;            /* entries that found no room in the stack */
    Blob *spare_extra;           /* one kept, so that attributes set on a span cost no malloc each time */
    /* Cold. */
    Chunk *chunk;
    uint64_t id_base;
    uint32_t serial;
    int32_t tid;
    PyObject *name;
    bool listed;                 /* in this session's list of threads */
    atomic_bool dead;            /* its thread has ended; the drain frees it */
    struct ThreadState *next;
} ThreadState;

extern _Thread_local ThreadState *current __attribute__((tls_model("initial-exec"), visibility("hidden")));
extern ThreadState *threads;      /* all, the newest first */
extern TotalsTable retired;       /* totals of threads that ended */
extern uint64_t process_salt;

typedef struct {
    uint32_t serial;
    int32_t tid;
    PyObject *name;
} ThreadRow;
extern ThreadRow *thread_rows;
extern uint32_t thread_row_count;

int threads_init(void);
bool thread_room(ThreadState **state);      /* make the state or grow its stack */
bool thread_push_slow(ThreadState **state); /* the same for an entry; false: not recorded, and counted */
bool thread_next_chunk(ThreadState *state); /* seal the full chunk and begin another; false: none to be had */
void thread_seal(ThreadState *state);       /* hand over what there is */
void thread_renew_serial(ThreadState *state); /* new ids from here on */
void threads_reset(void);                   /* at start: empty stacks, no chunks, no totals */
void threads_reap(void);                    /* free the states of ended threads, keeping their records and totals */
uint64_t threads_after_fork(void);          /* keep this thread only; how many records were discarded */
void frame_drop(ThreadState *state, Frame *frame); /* free what a frame owns */
Blob *frame_extra(ThreadState *state, Frame *frame); /* its blob for attributes set while open, or NULL */

/* Ask for one call of `callback` from the main thread when the next chunk is begun. */
void on_first_record_set(PyObject *callback);

#endif
