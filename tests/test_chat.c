/* Chat templates: the interpreter against what jinja2 and transformers made (tests/ref_chat.py), formats as data
 * against the same, limits on hostile templates, damaged sections, and marks that keep special tokens to the format.
 */
#include <stdlib.h>
#include <string.h>

#include "chat_case.h"
#include "convert_output.h"
#include "tools/tokenizer.h"

static const json *read_reference(arena *a) {
    char path[512];
    tfm_error err;
    source src;
    snprintf(path, sizeof path, "%s/ref/chat.json", test_data());
    if (source_open_file(&src, path, &err)) {
        check(0, "%s", err.msg);
        return NULL;
    }
    const json *all = json_read(&src, 4 << 20, a, &err);
    source_close_file(&src);
    check(all != NULL, "%s", err.msg);
    return all;
}

static int same_text(const json *want, const char *text, size_t n) {
    return want->count == n && !memcmp(want->u.text, text, n);
}

void test_chat_templates(void) {
    arena a = {NULL, 0, 0, 0};
    const json *all = read_reference(&a), *cases = json_get(all, "cases");
    int64_t now = 0;
    json_int_or(all, "now", 0, &now, NULL);
    for (size_t i = 0; i < json_count(cases); i++) {
        arena b = {NULL, 0, 0, 0};
        const json *text = json_get(json_at(cases, i), "template"), *want = json_get(json_at(cases, i), "text");
        jinja_options options = {now, NULL, NULL, 0};
        jinja_output out;
        tfm_error err = {0, ""};
        const jinja *t = jinja_parse("t", text->u.text, text->count, &b, &err);
        const int code = t ? jinja_render(t, chat_case_value(&b, json_get(all, "vars")), &options, &b, &out, &err)
                           : TFM_ERR_FORMAT;
        if (want)
            check(!code && same_text(want, out.text, out.n), "%.60s: %s", text->u.text, code ? err.msg : out.text);
        else check(code && strstr(err.msg, "t: line "), "%.60s is not refused: %s", text->u.text, err.msg);
        arena_free(&b);
    }
    check(json_count(cases) >= 80, "only %d cases", (int)json_count(cases));
    arena_free(&a);
}

/* One conversation of a format, interpreted and (c not NULL) by the data. */
static void check_talk(const json *format, const json *talk, const tfm_chat *c, const char *date, int64_t now) {
    arena a = {NULL, 0, 0, 0};
    const json *want = json_get(talk, "text"), *text = json_get(format, "template");
    const int prompt = json_get(talk, "prompt")->boolean;
    chat_source from;
    jinja_options options = {now, NULL, NULL, 0};
    jinja_output out;
    char data[4096];
    unsigned char marks[4096];
    size_t n = 0, need = 0;
    tfm_error err = {0, ""};
    tfm_turn *turns = chat_turns(&a, json_get(talk, "messages"), &n, &err);
    memset(&from, 0, sizeof from);
    chat_add_variable(&from, "bos_token", "<s>");
    chat_add_variable(&from, "eos_token", "</s>");
    const jinja *t = jinja_parse("t", text->u.text, text->count, &a, &err);
    int code = t ? chat_interpret(&a, t, &from, turns, n, prompt, &options, &out, &err) : TFM_ERR_FORMAT;
    if (want)
        check(!code && same_text(want, out.text, out.n), "interpreted %.50s: %s", text->u.text,
              code ? err.msg : out.text);
    else check(code != 0, "%.50s refuses nothing", text->u.text);
    if (c) {
        code = tfm_chat_render(c, turns, (int64_t)n, prompt ? TFM_CHAT_PROMPT : 0, date, data, marks, sizeof data,
                               &need, &err);
        if (!want) check(code == TFM_ERR_ARG, "data of %.50s refuse nothing", text->u.text);
        else if (code != TFM_ERR_ARG)
            check(!code && same_text(want, data, need), "data of %.50s: %.*s", text->u.text, (int)need, data);
        for (size_t i = 0; want && !code && i < need; i++)
            if (marks[i] == out.input[i]) { check(0, "%.50s: mark of byte %d", text->u.text, (int)i); break; }
    }
    arena_free(&a);
}

void test_chat_formats(void) {
    arena a = {NULL, 0, 0, 0};
    const json *all = read_reference(&a), *formats = json_get(all, "formats");
    const char *date = "";
    int64_t now = 0;
    json_int_or(all, "now", 0, &now, NULL);
    json_string_or(all, "date", "", &date, NULL);
    for (size_t i = 0; i < json_count(formats); i++) {
        const json *f = json_at(formats, i), *talks = json_get(f, "talks");
        const tfm_chat *c = NULL;
        chat_section section;
        tfm_error err = {0, ""};
        int code = chat_case_build(&a, f, &section, &err);
        if (!code)
            code = tfm_chat_open(section.bytes, section.size, arena_alloc(&a, tfm_chat_size()), tfm_chat_size(), &c,
                                 &err);
        check(!code, "format %d: %s", (int)i, err.msg);
        if (code) continue;
        const int known = json_get(f, "known")->boolean;
        check(section.known == known && tfm_chat_known(c) == known, "format %d: known is %d: %s", (int)i, section.known,
              section.notice ? section.notice : "");
        check(known || section.notice, "format %d: no notice", (int)i);
        for (size_t k = 0; k < json_count(talks); k++) check_talk(f, json_at(talks, k), known ? c : NULL, date, now);
    }
    check(json_count(formats) >= 12, "only %d formats", (int)json_count(formats));
    arena_free(&a);
}

/* Few nodes that look at a megabyte each time they are walked: it counts as steps, too. */
static void check_long_looks(void) {
    static const char *const looks[] = {
        "x.isalpha()", "x | length", "x < y", "x.find('b')", "x.count('b')", "x is lower", "x.rfind(y[:-9])",
        "x.find(y[9:])", "y[9:] in x", "x.startswith((y, x))", "x.strip('b' ~ x)", "x[-1]", "{x: 1}[x]",
        "{'a': 1}[x]", "[x, x, x, x] | map('length') | sum"};
    jinja_options few;
    memset(&few, 0, sizeof few);
    few.max_steps = 100000;
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        arena a = {NULL, 0, 0, 0};
        tfm_error err = {0, ""};
        jinja_output out;
        const char *text = arena_printf(&a, "{%% set ns = namespace(x='aaaaaaaaaaaaaaaa') %%}{%% for i in range(16) %%}"
            "{%% set ns.x = ns.x + ns.x %%}{%% endfor %%}{%% set x = ns.x %%}{%% set y = x + 'b' %%}"
            "{%% for i in range(99999) %%}{%% if %s %%}{%% endif %%}{%% endfor %%}", looks[i]);
        const jinja *t = jinja_parse("t", text, strlen(text), &a, &err);
        check(t && jinja_render(t, jinja_new_dict(&a), &few, &a, &out, &err) && strstr(err.msg, "too many steps"),
              "%s 99999 times: %s", looks[i], err.msg);
        arena_free(&a);
    }
}

/* Templates that would run for ever, eat all memory or dig through the stack: refused, soon. */
void test_chat_limits(void) {
    static const char *const hostile[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}x"
        "{% endfor %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
        "{{ 'x' * 9999999999 }}", "{{ [0] * 9999999999 }}", "{{ range(1000000000) | list }}",
        "{{ 'a'.rjust(999999999999) }}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
        "{% set ns = namespace(d=[]) %}{% for i in range(9999) %}{% set ns.d = [ns.d] %}{% endfor %}{{ ns.d }}",
        "{% set ns = namespace(d={}) %}{% for i in range(9999) %}{% set ns.d = {'a': ns.d} %}{% endfor %}"
        "{{ ns.d | tojson }}",
        "{{ 9223372036854775807 + 1 }}", "{{ 10 ** 400 }}", "{{ (0 - 9223372036854775807 - 1) // -1 }}",
        "{{ 'x' | indent(999999999999) }}",
        "{{ '%999999999d' % 1 }}", "{{ '%.999f' | format(1) }}", "{{ '%1.2.3d' % 1 }}", "{{ '%d' % 1e300 }}",
        "{{ 2 ** 9999999999 }}", "{{ 'ab' | replace('', 'x' * 100000) | replace('', 'y' * 100000) }}"};
    arena a = {NULL, 0, 0, 0};
    tfm_error err;
    jinja_output out;
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        arena b = {NULL, 0, 0, 0};
        const jinja *t = jinja_parse("t", hostile[i], strlen(hostile[i]), &b, &err);
        check(t && jinja_render(t, jinja_new_dict(&b), NULL, &b, &out, &err), "%.60s is not refused", hostile[i]);
        arena_free(&b);
    }
    check_long_looks();
    static const char *const openings[] = {"(", "[", "{{ not ", "{{ -", "{% if 1 %}", "{% for x in y %}",
                                           "{{ x if x else ", "{{ {1:"};
    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++) {
        const size_t n = strlen(openings[i]);
        char *deep = arena_alloc(&a, 20000 * n + 4);
        size_t at = 0;
        if (openings[i][0] != '{') { memcpy(deep, "{{ ", 3); at = 3; }
        for (int k = 0; k < 20000; k++) { /* {{ only once */
            const size_t skip_bytes = k && openings[i][0] == '{' && openings[i][1] == '{' ? 3 : 0;
            memcpy(deep + at, openings[i] + skip_bytes, n - skip_bytes);
            at += n - skip_bytes;
        }
        check(!jinja_parse("t", deep, at, &a, &err), "20000 times %s is not refused", openings[i]);
    }
    arena_free(&a);
}

/* A section in which any byte is another is refused or renders within its bounds (sanitizers watch). */
void test_chat_damage(void) {
    static const char text[] =
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</t>{% endfor %}"
                               "{% if add_generation_prompt %}<assistant>{% endif %}";
    static const tfm_turn turns[] = {{TFM_CHAT_SYSTEM, "S", 1}, {TFM_CHAT_USER, " hi ", 4},
                                     {TFM_CHAT_ASSISTANT, "yo\xFF", 3}, {TFM_CHAT_USER, "x", 1}};
    arena a = {NULL, 0, 0, 0};
    chat_source from;
    chat_section section;
    tfm_error err = {0, ""};
    const tfm_chat *c;
    uint64_t object[32];
    char out[512], small[8] = "unused!";
    unsigned char marks[512];
    size_t need = 0;
    memset(&from, 0, sizeof from);
    from.file = "t";
    from.text = text;
    from.n = sizeof text - 1;
    chat_add_variable(&from, "bos_token", "<s>");
    check(!chat_build(&a, &from, NULL, &section, &err) && section.known, "build: %s", err.msg);
    check(!tfm_chat_open(section.bytes, section.size, object, sizeof object, &c, &err), "open: %s", err.msg);
    check(!tfm_chat_render(c, turns, 4, TFM_CHAT_PROMPT, NULL, out, marks, sizeof out, &need, &err), "render: %s",
          err.msg);
    static const char want[] = "<s><system>S</t><user>hi</t><assistant>yo\xEF\xBF\xBD</t><user>x</t><assistant>";
    check(need == sizeof want - 1 && !memcmp(out, want, need), "it is %.*s", (int)need, out);
    check(tfm_chat_render(c, turns, 4, TFM_CHAT_PROMPT, NULL, small, NULL, 0, &need, NULL) == TFM_ERR_MEMORY &&
          need == sizeof want - 1, "the size");
    check(!strcmp(small, "unused!"), "bytes are written past cap");
    check(tfm_chat_render(c, turns + 2, 2, 8, NULL, out, marks, sizeof out, &need, &err) == TFM_ERR_ARG,
          "an unknown flag");
    const tfm_turn late[] = {turns[1], turns[0]};
    check(tfm_chat_render(c, late, 2, 0, NULL, out, marks, sizeof out, &need, &err) == TFM_ERR_ARG,
          "a system text that is not first");
    unsigned char *rule = section.bytes + load_u32(section.bytes + 4 * (TFM_CHAT_TABLES + 2 * TFM_CHAT_RULES));
    rule[13] = 5; /* a mark of 1280 bytes: the time of looking for it would be quadratic */
    check(tfm_chat_open(section.bytes, section.size, object, sizeof object, &c, &err) && strstr(err.msg, "1280"),
          "a long mark");
    rule[13] = 0;
    for (size_t i = 0; i < section.size; i++) {
        for (int k = 0; k < 4; k++) {
            const unsigned char old = section.bytes[i];
            section.bytes[i] = (unsigned char)(k == 0 ? old ^ 1 : k == 1 ? 255 : k == 2 ? old + 64 : 0);
            if (!tfm_chat_open(section.bytes, section.size, object, sizeof object, &c, &err)) {
                const char *value;
                for (int32_t v = 0; tfm_chat_variable(c, v, &value); v++) need += strlen(value);
                tfm_chat_render(c, turns, 4, TFM_CHAT_PROMPT, "today", out, marks, sizeof out, &need, &err);
                tfm_chat_template(c, &need);
                tfm_chat_end(c, 0);
            }
            section.bytes[i] = old;
        }
    }
    for (size_t n = 0; n < section.size; n += 3)
        check(tfm_chat_open(section.bytes, n, object, sizeof object, &c, &err) != 0, "cut at %d", (int)n);
    arena_free(&a);
}

/* Seeds for the fuzz target: t templates, f formats, s sections. */
void test_chat_seeds(void) {
    static const char *const kinds[] = {"cases", "formats"};
    arena a = {NULL, 0, 0, 0};
    const json *all = read_reference(&a);
    char name[32];
    for (int kind = 0; kind < 2; kind++) {
        const json *list = json_get(all, kinds[kind]);
        for (size_t i = 0; i < json_count(list); i++) {
            const json *text = json_get(json_at(list, i), "template");
            chat_section section;
            const char *seed = arena_printf(&a, "%c%s", kind ? 'f' : 't', text->u.text);
            snprintf(name, sizeof name, "%s%d", kinds[kind], (int)i);
            write_seed("chat", name, seed, strlen(seed));
            if (!kind || chat_case_build(&a, json_at(list, i), &section, NULL)) continue;
            char *bytes = arena_alloc(&a, section.size + 1);
            bytes[0] = 's';
            memcpy(bytes + 1, section.bytes, section.size);
            snprintf(name, sizeof name, "section%d", (int)i);
            write_seed("chat", name, bytes, section.size + 1);
        }
    }
    arena_free(&a);
}

/* A template that treats a word of its own differently in what is said is no data, wherever the word stands. */
void test_chat_words(void) {
    static const struct { const char *said; int known; } cases[] = {
        {"m.content", 1}, {"'PASSWORD' ~ m.content", 1}, {"m.content.replace('<s>', '')", 0},
        {"'SECRET' if m.content == 'PASSWORD' else m.content", 0},
        {"('' if '/think' in m.content else '!') ~ m.content", 0},
        {"(m.content ~ '.') if m.role == 'system' and m.content.startswith('You') else m.content", 0},
        {"m.content[:-4] if m.content.endswith('stop') else m.content", 0},
        {"raise_exception('no') if '<|call|>' in m.content else m.content", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arena a = {NULL, 0, 0, 0};
        chat_source from;
        chat_section section;
        tfm_error err = {0, ""};
        memset(&from, 0, sizeof from);
        from.file = "t";
        from.text = arena_printf(&a, "{%% for m in messages %%}<{{ m.role }}>{{ %s }}</t>{%% endfor %%}"
                                 "{%% if add_generation_prompt %%}<assistant>{%% endif %%}", cases[i].said);
        from.n = strlen(from.text);
        check(!chat_build(&a, &from, NULL, &section, &err) && section.known == cases[i].known, "%s is %s: %s",
              cases[i].said, section.known ? "data" : "text", err.msg);
        arena_free(&a);
    }
}

/* Special tokens count only where all their bytes are marked. */
void test_chat_marks(void) {
    static const char file[] =
        "{\"model\": {\"type\": \"BPE\", "
        "\"vocab\": {\"a\": 0, \"b\": 1, \"<\": 2, \">\": 3, \"e\": 4, \"\xC4\xA0\": 5, \"ee\": 6}, "
        "\"merges\": [\"e e\"]}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
        "\"add_prefix_space\": false, \"use_regex\": false}, "
        "\"decoder\": {\"type\": \"ByteLevel\"}, \"added_tokens\": ["
        "{\"id\": 7, \"content\": \"<e>\", \"special\": true, \"normalized\": false, \"rstrip\": true}, "
        "{\"id\": 8, \"content\": \"bb\", \"special\": false, \"normalized\": false}]}";
    static const struct { const char *text, *marks; int n; int32_t ids[12]; } cases[] = {
        {"<e>a<e>b", "11100000", 6, {7, 0, 2, 4, 3, 1}}, {"<e>a<e>b", "00001110", 6, {2, 4, 3, 0, 7, 1}},
        {"<e>a<e>b", "11111111", 4, {7, 0, 7, 1}},       {"<e>a<e>b", "00000000", 8, {2, 4, 3, 0, 2, 4, 3, 1}},
        {"<e>", "110", 3, {2, 4, 3}},                    {"<e>", "011", 3, {2, 4, 3}},
        {"abb<e>", "000111", 3, {0, 8, 7}},              {"<e>  a", "111000", 2, {7, 0}}, /* rstrip as ever */
        {"<<e>", "0111", 2, {2, 7}},                     {"", "", 0, {0}}};
    arena a = {NULL, 0, 0, 0};
    tfm_error err = {0, ""};
    tok_section section;
    const tfm_tokenizer *t = NULL;
    const source src = source_memory("t.json", file, sizeof file - 1);
    int code = tokenizer_from_json(&a, &src, NULL, 0, &section, &err);
    if (!code)
        code = tfm_tokenizer_open(section.bytes, section.size, arena_alloc(&a, tfm_tokenizer_size()),
                                  tfm_tokenizer_size(), &t, &err);
    check(!code, "%s", err.msg);
    for (size_t i = 0; !code && i < sizeof cases / sizeof *cases; i++) {
        unsigned char marks[16];
        int32_t ids[32];
        int64_t n = 0;
        const size_t size = strlen(cases[i].text), room = tfm_encode_size(t, size);
        for (size_t k = 0; k < size; k++) marks[k] = cases[i].marks[k] == '1';
        const int bad = tfm_encode_marked(t, cases[i].text, marks, size, ids, 32, &n, arena_alloc(&a, room), room,
                                          &err);
        check(!bad && n == cases[i].n && !memcmp(ids, cases[i].ids, (size_t)n * sizeof *ids),
              "%s with marks %s: %d ids, the first %d",
              cases[i].text, cases[i].marks, (int)n, n ? (int)ids[0] : -1);
    }
    if (!code) {
        int32_t ids[8];
        int64_t n = 0;
        const unsigned char ones[2] = {1, 1};
        const size_t room = tfm_encode_size(t, 2);
        check(tfm_encode_marked(t, "a\xFF", ones, 2, ids, 8, &n, arena_alloc(&a, room), room, &err) == TFM_ERR_ARG,
              "bad UTF-8");
        check(tfm_encode_marked(t, "a", NULL, 1, ids, 8, &n, arena_alloc(&a, room), room, &err) == TFM_ERR_ARG,
              "no marks");
        check(!tfm_encode_marked(t, "", NULL, 0, ids, 8, &n, arena_alloc(&a, room), room, &err) && !n,
              "nothing to mark");
    }
    arena_free(&a);
}

/* Fed byte by byte, what is shown is the text before the first stop string, and never a part of one. */
static void check_stop(const char *text, const char *const *strings, int n, const char *want, int want_which) {
    tfm_stop stops[4];
    char shown[128] = "", held[128];
    size_t n_shown = 0, n_held = 0;
    int32_t which = -1;
    for (int i = 0; i < n; i++) {
        stops[i].text = strings[i];
        stops[i].n = strlen(strings[i]);
    }
    for (const char *p = text; *p && which < 0; p++) {
        held[n_held++] = *p;
        const size_t safe = tfm_stop_scan(stops, n, held, n_held, &which);
        check(safe <= n_held, "more than there is");
        memcpy(shown + n_shown, held, safe);
        n_shown += safe;
        n_held -= safe;
        memmove(held, held + safe, n_held);
    }
    if (which < 0) { memcpy(shown + n_shown, held, n_held); n_shown += n_held; }
    check(which == want_which && n_shown == strlen(want) && !memcmp(shown, want, n_shown), "%s: %.*s and stop %d", text,
          (int)n_shown, shown, (int)which);
    const size_t whole = tfm_stop_scan(stops, n, text, strlen(text), &which); /* all at once */
    check(which == want_which && (which < 0 || (whole == strlen(want) && !memcmp(text, want, whole))), "%s at once",
          text);
}

void test_chat_stops(void) {
    static const char *const one[] = {"STOP"}, *const two[] = {"abc", "b"}, *const same[] = {"aab"}, *const emoji[] =
        {"\xF0\x9F\xA6\x99"};
    check_stop("a STOP b", one, 1, "a ", 0);
    check_stop("a STO", one, 1, "a STO", -1);
    check_stop("STSTOP", one, 1, "ST", 0);
    check_stop("STOP", one, 1, "", 0);
    check_stop("nothing", one, 1, "nothing", -1);
    check_stop("xabd", two, 2, "xa", 1);
    check_stop("aaaab", same, 1, "aa", 0);
    check_stop("x\xF0\x9F\xA6\x9A\xF0\x9F\xA6\x99", emoji, 1, "x\xF0\x9F\xA6\x9A", 0);
    check_stop("text", NULL, 0, "text", -1);
}
