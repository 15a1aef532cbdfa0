/* families.h - what is known of model families, as data. The files families_*.c alone know their names.
 *
 * A family is a row of one of those files: how its checkpoints are recognised, which keys of their configuration mean
 * what (rules), and which tensors play which role (names), once for Hugging Face directories and once for GGUF. A
 * family may derive from another: its own rules and names come first, the rest is the other's. A new family of known
 * parts is one row with the few rules and names that differ; family_rows.h says how it is written.
 *
 * Rules put numbers into a value_set. describe.c makes a tfm_config of them, the same way for every family and source.
 */
#ifndef TOOLS_FAMILIES_H
#define TOOLS_FAMILIES_H

#include "base.h"

/* ---- VALUES ---------------------------------------------------------------------------------------------------- */

/* What a checkpoint can say about its model. Integers up to 2^31 and real numbers alike are held as double. */
typedef enum param {
    P_NONE,                 /* the key is known to change nothing in inference */
    P_ZERO,                 /* the key stands for a part that is not built: only 0 is accepted */
    /* sizes */
    P_N_LAYERS, P_D_MODEL, P_N_VOCAB, P_N_CTX, P_D_FF, P_N_HEADS,
    P_N_KV_HEADS,           /* absent or -1: n_heads */
    P_HEAD_DIM,             /* absent: d_model / n_heads */
    P_VALUE_DIM,            /* must be head_dim */
    /* parts */
    P_NORM_KIND, P_NORM_EPS, P_NORM_OFFSET, P_NORM_PLACE, P_NORM_NO_WEIGHT, P_QK_NORM, P_QK_AFTER_ROPE, P_ACT, P_GATED,
    P_QK_NORM_KIND, P_QK_NORM_EPS, /* absent: those of the other norms */
    P_OUT_NORM,             /* 0: no final norm */
    P_OUT_NORM_DROPPED,     /* 1: none although P_OUT_NORM says so */
    P_EMBED_NORM,           /* 1: the embedding passes through a norm */
    P_RESIDUAL, P_RESIDUAL_SCALE,
    P_BIAS,                 /* TFM_BIAS_ bits */
    P_HEAD_BIAS,
    P_UNIT_HEAD,            /* given at all: the rows of the output matrix are scaled to length 1 */
    P_UNIT_HEAD_VOCAB,      /* so are those of a model with so many */
    P_LOGITS_OFF,           /* an object of names and ids: the IMGIMG... among them can never come next */
    P_LOGITS_OFF_FIRST, P_LOGITS_OFF_END, /* nor can ids from the one to before the other, if there are so many */
    P_QKV_CLAMP,
    P_ATTN_SCALE,           /* replaces head_dim^-1/2 */
    P_SCALE_BY_LAYER,       /* 1: scores are divided by the layer's number, the first being 1 */
    P_ALIBI,
    P_SLOPE_RULE,           /* SLOPES_ */
    P_ALIBI_LAYERS,         /* a model of so many layers has ALiBi and no RoPE */
    P_QUERY_SCALAR,         /* scores are multiplied by its ^-1/2; absent: head_dim */
    P_QUERY_WIDE_LAYERS,    /* a model of so many layers has query scalar d_model / n_heads */
    P_ATTN_SOFTCAP, P_LOGIT_SOFTCAP,
    P_EMBED_SQRT,           /* 1: embeddings are multiplied by sqrt(d_model) */
    P_EMBED_SCALE, P_LOGIT_SCALE,
    P_LOGIT_DIVISOR,        /* logits are divided by it */
    P_D_EMBED,              /* width of the embedding where it is not d_model */
    P_POS_KIND, P_POS_OFFSET,
    P_TIED, P_BOS,
    P_LOG_SCALE,            /* 1: queries grow with the logarithm of the position past the original context */
    /* masks */
    P_SPARSE,               /* an object with the keys of sparse_rules */
    P_MASK, P_MASK_STRIDE, P_MASK_COLUMNS, P_MASK_GROUPS,
    P_MASK_LAYERS,          /* a list: see arch.mask_layers */
    /* windows */
    P_WINDOW, P_WINDOW_ON, P_WINDOW_RULE,
    P_WINDOW_PERIOD,        /* WINDOW_PERIOD: every so many-th layer sees everything */
    P_WINDOW_FIRST,         /* WINDOW_FROM: the first layer with a window */
    P_LAYER_TYPES,          /* a list: see arch.window_layer */
    P_LAYER_RUNS,           /* the same as [[types, repeats]...] */
    P_EOS,                  /* an id or a list: see arch.eos */
    /* RoPE */
    P_ROPE_LAYERS,          /* ROPE_IN_: which layers rotate */
    P_ROPE_PERIOD,          /* ROPE_IN_PERIOD: every so many-th layer does not */
    P_ROPE_FLAGS,           /* a list of 0 and 1: see arch.rope_layer */
    P_ROPE_PART,            /* the part of a head that rotates; P_ROPE_DIMS wins */
    P_ROPE_LOCAL_PLAIN,     /* 1: window layers have the same theta but no scaling */
    P_ROPE_STYLE, P_ROPE_DIMS, P_ROPE_THETA, P_ROPE_LOCAL_THETA,
    P_ROPE_OBJECT,          /* an object with the keys of rope_rules, or such objects by layer type */
    P_ROPE_SCALING, P_ROPE_FACTOR, P_ROPE_LOW, P_ROPE_HIGH, P_ROPE_SLOW, P_ROPE_FAST,
    P_ROPE_ATTN_FACTOR, P_ROPE_MSCALE, P_ROPE_MSCALE_ALL, P_ROPE_TRUNCATE,
    P_ROPE_CTX_ORIG,        /* beside the other RoPE values */
    P_CTX_ORIG,             /* at the top of the configuration, where it wins */
    P_ROPE_SHORT, P_ROPE_LONG, /* lists of factors */
    P_ROPE_ALPHA,           /* theta times this ^ (dims / (dims - 2)), whatever the length, if P_ROPE_BY_ALPHA */
    P_ROPE_BY_ALPHA,
    P_TEMPERATURE,          /* queries times 1 + this * ln(1 + floor((position + offset) / context)) */
    P_TEMPERATURE_CTX,      /* absent: the original context */
    P_TEMPERATURE_OFFSET, P_TEMPERATURE_ON,
    P_TEMPERATURE_NO_ROPE,  /* 1: only in layers that do not rotate */
    /* attention, further */
    P_SINKS,
    P_CHUNKED,              /* 1: windows are chunks */
    P_QK_NO_WEIGHT,
    P_QK_WITH_ROPE,         /* 1: norms of q and k only in layers that rotate */
    P_QK_NOT_EXPERTS,       /* a model of so many experts has no norms of q and k */
    /* feed-forward, further */
    P_FFN_LIMIT, P_UP_OFFSET,
    P_GLU_ALPHA,            /* must be 1.702, the factor inside TFM_ACT_GELU_QUICK */
    /* mixture of experts; P_N_EXPERTS 0: there is none */
    P_N_EXPERTS, P_N_EXPERTS_USED,
    P_D_EXPERT,             /* absent: P_D_FF */
    P_D_SHARED,             /* width of the shared expert */
    P_N_SHARED,             /* so many shared experts side by side are one, P_D_EXPERT wide each */
    P_SHARED_GATE,
    P_ROUTER_SCORE, P_ROUTER_PICK, P_ROUTER_WEIGHT, P_ROUTER_NORM, P_ROUTER_NORM_EPS, P_ROUTER_NORM_FLOOR,
    P_ROUTER_SCALE, P_ROUTER_JITTER, P_ROUTER_ON_INPUT,
    P_ROUTER_GATING,        /* GGUF's number: 1 softmax, 2 sigmoid, 3 softmax over those picked; 0: the family's */
    P_N_GROUPS, P_N_GROUPS_USED, P_GROUP_SCORE,
    P_MOE_FIRST, P_MOE_LAST, P_MOE_STEP, /* layers first..last (-1: the end) whose number + 1 is a multiple of step */
    P_MOE_LAYERS,           /* a list: only these, see arch.moe_layer */
    P_DENSE_LAYERS,         /* a list: these are not */
    P_FFN_TYPES,            /* a list of "dense" and "sparse" */
    P_N_EXTRA_LAYERS,       /* so many layers after P_N_LAYERS predict further tokens: not part of the model */
    P_EXTRA_COUNTED,        /* 1: P_N_LAYERS counts them */
    P_NESTED,               /* an object whose members are read as if they stood outside it */
    P_COUNT
} param;

typedef struct value_set {
    double v[P_COUNT];
    unsigned char given[P_COUNT]; /* 0 absent, 1 the family's default, 2 from the file */
} value_set;

enum { GIVEN_DEFAULT = 1, GIVEN_FILE = 2 };

/* Values of P_WINDOW_RULE: which layers have the window, where the checkpoint does not list them. */
enum { WINDOW_NEVER, WINDOW_ALL, WINDOW_PERIOD, WINDOW_FROM,
       WINDOW_EVEN_BELOW,   /* every other layer, the first one too, below P_WINDOW_FIRST */
       WINDOW_WITH_ROPE };  /* the layers that rotate */

/* Values of P_ROPE_LAYERS. ROPE_IN_WINDOWS: where any layer has a window, only those that have one. */
enum { ROPE_IN_ALL, ROPE_IN_WINDOWS, ROPE_IN_PERIOD };

/* Values of P_SLOPE_RULE, for head counts that are no power of two. SLOPES_BELOW: those of the power below, then every
 * other one of its double. SLOPES_ABOVE: of the power above, the odd-numbered after the even-numbered ones. */
enum { SLOPES_BELOW, SLOPES_ABOVE };

/* ---- RULES ----------------------------------------------------------------------------------------------------- */

typedef enum rule_kind {
    RULE_FIXED,             /* no key: the family has this value */
    RULE_INT, RULE_REAL, RULE_BOOL,
    RULE_BITS,              /* true sets the bits of `value`, false clears them */
    RULE_NAME,              /* one of `names`; true and false are names too */
    RULE_SPECIAL            /* a list or an object, by its param */
} rule_kind;

enum {
    RULE_REQUIRED = 1,
    RULE_DEFAULT = 2,       /* `value` if the key is absent */
    RULE_NULL_IS_OFF = 4,   /* null is 0, not the default */
    RULE_NOT_ZERO = 8       /* 0 is refused: it does not mean that the key is absent */
};

typedef struct named_value {
    const char *name;
    int value;
} named_value;

typedef struct rule {
    const char *key;        /* in config.json; in GGUF what follows the architecture's name: ".block_count" */
    unsigned char param, kind, flags;
    double value;           /* of a default or RULE_FIXED; bits */
    const named_value *names;
} rule;

/* The keys inside rope_scaling and rope_parameters, and inside sparse_attention. Each ends with an empty row, as all
 * tables of rules do. */
extern const rule rope_rules[], sparse_rules[];

/* ---- NAMES ----------------------------------------------------------------------------------------------------- */

/* How rows of a tensor are taken from the source. Q, K and V may stand in one tensor: ALL has the rows of q, those of
 * k, those of v; GROUPS has, for each key/value head, its query heads, the key, the value; QUARTERS has four parts of
 * q, v and k. TAKE_COLUMNS is added to any of them: the source is [in][out], its columns are our rows. TAKE_EXPERTS is
 * added where a tensor holds all experts, one after another: what stands before is meant within the part of one. */
typedef enum name_take {
    TAKE_ROWS,              /* as they are */
    TAKE_PAIRS_Q,           /* per head, rows (0, d/2, 1, d/2 + 1 ...) are brought into the order 0, 1, 2 ... */
    TAKE_PAIRS_K,           /* the same with n_kv_heads */
    TAKE_ALL_Q, TAKE_ALL_K, TAKE_ALL_V,
    TAKE_GROUPS_Q, TAKE_GROUPS_K, TAKE_GROUPS_V,
    TAKE_QUARTERS_Q, TAKE_QUARTERS_K, TAKE_QUARTERS_V,
    TAKE_FIRST_HALF, TAKE_SECOND_HALF, /* gate above up */
    TAKE_SWAP_Q, TAKE_SWAP_K, /* per head, the second half of the rows first: RoPE that turns the other way */
    TAKE_EVEN, TAKE_ODD,      /* gate and up in turns */
    TAKE_EXPERTS = 0x40, TAKE_COLUMNS = 0x80
} name_take;

/* pattern: '@' is the prefix of the model's own tensors, '#' the layer, '~' the expert. Several rows may serve one
 * role; the first that the checkpoint holds is taken. In Hugging Face directories a vector may be joined from several:
 * '|' stands between their patterns, '%' for 0, 1 ... as far as there are any. */
typedef struct name_row {
    const char *pattern;
    unsigned char role, take;
} name_row;

/* ---- FAMILIES -------------------------------------------------------------------------------------------------- */

typedef enum source_form { FORM_HF, FORM_GGUF, FORM_LLAMA2C, FORM_COUNT } source_form;

typedef struct form_tables {
    const char *names_of;           /* model_type or general.architecture values, separated by blanks. A word "KEY=" in
                                       front: the row is meant only where the configuration has KEY, not false or
                                       null, and goes before rows without such a word */
    const rule *rules;
    const name_row *names;
    const char *const *prefixes;    /* what '@' may stand for */
    const char *const *own;         /* tensors that begin so are the model's: an unknown one is an error */
    const char *const *skip;        /* tensors of the model that hold no weights, '*' = anything */
} form_tables;

typedef struct family {
    const char *name;
    const char *title;              /* as people call it, for lists; NULL: only a base of others */
    const char *base;               /* the name of the family it derives from; NULL: of none */
    form_tables form[FORM_COUNT];
} family;

/* Whether the configuration has a key, not false or null. */
typedef int family_asks(const void *user, const char *key);
/* The family of a model_type (or GGUF architecture); NULL: unknown. */
const family *family_find(source_form form, const char *name, family_asks *ask, const void *user);
/* The family that one derives from, NULL: none. */
const family *family_base(const family *f);
/* "gemma, gemma2, ..." for messages. */
const char *family_list(source_form form, char *buf, size_t size);
/* The i-th family of all tables; NULL past the end. */
const family *family_at(int i);

/* The i-th rule for a key of the most derived table that has it (a key may set several values); NULL past the end. */
const rule *family_rule(const family *f, source_form form, const char *key, int i);
/* Sets what the family says before the file is read. */
void family_defaults(const family *f, source_form form, value_set *set);
/* A required key that neither the file nor a default gave; NULL: none is missing. */
const char *family_missing(const family *f, source_form form, const value_set *set);

/* The rows of a role: the i-th of the most derived table that has it; NULL past the end. */
const name_row *family_name(const family *f, source_form form, int role, int i);
const char *const *family_prefixes(const family *f, source_form form);
/* Whether an unused tensor is the model's own, and whether it is known to be harmless. */
int family_owns(const family *f, source_form form, const char *prefix, const char *name);
int family_skips(const family *f, source_form form, const char *name);

/* pattern with prefix, layer and expert filled in. Returns buf; a name that does not fit is cut, so it is not found. */
const char *family_format(const char *pattern, const char *prefix, int layer, int expert, char *buf, size_t size);
/* The i-th row whose vector is joined; NULL past the end. */
const name_row *family_joined(const family *f, source_form form, int i);

#endif
