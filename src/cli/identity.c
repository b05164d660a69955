/*
 * cli/identity.c - which build on which machine: what every published figure carries (D16).
 */
#include "cli/runtime.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "t9_build.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Value of the first "model name : value" line of /proc/cpuinfo, or "unknown". */
void identity_cpu_write(struct buf *out)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    str name = STR("unknown");
    if (file_read_all("/proc/cpuinfo", &b, NULL) == T9_STATUS_OK) {
        size_t at = str_find(buf_str(&b), STR("model name"), 0);
        size_t colon = at == (size_t)-1 ? at : str_find(buf_str(&b), STR(":"), at);
        size_t end = colon == (size_t)-1 ? colon : str_find(buf_str(&b), STR("\n"), colon);
        if (end != (size_t)-1)
            name = str_trim(str_slice(buf_str(&b), colon + 1, end));
    }
    buf_puts_str(out, name);
    buf_deinit(&b);
}

static void member(struct buf *out, const char *key, const char *value)
{
    json_write_key(out, key);
    json_write_str(out, str_from(value));
}

static void machine_write(struct buf *out)
{
    struct utsname u;
    bool known = uname(&u) == 0;
    json_write_key(out, "machine");
    buf_puts(out, "{");
    member(out, "system", known ? u.sysname : "unknown");
    buf_puts(out, ",");
    member(out, "release", known ? u.release : "unknown");
    buf_puts(out, ",");
    member(out, "arch", known ? u.machine : "unknown");
    buf_puts(out, ",");
    json_write_key(out, "cpu");
    struct buf cpu;
    buf_init(&cpu, 4096);
    identity_cpu_write(&cpu);
    json_write_str(out, buf_str(&cpu));
    buf_deinit(&cpu);
    buf_puts(out, ",");
    json_write_key(out, "cpus");
    json_write_i64(out, sysconf(_SC_NPROCESSORS_ONLN));
    buf_puts(out, ",");
    json_write_key(out, "memory_bytes");
    json_write_i64(out, (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
    buf_puts(out, "}");
}

static void model_write(struct buf *out, const struct runtime *rt)
{
    const struct model_info *info = model_info(rt->model);
    buf_puts(out, ",");
    json_write_key(out, "model");
    buf_puts(out, "{");
    member(out, "file", gguf_file_name(rt->gguf));
    buf_puts(out, ",");
    json_write_key(out, "file_bytes");
    json_write_i64(out, (int64_t)gguf_file_bytes(rt->gguf));
    buf_puts(out, ",");
    json_write_key(out, "sha256");
    buf_puts(out, "[");
    for (uint32_t i = 0; i < gguf_part_count(rt->gguf); i++) {
        char hex[65];
        buf_puts(out, i ? "," : "");
        if (hash_sha256_file(gguf_part_path(rt->gguf, i), hex, NULL) == T9_STATUS_OK)
            json_write_str(out, str_from(hex));
        else
            buf_puts(out, "null");
    }
    buf_puts(out, "],");
    member(out, "arch", info->arch);
    buf_puts(out, ",");
    json_write_key(out, "parameters");
    json_write_i64(out, (int64_t)info->n_params);
    buf_puts(out, "},");
    json_write_key(out, "backend");
    buf_puts(out, "{");
    member(out, "name", be_name(rt->be));
    buf_puts(out, ",");
    member(out, "isa", be_isa(rt->be));
    buf_puts(out, ",");
    member(out, "numerics", be_numerics(rt->be));
    buf_puts(out, ",");
    json_write_key(out, "threads");
    json_write_i64(out, be_threads(rt->be));
    buf_puts(out, "}");
}

void identity_write(struct buf *out, const struct runtime *rt)
{
    member(out, "version", T9_VERSION);
    buf_puts(out, ",");
    json_write_key(out, "build");
    buf_puts(out, "{");
    member(out, "id", T9_BUILD_ID);
    buf_puts(out, ",");
    json_write_key(out, "dirty");
    json_write_bool(out, T9_BUILD_DIRTY);
    buf_puts(out, ",");
    member(out, "type", T9_BUILD_TYPE);
    buf_puts(out, ",");
    member(out, "compiler", T9_BUILD_COMPILER);
    buf_puts(out, ",");
    member(out, "flags", T9_BUILD_FLAGS);
    buf_puts(out, "},");
    machine_write(out);
    if (rt)
        model_write(out, rt);
}

void identity_known_write(struct buf *out)
{
    json_write_key(out, "architectures");
    buf_puts(out, "[");
    for (const char *z = model_known_archs(); *z;) {
        size_t n = strcspn(z, ",");
        json_write_str(out, (str){z, n});
        z += n;
        z += strspn(z, ", ");
        buf_puts(out, *z ? "," : "],");
    }
    json_write_key(out, "types");
    const char *before = "[";
    for (uint32_t id = 0; id < DTYPE_ID_END; id++) {
        if (!dtype_can_dequantize(id))
            continue;
        buf_puts(out, before);
        json_write_str(out, str_from(gguf_dtype_name(id)));
        before = ",";
    }
    buf_puts(out, "]");
}
