/* family_rows.h - how the tables of families are written: for the files tools/families_*.c alone.
 *
 * A family is ONE row of one of those tables: its name, what people call it, the family it derives from, and for each
 * kind of source its names there, its rules and its tensors, as far as they differ from those it derives from:
 *
 *     {"arcee", "Arcee", "llama", {
 *         HF("arcee", RULES(
 *             NAME_OR("hidden_act", P_ACT, TFM_ACT_RELU2, activations),
 *             FIXED(P_GATED, 0)), NULL)}},
 *
 * A key that is neither used nor listed as harmless is refused by the converter unless it is null, false or empty:
 * better no model than a wrong one.
 */
#ifndef TOOLS_FAMILY_ROWS_H
#define TOOLS_FAMILY_ROWS_H

#include "families.h"

/* ---- FORMS ----------------------------------------------------------------------------------------------------- */

/* The names that a source calls the family by, RULES or NULL, NAMES or NULL. */
#define HF(words, rules, names)   [FORM_HF] = {words, rules, names, NULL, NULL, NULL}
#define GGUF(words, rules, names) [FORM_GGUF] = {words, rules, names, NULL, NULL, NULL}

#define RULES(...)   (const rule[]){__VA_ARGS__, END}
#define NAMES(...)   (const name_row[]){__VA_ARGS__, NAMES_END}
#define STRINGS(...) (const char *const[]){__VA_ARGS__, NULL}
#define END          { NULL, P_NONE, RULE_SPECIAL, 0, 0, NULL }
#define NAMES_END    { NULL, 0, 0 }
#define FAMILIES_END { NULL, NULL, NULL, {{NULL, NULL, NULL, NULL, NULL, NULL}} }

/* Names in GGUF where q, k and v are one tensor, or stand apart if their types differ. */
#define GGUF_FUSED_QKV \
    {"blk.#.attn_qkv.weight", TFM_ROLE_Q, TAKE_ALL_Q}, {"blk.#.attn_qkv.weight", TFM_ROLE_K, TAKE_ALL_K}, \
    {"blk.#.attn_qkv.weight", TFM_ROLE_V, TAKE_ALL_V}, {"blk.#.attn_qkv.bias", TFM_ROLE_Q_B, TAKE_ALL_Q}, \
    {"blk.#.attn_qkv.bias", TFM_ROLE_K_B, TAKE_ALL_K}, {"blk.#.attn_qkv.bias", TFM_ROLE_V_B, TAKE_ALL_V}, \
    {"blk.#.attn_q.weight", TFM_ROLE_Q, TAKE_ROWS}, {"blk.#.attn_k.weight", TFM_ROLE_K, TAKE_ROWS}, \
    {"blk.#.attn_v.weight", TFM_ROLE_V, TAKE_ROWS}, {"blk.#.attn_q.bias", TFM_ROLE_Q_B, TAKE_ROWS}, \
    {"blk.#.attn_k.bias", TFM_ROLE_K_B, TAKE_ROWS}, {"blk.#.attn_v.bias", TFM_ROLE_V_B, TAKE_ROWS}

/* ---- RULES ----------------------------------------------------------------------------------------------------- */

#define FIXED(param, value)           { NULL, param, RULE_FIXED, 0, value, NULL }
#define NEED_INT(key, param)          { key, param, RULE_INT, RULE_REQUIRED, 0, NULL }
#define NEED_REAL(key, param)         { key, param, RULE_REAL, RULE_REQUIRED, 0, NULL }
#define INT(key, param)               { key, param, RULE_INT, 0, 0, NULL }
#define INT_OR(key, param, value)     { key, param, RULE_INT, RULE_DEFAULT, value, NULL }
#define INT_OR_OFF(key, param, value) { key, param, RULE_INT, RULE_DEFAULT | RULE_NULL_IS_OFF, value, NULL }
#define REAL(key, param)              { key, param, RULE_REAL, 0, 0, NULL }
#define REAL_NOT_ZERO(key, param)     { key, param, RULE_REAL, RULE_NOT_ZERO, 0, NULL }
#define REAL_OR(key, param, value)    { key, param, RULE_REAL, RULE_DEFAULT, value, NULL }
#define REAL_OR_OFF(key, param, value) { key, param, RULE_REAL, RULE_DEFAULT | RULE_NULL_IS_OFF, value, NULL }
#define BOOL(key, param)              { key, param, RULE_BOOL, 0, 0, NULL }
#define BOOL_OR(key, param, value)    { key, param, RULE_BOOL, RULE_DEFAULT, value, NULL }
#define BITS(key, param, bits)        { key, param, RULE_BITS, 0, bits, NULL }
#define BITS_ON(key, param, bits)     { key, param, RULE_BITS, RULE_DEFAULT, bits, NULL }
#define NAME(key, param, names)       { key, param, RULE_NAME, 0, 0, names }
#define NAME_OR(key, param, value, names) { key, param, RULE_NAME, RULE_DEFAULT, value, names }
#define SPECIAL(key, param)           { key, param, RULE_SPECIAL, 0, 0, NULL }
#define HARMLESS(key)                 { key, P_NONE, RULE_SPECIAL, 0, 0, NULL }

/* ---- VALUES THAT SEVERAL TABLES USE ---------------------------------------------------------------------------- */

enum { BIAS_QKV = TFM_BIAS_Q | TFM_BIAS_K | TFM_BIAS_V, BIAS_MLP = TFM_BIAS_GATE | TFM_BIAS_UP | TFM_BIAS_DOWN };

extern const named_value activations[], parallel_1[], parallel_2[];
extern const char *const hf_prefixes[];

/* ---- THE TABLES ------------------------------------------------------------------------------------------------ */

/* Each ends with FAMILIES_END; families.c looks through all of them. */
extern const family families_base[], families_llama[], families_gpt[], families_moe[];

#endif
