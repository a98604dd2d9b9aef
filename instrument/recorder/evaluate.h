/* flops=, bytes= and attrs= of a kernel: a Python function called with the call's own arguments. */
#ifndef INSTRUMENT_EVALUATE_H
#define INSTRUMENT_EVALUATE_H

#include "span.h"

typedef struct {
    PyObject *function; /* owned; or the (flops, bytes, attrs) of every call; NULL: nothing, or switched off */
    int failures;       /* three of them switch it off */
} Evaluator;

/* What one call of it said, waiting for the span. */
typedef struct {
    PyObject *values; /* (flops, bytes, attrs), or NULL */
} Evaluated;

int evaluate_init(void);

/* Before the span is entered, so that it does not count as the kernel's time. Leaves no exception. */
Evaluated evaluate(Evaluator *evaluator, PyObject *const *args, size_t nargsf, PyObject *names);
/* After it is entered, which begins anew when this is done. Takes the values. */
void evaluated_apply(Evaluator *evaluator, Evaluated evaluated, Frame *frame);

#endif
