/*
 * Fuzz target of cli/logprobs_file: a file of kept log probabilities is read to its last row or
 * refused with its name; what is read is no NaN and nothing above 0 by more than rounding.
 */
#include "cli/logprobs_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void read_rows(struct logprobs_file *f, const struct logprobs_head *head, const char *path)
{
    struct t9_err err = {0};
    uint64_t n_rows = (uint64_t)head->n_windows * head->stride;
    float *row = malloc((size_t)head->n_vocab * sizeof *row);
    if (!row)
        abort();
    for (uint64_t i = 0; i < n_rows; i++) {
        if (logprobs_read(f, row, &err) != T9_STATUS_OK) {
            if (!strstr(err.msg, path))
                abort();
            break;
        }
        for (uint32_t k = 0; k < head->n_vocab; k++)
            if (!(row[k] <= 1e-3f))
                abort();
    }
    free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct logprobs_file *f = NULL;
    struct logprobs_head head;
    struct t9_err err = {0};
    char path[64];
    int fd = memfd_create("logprobs", MFD_CLOEXEC);
    if (fd < 0 || write(fd, p, n) != (ssize_t)n)
        abort();
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (logprobs_open(&f, path, &head, &err) == T9_STATUS_OK)
        read_rows(f, &head, path);
    else if (!strstr(err.msg, path))
        abort();
    logprobs_close(f);
    close(fd);
    return 0;
}
