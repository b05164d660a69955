/*
 * tools/mkgguf.c - command line of tests/lib/mkgguf.h: writes a tiny random-weight model.
 *
 *   mkgguf [--arch ARCH] [--width N] [--layers N] [--heads N] [--kv-heads N] [--head-dim N]
 *          [--ffn N] [--experts N] [--experts-used N] [--merged] [--period N] [--ssm-heads N]
 *          [--ssm-key-heads N] [--ssm-dim N] [--ple N] [--shared-kv N] [--vocab N] [--rows N]
 *          [--context N] [--quant TYPE] [--seed N] [--mix] [--untied] [--draft] OUT.gguf
 */
#include "lib/mkgguf.h"
#include "base/num.h"
#include "gguf/dtype.h"

#include <stdio.h>
#include <string.h>

static int usage(const char *why, const char *what)
{
    fprintf(stderr,
            "mkgguf: %s%s\n"
            "usage: mkgguf [--arch ARCH] [--width N] [--layers N] [--heads N] [--kv-heads N]\n"
            "              [--head-dim N] [--ffn N] [--experts N] [--experts-used N] [--merged]\n"
            "              [--ple N] [--shared-kv N]\n"
            "              [--period N] [--ssm-heads N] [--ssm-key-heads N] [--ssm-dim N]\n"
            "              [--vocab N] [--rows N] [--context N] [--quant TYPE] [--seed N] [--mix]\n"
            "              [--untied] [--draft] OUT.gguf\n",
            why, what);
    return 2;
}

/* Sets the number that `name` stands for; false when there is none or the text is no number. */
static bool set_number(struct mkgguf_params *p, const char *name, const char *text)
{
    const struct {
        const char *name;
        uint32_t *at;
    } numbers[] = {
        {"--width", &p->width},
        {"--layers", &p->layers},
        {"--heads", &p->heads},
        {"--ffn", &p->ffn},
        {"--kv-heads", &p->kv_heads},
        {"--head-dim", &p->head_dim},
        {"--vocab", &p->vocab},
        {"--rows", &p->rows},
        {"--context", &p->context},
        {"--experts", &p->experts},
        {"--experts-used", &p->experts_used},
        {"--period", &p->period},
        {"--ssm-heads", &p->ssm_heads},
        {"--ssm-key-heads", &p->ssm_key_heads},
        {"--ssm-dim", &p->ssm_dim},
        {"--ple", &p->ple},
        {"--shared-kv", &p->shared_kv},
    };
    uint64_t v;
    if (!num_parse_u64(str_from(text), &v))
        return false;
    if (strcmp(name, "--seed") == 0) {
        p->seed = v;
        return true;
    }
    for (size_t i = 0; i < T9_COUNT(numbers); i++) {
        if (strcmp(name, numbers[i].name) == 0 && v <= UINT32_MAX) {
            *numbers[i].at = (uint32_t)v;
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    struct mkgguf_params p = MKGGUF_DEFAULT;
    struct t9_err err;
    const char *out = NULL;
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (strncmp(name, "--", 2) != 0) {
            if (out)
                return usage("more than one file: ", name);
            out = name;
            continue;
        }
        if (strcmp(name, "--mix") == 0) {
            p.mix = true;
            continue;
        }
        if (strcmp(name, "--merged") == 0) {
            p.merged = true;
            continue;
        }
        if (strcmp(name, "--untied") == 0) {
            p.untied = true;
            continue;
        }
        if (strcmp(name, "--draft") == 0) {
            p.draft = true;
            continue;
        }
        if (++i == argc)
            return usage("no value after ", name);
        if (strcmp(name, "--arch") == 0) {
            p.arch = argv[i];
        } else if (strcmp(name, "--quant") == 0) {
            const struct dtype_info *info = gguf_dtype_by_name(argv[i]);
            if (!info)
                return usage("unknown type ", argv[i]);
            p.dtype = info->id;
        } else if (!set_number(&p, name, argv[i])) {
            return usage("cannot understand ", name);
        }
    }
    if (!out)
        return usage("no output file", "");
    if (mkgguf_write(out, &p, &err) != T9_STATUS_OK) {
        fprintf(stderr, "mkgguf: %s\n", err.msg);
        return 1;
    }
    return 0;
}
