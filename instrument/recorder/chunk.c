/* The sealed chunks on their way to the drain, the spare ones, and where their memory comes from. */
#define _GNU_SOURCE
#include "chunk.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

uint32_t chunk_bytes = 1u << 16;
bool overwrite_oldest = false;

const char *const flag_names[16] = {
    [2] = "cancelled",
    [3] = "unfinished",
    [4] = "truncated",
    [5] = "shared_context",
};

static Chunk *sealed_first, *sealed_last; /* oldest first */
static Chunk *spare;                      /* the last one freed is the warmest */
static uint32_t spare_count;

/* A file behind the chunks: a private mapping of an unlinked file, grown chunk by chunk. */
static int backing = -1;
static off_t backing_end;

bool chunks_map(const char *directory)
{
    if (backing >= 0)
        close(backing); /* mappings made from it live on */
    backing = -1;
    backing_end = 0;
    if (!directory)
        return true;
    backing = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return backing >= 0;
}

static char *data_new(uint32_t size)
{
    if (backing < 0)
        return memory_alloc(size);
    if (size > memory_bound || memory_used > memory_bound - size)
        return NULL;
    if (posix_fallocate(backing, backing_end, size) != 0)
        return NULL; /* the disk is full now, not in the middle of a store */
    char *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, backing, backing_end);
    if (data == MAP_FAILED)
        return NULL;
    backing_end += size;
    memory_used += size;
    return data;
}

static Chunk *chunk_new(void)
{
    /* An eighth of the bound stays for totals, histograms, frames and attributes. */
    if (memory_used + chunk_bytes > memory_bound - memory_bound / 8)
        return NULL;
    Chunk *chunk = PyMem_RawCalloc(1, sizeof *chunk);
    char *data = chunk ? data_new(chunk_bytes) : NULL;
    if (!data) {
        PyMem_RawFree(chunk);
        return NULL;
    }
    memset(data, 0, chunk_bytes); /* touched here, not on the hot path */
    chunk->data = data;
    chunk->size = chunk_bytes;
    chunk->mapped = backing >= 0;
    return chunk;
}

static void chunk_free(Chunk *chunk)
{
    if (chunk->mapped) {
        munmap(chunk->data, chunk->size);
        memory_used -= chunk->size;
    } else {
        memory_free(chunk->data, chunk->size);
    }
    PyMem_RawFree(chunk);
}

bool chunk_spare(uint32_t wanted)
{
    while (spare_count < wanted) {
        Chunk *chunk = chunk_new();
        if (!chunk)
            return false;
        chunk->next = spare;
        spare = chunk;
        spare_count++;
    }
    return true;
}

Chunk *chunk_get(void)
{
    Chunk *chunk = spare;
    if (chunk) {
        spare = chunk->next;
        spare_count--;
    } else if (!(chunk = chunk_new())) {
        if (!overwrite_oldest || !(chunk = chunk_take()))
            return NULL;
        lose(LOSS_OVERWRITTEN, chunk->count);
        paths_release(chunk->paths);
    }
    chunk->next = NULL;
    chunk->count = chunk->marks = 0;
    chunk->paths = paths;
    paths->references++;
    return chunk;
}

void chunk_seal(Chunk *chunk, uint32_t count)
{
    chunk->count = count;
    chunk->next = NULL;
    if (sealed_last)
        sealed_last->next = chunk;
    else
        sealed_first = chunk;
    sealed_last = chunk;
}

Chunk *chunk_take(void)
{
    Chunk *chunk = sealed_first;
    if (chunk) {
        sealed_first = chunk->next;
        if (!sealed_first)
            sealed_last = NULL;
        chunk->next = NULL;
    }
    return chunk;
}

void chunk_recycle(Chunk *chunk)
{
    paths_release(chunk->paths);
    chunk->paths = NULL;
    if (!recording || chunk->size != chunk_bytes || chunk->mapped != (backing >= 0)) {
        chunk_free(chunk);
        return;
    }
    chunk->next = spare;
    spare = chunk;
    spare_count++;
}

uint64_t chunks_discard(void)
{
    uint64_t count = 0;
    for (Chunk *chunk; (chunk = chunk_take());) {
        count += chunk->count;
        chunk_recycle(chunk);
    }
    return count;
}

void chunks_drop_spare(void)
{
    while (spare) {
        Chunk *chunk = spare;
        spare = chunk->next;
        chunk_free(chunk);
    }
    spare_count = 0;
}

void chunks_reset(void)
{
    chunks_discard();
    chunks_drop_spare();
}
