/* Totals per path and thread: exact counts and times, with a histogram, updated at every exit. */
#ifndef INSTRUMENT_TOTALS_H
#define INSTRUMENT_TOTALS_H

#include "common.h"

/* Histogram boundaries are fixed, in ns, so histograms of threads, processes and hosts add up: each value below
 * 32 has a bucket of its own, then every octave has 32 buckets. */
enum { BUCKETS = 32, OCTAVES = 60 };

typedef struct {
    uint8_t first, octaves; /* octaves held: [first, first + octaves) */
    uint64_t counts[];      /* BUCKETS for each of them */
} Histogram;

typedef struct {
    uint64_t count, errors;
    uint64_t sum_ns, self_ns; /* self: without children in the same task */
    uint64_t min_ns, max_ns;
    uint64_t open;            /* still open when recording ended */
    Histogram *histogram; /* NULL: no memory within the bound */
    /* What kernels say about their work; spans without flops= or bytes= are not in it. */
    uint64_t measured;
    double flops, bytes;
} Totals;

typedef struct {
    Totals **by_path; /* NULL where the path was never left in this thread */
    uint32_t room;
} TotalsTable;

/* The totals of a path, made on first use; NULL when memory is out (counted). */
Totals *totals_make(TotalsTable *table, uint32_t path);
void totals_free(TotalsTable *table);
void totals_sum(Totals *to, const Totals *from);             /* all but the histogram */
void totals_move(TotalsTable *into, TotalsTable *from);      /* empties and frees `from` */
void histogram_grow(Totals *totals, unsigned octave);

static inline unsigned histogram_octave(uint64_t ns)
{
    return ns < BUCKETS ? 0 : 64 - 5 - (unsigned)__builtin_clzll(ns); /* 32..63 is octave 1 */
}

static inline unsigned histogram_bucket(uint64_t ns, unsigned octave)
{
    return octave ? (unsigned)(ns >> (octave - 1)) & (BUCKETS - 1) : (unsigned)ns;
}

/* Lowest value of a bucket. */
static inline uint64_t histogram_low(unsigned octave, unsigned bucket)
{
    return octave ? (uint64_t)(BUCKETS + bucket) << (octave - 1) : bucket;
}

static inline void totals_add(Totals *totals, uint64_t ns, uint64_t self_ns, bool error)
{
    totals->count++;
    totals->errors += error;
    totals->sum_ns += ns;
    totals->self_ns += self_ns;
    totals->min_ns = ns < totals->min_ns ? ns : totals->min_ns;
    totals->max_ns = ns > totals->max_ns ? ns : totals->max_ns;
    unsigned octave = histogram_octave(ns);
    Histogram *histogram = totals->histogram;
    if (unlikely(!histogram || octave - histogram->first >= histogram->octaves)) {
        histogram_grow(totals, octave);
        if (!(histogram = totals->histogram) || octave - histogram->first >= histogram->octaves)
            return;
    }
    histogram->counts[(octave - histogram->first) * BUCKETS + histogram_bucket(ns, octave)]++;
}

static inline Totals *totals_of(TotalsTable *table, uint32_t path)
{
    if (likely(path < table->room && table->by_path[path]))
        return table->by_path[path];
    return totals_make(table, path);
}

#endif
