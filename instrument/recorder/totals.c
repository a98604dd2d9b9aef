/* Making, growing and merging totals. */
#include "totals.h"

#include <string.h>

static size_t histogram_size(unsigned octaves)
{
    return sizeof(Histogram) + (size_t)octaves * BUCKETS * sizeof(uint64_t);
}

/* Make the table reach a path. */
static bool totals_room(TotalsTable *table, uint32_t path)
{
    if (path < table->room)
        return true;
    uint32_t room = table->room ? table->room : 64;
    while (room <= path)
        room *= 2;
    Totals **by_path = memory_alloc(room * sizeof *by_path);
    if (!by_path) {
        lose(LOSS_MEMORY, 1);
        return false;
    }
    if (table->room)
        memcpy(by_path, table->by_path, table->room * sizeof *by_path);
    memory_free(table->by_path, table->room * sizeof *by_path);
    table->by_path = by_path;
    table->room = room;
    return true;
}

COLD Totals *totals_make(TotalsTable *table, uint32_t path)
{
    if (!totals_room(table, path))
        return NULL;
    Totals **slot = &table->by_path[path];
    if (!*slot && (*slot = memory_alloc(sizeof(Totals))))
        (*slot)->min_ns = UINT64_MAX;
    if (!*slot)
        lose(LOSS_MEMORY, 1);
    return *slot;
}

/* Widen the histogram to hold an octave; when memory is out, the counts stay and the sample is counted lost. */
COLD void histogram_grow(Totals *totals, unsigned octave)
{
    Histogram *old = totals->histogram;
    unsigned first = octave, last = octave;
    if (old) {
        first = old->first < first ? old->first : first;
        last = old->first + old->octaves - 1u > last ? old->first + old->octaves - 1u : last;
    }
    Histogram *wide = memory_alloc(histogram_size(last - first + 1));
    if (!wide) {
        lose(LOSS_MEMORY, 1);
        return;
    }
    wide->first = (uint8_t)first;
    wide->octaves = (uint8_t)(last - first + 1);
    if (old) {
        memcpy(wide->counts + (old->first - first) * BUCKETS, old->counts,
               old->octaves * BUCKETS * sizeof(uint64_t));
        memory_free(old, histogram_size(old->octaves));
    }
    totals->histogram = wide;
}

void totals_free(TotalsTable *table)
{
    for (uint32_t path = 0; path < table->room; path++) {
        Totals *totals = table->by_path[path];
        if (!totals)
            continue;
        if (totals->histogram)
            memory_free(totals->histogram, histogram_size(totals->histogram->octaves));
        memory_free(totals, sizeof *totals);
    }
    memory_free(table->by_path, table->room * sizeof *table->by_path);
    *table = (TotalsTable){0};
}

static void merge_histogram(Totals *into, const Histogram *from)
{
    for (unsigned i = 0; i < from->octaves; i++) {
        unsigned octave = from->first + i;
        if (!into->histogram || octave - into->histogram->first >= into->histogram->octaves)
            histogram_grow(into, octave);
        Histogram *to = into->histogram;
        if (!to || octave - to->first >= to->octaves)
            continue; /* no memory: counted by histogram_grow */
        for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
            to->counts[(octave - to->first) * BUCKETS + bucket] += from->counts[i * BUCKETS + bucket];
    }
}

void totals_sum(Totals *to, const Totals *from)
{
    to->count += from->count;
    to->errors += from->errors;
    to->open += from->open;
    to->sum_ns += from->sum_ns;
    to->self_ns += from->self_ns;
    to->min_ns = from->min_ns < to->min_ns ? from->min_ns : to->min_ns;
    to->max_ns = from->max_ns > to->max_ns ? from->max_ns : to->max_ns;
    to->measured += from->measured;
    to->flops += from->flops;
    to->bytes += from->bytes;
}

void totals_move(TotalsTable *into, TotalsTable *from)
{
    for (uint32_t path = 0; path < from->room; path++) {
        Totals *moved = from->by_path[path];
        if (!moved || !totals_room(into, path))
            continue; /* without room it is freed with its table, and counted */
        if (!into->by_path[path]) {
            into->by_path[path] = moved;
            from->by_path[path] = NULL;
            continue;
        }
        totals_sum(into->by_path[path], moved);
        if (moved->histogram)
            merge_histogram(into->by_path[path], moved->histogram);
    }
    totals_free(from);
}
