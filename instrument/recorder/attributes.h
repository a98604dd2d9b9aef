/* Attributes: values encoded at the call into bytes that live without the interpreter.
 *
 * A blob is a row of records. A record is one 8-byte header, n 8-byte slots, and the bytes of its texts (each
 * padded to 8). The header names a keyset, that is a tuple of attribute names, so names are never copied. */
#ifndef INSTRUMENT_ATTRIBUTES_H
#define INSTRUMENT_ATTRIBUTES_H

#include "json.h"

typedef enum { RECORD_ATTRS, RECORD_MEASURES, RECORD_ERROR, RECORD_STEP, RECORD_ID } RecordKind;
typedef enum { TAG_NONE, TAG_FALSE, TAG_TRUE, TAG_INT, TAG_FLOAT, TAG_TEXT, TAG_JSON } Tag;

typedef struct {
    uint16_t keyset;
    uint8_t count; /* slots, at most MAX_RECORD_KEYS */
    uint8_t kind;
    uint32_t tags; /* 4 bits a slot */
} RecordHeader;
_Static_assert(sizeof(RecordHeader) == 8, "a record's header is one word");

typedef struct {
    char *data;
    uint32_t length, room; /* multiples of 8 */
    uint16_t keys;         /* attributes in it, against MAX_SPAN_ATTRS */
} Blob;

typedef struct {
    PyObject *text;   /* the attribute's name */
    char *json;       /* "name": */
    uint32_t json_length;
} Key;

typedef struct {
    uint16_t keys[MAX_RECORD_KEYS];
    uint8_t count;
} Keyset;

int attributes_init(void);
Key *key_at(uint32_t index);
Keyset *keyset_at(uint32_t index);

/* Append values under the names of a tuple. Never fails: what does not fit is counted. `values` are borrowed and
 * never kept. Leaves no exception. */
void blob_encode(Blob *blob, RecordKind kind, PyObject *const *values, PyObject *names);
void blob_encode_dict(Blob *blob, RecordKind kind, PyObject *dict);
void blob_number(Blob *blob, RecordKind kind, const char *name, double value);
void blob_word(Blob *blob, RecordKind kind, uint64_t word);
void blob_free(Blob *blob);

/* Python's and numpy's numbers as int, float or bool; integers beyond 64 bits are rounded to floats. A new reference, or
 * NULL for everything else, and then an exception only if memory is short. */
PyObject *plain_scalar(PyObject *value);

/* A plain number as a finite double; NAN for everything else. Python's numbers and numpy's scalars are asked, which
 * runs no Python and waits for nothing; arrays and tensors are not. Leaves no exception. */
double plain_number(PyObject *value);

/* Records that need no keyset, written straight into memory. Both return the bytes they take. */
enum { WORD_RECORD_BYTES = 16, ERROR_RECORD_MAX = 16 + 128 };
uint32_t put_word_record(char *to, RecordKind kind, uint64_t word);
uint32_t put_error_record(char *to, const char *error);

/* Walk a blob: the record at *cursor, its slots and its texts; false at the end. */
typedef struct {
    const RecordHeader *header;
    const uint64_t *slots;
    const char *texts;
} Record;
bool record_next(const char **cursor, const char *end, Record *record);

static inline Tag record_tag(const Record *record, int i) { return (Tag)(record->header->tags >> (4 * i) & 15); }
static inline uint32_t padded(uint64_t length) { return (uint32_t)((length + 7) & ~(uint64_t)7); }

#endif
