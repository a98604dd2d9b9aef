/* Which spans lie on a thread's track, for `_chrome.c`.
 *
 * Viewers draw complete events of one thread as a stack, and drop what neither contains nor avoids the others.
 * Spans come in order of completion, so a new one fits if it starts outside of all before it, or at their start
 * or before. What it contains need not be remembered; neighbours with the same parent are one run, of which
 * only the last one's borders are known. Where that is too little to tell, the answer is no. */
#ifndef INSTRUMENT_CHROME_TRACKS_H
#define INSTRUMENT_CHROME_TRACKS_H

#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    MAX_RUNS = 1 << 14,   /* of one track; see above */
    MAX_TRACKS = 1 << 20, /* of one process */
};

typedef struct {
    uint64_t parent;
    int64_t first_start, last_start, last_end;
} Run;

typedef struct {
    uint64_t number; /* the thread's id, or what Python calls the track */
    bool used;
    int64_t last_end;
    Run *runs;
    Py_ssize_t count, room;
} Track;

typedef struct {
    Track *slots;
    size_t count, room; /* a power of two */
} Tracks;

static Track *slot_of(const Tracks *tracks, uint64_t number)
{
    for (size_t i = number * 0x9E3779B97F4A7C15u >> 32;; i++) {
        Track *slot = &tracks->slots[i & (tracks->room - 1)];
        if (!slot->used || slot->number == number)
            return slot;
    }
}

static bool tracks_grow(Tracks *tracks)
{
    Tracks larger = {.count = tracks->count, .room = tracks->room ? 2 * tracks->room : 64};
    larger.slots = PyMem_RawCalloc(larger.room, sizeof(Track));
    if (!larger.slots)
        return false;
    for (size_t i = 0; i < tracks->room; i++)
        if (tracks->slots[i].used)
            *slot_of(&larger, tracks->slots[i].number) = tracks->slots[i];
    PyMem_RawFree(tracks->slots);
    *tracks = larger;
    return true;
}

/* NULL if there is no room. */
static Track *track_of(Tracks *tracks, uint64_t number)
{
    if (2 * tracks->count >= tracks->room && (tracks->count >= MAX_TRACKS || !tracks_grow(tracks)))
        return NULL;
    Track *track = slot_of(tracks, number);
    if (!track->used) {
        *track = (Track){.number = number, .used = true, .last_end = INT64_MIN};
        tracks->count++;
    }
    return track;
}

/* Room for one more run: the older half becomes one if there are too many. */
static bool runs_reserve(Track *track)
{
    if (track->count < track->room)
        return true;
    if (track->count >= MAX_RUNS) {
        Py_ssize_t half = track->count / 2;
        Run merged = track->runs[half - 1];
        merged.first_start = track->runs[0].first_start;
        memmove(track->runs + 1, track->runs + half, (size_t)(track->count - half) * sizeof(Run));
        track->runs[0] = merged;
        track->count -= half - 1;
        return true;
    }
    Py_ssize_t room = track->room ? 2 * track->room : 16;
    Run *runs = PyMem_RawRealloc(track->runs, (size_t)room * sizeof(Run));
    if (!runs)
        return false;
    track->runs = runs;
    track->room = room;
    return true;
}

/* Whether the span fits among those that the track has; if so it is one of them from now on. */
static bool place(Track *track, uint64_t parent, int64_t start, int64_t end)
{
    if (end < start || end < track->last_end)
        return false; /* not in order of completion */
    Py_ssize_t kept = track->count;
    while (kept > 0 && track->runs[kept - 1].first_start >= start)
        kept--; /* it contains them */
    Run *top = kept > 0 ? &track->runs[kept - 1] : NULL;
    if (top && top->last_end > start) {
        if (start != top->last_start)
            return false;
        top->last_end = start; /* contains the last of them, whose start is where the others have ended */
    }
    track->count = kept;
    if (top && parent && top->parent == parent) {
        top->last_start = start;
        top->last_end = end;
    } else {
        if (!runs_reserve(track))
            return false;
        track->runs[track->count++] = (Run){parent, start, start, end};
    }
    track->last_end = end;
    return true;
}

static void tracks_free(Tracks *tracks)
{
    for (size_t i = 0; i < tracks->room; i++)
        PyMem_RawFree(tracks->slots[i].runs);
    PyMem_RawFree(tracks->slots);
    *tracks = (Tracks){0};
}

#endif
