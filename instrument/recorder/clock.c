/* Choosing, calibrating and steering the clock. */
#include "clock.h"

#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum {
    BASELINE_MIN_NS = 10 * 1000 * 1000, /* shortest baseline: 20 ns of reading error are 2 in a million */
    SLIGHT_NS = 1000 * 1000,            /* further behind than this (suspend, migration) we jump forward */
    AHEAD_MAX_NS = 50 * 1000 * 1000     /* further ahead than this we jump back: bending would take too long */
};
static const uint64_t BASELINE_NS = 8000000000u; /* long enough to make reading errors vanish */
static const uint64_t HORIZON_NS = 1000000000u;  /* an error is bent away over this time */
static const uint64_t STEADY = 1000;             /* clocks are slewed by less than one in so many */

Clock clock_line = {0, 0, (uint64_t)1 << 32, false};

/* The rate is measured from the older of two anchors, which are renewed in turn. */
static Anchor older, newer;

static uint64_t clock_wall(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t read_ticks(void)
{
#if defined(__x86_64__)
    if (clock_line.use_tsc)
        return __rdtsc();
#endif
    return clock_monotonic();
}

/* The three clocks at one instant: of several tries, the one that was disturbed least. */
static Anchor read_anchor(void)
{
    Anchor best = {0, 0, 0};
    uint64_t best_width = UINT64_MAX;
    for (int i = 0; i < 8; i++) {
        uint64_t before = read_ticks();
        uint64_t monotonic = clock_monotonic();
        uint64_t wall = clock_wall();
        uint64_t after = clock_monotonic();
        uint64_t ticks_after = read_ticks();
        if (ticks_after - before < best_width) {
            best_width = ticks_after - before;
            /* ticks and monotonic are each halfway through the same stretch */
            best = (Anchor){before + (ticks_after - before) / 2, monotonic + (after - monotonic) / 2, wall};
        }
    }
    return best;
}

static bool tsc_is_trusted(void)
{
#if defined(__x86_64__)
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) || !(edx & (1u << 8)))
        return false; /* not invariant: its rate follows the core's frequency */
    char source[16] = "";
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "r");
    if (!file)
        return false;
    bool trusted = fgets(source, sizeof source, file) && strcmp(source, "tsc\n") == 0;
    fclose(file);
    return trusted;
#else
    return false;
#endif
}

static uint64_t rate_between(Anchor from, Anchor to)
{
    return (uint64_t)(((unsigned __int128)(to.monotonic_ns - from.monotonic_ns) << 32) / (to.ticks - from.ticks));
}

static uint64_t measured; /* the rate, as it is without bending; 0 before clock_settle() */
static bool fresh;        /* the baseline began at the last tick */

static void line_begin(Anchor at, uint64_t ns, uint64_t rate)
{
    clock_line.base_ticks = at.ticks;
    clock_line.base_ns = ns;
    clock_line.rate = rate;
}

/* While a machine sleeps, or is moved, the counter may run on, stop or start anew beside CLOCK_MONOTONIC. What lies
 * between two anchors then tells nothing of the rate, and bending would make durations wrong for long. */
static void baseline_begin(Anchor now)
{
    older = newer = now;
    fresh = true;
}

static void line_jump(Anchor now)
{
    baseline_begin(now);
    line_begin(now, now.monotonic_ns, measured);
}

void clock_init(void)
{
    clock_line.use_tsc = tsc_is_trusted();
    older = newer = read_anchor();
    line_begin(older, older.monotonic_ns, clock_line.rate);
}

void clock_settle(void)
{
    if (!clock_line.use_tsc)
        return;
    if (measured) { /* nothing is being recorded yet, so the line may start afresh */
        line_jump(read_anchor());
        return;
    }
    uint64_t baseline = clock_monotonic() - older.monotonic_ns;
    if (baseline > BASELINE_NS) { /* the machine may have slept since */
        older = newer = read_anchor();
        baseline = 0;
    }
    if (baseline < BASELINE_MIN_NS) {
        struct timespec rest = {0, (long)(BASELINE_MIN_NS - baseline)};
        Py_BEGIN_ALLOW_THREADS
        nanosleep(&rest, NULL);
        Py_END_ALLOW_THREADS
    }
    Anchor now = read_anchor();
    measured = rate_between(older, now);
    line_begin(now, now.monotonic_ns, measured);
}

/* Whether a rate is what drift and slewing can have made of the last one. */
static bool is_steady(uint64_t rate)
{
    return (rate > measured ? rate - measured : measured - rate) < measured / STEADY;
}

Anchor clock_tick(void)
{
    Anchor now = read_anchor();
    if (!clock_line.use_tsc || !measured)
        return now;
    uint64_t ours = clock_at(now.ticks);
    int64_t ahead = (int64_t)(ours - now.monotonic_ns);
    if (now.ticks <= older.ticks || ahead < -SLIGHT_NS || ahead > AHEAD_MAX_NS) {
        line_jump(now);
        return now;
    }
    if (now.monotonic_ns - older.monotonic_ns >= BASELINE_MIN_NS) {
        uint64_t rate = rate_between(older, now);
        if (!fresh && !is_steady(rate)) { /* once: a rate that stays is right */
            if (ahead > SLIGHT_NS)
                line_jump(now);
            else
                baseline_begin(now);
            return now;
        }
        fresh = false;
        measured = rate;
        /* Bend by what we are ahead: the line keeps rising. */
        line_begin(now, ours, (uint64_t)((unsigned __int128)rate * (HORIZON_NS - (uint64_t)ahead) / HORIZON_NS));
    }
    if (now.monotonic_ns - newer.monotonic_ns > BASELINE_NS) {
        older = newer;
        newer = now;
    }
    return now;
}
