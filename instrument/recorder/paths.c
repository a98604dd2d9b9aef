/* The tree of paths: lookup, folding of recursion, overflow, and the text of a path. */
#include "paths.h"

#include "json.h"

#include <string.h>

Paths *paths = NULL;

static uint32_t hash(uint32_t parent, uint32_t site) { return (uint32_t)(mix64((uint64_t)parent << 32 | site) >> 32); }

void paths_release(Paths *table)
{
    if (!table || --table->references)
        return;
    for (uint32_t i = 0; i < table->count; i++)
        PyMem_RawFree(path_at(table, i)->json);
    for (uint32_t page = 0; page < PATH_PAGES; page++)
        memory_free(table->pages[page], PATH_PAGE * sizeof(Path));
    memory_used -= table->bytes;
    memory_free(table->table, ((size_t)table->table_mask + 1) * sizeof(uint32_t));
    PyMem_RawFree(table);
}

/* ---- text ---- */

/* Join names by "/", with "%" and "/" inside a name percent-encoded. */
static PyObject *join_names(const Paths *table, uint32_t parent, const Site *site)
{
    PyObject *parts = PyList_New(0);
    while (parts && site) {
        PyObject *name = Py_NewRef(site->name);
        static const char *const escapes[][2] = {{"%", "%25"}, {"/", "%2F"}};
        for (int e = 0; name && e < 2; e++) {
            PyObject *from = PyUnicode_FromString(escapes[e][0]), *to = PyUnicode_FromString(escapes[e][1]);
            Py_SETREF(name, from && to ? PyUnicode_Replace(name, from, to, -1) : NULL);
            Py_XDECREF(from);
            Py_XDECREF(to);
        }
        if (!name || PyList_Append(parts, name) < 0)
            Py_CLEAR(parts);
        Py_XDECREF(name);
        site = parent ? sites[path_at(table, parent)->site] : NULL;
        parent = parent ? path_at(table, parent)->parent : 0;
    }
    if (!parts || PyList_Reverse(parts) < 0) {
        Py_XDECREF(parts);
        return NULL;
    }
    PyObject *separator = PyUnicode_FromString("/");
    PyObject *joined = separator ? PyUnicode_Join(separator, parts) : NULL;
    Py_XDECREF(separator);
    Py_DECREF(parts);
    return joined;
}

PyObject *path_string(const Paths *table, uint32_t index)
{
    const Path *path = path_at(table, index);
    return join_names(table, path->parent, sites[path->site]);
}

/* A node's JSON fragment; without memory `failed` is set in it. Leaves no exception. */
static Buffer make_json(const Paths *table, uint32_t parent, const Site *site)
{
    PyObject *text = join_names(table, parent, site);
    Buffer buffer = {0};
    if (text) {
        buffer_text(&buffer, "\"name\":");
        buffer_json_string(&buffer, site->name);
        buffer_text(&buffer, ",\"kind\":\"");
        buffer_text(&buffer, kind_names[site->kind]);
        buffer_text(&buffer, "\",\"path\":");
        buffer_json_string(&buffer, text);
        Py_DECREF(text);
    }
    PyErr_Clear();
    buffer.failed |= !text || memory_used + buffer.length > memory_bound;
    return buffer;
}

/* ---- lookup ---- */

/* The index of (parent, site), or the free slot for it in *slot and 0. */
static uint32_t find(Paths *table, uint32_t parent, Site *site, uint32_t *slot)
{
    uint32_t at = hash(parent, site->index) & table->table_mask;
    for (uint32_t index; (index = table->table[at]); at = (at + 1) & table->table_mask) {
        Path *path = path_at(table, index);
        if (path->parent == parent && path->site == site->index)
            return index;
    }
    *slot = at;
    return 0;
}

/* A new node; 0 when there is no room for it. */
static uint32_t insert(Paths *table, uint32_t parent, Site *site)
{
    Buffer json = make_json(table, parent, site);
    /* On 3.11 that may run a finalizer which records: only now is it known what is there. */
    uint32_t slot, index = find(table, parent, site, &slot);
    Path **page = &table->pages[table->count / PATH_PAGE];
    if (index || json.failed || table->count / PATH_PAGE >= PATH_PAGES ||
        (!*page && !(*page = memory_alloc(PATH_PAGE * sizeof(Path))))) {
        buffer_free(&json);
        return index;
    }
    index = table->count++;
    *path_at(table, index) = (Path){parent, site->index, (uint32_t)json.length, json.data};
    table->table[slot] = index;
    table->overflow_count += parent == OVERFLOW_PATH;
    table->bytes += json.length;
    memory_used += json.length;
    return index;
}

/* The node that a recursive call folds into: the deepest one of the same site, once FOLD_DEPTH are there. */
static uint32_t folded(Paths *table, uint32_t parent, Site *site)
{
    uint32_t deepest = 0, seen = 0;
    for (uint32_t i = parent; i; i = path_at(table, i)->parent)
        if (path_at(table, i)->site == site->index) {
            if (!deepest)
                deepest = i;
            seen++;
        }
    return seen >= FOLD_DEPTH ? deepest : 0;
}

static uint32_t find_or_insert(Paths *table, uint32_t parent, Site *site)
{
    uint32_t slot;
    uint32_t index = find(table, parent, site, &slot);
    if (!index)
        index = folded(table, parent, site);
    if (!index && table->count - 2 - table->overflow_count < table->cap)
        index = insert(table, parent, site);
    return index;
}

/* Overflow: the site keeps its name, in one path per site. */
static uint32_t overflow_path(Paths *table, Site *site)
{
    lose(LOSS_PATHS, 1);
    uint32_t slot;
    uint32_t index = find(table, OVERFLOW_PATH, site, &slot);
    if (!index)
        index = insert(table, OVERFLOW_PATH, site);
    return index ? index : OVERFLOW_PATH;
}

COLD uint32_t path_lookup(uint32_t parent, Site *site)
{
    Paths *table = paths;
    table->references++;
    uint32_t index = find_or_insert(table, parent, site);
    bool cached = index != 0; /* each entry of an overflow path is counted */
    if (!index)
        index = overflow_path(table, site);
    if (paths != table) /* a finalizer, or a thread that it let run, began another session meanwhile */
        index = OVERFLOW_PATH;
    else if (cached) {
        site->from_path = parent;
        site->path = index;
    }
    paths_release(table);
    return index;
}

int paths_reset(uint32_t cap)
{
    Paths *fresh = PyMem_RawCalloc(1, sizeof *fresh);
    if (!fresh)
        return -1;
    /* Room for every path and for one overflow path per site, at most half full. */
    uint32_t room = 1;
    while (room < 2 * (cap + MAX_SITES + KIND_COUNT + 2))
        room *= 2;
    fresh->references = 1;
    fresh->cap = cap;
    fresh->table_mask = room - 1;
    fresh->table = memory_alloc(room * sizeof(uint32_t));
    fresh->pages[0] = memory_alloc(PATH_PAGE * sizeof(Path));
    if (!fresh->table || !fresh->pages[0]) {
        fresh->count = 0;
        paths_release(fresh);
        return -1;
    }
    fresh->count = 1;
    paths_release(paths);
    paths = fresh;
    sites_forget_paths();
    return insert(fresh, 0, sites[0]) == OVERFLOW_PATH ? 0 : -1;
}
