/* tfm-tokenize - text to ids and ids to text, with the tokenizer of a .tfm file.
 *
 * Text is taken from stdin byte for byte, a final newline too; the ids go to stdout as one line. With --decode it is
 * the other way round and nothing is added to the text. With --chat a conversation comes in, and what the model's chat
 * format makes of it goes out.
 */
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "json.h"
#include "run.h"

enum { INPUT_LIMIT = 1 << 28 };

static int no_special, parse_special, chat, no_prompt, show_text, decode, skip_special, null_ends;
static const tfm_chat *chat_format; /* of --chat */

static const cli_option option_rows[] = {
    CLI_GROUP("Text to ids"),
    CLI_FLAG(0, "no-special", &no_special, "leave out the tokens that stand around every text"),
    CLI_FLAG(0, "parse-special", &parse_special, "special tokens spelled in the text become their ids"),
    CLI_GROUP("A conversation to ids"),
    CLI_FLAG(0, "chat", &chat, "stdin is JSON: [{\"role\": \"user\", \"content\": \"...\"}, ...]; the model's\n"
             "chat format is applied, special tokens in contents are plain text"),
    CLI_FLAG(0, "no-prompt", &no_prompt, "without what makes the model answer"),
    CLI_FLAG(0, "text", &show_text, "print the text instead of its ids"),
    CLI_GROUP("Ids to text"),
    CLI_FLAG(0, "decode", &decode, "ids on stdin, between blanks, newlines or commas"),
    CLI_FLAG(0, "skip-special", &skip_special, "special tokens print nothing"),
    CLI_GROUP("Many at once"),
    CLI_FLAG('0', "null", &null_ends, "texts end in a zero byte, ids in a newline, on both sides"),
    CLI_END
};
static const char *const arg_names[] = { "MODEL" };
static const cli command_line = {
    "tfm-tokenize", "MODEL [--no-special] [--parse-special] | --chat | --decode [--skip-special]",
    "Prints the ids of the text on stdin, or the text of the ids on stdin.", option_rows, 1, 1, arg_names
};

/* Buffers that grow and stay. */
typedef struct buffers {
    int32_t *ids;
    size_t cap_ids;
    char *text;
    size_t cap_text;
    char *scratch;
    size_t cap_scratch;
} buffers;

static int out_of_memory(void) { return tool_error("out of memory"); }

/* text[0..n) as ids in b->ids; marks: of a chat format, else NULL. */
static int encode(const tfm_tokenizer *t, buffers *b, const char *text, const unsigned char *marks, size_t n)
{
    const int32_t flags = (no_special ? TFM_ENCODE_NO_SPECIAL : 0) | (parse_special ? TFM_ENCODE_PARSE_SPECIAL : 0);
    tfm_error err;
    int64_t n_ids = 0;
    const size_t room = tfm_encode_size(t, n), most = n + 64; /* nearly always enough; else it says how many */
    void *scratch = room ? array_grow(b->scratch, &b->cap_scratch, room, 1) : b->scratch;
    void *ids = array_grow(b->ids, &b->cap_ids, most, sizeof *b->ids);
    if (scratch) b->scratch = (char *)scratch;
    if (ids) b->ids = (int32_t *)ids;
    if ((room && !scratch) || !ids) return out_of_memory();
    int code = marks ? tfm_encode_marked(t, text, marks, n, b->ids, (int64_t)b->cap_ids, &n_ids, scratch, room, &err)
                     : tfm_encode(t, text, n, flags, b->ids, (int64_t)b->cap_ids, &n_ids, scratch, room, &err);
    if (code && n_ids > (int64_t)b->cap_ids) {
        ids = array_grow(b->ids, &b->cap_ids, (size_t)n_ids, sizeof *b->ids);
        if (!ids) return out_of_memory();
        b->ids = (int32_t *)ids;
        code = marks ? tfm_encode_marked(t, text, marks, n, b->ids, (int64_t)b->cap_ids, &n_ids, scratch, room, &err)
                     : tfm_encode(t, text, n, flags, b->ids, (int64_t)b->cap_ids, &n_ids, scratch, room, &err);
    }
    if (code) return tool_error("%s", err.msg);
    for (int64_t i = 0; i < n_ids; i++) printf(i ? " %d" : "%d", (int)b->ids[i]);
    putchar('\n');
    return 0;
}

static int encode_text(const tfm_tokenizer *t, buffers *b, const char *text, size_t n)
{
    return encode(t, b, text, NULL, n);
}

static int encode_chat(const tfm_tokenizer *t, buffers *b, const char *text, size_t n)
{
    arena mem = { NULL, 0, 0, 0 };
    chat_text rendered;
    tfm_error err;
    size_t n_turns = 0;
    const json *messages = json_parse("stdin", text, n, &mem, &err);
    const tfm_turn *turns = messages ? chat_turns(&mem, messages, &n_turns, &err) : NULL;
    int status = !turns || chat_render(&mem, chat_format, turns, n_turns, !no_prompt, &rendered, &err);
    if (status) status = tool_error("%s", err.msg);
    else if (!show_text) status = encode(t, b, rendered.text, rendered.marks, rendered.n);
    else {
        fwrite(rendered.text, 1, rendered.n, stdout);
        if (null_ends) putchar(0);
    }
    arena_free(&mem);
    return status;
}

static int is_separator(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ','; }

static int read_ids(const tfm_tokenizer *t, buffers *b, const char *text, size_t n, size_t *n_ids)
{
    *n_ids = 0;
    for (size_t i = 0; i < n;) {
        size_t begin = i;
        int64_t id;
        if (is_separator(text[i])) { i++; continue; }
        while (i < n && !is_separator(text[i])) i++;
        if (parse_int64(text + begin, i - begin, &id)) {
            return tool_error("stdin: \"%.*s\" is not an id", (int)(i - begin < 40 ? i - begin : 40), text + begin);
        }
        if (id < 0 || id >= tfm_vocab_size(t)) {
            return tool_error("stdin: id %lld is out of range, the model has %d", (long long)id,
                              (int)tfm_vocab_size(t));
        }
        void *ids = array_grow(b->ids, &b->cap_ids, *n_ids + 1, sizeof *b->ids);
        if (!ids) return out_of_memory();
        b->ids = (int32_t *)ids;
        b->ids[(*n_ids)++] = (int32_t)id;
    }
    return 0;
}

static int decode_ids(const tfm_tokenizer *t, buffers *b, const char *text, size_t n)
{
    const int32_t flags = skip_special ? TFM_DECODE_SKIP_SPECIAL : 0;
    size_t n_ids;
    int status = read_ids(t, b, text, n, &n_ids);
    if (status) return status;
    const size_t bytes = tfm_decode_text(t, b->ids, (int64_t)n_ids, flags, NULL, 0);
    void *out = array_grow(b->text, &b->cap_text, bytes + 1, 1);
    if (!out) return out_of_memory();
    b->text = (char *)out;
    tfm_decode_text(t, b->ids, (int64_t)n_ids, flags, b->text, bytes);
    fwrite(b->text, 1, bytes, stdout);
    if (null_ends) putchar(0);
    return 0;
}

static int convert_all(const tfm_tokenizer *t, const char *input, size_t n)
{
    int (*one)(const tfm_tokenizer *, buffers *, const char *, size_t) =
        decode ? decode_ids : chat ? encode_chat : encode_text;
    const char end_byte = decode ? '\n' : 0;
    buffers b = { NULL, 0, NULL, 0, NULL, 0 };
    int status = null_ends ? 0 : one(t, &b, input, n);
    for (size_t i = 0; null_ends && i < n && !status;) {
        const char *end = (const char *)memchr(input + i, end_byte, n - i);
        const size_t length = end ? (size_t)(end - input) - i : n - i;
        status = one(t, &b, input + i, length);
        i += length + 1;
    }
    free(b.ids);
    free(b.text);
    free(b.scratch);
    return status;
}

int main(int argc, char **argv)
{
    const char *path;
    char *input = NULL;
    size_t n = 0;
    tfm_model *model = NULL;
    tfm_error err;
    program_start(&argc, &argv);
    int status = cli_parse(&command_line, argc, argv, &path, NULL);
    if (status != CLI_GO_ON) return program_end(status);
    if (decode && (no_special || parse_special)) {
        return cli_wrong(&command_line, "--no-special and --parse-special do not go with --decode");
    }
    if (chat && (decode || no_special || parse_special)) {
        return cli_wrong(&command_line, "--chat goes with none of --decode, --no-special, --parse-special");
    }
    if ((no_prompt || show_text) && !chat) return cli_wrong(&command_line, "--no-prompt and --text go with --chat");
    if (skip_special && !decode) return cli_wrong(&command_line, "--skip-special goes with --decode");
    if (tfm_model_open(path, NULL, &model, &err)) return program_end(tool_error("%s", err.msg));
    const tfm_tokenizer *t = tfm_model_tokenizer(model);
    chat_format = tfm_model_chat(model);
    if (!t) status = tool_error("%s: the file has no tokenizer", path);
    else if (chat && !chat_format) status = tool_error("%s: has no chat template", path);
    else if (read_whole("-", INPUT_LIMIT, &input, &n, &err)) status = tool_error("%s", err.msg);
    else status = convert_all(t, input, n);
    free(input);
    tfm_model_close(model);
    return program_end(status);
}
