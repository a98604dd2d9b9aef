/* Paths: chains of sites from the root to a span, as nodes of a tree. One table per session.
 *
 * Nodes live in pages that never move, and their JSON is made with them, so the writer reads both without the
 * GIL. A chunk keeps its table alive. */
#ifndef INSTRUMENT_PATHS_H
#define INSTRUMENT_PATHS_H

#include "site.h"

enum {
    PATH_PAGE = 256,
    PATH_PAGES = 256,  /* at most 65,536 paths */
    OVERFLOW_PATH = 1  /* the node "(overflow)", whose children are the sites beyond the cap */
};

typedef struct {
    uint32_t parent; /* path index; 0 is the root */
    uint32_t site;
    uint32_t json_length;
    char *json; /* "name":"…","kind":"…","path":"…" in UTF-8, without braces */
} Path;

typedef struct Paths {
    Path *pages[PATH_PAGES];
    uint32_t count;      /* used nodes; index 0 is the root and has no site */
    uint32_t cap;        /* nodes before the overflow begins */
    uint32_t overflow_count;
    uint32_t *table;     /* open addressing: (parent, site) -> index; 0 is empty */
    uint32_t table_mask;
    size_t bytes;        /* of JSON, counted against the memory bound */
    uint32_t references; /* the session's and one per chunk */
} Paths;

extern Paths *paths;

int paths_reset(uint32_t cap); /* a fresh table; -1 without memory (no exception set) */
void paths_release(Paths *table);
uint32_t path_lookup(uint32_t parent, Site *site);

static inline Path *path_at(const Paths *table, uint32_t index)
{
    return &table->pages[index / PATH_PAGE][index % PATH_PAGE];
}

static inline uint32_t path_of(uint32_t parent, Site *site)
{
    if (likely(site->from_path == parent))
        return site->path;
    return path_lookup(parent, site);
}

/* The path as text, for Python: a new string, or NULL with an exception. */
PyObject *path_string(const Paths *table, uint32_t index);

#endif
