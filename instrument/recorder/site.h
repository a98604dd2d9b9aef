/* Sites: the annotations in the source. Immortal: at most MAX_SITES and one overflow site per kind. */
#ifndef INSTRUMENT_SITE_H
#define INSTRUMENT_SITE_H

#include "common.h"

typedef enum { KIND_REGION, KIND_KERNEL, KIND_STEP, KIND_MARK, KIND_COUNT } Kind;

struct Frame;
struct Site;

/* What a collector hangs on a site: called at the enter and exit of its spans, with the exception state clean. */
typedef struct {
    PyObject *enter, *leave; /* callables, called with the span's id */
    int failures;            /* three of them switch the sink off */
} Sink;

typedef struct Site {
    PyObject_HEAD
    /* Hot: the path that the last caller's path led to, one entry. */
    uint32_t from_path, path;
    Sink *sink; /* NULL: nobody listens */
    uint64_t last_ns; /* duration of the last span that ended, for Region.seconds */
    /* Cold. */
    uint32_t index;
    Kind kind;
    int64_t next_step; /* number of the next step(None) */
    PyObject *name, *scope, *file;
    int line;
} Site;

extern PyTypeObject Site_Type;
extern Site **sites;
extern uint32_t site_count;
extern const char *const kind_names[KIND_COUNT];

int sites_init(void);

/* The site of (kind, name[, file, line]); file may be NULL for "the caller's". Never NULL but for lack of
 * memory, in which case the overflow site answers; no exception is left set. */
Site *site_get(Kind kind, PyObject *name, PyObject *file, int line);

/* The site of a kind and a name as the user gave it; found by the address of a constant name. NULL only without
 * memory for the name, with an exception. */
Site *site_named(Kind kind, PyObject *name);

/* Names are strings; anything else is shown by its type. A new reference, or NULL with an exception. */
PyObject *name_text(PyObject *name);

/* Forget the cached paths: the path table was replaced. */
void sites_forget_paths(void);

/* Hang a sink on a site, or take it off with NULL callables. -1 with an exception. */
int site_set_sink(Site *site, PyObject *enter, PyObject *leave);
void site_sink_call(Site *site, bool entering, uint64_t span_id);

#endif
