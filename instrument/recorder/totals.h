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

/* Buckets counted through from 0; the octave is the bucket / BUCKETS. */
static inline unsigned histogram_bucket(uint64_t ns)
{
    unsigned shift = 58 - (unsigned)__builtin_clzll(ns | BUCKETS);
    return shift * BUCKETS + (unsigned)(ns >> shift);
}

static inline bool histogram_holds(const Histogram *histogram, unsigned bucket)
{
    return bucket - histogram->first * (unsigned)BUCKETS < histogram->octaves * (unsigned)BUCKETS;
}

/* Lowest value of a bucket. */
static inline uint64_t histogram_low(unsigned bucket)
{
    unsigned octave = bucket / BUCKETS;
    return octave ? (uint64_t)(BUCKETS + bucket % BUCKETS) << (octave - 1) : bucket;
}

static inline void totals_add(Totals *totals, uint64_t ns, uint64_t self_ns, bool error)
{
    totals->count++;
    totals->errors += error;
    totals->sum_ns += ns;
    totals->self_ns += self_ns;
    totals->min_ns = ns < totals->min_ns ? ns : totals->min_ns;
    totals->max_ns = ns > totals->max_ns ? ns : totals->max_ns;
    unsigned bucket = histogram_bucket(ns);
    Histogram *histogram = totals->histogram;
    if (unlikely(!histogram || !histogram_holds(histogram, bucket))) {
        histogram_grow(totals, bucket / BUCKETS);
        if (!(histogram = totals->histogram) || !histogram_holds(histogram, bucket))
            return;
    }
    histogram->counts[bucket - histogram->first * BUCKETS]++;
}

static inline Totals *totals_of(TotalsTable *table, uint32_t path)
{
    if (likely(path < table->room && table->by_path[path]))
        return table->by_path[path];
    return totals_make(table, path);
}

#endif
