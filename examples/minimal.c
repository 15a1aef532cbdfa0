/* minimal.c - a model goes on with your text, in 30 lines. All of inference is the loop: evaluate new tokens, choose
   the next one from the logits of the last, print it. To build: cc -O2 -I.. minimal.c -o minimal */
#define TFM_IMPLEMENTATION
#include "tfm.h"
#include <stdio.h>
#include <string.h>
static char memory[8 << 20]; /* for the tokenizer's work, then for the sampler: 16 bytes per token of the vocabulary */
int main(int argc, char **argv) {
    char *mem = memory + 64 - (uintptr_t)memory % 64, text[1024]; /* aligned; a piece of text */
    int32_t ids[256], id;
    int64_t n = 0, done = 0;                                      /* tokens in ids, and how many are evaluated */
    tfm_error err = {0, "usage: minimal MODEL.tfm PROMPT"};
    tfm_model *model = NULL; tfm_session *s = NULL; tfm_sampler *sampler; tfm_decoder decoder = {0};
    tfm_session_config run = {.size = sizeof run, .n_ctx = 256};
    tfm_sampler_config choice = {.size = sizeof choice, .temp = 0.8f, .top_k = 40, .top_p = 0.95f, .seed = 1};
    int failed = argc < 3 || tfm_model_open(argv[1], NULL, &model, &err) || tfm_session_new(model, &run, &s, &err)
        || tfm_encode(tfm_model_tokenizer(model), argv[2], strlen(argv[2]), 0, ids, 256, &n, mem, 4 << 20, &err)
        || tfm_sampler_init(&choice, tfm_model_config_of(model)->n_vocab, mem, sizeof memory - 64, &sampler, &err);
    if (!failed) tfm_decode_init(&decoder, tfm_model_tokenizer(model), TFM_DECODE_CONTINUATION);
    while (!failed && n < 256) {
        failed = tfm_eval(s, ids + done, n - done, &err) || tfm_sample(sampler, tfm_logits(s, 0), ids, n, &id, &err);
        if (failed || tfm_token_flags(decoder.tokenizer, id) & TFM_TOKEN_SPECIAL) break; /* end of text */
        const size_t k = tfm_decode(&decoder, id, text, sizeof text);
        fwrite(text, 1, k <= sizeof text ? k : 0, stdout);
        ids[done = n++] = id;
    }
    if (failed) fprintf(stderr, "%s\n", err.msg);
    tfm_session_free(s), tfm_model_close(model);
    return failed;
}
