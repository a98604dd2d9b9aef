/* The memory bound and the loss counters. */
#include "common.h"

size_t memory_used = 0, memory_bound = 64u << 20;
uint64_t losses[LOSS_COUNT];
int recording = 0;

const char *const loss_names[LOSS_COUNT] = {
    [LOSS_BUFFER_FULL] = "buffer_full",
    [LOSS_OVERWRITTEN] = "overwritten",
    [LOSS_UNMATCHED_EXIT] = "unmatched_exit",
    [LOSS_SET_WITHOUT_SPAN] = "set_without_span",
    [LOSS_DEPTH] = "depth",
    [LOSS_PATHS] = "paths",
    [LOSS_SITES] = "sites",
    [LOSS_ATTRIBUTES] = "attributes",
    [LOSS_ATTRIBUTE_SIZE] = "attribute_size",
    [LOSS_MEMORY] = "memory",
    [LOSS_RECURSION] = "recursion",
    [LOSS_EVALUATE] = "evaluate",
    [LOSS_SINK] = "sink",
    [LOSS_METRICS] = "metrics",
    [LOSS_THREADS] = "threads",
    [LOSS_INHERITED] = "inherited",
};

COLD void callback_failed(void)
{
    bool interrupt = PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
    PyErr_Clear();
    if (interrupt)
        PyErr_SetInterrupt();
}

void *memory_alloc(size_t size)
{
    if (size > memory_bound || memory_used > memory_bound - size)
        return NULL;
    void *block = PyMem_RawCalloc(1, size);
    if (block)
        memory_used += size;
    return block;
}

void memory_free(void *block, size_t size)
{
    if (!block)
        return;
    PyMem_RawFree(block);
    memory_used -= size;
}
