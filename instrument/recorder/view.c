/* Reading a sealed chunk: an event with its context and attributes. Needs no GIL. */
#include "drain.h"

View chunk_view(const Chunk *chunk, uint32_t index)
{
    const Event *event = (const Event *)chunk->data + index;
    const Context *context = (const Context *)(chunk->data + (size_t)event->context * CONTEXT_UNIT);
    View view = {.event = event, .context = context, .id = span_id(chunk->id_base, event->sequence),
                 .step = context->step};
    if (event->attributes) {
        view.attributes = chunk->data + 8 * (size_t)(event->attributes & ((1u << ATTRIBUTE_OFFSET_BITS) - 1));
        view.attributes_end = view.attributes + 8 * (size_t)(event->attributes >> ATTRIBUTE_OFFSET_BITS);
        const char *cursor = view.attributes;
        for (Record record; record_next(&cursor, view.attributes_end, &record);) {
            if (record.header->kind == RECORD_STEP)
                view.step = (int64_t)record.slots[0];
            else if (record.header->kind == RECORD_ID)
                view.id = record.slots[0];
            else if (record.header->kind == RECORD_ERROR) {
                view.error = record.texts;
                view.error_length = record.slots[0];
            }
        }
    }
    /* A step is the root of what it holds, and so is what has no parent. */
    bool own_root = !context->parent_id || sites[path_at(chunk->paths, event->path)->site]->kind == KIND_STEP;
    view.root = own_root ? view.id : context->root_id;
    return view;
}

int view_attributes(const View *view, RecordKind kind, Attribute *into)
{
    int count = 0;
    const char *cursor = view->attributes;
    for (Record record; record_next(&cursor, view->attributes_end, &record);) {
        if (record.header->kind != kind)
            continue;
        const Keyset *keyset = keyset_at(record.header->keyset);
        const char *text = record.texts;
        for (int i = 0; i < record.header->count; i++) {
            Attribute attribute = {keyset->keys[i], record_tag(&record, i), record.slots[i], text};
            if (attribute.tag == TAG_TEXT || attribute.tag == TAG_JSON)
                text += padded(attribute.word);
            int at = 0;
            while (at < count && into[at].key != attribute.key)
                at++;
            if (at == count && count == 2 * MAX_SPAN_ATTRS)
                continue; /* cannot be: a span has two blobs of at most MAX_SPAN_ATTRS */
            into[at] = attribute;
            count += at == count;
        }
    }
    return count;
}
