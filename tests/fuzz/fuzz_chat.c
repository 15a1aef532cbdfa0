/* fuzz_chat.c - libFuzzer target for chat templates and chat sections: the first byte says which. `make fuzz` builds
 * and runs it on seeds that the tests write.
 */
#include <string.h>

#include "tools/chat.h"

static const tfm_turn turns[] = {{TFM_CHAT_SYSTEM, "You are S.", 10}, {TFM_CHAT_USER, " hi <|x|>\n", 10},
                                 {TFM_CHAT_ASSISTANT, "<think>\n\xF0\x9F</think>yo", 21}, {TFM_CHAT_USER, "a'\"\\", 4}};

/* What a refusal says must be a line. */
static void check_error(const tfm_error *err) {
    if (err->code >= 0 || !err->msg[0] || strlen(err->msg) >= sizeof err->msg) __builtin_trap();
}

/* A template is interpreted; what it gives is as long as it says, with a mark for each byte. */
static void use_template(const char *text, size_t size) {
    arena a = {NULL, 0, 0, 0};
    chat_source from;
    jinja_options options = {1753617600, NULL, NULL, 0};
    jinja_output out;
    tfm_error err;
    memset(&from, 0, sizeof from);
    memset(&err, 0, sizeof err);
    chat_add_variable(&from, "bos_token", "<s>");
    chat_add_variable(&from, "eos_token", "</s>");
    const jinja *t = jinja_parse("fuzz", text, size, &a, &err);
    if (!t) check_error(&err);
    for (int prompt = 0; t && prompt < 2; prompt++) {
        const int code = chat_interpret(&a, t, &from, turns + prompt, 4 - (size_t)prompt, prompt, &options, &out, &err);
        if (code) check_error(&err);
        for (size_t i = 0; !code && i < out.n; i++) if (out.input[i] > 1) __builtin_trap();
        if (!code && out.text[out.n]) __builtin_trap();
    }
    arena_free(&a);
}

/* A small template also becomes data, which must agree with it. */
static void use_format(const char *text, size_t size) {
    arena a = {NULL, 0, 0, 0};
    chat_source from;
    chat_section section;
    uint64_t object[32];
    const tfm_chat *c;
    tfm_error err;
    memset(&from, 0, sizeof from);
    from.file = "fuzz";
    from.text = text;
    from.n = size;
    if (!chat_build(&a, &from, NULL, &section, &err) &&
        tfm_chat_open(section.bytes, section.size, object, sizeof object, &c, &err)) __builtin_trap();
    arena_free(&a);
}

static void use_section(const uint8_t *data, size_t size) {
    arena a = {NULL, 0, 0, 0};
    uint64_t object[32];
    const tfm_chat *c;
    const char *value = "";
    char text[256];
    uint8_t marks[256];
    size_t need = 0;
    tfm_error err;
    uint8_t *section = arena_alloc(&a, size + 1); /* exactly so many bytes count */
    memset(&err, 0, sizeof err);
    if (section && size) memcpy(section, data, size);
    if (section && !tfm_chat_open(section, size, object, sizeof object, &c, &err)) {
        for (int32_t i = 0; tfm_chat_variable(c, i, &value); i++) need += strlen(value);
        for (int32_t i = 0; tfm_chat_end(c, i) >= 0; i++) continue;
        if (tfm_chat_date_format(c)) need += strlen(tfm_chat_date_format(c));
        tfm_chat_template(c, &need);
        for (size_t n = 0; n <= 4; n++)
            if (tfm_chat_render(c, turns, (int64_t)n, n & 1, "today", text, marks, sizeof text, &need, &err))
                check_error(&err);
    } else if (section) {
        check_error(&err);
    }
    arena_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size || size > 1 << 16) return 0;
    if (data[0] == 's') use_section(data + 1, size - 1);
    else use_template((const char *)data + 1, size - 1);
    if (data[0] == 'f' && size < 400) use_format((const char *)data + 1, size - 1);
    return 0;
}
