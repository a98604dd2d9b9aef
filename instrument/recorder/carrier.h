/* The object of a region or step: what `with` enters, and what carries the attributes of one entry to its exit. */
#ifndef INSTRUMENT_CARRIER_H
#define INSTRUMENT_CARRIER_H

#include "attributes.h"
#include "chunk.h"

typedef struct {
    PyObject_HEAD
    Site *site;
    Blob blob;         /* attributes of the call, encoded */
    int64_t step;      /* NO_STEP but in steps */
    PyObject *enter, *leave; /* borrowed: the type's own __enter__ and __exit__, where the type is this object's alone */
} Region;

/* Whether an entry of it has anything of its own to carry. */
static inline bool region_carries(const Region *region) { return region->blob.length || region->step != NO_STEP; }

static inline const Blob *carrier_blob(PyObject *carrier) { return carrier ? &((Region *)carrier)->blob : NULL; }
static inline int64_t carrier_step(PyObject *carrier) { return carrier ? ((Region *)carrier)->step : NO_STEP; }

#endif
