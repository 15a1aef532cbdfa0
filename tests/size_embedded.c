/* Kernels and blocks and nothing else, to be weighed: a description and weights in memory, a session, its logits. */
#define TFM_IMPLEMENTATION
#define TFM_STATIC /* what is not used stays out */
#define TFM_NO_STDIO
#define TFM_NO_MALLOC
#define TFM_NO_TEXT
#define TFM_NO_THREADS
#define TFM_NO_SIMD
#include "tfm.h"

tfm_result weigh_init(const tfm_config *c, const tfm_weight *w, int64_t n, const tfm_model_config *cfg,
                      const tfm_session_config *setup, void *memory, size_t bytes, tfm_session **s, tfm_error *err);
const float *weigh_step(tfm_session *s, const int32_t *ids, int64_t n);

tfm_result weigh_init(const tfm_config *c, const tfm_weight *w, int64_t n, const tfm_model_config *cfg,
                      const tfm_session_config *setup, void *memory, size_t bytes, tfm_session **s, tfm_error *err) {
    tfm_model *m;
    const tfm_result r = tfm_model_from_weights(c, w, n, cfg, &m, err);
    return r ? r : tfm_session_init(m, setup, memory, bytes, s, err);
}

const float *weigh_step(tfm_session *s, const int32_t *ids, int64_t n) {
    return tfm_eval(s, ids, n, NULL) ? NULL : tfm_logits(s, 0);
}
