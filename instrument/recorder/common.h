/* What every file of the recorder shares: limits, small helpers, the memory bound and the loss counters.
 *
 * One invariant holds everywhere unless a comment says otherwise: every function runs with the GIL held, so
 * no lock is taken. The two exceptions are the JSON writer (reads sealed chunks, path fragments and keys, which
 * never move or change once made) and the destructor of a thread's state (sets one atomic flag). */
#ifndef INSTRUMENT_COMMON_H
#define INSTRUMENT_COMMON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define COLD __attribute__((noinline, cold))

enum {
    MAX_SITES = 2000,       /* names beyond this share one overflow site per kind */
    MAX_BOUND_TYPES = 512,  /* names with a type of their own; beyond it the type cache thrashes */
    FOLD_DEPTH = 8,         /* how often one site may stand on a path before recursion folds */
    MAX_HOOK_DEPTH = 64,    /* nested hooked C frames before the hook lifts itself */
    MAX_TEXT = 1024,        /* bytes of one text attribute */
    MAX_ITEMS = 16,         /* elements of one list attribute */
    MAX_ITEM_TEXT = 128,    /* characters of a text in a list */
    MAX_RECORD_KEYS = 8,    /* attributes in one attribute record: 4 bits of tag each */
    MAX_SPAN_ATTRS = 64,    /* attributes of one span */
    MAX_BLOB = 16384,       /* bytes of all attributes of one span */
    MAX_KEYS = 4096,        /* distinct attribute names */
    MAX_KEYSETS = 4096,     /* distinct tuples of attribute names */
    MAX_THREAD_ROWS = 10000 /* threads remembered by name for the run file */
};

/* ---- losses: everything not recorded, by reason ---- */
typedef enum {
    LOSS_BUFFER_FULL,     /* no free chunk: the newest records were dropped */
    LOSS_OVERWRITTEN,     /* overflow="oldest": the oldest records were dropped */
    LOSS_UNMATCHED_EXIT,  /* a region was left that is not open in this thread */
    LOSS_SET_WITHOUT_SPAN,/* set() or annotate() with no open span */
    LOSS_DEPTH,           /* the stack of open spans could not grow */
    LOSS_PATHS,           /* entries that went to an overflow path */
    LOSS_SITES,           /* annotations that went to an overflow site */
    LOSS_ATTRIBUTES,      /* attributes dropped: too many names or too many in one span */
    LOSS_ATTRIBUTE_SIZE,  /* attributes cut short */
    LOSS_MEMORY,          /* totals or histograms that found no memory within the bound */
    LOSS_RECURSION,       /* times a hook lifted itself in deep recursion */
    LOSS_EVALUATE,        /* flops=, bytes= or attrs= functions that failed */
    LOSS_SINK,            /* collector callbacks that failed */
    LOSS_METRICS,         /* metric points dropped: too many series or not a number */
    LOSS_THREADS,         /* threads whose names were not kept */
    LOSS_INHERITED,       /* records of the parent discarded in a fork's child */
    LOSS_COUNT
} Loss;

extern uint64_t losses[LOSS_COUNT];
extern const char *const loss_names[LOSS_COUNT];

static inline void lose(Loss reason, uint64_t n) { losses[reason] += n; }

/* Drop the exception of a callback of the user's that we called on our own account. An interrupt was meant for the
 * program, which gets it as soon as its own code runs again. */
void callback_failed(void);

/* ---- memory: one bound for chunks, attributes, frames, totals and histograms ---- */
extern size_t memory_used, memory_bound;

/* Zeroed memory, counted; NULL when the bound or the machine refuses. */
void *memory_alloc(size_t size);
void memory_free(void *block, size_t size);

/* ---- whether anything is being recorded; read on every enter and exit ---- */
extern int recording;

/* A bijection on 64 bits (splitmix64's finaliser): turns counters into ids that look random. */
static inline uint64_t mix64(uint64_t x)
{
    x ^= x >> 30; x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27; x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
