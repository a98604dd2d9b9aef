/* Chunks: where finished spans wait for the drain. One writer (the thread that owns it), then sealed, then one
 * reader (the drain), then recycled.
 *
 * Layout of a chunk's data: events of 32 bytes grow from the bottom; context entries and attribute blobs grow
 * down from the top. Everything an event refers to lies in its own chunk, so a sealed chunk is read alone. */
#ifndef INSTRUMENT_CHUNK_H
#define INSTRUMENT_CHUNK_H

#include "paths.h"

typedef struct {
    uint64_t start, end;  /* CLOCK_MONOTONIC ns */
    uint32_t path;        /* implies the site */
    uint32_t sequence;    /* order of entry within the thread; with the thread it makes the id */
    uint32_t attributes;  /* blob: offset in words in the low bits, length in words above; 0 is none */
    uint16_t context;     /* context entry: offset in units of 16 bytes */
    uint16_t flags;
} Event;
_Static_assert(sizeof(Event) == 32, "an event is half a cache line");

/* What the children of one open span share. Written once per parent and chunk. */
typedef struct {
    uint64_t parent_id;   /* 0: the event is a root */
    uint64_t root_id;     /* for the verdict per root */
    int64_t step;         /* NO_STEP: outside any step */
    uint64_t task;        /* 0: plain code */
} Context;
_Static_assert(sizeof(Context) == 32, "a context is two units");

#define NO_STEP INT64_MIN

enum {
    CONTEXT_UNIT = 16,                 /* context offsets count these */
    ATTRIBUTE_OFFSET_BITS = 17,        /* words */
    CHUNK_MAX = 65536 * CONTEXT_UNIT,  /* so that offsets fit */
    CHUNK_MIN = 1024
};
_Static_assert(CHUNK_MAX / 8 <= 1 << ATTRIBUTE_OFFSET_BITS, "an attribute offset reaches all of a chunk");
_Static_assert(MAX_BLOB / 8 < 1 << (32 - ATTRIBUTE_OFFSET_BITS), "a blob's length fits beside its offset");

/* Bits of Event.flags. Those with a name are flags in the run file. */
enum {
    FLAG_ERROR = 1 << 0,
    FLAG_MARK = 1 << 1,
    FLAG_CANCELLED = 1 << 2,
    FLAG_UNFINISHED = 1 << 3,
    FLAG_TRUNCATED = 1 << 4,
    FLAG_SHARED_CONTEXT = 1 << 5
};
extern const char *const flag_names[16]; /* NULL: not shown */

typedef struct Chunk {
    struct Chunk *next;
    char *data;
    uint32_t size;     /* bytes of data */
    uint32_t count;    /* events, once sealed */
    uint32_t marks;    /* of them */
    uint32_t thread;   /* serial of the thread that wrote it */
    int32_t tid;
    uint64_t id_base;  /* span id = mix64(id_base + sequence) */
    Paths *paths;
    bool mapped;       /* data is a file mapping */
} Chunk;

/* Set at start; chunks of another size are from an earlier session and are freed, not recycled. */
extern uint32_t chunk_bytes;
extern bool overwrite_oldest;

void chunks_reset(void);           /* drop what nobody took, and the spare chunks */
void chunks_drop_spare(void);
bool chunk_spare(uint32_t wanted); /* keep so many touched chunks ready; false at the bound */
Chunk *chunk_get(void);            /* an empty chunk, or NULL: dropped records are the caller's to count */
void chunk_seal(Chunk *chunk, uint32_t count); /* hand over to the drain */
Chunk *chunk_take(void);           /* the oldest sealed chunk, or NULL */
void chunk_recycle(Chunk *chunk);
uint64_t chunks_discard(void);     /* all sealed ones, not taken: how many events they held */
bool chunks_map(const char *directory); /* back new chunks by a private file there; NULL for memory */

static inline uint64_t span_id(uint64_t id_base, uint32_t sequence) { return mix64(id_base + sequence); }

#endif
