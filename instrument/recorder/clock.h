/* The recorder's clock: CLOCK_MONOTONIC nanoseconds, read through the time-stamp counter where the kernel
 * itself trusts it.
 *
 * Time is a line through the last anchor: ns = base_ns + (ticks - base_ticks) * rate, rate in 32.32 fixed point.
 * clock_tick() starts a new line where the old one ends and bends it towards CLOCK_MONOTONIC, so time does not run
 * backwards, spans nest exactly, and drift is bounded; only after the machine has slept it jumps. Durations need no
 * conversion later: spans, totals and histograms all see the same numbers. */
#ifndef INSTRUMENT_CLOCK_H
#define INSTRUMENT_CLOCK_H

#include "common.h"

#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

typedef struct {
    uint64_t base_ticks, base_ns, rate;
    bool use_tsc;
} Clock;

extern Clock clock_line;

static inline uint64_t clock_monotonic(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t clock_at(uint64_t ticks)
{
    /* Signed: another core's counter may lag the anchor by a few ticks. */
    int64_t passed = (int64_t)(ticks - clock_line.base_ticks);
    return clock_line.base_ns + (uint64_t)(int64_t)(((__int128)passed * (int64_t)clock_line.rate) >> 32);
}

static inline uint64_t clock_now(void)
{
#if defined(__x86_64__)
    if (likely(clock_line.use_tsc))
        return clock_at(__rdtsc());
#endif
    return clock_monotonic();
}

typedef struct { uint64_t ticks, monotonic_ns, wall_ns; } Anchor;

void clock_init(void);    /* choose the source; take the first anchor */
void clock_settle(void);  /* before recording: the first time the rate is measured, over 10 ms at least (may sleep so long) */
Anchor clock_tick(void);  /* take an anchor and bend the line towards it */

#endif
