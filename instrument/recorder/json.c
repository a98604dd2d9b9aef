/* JSON pieces: numbers and strings without the interpreter. */
#include "json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

COLD bool buffer_grow(Buffer *buffer, size_t more)
{
    if (buffer->failed)
        return false;
    size_t room = buffer->room ? 2 * buffer->room : 256;
    while (room < buffer->length + more)
        room *= 2;
    char *data = PyMem_RawRealloc(buffer->data, room);
    if (!data) {
        buffer->failed = true;
        buffer->room = buffer->length; /* so that no later call writes */
        return false;
    }
    buffer->data = data;
    buffer->room = room;
    return true;
}

void buffer_free(Buffer *buffer)
{
    PyMem_RawFree(buffer->data);
    *buffer = (Buffer){0};
}

void buffer_unsigned(Buffer *buffer, uint64_t value)
{
    static const char pairs[] = "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243"
                                "4445464748495051525354555657585960616263646566676869707172737475767778798081828384858687"
                                "888990919293949596979899";
    char digits[20];
    int at = 20;
    while (value >= 100) {
        memcpy(digits + (at -= 2), pairs + 2 * (value % 100), 2);
        value /= 100;
    }
    if (value >= 10)
        memcpy(digits + (at -= 2), pairs + 2 * value, 2);
    else
        digits[--at] = (char)('0' + value);
    buffer_bytes(buffer, digits + at, (size_t)(20 - at));
}

void buffer_signed(Buffer *buffer, int64_t value)
{
    if (value < 0)
        buffer_literal(buffer, "-");
    buffer_unsigned(buffer, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void buffer_double(Buffer *buffer, double value)
{
    if (isnan(value)) {
        buffer_literal(buffer, "\"NaN\"");
    } else if (isinf(value)) {
        buffer_text(buffer, value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    } else {
        char text[40];
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, value);
            if (strtod(text, NULL) == value)
                break;
        }
        char *comma = strchr(text, ','); /* the program's locale may write one */
        if (comma)
            *comma = '.';
        buffer_text(buffer, text);
        if (!strpbrk(text, ".e"))
            buffer_literal(buffer, ".0"); /* a float stays a float */
    }
}

void buffer_id(Buffer *buffer, uint64_t id)
{
    static const char hex[] = "0123456789abcdef";
    char text[18] = {[0] = '"', [17] = '"'};
    for (int i = 16; i > 0; i--, id >>= 4)
        text[i] = hex[id & 15];
    buffer_bytes(buffer, text, sizeof text);
}

void buffer_json_bytes(Buffer *buffer, const char *utf8, size_t length)
{
    static const char hex[] = "0123456789abcdef";
    if (!buffer_reserve(buffer, 6 * length + 2)) /* the worst case: every byte a control character */
        return;
    char *out = buffer->data + buffer->length;
    *out++ = '"';
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)utf8[i];
        if (likely(c >= 0x20 && c != '"' && c != '\\')) {
            *out++ = (char)c;
        } else if (c == '"' || c == '\\') {
            *out++ = '\\';
            *out++ = (char)c;
        } else {
            memcpy(out, "\\u00", 4);
            out[4] = hex[c >> 4];
            out[5] = hex[c & 15];
            out += 6;
        }
    }
    *out++ = '"';
    buffer->length = (size_t)(out - buffer->data);
}

void buffer_json_string(Buffer *buffer, PyObject *text)
{
    PyObject *bytes = PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
    if (bytes)
        buffer_json_bytes(buffer, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    else
        buffer->failed = true;
    PyErr_Clear();
    Py_XDECREF(bytes);
}
