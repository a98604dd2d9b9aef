/* A growing byte buffer and the pieces of JSON that both the paths and the writer make. */
#ifndef INSTRUMENT_JSON_H
#define INSTRUMENT_JSON_H

#include "common.h"

#include <string.h>

typedef struct {
    char *data;
    size_t length, room;
    bool failed; /* out of memory once: every later call is a no-op */
} Buffer;

bool buffer_grow(Buffer *buffer, size_t more);
void buffer_free(Buffer *buffer);

/* Make room for `more` bytes; false without memory. */
static inline bool buffer_reserve(Buffer *buffer, size_t more)
{
    return likely(buffer->length + more <= buffer->room) || buffer_grow(buffer, more);
}

static inline void buffer_bytes(Buffer *buffer, const char *bytes, size_t length)
{
    if (!buffer_reserve(buffer, length))
        return;
    memcpy(buffer->data + buffer->length, bytes, length);
    buffer->length += length;
}

#define buffer_literal(buffer, text) buffer_bytes(buffer, text, sizeof(text) - 1)
static inline void buffer_text(Buffer *buffer, const char *text) { buffer_bytes(buffer, text, strlen(text)); }

/* None of these needs the GIL. */
void buffer_unsigned(Buffer *buffer, uint64_t value);
void buffer_signed(Buffer *buffer, int64_t value);
void buffer_double(Buffer *buffer, double value); /* shortest text that reads back equal; "NaN" and so on quoted */
void buffer_id(Buffer *buffer, uint64_t id);      /* 16 hex digits in quotes */
void buffer_json_bytes(Buffer *buffer, const char *utf8, size_t length); /* a JSON string of valid UTF-8 */

/* A JSON string of a Python string, lone surrogates as backslash escapes in the text. Needs the GIL; leaves no
 * exception. */
void buffer_json_string(Buffer *buffer, PyObject *text);

#endif
