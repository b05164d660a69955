/*
 * protocol/openapi.c - the OpenAPI description, made from the field tables. What the server reads
 * and what is said about it can't differ: both come from the same rows. Any thread.
 */
#include "protocol/endpoints.h"

#include "protocol/anthropic.h"
#include "protocol/caller.h"
#include "protocol/ollama.h"
#include "protocol/openai_chat.h"
#include "protocol/openai_completions.h"
#include "protocol/openai_tokens.h"
#include "protocol/responses.h"

#include <string.h>

const struct chat_adapter *const endpoints[] = {
    &openai_chat_adapter,        &openai_completions_adapter, &responses_adapter,
    &anthropic_messages_adapter, &anthropic_count_adapter,    &tokenize_adapter,
    &detokenize_adapter,         &apply_template_adapter,     &ollama_chat_adapter,
    &ollama_generate_adapter,    &ollama_show_adapter,        &ollama_pull_adapter,
};
const size_t n_endpoints = T9_COUNT(endpoints);

#define OPENAI_ERROR "{\"$ref\":\"#/components/schemas/Error\"}"
#define OLLAMA_ERROR "{\"$ref\":\"#/components/schemas/OllamaError\"}"

#define PATH_ID(name)                                                                              \
    "{\"name\":\"" name                                                                            \
    "\",\"in\":\"path\",\"required\":true,\"schema\":{\"type\":\"string\",\"minLength\":1}}"
#define LIST_QUERY                                                                                 \
    ",{\"name\":\"limit\",\"in\":\"query\",\"schema\":{\"type\":\"integer\",\"minimum\":1,"        \
    "\"maximum\":100}}"                                                                            \
    ",{\"name\":\"order\",\"in\":\"query\",\"schema\":{\"enum\":[\"asc\",\"desc\"]}}"              \
    ",{\"name\":\"after\",\"in\":\"query\",\"schema\":{\"type\":\"string\"}}"

/* Routes without a body. */
static const struct {
    const char *path, *id, *summary, *type, *schema;
    bool is_public;
    const char *parameters; /* JSON array; NULL: none */
    const char *delete_id;  /* the path can be deleted, too */
} gets[] = {
    {"/v1/models", "models", "Lists the models that are served.", "application/json",
     "{\"$ref\":\"#/components/schemas/Models\"}", false, NULL, NULL},
    {"/v1/models/{model}", "model", "One of them.", "application/json",
     "{\"$ref\":\"#/components/schemas/Model\"}", false, PATH_ID("model"), NULL},
    {"/v1/responses/{response_id}", "stored_response", "A response that is kept.",
     "application/json", "{\"$ref\":\"#/components/schemas/Response\"}", false,
     PATH_ID("response_id"), "delete_stored_response"},
    {"/v1/responses/{response_id}/input_items", "stored_input", "What it was answered to.",
     "application/json",
     "{\"type\":\"object\",\"required\":[\"object\",\"data\",\"first_id\",\"last_id\",\"has_more\"]"
     "}",
     false, PATH_ID("response_id") LIST_QUERY, NULL},
    {"/v1/capabilities", "capabilities",
     "What this server does with each field of each request, and what the model can.",
     "application/json", "{\"type\":\"object\",\"required\":[\"server\",\"model\",\"protocols\"]}",
     false, NULL, NULL},
    {"/v1/state", "state", "What the engine is doing.", "application/json", "{\"type\":\"object\"}",
     false, NULL, NULL},
    {"/metrics", "metrics", "Counters and gauges as Prometheus reads them.", "text/plain",
     "{\"type\":\"string\"}", false, NULL, NULL},
    {"/openapi.json", "openapi", "This description.", "application/json", "{\"type\":\"object\"}",
     true, NULL, NULL},
    {"/health", "health", "Whether the server takes requests.", "application/json",
     "{\"type\":\"object\",\"required\":[\"status\"]}", true, NULL, NULL},
    {"/api/tags", "ollama_tags", "The model, as Ollama lists those on its disk.",
     "application/json", "{\"$ref\":\"#/components/schemas/OllamaModels\"}", false, NULL, NULL},
    {"/api/ps", "ollama_ps", "The model, as Ollama lists those in its memory.", "application/json",
     "{\"$ref\":\"#/components/schemas/OllamaModels\"}", false, NULL, NULL},
    {"/api/version", "ollama_version", "The release of Ollama's API that is followed.",
     "application/json",
     "{\"type\":\"object\",\"required\":[\"version\"],\"properties\":{\"version\":{\"type\":"
     "\"string\"}}}",
     false, NULL, NULL},
};

static const struct {
    const char *name, *schema;
} schemas[] = {
    {"Token", "{\"type\":\"integer\",\"minimum\":0,\"maximum\":2147483647}"},
    {"Part", "{\"type\":\"object\",\"required\":[\"type\",\"text\"],\"properties\":{\"type\":{"
             "\"const\":\"text\"},\"text\":{\"type\":\"string\"}}}"},
    {"OptionalText", "{\"type\":[\"string\",\"null\"]}"},
    {"Message",
     "{\"type\":\"object\",\"required\":[\"role\"],\"properties\":{\"role\":{\"enum\":["
     "\"system\",\"developer\",\"user\",\"assistant\",\"tool\",\"function\"]},\"content\":{"
     "\"oneOf\":[{"
     "\"type\":\"string\"},{\"type\":\"null\"},{\"type\":\"array\",\"items\":{\"$ref\":"
     "\"#/components/schemas/Part\"}}]},\"name\":{\"$ref\":\"#/components/schemas/OptionalText\"},"
     "\"tool_call_id\":{\"$ref\":\"#/components/schemas/OptionalText\"},\"reasoning_content\":{"
     "\"$ref\":\"#/components/schemas/"
     "OptionalText\"},\"tool_calls\":{\"type\":[\"array\",\"null\"],"
     "\"maxItems\":512,\"items\":{\"$ref\":\"#/components/schemas/ToolCall\"}}}}"},
    {"Messages", "{\"type\":\"array\",\"minItems\":1,\"maxItems\":65536,\"items\":{\"$ref\":"
                 "\"#/components/schemas/Message\"}}"},
    {"Tools",
     "{\"type\":\"array\",\"maxItems\":512,\"items\":{\"type\":\"object\",\"required\":[\"type\","
     "\"function\"],\"properties\":{\"type\":{\"const\":\"function\"},\"function\":{\"type\":"
     "\"object\",\"required\":[\"name\"],\"properties\":{\"name\":{\"type\":\"string\",\"pattern\":"
     "\"^[A-Za-z0-9_.:/-]{1,128}$\"},\"description\":{\"type\":[\"string\",\"null\"]},"
     "\"parameters\":{\"type\":[\"object\",\"null\"]},\"strict\":{\"enum\":[false,null]}}}}}}"},
    {"ToolCall",
     "{\"type\":\"object\",\"required\":[\"id\",\"type\",\"function\"],\"properties\":{\"id\":{"
     "\"type\":\"string\"},\"type\":{\"const\":\"function\"},\"function\":{\"type\":\"object\","
     "\"required\":[\"name\",\"arguments\"],\"properties\":{\"name\":{\"type\":\"string\"},"
     "\"arguments\":{\"type\":\"string\"}}}}}"},
    {"Usage",
     "{\"type\":\"object\",\"required\":[\"prompt_tokens\",\"completion_tokens\",\"total_tokens\"],"
     "\"properties\":{\"prompt_tokens\":{\"type\":\"integer\"},\"completion_tokens\":{\"type\":"
     "\"integer\"},\"total_tokens\":{\"type\":\"integer\"},\"prompt_tokens_details\":{\"type\":"
     "\"object\",\"properties\":{\"cached_tokens\":{\"type\":\"integer\"}}}}}"},
    {"Finish", "{\"enum\":[\"stop\",\"length\"]}"},
    {"ChatFinish", "{\"enum\":[\"stop\",\"length\",\"tool_calls\"]}"},
    {"ChatCompletion",
     "{\"type\":\"object\",\"required\":[\"id\",\"object\",\"created\",\"model\",\"choices\","
     "\"usage\"],\"properties\":{\"object\":{\"const\":\"chat.completion\"},\"choices\":{\"type\":"
     "\"array\",\"minItems\":1,\"items\":{\"type\":\"object\",\"required\":[\"index\",\"message\","
     "\"logprobs\",\"finish_reason\"],\"properties\":{\"index\":{\"type\":\"integer\"},"
     "\"finish_reason\":{\"$ref\":\"#/components/schemas/ChatFinish\"},\"message\":{\"type\":"
     "\"object\",\"required\":[\"role\",\"content\"],\"properties\":{\"role\":{\"const\":"
     "\"assistant\"},\"content\":{\"type\":[\"string\",\"null\"]},\"reasoning_content\":{\"type\":"
     "\"string\"},\"tool_calls\":{\"type\":\"array\",\"minItems\":1,\"items\":{\"$ref\":"
     "\"#/components/schemas/ToolCall\"}}}},\"logprobs\":{\"type\":[\"object\","
     "\"null\"]}}}},\"usage\":{\"$ref\":\"#/components/schemas/Usage\"},\"warnings\":{\"type\":"
     "\"array\",\"items\":{\"type\":\"string\"}}}}"},
    {"Completion",
     "{\"type\":\"object\",\"required\":[\"id\",\"object\",\"created\",\"model\",\"choices\","
     "\"usage\"],\"properties\":{\"object\":{\"const\":\"text_completion\"},\"choices\":{\"type\":"
     "\"array\",\"minItems\":1,\"items\":{\"type\":\"object\",\"required\":[\"index\",\"text\","
     "\"logprobs\",\"finish_reason\"],\"properties\":{\"index\":{\"type\":\"integer\"},\"text\":{"
     "\"type\":\"string\"},\"finish_reason\":{\"$ref\":\"#/components/schemas/Finish\"},"
     "\"logprobs\":{\"type\":[\"object\",\"null\"]}}}},\"usage\":{\"$ref\":\"#/components/schemas/"
     "Usage\"},\"warnings\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}}}"},
    {"Tokens",
     "{\"type\":\"object\",\"required\":[\"count\",\"tokens\",\"max_model_len\"],\"properties\":{"
     "\"count\":{\"type\":\"integer\"},\"max_model_len\":{\"type\":\"integer\"},\"tokens\":{"
     "\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/Token\"}},\"token_strs\":{"
     "\"type\":\"array\",\"items\":{\"type\":\"string\"}}}}"},
    {"Input",
     "{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"minItems\":1,\"maxItems\":65536,"
     "\"items\":{\"type\":\"object\"}}]}"},
    {"ResponseTool",
     "{\"type\":\"object\",\"required\":[\"type\"],\"properties\":{\"type\":{\"type\":\"string"
     "\",\"description\":\"function, custom or namespace; others are left out with a warning\""
     "},\"name\":{\"type\":[\"string\",\"null\"]},\"description\":{\"type\":[\"string\",\"null"
     "\"]},\"parameters\":{\"type\":[\"object\",\"null\"]},\"strict\":{\"enum\":[false,null]}}"
     "}"},
    {"Response",
     "{\"type\":\"object\",\"required\":[\"id\",\"object\",\"created_at\",\"status\",\"error\""
     ",\"incomplete_details\",\"model\",\"output\",\"parallel_tool_calls\",\"tool_choice\",\"t"
     "ools\",\"usage\"],\"properties\":{\"id\":{\"type\":\"string\"},\"object\":{\"const\":\"r"
     "esponse\"},\"created_at\":{\"type\":\"integer\"},\"status\":{\"enum\":[\"completed\",\"i"
     "ncomplete\"]},\"output\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\""
     ":[\"id\",\"type\",\"status\"],\"properties\":{\"type\":{\"enum\":[\"message\",\"reasonin"
     "g\",\"function_call\",\"custom_tool_call\"]}}}},\"usage\":{\"type\":\"object\",\"require"
     "d\":[\"input_tokens\",\"input_tokens_details\",\"output_tokens\",\"output_tokens_details"
     "\",\"total_tokens\"]}}}"},
    {"Text", "{\"type\":\"object\",\"required\":[\"prompt\"],\"properties\":{\"prompt\":{\"type\":"
             "\"string\"}}}"},
    {"Model", "{\"type\":\"object\",\"required\":[\"id\",\"object\",\"created\",\"owned_by\"],"
              "\"properties\":{\"id\":{\"type\":\"string\"},\"object\":{\"const\":\"model\"},"
              "\"created\":{\"type\":\"integer\"}}}"},
    {"Models",
     "{\"type\":\"object\",\"required\":[\"object\",\"data\"],\"properties\":{\"object\":{"
     "\"const\":\"list\"},\"data\":{\"type\":\"array\",\"items\":{\"$ref\":"
     "\"#/components/schemas/Model\"}}}}"},
    {"OllamaMessages",
     "{\"type\":\"array\",\"maxItems\":65536,\"items\":{\"type\":\"object\",\"required\":["
     "\"role\"],\"properties\":{\"role\":{\"enum\":[\"system\",\"user\",\"assistant\","
     "\"tool\"]},\"content\":{\"$ref\":\"#/components/schemas/OptionalText\"},\"thinking\":{"
     "\"$ref\":\"#/components/schemas/OptionalText\"},\"tool_name\":{\"$ref\":"
     "\"#/components/schemas/OptionalText\"},\"tool_call_id\":{\"$ref\":"
     "\"#/components/schemas/OptionalText\"},\"tool_calls\":{\"type\":[\"array\",\"null\"],"
     "\"maxItems\":512,\"items\":{\"$ref\":\"#/components/schemas/OllamaCall\"}}}}}"},
    {"OllamaCall",
     "{\"type\":\"object\",\"required\":[\"function\"],\"properties\":{\"function\":{\"type\":"
     "\"object\",\"required\":[\"name\",\"arguments\"],\"properties\":{\"name\":{\"type\":"
     "\"string\"},\"arguments\":{\"type\":\"object\"}}}}}"},
    {"OllamaChat",
     "{\"type\":\"object\",\"required\":[\"model\",\"created_at\",\"message\",\"done\","
     "\"done_reason\"],\"properties\":{\"message\":{\"type\":\"object\",\"required\":["
     "\"role\",\"content\"],\"properties\":{\"role\":{\"const\":\"assistant\"},\"content\":{"
     "\"type\":\"string\"},\"thinking\":{\"type\":\"string\"},\"tool_calls\":{\"type\":"
     "\"array\",\"items\":{\"$ref\":\"#/components/schemas/OllamaCall\"}}}},\"done\":{\"const\":"
     "true},\"done_reason\":{\"enum\":[\"stop\",\"length\",\"load\"]},\"total_duration\":{"
     "\"type\":\"integer\"},\"load_duration\":{\"type\":\"integer\"},\"prompt_eval_count\":{"
     "\"type\":\"integer\"},\"prompt_eval_duration\":{\"type\":\"integer\"},\"eval_count\":{"
     "\"type\":\"integer\"},\"eval_duration\":{\"type\":\"integer\"}}}"},
    {"OllamaGenerate",
     "{\"type\":\"object\",\"required\":[\"model\",\"created_at\",\"response\",\"done\","
     "\"done_reason\"],\"properties\":{\"response\":{\"type\":\"string\"},\"thinking\":{"
     "\"type\":\"string\"},\"done\":{\"const\":true},\"done_reason\":{\"enum\":[\"stop\","
     "\"length\",\"load\"]},\"context\":{\"type\":\"array\",\"items\":{\"$ref\":"
     "\"#/components/schemas/Token\"}}}}"},
    {"OllamaShow",
     "{\"type\":\"object\",\"required\":[\"parameters\",\"template\",\"details\","
     "\"model_info\",\"capabilities\"],\"properties\":{\"model_info\":{\"type\":\"object\"},"
     "\"capabilities\":{\"type\":\"array\",\"items\":{\"enum\":[\"completion\",\"tools\","
     "\"thinking\",\"insert\"]}}}}"},
    {"OllamaModels",
     "{\"type\":\"object\",\"required\":[\"models\"],\"properties\":{\"models\":{\"type\":"
     "\"array\",\"minItems\":1,\"items\":{\"type\":\"object\",\"required\":[\"name\",\"model\","
     "\"size\",\"digest\",\"details\"]}}}}"},
    {"OllamaError", "{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{"
                    "\"type\":\"string\",\"minLength\":1}}}"},
    {"Error",
     "{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{\"type\":\"object\","
     "\"required\":[\"message\",\"type\",\"param\",\"code\"],\"properties\":{\"message\":{\"type\":"
     "\"string\",\"minLength\":1},\"type\":{\"type\":\"string\"},\"param\":{\"type\":[\"string\","
     "\"null\"]},\"code\":{\"type\":[\"string\",\"null\"]}}}}}"},
    {"AnthropicMessages",
     "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"object\",\"required\":[\"role\","
     "\"content\"],\"properties\":{\"role\":{\"enum\":[\"user\",\"assistant\",\"system\"]},"
     "\"content\":{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"minItems\":1,\"items\":{"
     "\"type\":\"object\",\"required\":[\"type\"],\"properties\":{\"type\":{\"enum\":[\"text\","
     "\"thinking\",\"redacted_thinking\",\"tool_use\",\"tool_result\",\"document\"]}}}}]}}}}"},
    {"AnthropicTool",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"type\":{\"type\":["
     "\"string\",\"null\"]},\"description\":{\"type\":[\"string\",\"null\"]},\"input_schema\":{"
     "\"type\":\"object\"}}}"},
    {"AnthropicMessage",
     "{\"type\":\"object\",\"required\":[\"id\",\"type\",\"role\",\"model\",\"content\","
     "\"stop_reason\",\"stop_sequence\",\"usage\"],\"properties\":{\"type\":{\"const\":\"message\"}"
     ","
     "\"role\":{\"const\":\"assistant\"},\"content\":{\"type\":\"array\",\"items\":{\"type\":"
     "\"object\",\"required\":[\"type\"],\"properties\":{\"type\":{\"enum\":[\"text\",\"thinking\","
     "\"tool_use\"]}}}},\"stop_reason\":{\"enum\":[\"end_turn\",\"max_tokens\",\"stop_sequence\","
     "\"tool_use\"]},\"stop_sequence\":{\"type\":[\"string\",\"null\"]},\"usage\":{\"type\":"
     "\"object\",\"required\":[\"input_tokens\",\"cache_creation_input_tokens\","
     "\"cache_read_input_tokens\",\"output_tokens\"]},\"tempo9\":{\"type\":\"object\"}}}"},
    {"AnthropicError",
     "{\"type\":\"object\",\"required\":[\"type\",\"error\",\"request_id\"],\"properties\":{"
     "\"type\":{"
     "\"const\":\"error\"},\"error\":{\"type\":\"object\",\"required\":[\"type\",\"message\"],"
     "\"properties\":{\"type\":{\"type\":\"string\"},\"message\":{\"type\":\"string\","
     "\"minLength\":1}}},\"request_id\":{\"type\":[\"string\",\"null\"]}}}"},
};

static void write_text(struct buf *b, const char *key, const char *text)
{
    json_write_key(b, key);
    json_write_str(b, str_from(text));
}

/* ,"4XX": and ,"5XX": every error of a protocol has the same form. */
static void write_errors(struct buf *b, const char *schema)
{
    static const char *const codes[][2] = {{"4XX", "refused, with a message that says why"},
                                           {"5XX", "not now, or not at all"}};
    for (size_t i = 0; i < T9_COUNT(codes); i++) {
        buf_printf(b, ",\"%s\":{", codes[i][0]);
        write_text(b, "description", codes[i][1]);
        buf_printf(b, ",\"content\":{\"application/json\":{\"schema\":%s}}}",
                   schema ? schema : OPENAI_ERROR);
    }
}

/* Whether `f` is a member of the field `of`; of the request itself when that is NULL. */
static bool is_in(const struct policy_field *f, const char *of)
{
    const char *dot = strchr(f->name, '.');
    size_t n = of ? strlen(of) : 0;
    return of ? dot && (size_t)(dot - f->name) == n && strncmp(f->name, of, n) == 0 : !dot;
}

static bool has_members(const struct chat_adapter *a, const char *name)
{
    for (size_t i = 0; i < a->n_fields; i++) {
        if (is_in(&a->fields[i], name))
            return true;
    }
    return false;
}

static void write_properties(struct buf *b, const struct chat_adapter *a, const char *of);

static void write_field(struct buf *b, const struct chat_adapter *a, const struct policy_field *f)
{
    if (!has_members(a, f->name)) {
        policy_write_schema(b, f);
        return;
    }
    buf_putc(b, '{');
    write_text(b, "description", f->note);
    buf_puts(b, ",\"anyOf\":[{\"type\":\"object\",");
    write_properties(b, a, f->name);
    buf_puts(b, "}},{\"type\":\"null\"}]}");
}

/* "properties":{..  of the request, or of the field `of` */
static void write_properties(struct buf *b, const struct chat_adapter *a, const char *of)
{
    const char *before = "";
    buf_puts(b, "\"properties\":{");
    for (size_t i = 0; i < a->n_fields; i++) {
        const struct policy_field *f = &a->fields[i];
        if (f->cls == POLICY_REFUSED || !is_in(f, of))
            continue;
        buf_puts(b, before);
        before = ",";
        json_write_key(b, f->name + (of ? strlen(of) + 1 : 0));
        write_field(b, a, f);
    }
}

static void write_fields(struct buf *b, const struct chat_adapter *a)
{
    bool first = true;
    write_properties(b, a, NULL);
    buf_puts(b, "},\"x-tempo9-refused\":{");
    for (size_t i = 0; i < a->n_fields; i++) {
        if (a->fields[i].cls != POLICY_REFUSED)
            continue;
        if (!first)
            buf_putc(b, ',');
        first = false;
        write_text(b, a->fields[i].name, a->fields[i].note);
    }
    buf_putc(b, '}');
}

/* The field that a request can't do without. */
static const char *required_field(const struct chat_adapter *a)
{
    static const char *const names[] = {"messages", "prompt", "tokens", "input"};
    bool has_both = false;
    const char *found = NULL;
    for (size_t i = 0; i < T9_COUNT(names); i++) {
        for (size_t k = 0; k < a->n_fields; k++) {
            if (strcmp(a->fields[k].name, names[i]) != 0)
                continue;
            has_both = found != NULL;
            found = names[i];
        }
    }
    /* Without it, some have an answer that needs no engine. */
    return has_both || (a->answer && a->whole) ? NULL : found;
}

/* "required":[..], */
static void write_required(struct buf *b, const struct chat_adapter *a)
{
    const char *main = required_field(a), *before = "\"required\":[";
    if (main) {
        buf_puts(b, before);
        json_write_str(b, str_from(main));
        before = ",";
    }
    for (size_t i = 0; i < a->n_fields; i++) {
        if (!a->fields[i].required)
            continue;
        buf_puts(b, before);
        json_write_str(b, str_from(a->fields[i].name));
        before = ",";
    }
    if (*before == ',')
        buf_puts(b, "],");
}

static void write_headers(struct buf *b)
{
    buf_puts(b, "\"parameters\":[");
    for (size_t i = 0; i < caller_n_headers; i++) {
        buf_puts(b, i ? ",{" : "{");
        write_text(b, "name", caller_headers[i].name);
        buf_puts(b, ",\"in\":\"header\",\"schema\":{\"type\":\"string\"},");
        write_text(b, "description", caller_headers[i].note);
        buf_putc(b, '}');
    }
    buf_puts(b, "],");
}

static void write_post(struct buf *b, const struct chat_adapter *a)
{
    json_write_key(b, a->path);
    buf_puts(b, "{\"post\":{");
    write_text(b, "operationId", a->name);
    buf_putc(b, ',');
    write_text(b, "summary", a->summary);
    buf_putc(b, ',');
    if (a->whole)
        write_headers(b);
    buf_puts(b, "\"requestBody\":{\"required\":true,\"content\":{\"application/json\":{\"schema\":{"
                "\"type\":\"object\",");
    write_required(b, a);
    write_fields(b, a);
    buf_puts(b, "}}}},\"responses\":{\"200\":{\"description\":\"the answer\",\"content\":{"
                "\"application/json\":{\"schema\":");
    buf_puts(b, a->reply_schema);
    buf_putc(b, '}');
    if (a->stream_type) {
        buf_putc(b, ',');
        json_write_key(b, a->stream_type);
        buf_puts(b, "{\"schema\":{\"type\":\"string\"}}");
    }
    buf_puts(b, "}}");
    write_errors(b, a->error_schema);
    buf_puts(b, "}}}");
}

static void write_parameters(struct buf *b, size_t i)
{
    if (gets[i].parameters)
        buf_printf(b, ",\"parameters\":[%s]", gets[i].parameters);
}

static void write_delete(struct buf *b, size_t i)
{
    buf_puts(b, ",\"delete\":{");
    write_text(b, "operationId", gets[i].delete_id);
    write_parameters(b, i);
    buf_puts(b, ",\"responses\":{\"200\":{\"description\":\"it is gone\",\"content\":{"
                "\"application/json\":{\"schema\":{\"type\":\"object\"}}}}");
    write_errors(b, NULL);
    buf_puts(b, "}}");
}

static void write_get(struct buf *b, size_t i)
{
    json_write_key(b, gets[i].path);
    buf_puts(b, "{\"get\":{");
    write_text(b, "operationId", gets[i].id);
    buf_putc(b, ',');
    write_text(b, "summary", gets[i].summary);
    if (gets[i].is_public)
        buf_puts(b, ",\"security\":[]");
    write_parameters(b, i);
    buf_puts(b, ",\"responses\":{\"200\":{\"description\":\"the answer\",\"content\":{");
    json_write_key(b, gets[i].type);
    buf_puts(b, "{\"schema\":");
    buf_puts(b, gets[i].schema);
    buf_puts(b, "}}}");
    write_errors(b, strncmp(gets[i].path, "/api/", 5) == 0 ? OLLAMA_ERROR : NULL);
    buf_puts(b, "}}");
    if (gets[i].delete_id)
        write_delete(b, i);
    buf_putc(b, '}');
}

void openapi_write(const char *version, struct buf *out)
{
    buf_puts(out, "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"tempo9\",");
    write_text(out, "version", version);
    buf_puts(out,
             ",\"description\":\"A local LLM inference server. Unknown fields are ignored with "
             "a warning, or refused when the server is strict.\"},"
             "\"security\":[{},{\"bearer\":[]},{\"key\":[]}],\"paths\":{");
    for (size_t i = 0; i < n_endpoints; i++) {
        write_post(out, endpoints[i]);
        buf_putc(out, ',');
    }
    for (size_t i = 0; i < T9_COUNT(gets); i++) {
        if (i)
            buf_putc(out, ',');
        write_get(out, i);
    }
    buf_puts(out, "},\"components\":{\"securitySchemes\":{\"bearer\":{\"type\":\"http\",\"scheme\":"
                  "\"bearer\"},\"key\":{\"type\":\"apiKey\",\"in\":\"header\",\"name\":"
                  "\"x-api-key\"}},\"schemas\":{");
    for (size_t i = 0; i < T9_COUNT(schemas); i++) {
        if (i)
            buf_putc(out, ',');
        json_write_key(out, schemas[i].name);
        buf_puts(out, schemas[i].schema);
    }
    buf_puts(out, "}}}");
}
