/* tfm.h - v0.1.0 - transformer language models in one C header - MIT-0 or public domain, your choice (see the end)

   Do this once, in one C or C++ file, to make the implementation:
       #define TFM_IMPLEMENTATION
       #include "tfm.h"
   and include "tfm.h" anywhere else. No library but libc (not even libm), no compiler flag, no build system.

   A complete program: it opens a converted model and goes on with a sentence, always taking the likeliest token.

       #define TFM_IMPLEMENTATION
       #include "tfm.h"

       int main(void) {
           tfm_error err;
           tfm_model *m;
           tfm_session *s;
           if (tfm_model_open("model.tfm", NULL, &m, &err)) return puts(err.msg), 1;
           if (tfm_session_new(m, NULL, &s, &err)) return puts(err.msg), 1;
           const tfm_tokenizer *t = tfm_model_tokenizer(m);
           static int64_t scratch[1 << 13];  // plenty for a short prompt: tfm_encode_size tells
           static char out[1 << 12];
           int32_t ids[64], id;
           int64_t n;
           const char *prompt = "Once upon a time";
           if (tfm_encode(t, prompt, strlen(prompt), 0, ids, 64, &n, scratch, sizeof scratch, &err))
               return puts(err.msg), 1;
           tfm_decoder d;
           tfm_decode_init(&d, t, TFM_DECODE_CONTINUATION);
           for (int i = 0; i < 100; i++, ids[0] = id, n = 1) {
               if (tfm_eval(s, ids, n, &err)) return puts(err.msg), 1;
               id = tfm_argmax(tfm_logits(s, 0), tfm_model_config_of(m)->n_vocab);
               const size_t k = tfm_decode(&d, id, out, sizeof out);
               if (k <= sizeof out) fwrite(out, 1, k, stdout);
           }
           return 0;
       }

   Model files: `tfm-convert` (tools/) turns a Hugging Face directory (safetensors or PyTorch), a GGUF file or a
   llama2.c checkpoint into a .tfm.

   CONTENTS (search for the tag)
       [1]  MANUAL: concepts, memory, threads, errors, untrusted files, build switches, recipes
       API  [A1] config · [A2] results, errors, memory, threads · [A3] tensors and kernels · [A4] architecture
            [A5] the file · [A6] model and session · [A7] tokenizer, chat format · [A8] sampler
       CODE [B1] platform · [B2] base · [B3] formats · [B4] threads · [B5] description · [B6] file · [B7] model
            [B8] session · [B9] forward · [B10] tokenizer, chat format · [B11] sampler
            [B12] instruction sets
            [C]  kernels, once per instruction set · [D] licence, history

   ====================================================================================================================
   [1] MANUAL

   CONCEPTS
   Three layers, each usable alone.
     kernels   pure functions on arrays, for a model of your own: tfm_rmsnorm, tfm_rope, tfm_matmul, tfm_attention [A3]
     blocks    a tfm_config describes an architecture as data; tfm_model_from_weights binds your arrays to it by role
               and tfm_eval runs it: no file, no tokenizer [A4] [A6]
     text      a model file, its tokenizer and chat format, a session, a sampler [A5] to [A8]
   The header knows no model's name. A file carries the description of its own blocks (norms, positions, attention,
   feed-forward, residual, head), written by the converter; a new model of known parts is a row in the converter's
   table. Each step of the forward pass [B9] is a short function that reads its part of the description.

   A tfm_model never changes: share it among threads and sessions. A tfm_session is one timeline of tokens with its KV
   cache: tfm_eval appends tokens, tfm_session_rewind takes them back, tfm_logits shows what comes next.

   EXACT AND FAST
   act F32: weights of any type meet float32 activations, one fused chain a result: the values that a float32 reference
   computes on the dequantised weights. act Q8 (default): quantised weights meet int8 activations (one scale per 32),
   the way every fast engine computes; perplexity moves by about 0.1 %. Float weights always meet float32 activations.
   K and V pass through the cache's type (default f16) before use.

   THE SAME BITS
   Logits do not depend on the number of threads, on how a prompt is cut into evals, on the batch size or on other
   sessions: every output element is one fixed sequence of operations [C].
     float32 activations: acc = madd(w, x, acc) over the inputs ascending, one chain from 0
     q8 activations x of scale dx: per 32 inputs ascending, of sub-blocks of 16 per 16, t = sum of q * x, an exact
       integer, and acc = madd(round(t * dx), d * scale, acc); then where there are minima acc = madd(-(dmin * minimum),
       sx, acc) (Q4_1, Q5_1: madd(m, sx, acc)) with sx = round(dx * sum of x), or per 32 inputs with sub-blocks of 16
       acc = madd(-round(u * dx), dmin, acc) with u = sum of minimum * x
     attention: K and V pass through the cache's type; q.k is one chain of madd from 0, the head's elements ascending;
       online softmax over blocks of 64 positions at absolute places, weights below e^-87 of a block's largest being 0
     experts: a token's are summed by ascending number, the shared one last; tokens are grouped by expert, rows stay
       apart
   madd is fused in the passes whose hardware has it (AVX2, AVX-VNNI, AVX-512, NEON), which give each other's bits in
   matmul and everywhere else, whole models included; the others (scalar, WebAssembly, Helium) round the product and
   differ in the last places: by less than 1.5e-5 of the largest logit in exact mode on the models of tests/test_bits.c,
   which knows the hash that every host must give; in fast mode by up to 0.05, where an 8-bit code of an activation
   turns. Vectors of Helium have no subnormal numbers: results below 2^-126 are 0 there.

   MEMORY
   Two allocations: the model's tables (weights stay in the mapped file, used in place) and the session.
   tfm_session_size says the bytes in advance, exactly, the same on every host; tfm_model_init and tfm_session_init work
   in memory of the caller's (64-byte aligned) and then nothing is allocated at all. After creation nothing allocates:
   not evaluating, tokenizing, sampling or rendering a conversation. The KV cache costs exactly
   2 * n_layers * n_kv_heads * head_dim * length * bytes; length is the context, or for layers that see no more than a
   window (or chunk, or stride) min(context, window + batch): tfm-inspect prints these products. Strings and logits that
   are returned are views; their life is said at each function. Stack: at most 32 KB, with TFM_PANEL 4096 at most 20 KB.

   SESSIONS
   A session is bytes without pointers into itself: save them, copy them, give them to another process. One that is
   restored, forked or rewound goes on with the bits of one that ran through.
       fwrite(s, 1, bytes, f);  ...  fread(buffer, 1, bytes, f), tfm_session_restore(s2, buffer, bytes, &err);
       tfm_session_restore(fork, s, bytes, &err);                           // bytes: tfm_session_size of that config
       tfm_session_rewind(s, common, &err);                                 // keep what two prompts begin with
   Rewinding is free on layers that see everything; layers with a window keep n_batch positions more than they see, so
   after their caches have gone round it goes back at most n_batch below the furthest position, and further is
   TFM_ERR_CONTEXT: rewind to 0 and evaluate again. A full context is TFM_ERR_CONTEXT, too; nothing is shifted or
   dropped unasked. To go on with less, rewind to 0 and evaluate what is to be kept.

   THREADS
   Kernels never start threads. A session cuts its work into a share for each of n_threads threads, and each share into
   up to five parts: half of it, half of what is left, and so on, none smaller than cfg.grain (to fork and join two
   threads takes 0.3 to 2 microseconds with tools/pool.c and 1 with gcc's OpenMP while the threads still spin, tens once
   they sleep; tfm-bench measures it). It hands the parts to cfg.parallel.run, to OpenMP if the implementation was
   compiled with it, or runs them in turn. Part i belongs to share i % n_threads: a thread that takes those of its own
   share first finds their data in its caches, and if it then takes what is left of others', all end together.
   tools/pool.c is such a pool.
       call                                                      may run at the same time as
       anything with a const tfm_model, tfm_tokenizer, tfm_chat  anything
       anything with a tfm_session, tfm_sampler, tfm_decoder     calls on other objects; one thread at a time per
                                                                 object, not always the same; also where it is const
       tfm_session_restore                                       the same, and nothing that changes the bytes it reads
       kernels, tfm_pack, tfm_hash_feed                          anything that leaves their arrays alone
       tfm_model_close                                           nothing that uses that model; free its sessions first
   fn of cfg.parallel.run may be called on any thread. progress and trace are called on the thread of tfm_eval, between
   pieces of work; they may look at the session, not change it.

   CHAT
   A file may say how its model wants a conversation written. The text of all turns comes from tfm_chat_render, its ids
   from tfm_encode_marked: special tokens are those of the format, whatever a user types.
       tfm_turn turns[] = {{TFM_CHAT_SYSTEM, "Be brief.", 9}, {TFM_CHAT_USER, "Hello!", 6}};
       tfm_chat_render(c, turns, 2, TFM_CHAT_PROMPT, NULL, NULL, NULL, 0, &n, &err);         // n: the bytes it takes
       tfm_chat_render(c, turns, 2, TFM_CHAT_PROMPT, NULL, text, marks, n, &n, &err);
       tfm_encode_marked(t, text, marks, n, ids, max_ids, &n_ids, scratch, scratch_bytes, &err);
   Sample until an id of the description's eos or of tfm_chat_end, append the answer as a turn of the assistant, and so
   on. To reuse what is evaluated: rewind the session to the common beginning of its ids and the new ones, eval the
   rest.

   WITHOUT AN OPERATING SYSTEM
   TFM_NO_STDIO, TFM_NO_MALLOC, TFM_NO_MMAP and TFM_NO_THREADS leave a header that wants memcpy, memset, memmove,
   memcmp, memchr, strlen and strcmp of its surroundings. The model is a constant array in flash, used in place:
   `tfm-convert --c-array NAME SRC OUT.h` writes it as C, or an assembler takes the file in: `.balign 64`,
   `NAME: .incbin "MODEL.tfm"`. `tfm-inspect MODEL --plan NAME -c CTX --batch 1` prints the bytes of tfm_model_init and
   tfm_session_init as constants: one static buffer, nothing else grows but the stack. tfm_eval uses float32 and
   integers only: no double arithmetic, no 64-bit division, no unaligned access of its own (the C library's memcpy may
   make some where the CPU can). Roots are rounded correctly; sine and cosine of rotary angles are within 0.55 ulp, e^x
   within 1.5, expm1 within 2, log1p within 2.5: not libm's, so that every CPU gives the same bits as the scalar pass of
   a desktop. TFM_TYPES, TFM_NO_NFC, TFM_NO_EXPERTS and TFM_NO_MESSAGES make the program smaller, TFM_PANEL its stack.
   Where the CPU has SMLAD (Cortex-M4 and up) the dot products of the scalar pass use it unless TFM_NO_SIMD: the same
   bits. Helium (Cortex-M55, -mcpu=cortex-m55) is a pass of its own, chosen when compiling: a quarter of the
   instructions. examples/embedded runs on Cortex-M4F, Cortex-M55 and 32-bit RISC-V.

   FLAGS
   None is needed. One is not for this code: -ffast-math lets the compiler assume that there are no NaNs, and checks
   for damaged weights stop working. Under clang's -ffp-contract=fast, which no pragma undoes, the last places differ
   from those of other builds (=on, its default, and =off are fine, and gcc's fast is undone). In gcc's ISO modes
   (-std=c99) s390x computes float as double, and the last places differ from those of other hosts: -std=gnu99 does
   not. 32-bit x86 needs a CPU with SSE2, as registers of the x87 are too wide.

   BYTE ORDER
   A file is little-endian, and on such hosts used in place. On a big-endian one its weights are copied once into the
   host's order, as part of the model: tfm_model_size counts their bytes, the file must stay all the same. Arrays of the
   caller's (tfm_model_from_weights, floats for tfm_pack) have the host's order; tfm_file_order changes it.

   WEBASSEMBLY
   Nothing of a C library is needed but memcpy and a few like it: examples/wasm builds a module by clang alone. SIMD is
   chosen when compiling, and a module runs whole or not at all: -msimd128, and with -mrelaxed-simd the products of
   bytes that engines have since 2023, used so that nothing in them is left to the engine; -DTFM_WASM_DOT besides takes
   the product of four bytes, which is faster where it is one instruction of the processor (AVX-VNNI, ARM's dot
   product), and much slower where it is not. examples/wasm/tfm.mjs tells which. All give the scalar pass's bits.
   Threads: Workers over shared memory behind cfg.parallel.run, compiled with -matomics -mbulk-memory. -Os: speed is the
   same as with -O2, and the module half as large; TFM_NO_SCALAR leaves out the pass that is not used then.

   ERRORS
   Calls that can fail on input return a tfm_result (0 = TFM_OK, negative = error) and fill an optional tfm_error with
   one line that names the field, tensor or offset. Kernels check nothing: their preconditions stand in [A3]. The header
   never prints, exits, aborts, sets errno or keeps global state. TFM_DEBUG adds assertions on the preconditions.

   UNTRUSTED FILES
   The structure of a file is checked once when it is opened, by one cursor with overflow-safe arithmetic; header,
   section table and all known sections but tokenizer and weights have hashes that are checked then, those two have
   hashes that tfm_model_verify checks. Hashes find damage; numbers are checked whether they agree or not. Look-ups into
   tokenizer tables stay inside whatever the bytes say, and tfm_encode takes at most TFM__TOK_STEPS steps for each byte
   of the text and 64 more: tables that would need more are TFM_ERR_FORMAT. The file must not change while it is mapped;
   where that is not trusted open it with no_mmap.

   BUILD SWITCHES (define before the implementation is included)
       TFM_STATIC     all functions static: implementation and use in one file, several copies in one program
       TFM_API        your own linkage, e.g. __declspec(dllexport)
       TFM_NO_STDIO   no files: tfm_model_open is missing          TFM_NO_MMAP    files are read, never mapped
       TFM_NO_MALLOC  no default allocator                         TFM_NO_TEXT    no tokenizer
       TFM_NO_MESSAGES  errors have a code and its number for a text (10 KB)
       TFM_NO_EXPERTS no mixtures of experts (4 KB of Thumb-2 code)
       TFM_NO_THREADS everything on the caller's thread: neither OpenMP nor cfg.parallel
       TFM_NO_SCALAR  no scalar pass where SIMD is chosen when compiling: WebAssembly, Helium
       TFM_NO_SIMD    scalar pass only                             TFM_NO_AVX2 (AVX-VNNI too), TFM_NO_AVX512, TFM_NO_AMX
       TFM_NO_NFC     no tables for Unicode normal forms (25 KB): text is taken as if it were normalised already. Other
                      Unicode data (lower case, compatibility, scripts, clusters) comes in the files that need it
       TFM_PANEL      bytes of the panel on the stack, most of what kernels need there: 16384, or less in steps of 4096
       TFM_TYPES      the weight types that are built, F32 always: e.g. (1ull << TFM_Q8_0 | 1ull << TFM_Q4_0); else all
       TFM_SELF       the name under which this file includes itself, if it was renamed (default "tfm.h")
       TFM_DEBUG      assert() on the preconditions of kernels     TFM_FUZZING    hashes are not compared (fuzzers only)

   RECIPES
   Each names every place to touch, by tag; the rest follows from tables.
     a family of known parts   tools/families_llama.c (or _gpt, _moe): one row; its test, a row of tests/ref_families.py
                               Example: "arcee" in families_llama.c: what Llama's block does otherwise there, no more.
     an activation             [A3] a row of TFM__ACTIVATIONS; [C] its function. Example: relu2 is
                               X(RELU2, 2, "relu2", relu2) and EN(act_relu2). A converter reads it under the name in
                               the row.
     a norm                    [A3] a row of TFM__NORMS; [C] its function. Example: l2 is X(L2, 3, "l2", l2) and
                               FN(norm_l2).
     a way to route tokens     [A4] enum value and its rule at TFM_FFN_EXPERTS; [B5] its name in tfm__enums; [B9]
                               tfm__route_rows or tfm__weigh_picks; tests/test_moe.c: one row and its plain form
     a weight type             [A3] enum value; [B3] its name in TFM__BLOCK_TYPES, its row of tfm__formats; only if none
                               that is there fits: its unpack, book or way of scales, in [B3] and FN(unit_scales);
                               tools/gguf.c the row; tests/test_kernels.c;
                               to quantise: tools/quantize.c a row of schemes, tools/mix.c a row of MIX_TABLE
     an instruction set        [A3] enum value; [B12] pass number, stanza, detection bit, row of tfm__passes, name in
                               tfm_isa_name; [C] a block of primitives, or by TFM__OLD what differs from another
   tests/test_recipes.c follows them: what stands behind TFM__TEST_PARTS is one of each, but for the routing.

   Until version 1.0 the API may break; each break is a line in the history at the end.
   ================================================================================================================= */

#if !defined(TFM_H) && !defined(TFM__PASS)
#define TFM_H

/* ====================================================================================================================
   [A1] CONFIG: version, linkage, switches
   ================================================================================================================= */

#define TFM_VERSION_MAJOR 0
#define TFM_VERSION_MINOR 1
#define TFM_VERSION_PATCH 0
#define TFM_VERSION "0.1.0"

#include <stddef.h>
#include <stdint.h>

#ifdef TFM_STATIC
#if defined(__GNUC__)
#define TFM_API static __attribute__((unused))
#else
#define TFM_API static
#endif
#elif !defined(TFM_API)
#define TFM_API extern
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the implementation that was linked ("0.1.0"). */
TFM_API const char *tfm_version(void);

/* ====================================================================================================================
   [A2] BASE TYPES: results, errors, memory, threads
   Every call that can fail on input returns a result and fills an optional tfm_error (NULL = not wanted).
   ================================================================================================================= */

enum {
    TFM_OK = 0,
    TFM_ERR_ARG = -1,         /* an argument is out of range; the message names it */
    TFM_ERR_IO = -2,          /* the file cannot be opened, read or mapped */
    TFM_ERR_FORMAT = -3,      /* the file is damaged or lies; the message names field, tensor or offset */
    TFM_ERR_UNSUPPORTED = -4, /* well-formed, but made for a newer header or another build (TFM_NO_...) */
    TFM_ERR_MEMORY = -5,      /* allocation failed, or the caller's buffer is too small or not aligned to 64 bytes */
    TFM_ERR_CONTEXT = -6,     /* the tokens do not fit the session's context; nothing was evaluated */
    TFM_ERR_NUMERIC = -7,     /* a wanted logit is not finite */
    TFM_ERR_CANCELLED = -8    /* the progress callback asked to stop; the session stands at its last whole position */
};
typedef int32_t tfm_result;

typedef struct tfm_error {
    int32_t code;  /* one of the above */
    char msg[252]; /* one line, no newline, always terminated */
} tfm_error;

/* Memory: NULL pointers = malloc and free. `align` is a power of two <= 64. alloc returns NULL when out of memory. */
typedef struct tfm_allocator {
    void *user;
    void *(*alloc)(void *user, size_t size, size_t align);
    void (*release)(void *user, void *ptr, size_t size);
} tfm_allocator;

/* Threads: run(user, fn, arg, n) calls fn(arg, i) exactly once for each i in [0, n), on any threads it likes, at the
   same time or not, and returns when all have returned. n may be larger than n_threads (THREADS above: the best order).
   run = NULL: OpenMP if the implementation was compiled with it, else serial. Results never depend on it. */
typedef struct tfm_parallel {
    void *user;
    void (*run)(void *user, void (*fn)(void *arg, int index), void *arg, int n);
} tfm_parallel;

/* ====================================================================================================================
   [A3] TENSORS AND KERNELS
   ================================================================================================================= */

/* Element types; numbers and names are those of GGUF. Blocks: see [B3]. */
enum {
    TFM_F32 = 0, TFM_F16 = 1, TFM_Q4_0 = 2, TFM_Q4_1 = 3, TFM_Q5_0 = 6, TFM_Q5_1 = 7, TFM_Q8_0 = 8,
    TFM_Q2_K = 10, TFM_Q3_K = 11, TFM_Q4_K = 12, TFM_Q5_K = 13, TFM_Q6_K = 14, TFM_IQ4_NL = 20, TFM_IQ4_XS = 23,
    TFM_BF16 = 30, TFM_MXFP4 = 39
#ifdef TFM__TEST_PARTS
    , TFM_TEST = 63 /* of tests/test_recipes.c, as all that stands behind this macro */
#endif
};

/* Bits a weight, as the file and the memory bus have it, scales included:
     F32 32 · F16, BF16 16 · Q8_0 8.5 · Q6_K 6.56 · Q5_1 6 · Q5_0, Q5_K 5.5 · Q4_1 5 · Q4_0, Q4_K, IQ4_NL 4.5
     IQ4_XS, MXFP4 4.25 · Q3_K 3.44 · Q2_K 2.63
   What a type is: name "Q4_K"; block = inputs per block of the source format (1 for floats, 32 or 256);
   block_bytes = its bytes in GGUF's row-major form. NULL for an unknown type. */
typedef struct tfm_type_info { int32_t type; const char *name; int32_t block; int32_t block_bytes; } tfm_type_info;
TFM_API const tfm_type_info *tfm_type_get(int32_t type);
TFM_API const tfm_type_info *tfm_type_find(const char *name); /* any case; NULL if there is none */

enum {
    TFM_ROWS = 0, /* row-major [rows][cols], float types only */
    TFM_TILED = 1 /* strips of 16 rows in the order in which the kernels read them, every type; see [B3] */
};

/* A weight: y[rows] = W[rows][cols] x[cols]. Vectors (norms, biases) are F32, ROWS, rows = 1. */
typedef struct tfm_tensor {
    const void *data; /* 64-byte aligned if TILED */
    int32_t type, layout;
    int64_t rows, cols;
} tfm_tensor;

/* Bytes of a tensor in a layout; 0 if type, layout and dims do not go together (cols no multiple of the type's block,
   rows or cols < 1, overflow). TILED pads rows to 16. */
TFM_API size_t tfm_tensor_bytes(int32_t type, int32_t layout, int64_t rows, int64_t cols);

/* Bytes of one strip (16 rows) of a TILED tensor. tfm_tensor_bytes(TILED) = strips * strip bytes. */
TFM_API size_t tfm_strip_bytes(int32_t type, int64_t cols);

/* Packs up to 16 rows (n_rows; missing ones become zero) into one strip. src: rows in the source form of `src_type`
   (GGUF blocks, or floats), src_stride bytes apart. Same type: a pure permutation of bits. Different type: src_type
   must be a float type; dst_type F32, F16, BF16 (round to nearest even) or Q8_0. TFM_ERR_UNSUPPORTED otherwise. */
TFM_API tfm_result tfm_pack_strip(int32_t dst_type, void *dst, int32_t src_type, const void *src, size_t src_stride,
                                  int n_rows, int64_t cols);

/* Whole tensor: ROWS (or GGUF rows of the same type) -> TILED; dst has tfm_tensor_bytes(). Converts as above. */
TFM_API tfm_result tfm_pack(int32_t dst_type, void *dst, int32_t src_type, const void *src, int64_t rows, int64_t cols);

/* A block of one row as its type divides it, for quantisers of your own; meaning and ranges: [B3]. As many entries of
   the arrays count as the type has inputs and sub-blocks in a block. */
typedef struct tfm_quant_block {
    uint8_t code[256];
    uint16_t d, m; /* f16 bits, but d of MXFP4 is the exponent; m is m or dmin */
    int8_t scale[16];
    uint8_t minimum[16];
} tfm_quant_block;

/* Puts block `index` of row 0..15 into a strip of a block type that was all zeros; each block once. */
TFM_API void tfm_pack_block(int32_t type, void *strip, int64_t cols, int row, int64_t index,
                            const tfm_quant_block *block);
/* F16 to float32 exactly, and back to the nearest, ties to even. */
TFM_API float tfm_from_f16(uint16_t bits);
TFM_API uint16_t tfm_to_f16(float x);

/* One row as float32, any type and layout: exactly gguf-py's dequantize(). out: [cols]. */
TFM_API void tfm_tensor_row(const tfm_tensor *t, int64_t row, float *out);
/* The same row in the source form of its type, which tfm_pack undid: out has cols / block * block_bytes bytes. */
TFM_API void tfm_source_row(const tfm_tensor *t, int64_t row, void *out);

/* Files are little-endian, tensors in memory have the host's byte order. tfm_file_order writes a tensor of one to out
   as the other has it (tfm_tensor_bytes() bytes; out may be t->data): a copy, but on big-endian hosts. */
TFM_API void tfm_file_order(const tfm_tensor *t, void *out);

/* Instruction sets. AUTO = the widest that this build has and this CPU and its system can run. */
enum {
    TFM_ISA_AUTO = 0, TFM_ISA_SCALAR = 1, TFM_ISA_AVX2 = 2, TFM_ISA_AVX512 = 3,
    TFM_ISA_NEON = 4,    /* AArch64 */
    TFM_ISA_NEONDOT = 5, /* and its dot product of bytes */
    TFM_ISA_WASM = 6,    /* SIMD128; chosen when compiling, a module runs whole or not at all */
    TFM_ISA_AVXVNNI = 7, /* AVX2 and the dot product of bytes that CPUs without AVX-512 have */
    TFM_ISA_MVE = 9,     /* Cortex-M with Helium; chosen when compiling */
    TFM_ISA_AMX = 8,     /* AVX-512 and byte tiles, Linux only. Only by this name, never by AUTO: machines may claim it
                            and fail, so try it in a child process first (tools/isa.c does). */
    TFM_ISA_I8MM = 10    /* NEON and its product of 8-bit matrices */
#ifdef TFM__TEST_PARTS
    , TFM_ISA_TEST = 11  /* scalar with a dot product of its own */
#endif
};

/* Activations: TFM_ACT_ name, number (they ascend by 1), name in words, function EN(act_...) of [C]. GLU forms multiply
   act(gate) by up. XIELU has parameters: it is of blocks alone, not of the kernels; see TFM_ROLE_ACT. */
#define TFM__ACTIVATIONS(X) \
    X(NONE, 0, "none", none) X(RELU, 1, "relu", relu) X(RELU2, 2, "relu2", relu2) X(GELU_ERF, 3, "gelu-erf", gelu_erf) \
    X(GELU_TANH, 4, "gelu-tanh", gelu_tanh) X(GELU_QUICK, 5, "gelu-quick", gelu_quick) X(SILU, 6, "silu", silu) \
    X(SIGMOID, 7, "sigmoid", sigmoid) X(XIELU, 8, "xielu", none) TFM__TEST_ACTIVATION(X)

/* Norms: TFM_NORM_ name, number, name in words, function FN(norm_...) of [C]. */
#define TFM__NORMS(X) \
    X(NONE, 0, "none", none) X(RMS, 1, "rms", rms) X(LAYER, 2, "layer", layer) X(L2, 3, "l2", l2) TFM__TEST_NORM(X)

/* tests/test_recipes.c adds one of each, as the manual's recipes say. */
#ifdef TFM__TEST_PARTS
#define TFM__TEST_ACTIVATION(X) X(TEST, 9, "test", test)
#define TFM__TEST_NORM(X) X(TEST, 4, "test", test)
#else
#define TFM__TEST_ACTIVATION(X)
#define TFM__TEST_NORM(X)
#endif

#define TFM__ACT_ID(name, number, words, function) TFM_ACT_##name = number,
#define TFM__NORM_ID(name, number, words, function) TFM_NORM_##name = number,
enum { TFM__ACTIVATIONS(TFM__ACT_ID) TFM__ACT_END };
enum { TFM__NORMS(TFM__NORM_ID) TFM__NORM_END };

enum { TFM_ROPE_NONE = 0, TFM_ROPE_HALF = 1, TFM_ROPE_INTERLEAVED = 2 }; /* pairs (i, i+dims/2) or (2i, 2i+1) */

/* Rows of activations for integer products: for every 32 inputs 48 bytes, which are 32 int8 codes q, a float32 scale d
   of 22 bits, d * -1.5 * 2^23, d times the sum of the codes as float32, and the sums of either half as int16;
   x ~ d * q. Rows are padded to 64 bytes. cols % 32 == 0. */
TFM_API size_t tfm_q8_row_bytes(int64_t cols);

/* y[t][r] = sum_c w[r][c] * x[t][c] (+ bias[r]) for t in [0, n), r in the strips asked for. */
typedef struct tfm_matmul_args {
    const tfm_tensor *w;  /* [rows][cols] */
    const float *bias;    /* [rows] or NULL */
    const void *x;        /* n rows: float32, or q8 rows if x_q8 (quantised w only) */
    size_t x_stride;      /* bytes between rows; any number if n is 1 */
    int32_t x_q8;         /* 0 float32, 1 q8 rows as quantize_row makes them */
    int32_t n;            /* rows of x */
    float *y;             /* n rows of w->rows */
    size_t y_stride;      /* floats between rows */
    void *scratch;        /* this thread's, 64-byte aligned, or NULL: a panel of 16 KB on the stack; same bits */
    size_t scratch_bytes;
} tfm_matmul_args;

/* Attention over a cache, causal by position. Item t * n_heads + head is one head of token t.
   Cache: k and v are [n_kv_heads][length][head_dim] of kv_type (F32, F16, BF16, Q8_0); position p lies in slot
   p % length. Query t stands at position pos + t and sees positions (p - window, p] (window 0: [0, p]); the keys of all
   n queries are in the cache already. With a chunk, a query sees the positions from the last multiple of it on; a mask
   (TFM_MASK_STRIDED or FIXED, else 0) leaves out more.
   Scores: scale * q.k, then softcap (if > 0), then mask, then softmax, over one more score per head if there are sinks.
   With slopes, the score of query t and position j gets slopes[head] * (j - (pos + t)) added after the cap (ALiBi,
   arXiv:2108.12409). Online softmax over blocks of 64 positions aligned to absolute positions (the same bits however it
   is cut). head_dim is at most 1024, of Q8_0 a multiple of 32, and n_heads a multiple of n_kv_heads; a mask wants what
   tfm_config_check wants of it, and positions below 2^31. */
typedef struct tfm_attention_args {
    float *out;           /* [n][n_heads * head_dim] */
    const float *q;       /* [n][n_heads * head_dim] */
    const void *k, *v;
    int32_t kv_type;
    int32_t n, n_heads, n_kv_heads, head_dim;
    int64_t pos, length;
    int64_t window;
    float scale, softcap;
    const float *slopes;  /* [n_heads] or NULL */
    int32_t slopes_bf16;  /* 1: instead scale * bf16(slopes[head] * j), added after the cap */
    int64_t chunk;        /* 0: none */
    const float *sinks;   /* [n_heads] scores that take their part of the softmax and give nothing; or NULL */
    int32_t mask, mask_stride, mask_columns, mask_groups, mask_part; /* as in tfm_block */
} tfm_attention_args;

/* The kernels of one instruction set: pure functions on arrays, no allocation, no threads. n counts elements unless
   said otherwise; out may equal x. All passes hold 16 logical lanes and reduce them in one fixed tree, so norms,
   softmax and activations agree bit for bit between AVX2, AVX-512 and NEON, and between scalar and WASM, which differ
   from those only where `madd` is not fused. */
typedef struct tfm_kernels {
    int32_t isa;
    const char *name; /* as tfm_isa_name */
    /* out = x / sqrt(mean(x^2) + eps) * (offset + w); w NULL: none; offset 1: weights around 0. arXiv:1910.07467 */
    void (*rmsnorm)(float *out, const float *x, const float *w, float offset, float eps, int64_t n);
    /* out = (x - mean) / sqrt(var + eps) * (offset + w) + b; w, b may be NULL. arXiv:1607.06450 */
    void (*layernorm)(float *out, const float *x, const float *w, const float *b, float offset, float eps, int64_t n);
    /* These and L2, x / sqrt(sum(x^2) + eps) * (offset + w), by TFM_NORM_; only LAYER reads b. */
    void (*norm)(int32_t kind, float *out, const float *x, const float *w, const float *b, float offset, float eps,
                 int64_t n);
    void (*softmax)(float *x, int64_t n);
    float (*logsumexp)(const float *x, int64_t n);
    void (*softcap)(float *x, float cap, int64_t n);               /* x = cap * tanh(x / cap) */
    void (*activate)(float *x, int32_t act, int64_t n);            /* x = act(x) */
    /* out = act(gate) * up. arXiv:2002.05202 */
    void (*glu)(float *out, const float *gate, const float *up, int32_t act, int64_t n);
    void (*add)(float *x, const float *y, float scale, int64_t n); /* x += scale * y, product rounded first */
    void (*scale)(float *x, float s, int64_t n);                   /* x *= s */
    /* cos and sin of pos * inv_freq[i], times mscale; the product is rounded to float32 as the references do. */
    void (*rope_angles)(float *cos_out, float *sin_out, const float *inv_freq, float mscale, int64_t pos, int64_t n);
    /* Rotates the first `dims` of each of n_heads rows of head_dim; c, s: [dims/2]. arXiv:2104.09864 */
    void (*rope)(float *x, const float *c, const float *s, int32_t style, int32_t dims,
                 int64_t head_dim, int64_t n_heads);
    void (*quantize_row)(void *out, const float *x, int64_t cols); /* float32 -> one q8 row */
    /* float32 -> n elements in a cache type (F32, F16 saturating, BF16, Q8_0: n % 32 == 0). */
    void (*store_kv)(void *out, int32_t kv_type, const float *x, int64_t n);
    void (*embed)(float *out, const tfm_tensor *w, int64_t row, float scale); /* out[cols] = scale * w[row] */
    void (*matmul)(const tfm_matmul_args *a, int64_t strip0, int64_t strip1); /* output rows [16*strip0, 16*strip1) */
    void (*attention)(const tfm_attention_args *a, int64_t item0, int64_t item1);
} tfm_kernels;

/* The kernels of an instruction set; NULL if this build lacks it or this CPU cannot run it. AUTO never gives NULL. */
TFM_API const tfm_kernels *tfm_kernels_for(int32_t isa);
/* The i-th instruction set this build has (0, 1, ...) as its id, runnable or not; 0 past the end. */
TFM_API int32_t tfm_isa_list(int i);
TFM_API const char *tfm_isa_name(int32_t isa); /* "auto", "scalar", "avx2" ...; NULL for an unknown id */

/* The plain functions: the same kernels with the instruction set that the compiler's flags allow (no detection). */
TFM_API void tfm_rmsnorm(float *out, const float *x, const float *w, float offset, float eps, int64_t n);
TFM_API void tfm_layernorm(float *out, const float *x, const float *w, const float *b, float offset, float eps,
                           int64_t n);
TFM_API void tfm_softmax(float *x, int64_t n);
TFM_API float tfm_logsumexp(const float *x, int64_t n);
TFM_API void tfm_softcap(float *x, float cap, int64_t n);
TFM_API void tfm_activate(float *x, int32_t act, int64_t n);
TFM_API void tfm_glu(float *out, const float *gate, const float *up, int32_t act, int64_t n);
TFM_API void tfm_swiglu(float *out, const float *gate, const float *up, int64_t n); /* silu(gate) * up */
TFM_API void tfm_rope(float *x, const float *c, const float *s, int32_t style, int32_t dims,
                      int64_t head_dim, int64_t n_heads);
TFM_API void tfm_quantize_rows(void *out, const float *x, int64_t n_rows, int64_t cols);
TFM_API void tfm_embed(float *out, const tfm_tensor *w, int64_t row, float scale);
TFM_API void tfm_matmul(const tfm_matmul_args *a, int64_t strip0, int64_t strip1);
TFM_API void tfm_attention(const tfm_attention_args *a, int64_t item0, int64_t item1);

/* RoPE frequencies. scaling: how a longer context is reached; see tfm_block for the fields. */
enum {
    TFM_ROPE_PLAIN = 0, TFM_ROPE_LINEAR = 1, TFM_ROPE_DYNAMIC = 2, TFM_ROPE_YARN = 3, TFM_ROPE_LONG = 4,
    TFM_ROPE_BANDS = 5,  /* low frequencies divided, high kept, blended between (rope_type "llama3" in checkpoints) */
    TFM_ROPE_FACTORS = 6, /* explicit divisors, one a pair (GGUF's rope_freqs) */
    TFM_ROPE_STEPS = 7   /* dynamic in steps: theta times a^(d/(d-2)), a = 3 up to 2 ctx_max, 7 up to 4, 15 up to 8 */
};
typedef struct tfm_rope_params {
    int32_t dims, scaling;
    float theta, factor;
    int32_t ctx_orig, ctx_max;       /* trained length before scaling; the model's maximum (dynamic) */
    float low, high;                 /* bands: low/high_freq_factor; YaRN: beta_slow, beta_fast */
    float attn_factor;               /* YaRN, long: cos and sin are multiplied by it (0 = computed by the paper) */
    float mscale, mscale_all;        /* YaRN: mscale, mscale_all_dim (0 = absent); long: instead of attn_factor up to
                                        ctx_orig and beyond it (0 = absent) */
    int32_t no_truncate;             /* YaRN: ramp bounds not rounded */
    const float *factors;            /* [dims/2] FACTORS, or LONG: short, NULL otherwise */
    const float *factors_long;       /* [dims/2] LONG */
} tfm_rope_params;
/* inv_freq: [dims/2]; *mscale: factor on cos and sin; rope_len: sequence length for the length-dependent kinds. */
TFM_API void tfm_rope_freqs(const tfm_rope_params *p, int64_t rope_len, float *inv_freq, float *mscale);

/* ====================================================================================================================
   [A4] ARCHITECTURE: a model is described, not coded
   A tfm_config holds what the whole model shares; each tfm_block describes one kind of layer; layer_block[] says which
   block each layer is. All zero = absent or default. Weights are bound by role; shapes are checked against this.
   ================================================================================================================= */

/* Where a block's norms sit; f is the sublayer, x the residual stream:
   PRE x += f(n x) · POST_BRANCH x += n(f x) · SANDWICH x += n2(f(n x)) · POST_ADD x = n(x + f x) ·
   PRE_STREAM x = n x, then x += f x: the residual is the normed value */
enum { TFM_PLACE_PRE = 0, TFM_PLACE_POST_BRANCH = 1, TFM_PLACE_SANDWICH = 2, TFM_PLACE_POST_ADD = 3,
       TFM_PLACE_PRE_STREAM = 4 };

/* SEQUENTIAL: attention, then feed-forward. PARALLEL_1: both read one norm of x, x += A + M; _2: a norm each. */
enum { TFM_RESIDUAL_SEQUENTIAL = 0, TFM_RESIDUAL_PARALLEL_1 = 1, TFM_RESIDUAL_PARALLEL_2 = 2 };

enum { TFM_ATTN_PLAIN = 0 };                       /* later: latent, index selection, compression, none */
/* Which positions j <= i the query at position i sees. CHUNKED: window is the size of chunks, a query sees its own
   chunk. The two patterns of the Sparse Transformer (arXiv:1904.10509), s being mask_stride and c mask_columns, have a
   near and a far part each; mask_part says which one counts, both, or that even heads have the near and odd heads the
   far one. STRIDED: near i - j < s, far (i - j) % s = 0. FIXED: near j/s = i/s, far the last c columns of every block
   of s, s - c <= j % s, and i itself; if mask_groups g > 1, far head n reads the (n % g)-th c columns from the end. */
enum { TFM_MASK_CAUSAL = 0, TFM_MASK_CHUNKED = 1, TFM_MASK_STRIDED = 2, TFM_MASK_FIXED = 3 }; /* later: symmetric */
enum { TFM_PART_BOTH = 0, TFM_PART_NEAR = 1, TFM_PART_FAR = 2, TFM_PART_HEADS = 3 };
/* Norms of q and k: per head with one weight [head_dim]; over the whole width; per head, each with its own weight. */
enum { TFM_QKNORM_NONE = 0, TFM_QKNORM_HEAD = 1, TFM_QKNORM_FULL = 2, TFM_QKNORM_HEADS = 3 };
/* ALiBi, its slopes are the tensor TFM_ROLE_SLOPES. BF16: slope times position in bfloat16, under the scale as q.k. */
enum { TFM_ALIBI_NONE = 0, TFM_ALIBI_SLOPES = 1, TFM_ALIBI_BF16 = 2 };
/* A mixture of experts, arXiv:1701.06538, for each token: logits = router x (+ bias); scores = router_score(logits);
   experts are picked by scores + selection bias; the weights of those picked are made of their scores without it:
   router_weight, then / max(Lp norm + eps, floor) if router_norm (p) is set, then * router_scale.
   y = sum of weight * expert(x) by ascending expert, or of expert(weight * x); then the dense part, if d_ff is set: the
   shared expert, times sigmoid(shared gate . x) if it has that gate. */
enum { TFM_FFN_DENSE = 0, TFM_FFN_EXPERTS = 1 };
enum { TFM_SCORE_LOGIT = 0, TFM_SCORE_SOFTMAX = 1, TFM_SCORE_SIGMOID = 2 };
/* The n_experts_used largest; or so many rounds of arXiv:2310.10837 at inference: in each the largest logit m of those
   left, its weight the softmax over those left with (m - s) / max(|s|, m) <= 2 router_jitter. */
enum { TFM_PICK_TOP = 0, TFM_PICK_SPARSE_MIXER = 1 };
enum { TFM_WEIGH_SCORE = 0, TFM_WEIGH_SOFTMAX = 1, TFM_WEIGH_SIGMOID = 2 }; /* of the scores of those picked */
enum { TFM_GROUP_MAX = 0, TFM_GROUP_TWO = 1 };     /* a group counts as its largest, or as the sum of its two largest */
enum { TFM_POS_NONE = 0, TFM_POS_LEARNED = 1 };    /* absolute positions added to the embedding */
enum { TFM_BIAS_Q = 1, TFM_BIAS_K = 2, TFM_BIAS_V = 4, TFM_BIAS_O = 8, TFM_BIAS_GATE = 16, TFM_BIAS_UP = 32,
       TFM_BIAS_DOWN = 64, TFM_BIAS_NORM = 128,    /* which linear maps (and whether the norms) have a bias vector */
       TFM_BIAS_QK_NORM = 256,
       TFM_BIAS_ROUTER = 512, TFM_BIAS_SELECT = 1024, /* on the logits; on the scores, for the selection alone */
       TFM_BIAS_EXPERTS = 2048 };                  /* every expert's gate, up and down */

typedef struct tfm_block {
    /* norms */
    int32_t norm_kind, norm_place;
    float norm_eps, norm_offset;       /* offset 1: weights are stored as w, applied as 1 + w */
    int32_t norm_no_weight;            /* 1: norms without weights */
    int32_t residual;
    float residual_scale;              /* each branch times this; 0 = 1 */
    int32_t bias;                      /* TFM_BIAS_ bits */
    /* attention */
    int32_t attn_kind, mask;
    int32_t mask_stride, mask_columns, mask_groups, mask_part; /* see TFM_MASK_ */
    int32_t n_heads, n_kv_heads, head_dim; /* head_dim is free of d_model; MHA, GQA and MQA are one number */
    float attn_scale;                  /* 0 = head_dim^-1/2 */
    float attn_softcap;                /* 0 = none; cap * tanh(score / cap), before the mask */
    int32_t window;                    /* 0 = all; else a query sees itself and window - 1 before it; or see mask */
    int32_t sinks;                     /* 1: one more score per head, see tfm_attention_args */
    int32_t qk_norm, qk_norm_kind;     /* TFM_QKNORM_, TFM_NORM_ */
    float qk_norm_eps, qk_norm_offset;
    int32_t qk_norm_no_weight;         /* 1: without weights, as all norms are with norm_no_weight */
    int32_t qk_norm_late;              /* 0: before RoPE, 1: after it */
    float qkv_clamp;                   /* 0 = none; q, k, v are clamped to [-it, it] before RoPE, after early norms */
    int32_t alibi;                     /* TFM_ALIBI_ */
    float temperature;                 /* 0 = none; q times 1 + temperature * ln(1 + floor((position + */
    int32_t temperature_ctx;           /* temperature_offset) / temperature_ctx)), after RoPE */
    int32_t temperature_offset;
    int32_t log_ctx;                   /* 0 = none; from position log_ctx on q times ln(position + 1) / ln(log_ctx) */
    /* rotary positions */
    int32_t rope_style;                /* TFM_ROPE_NONE, HALF, INTERLEAVED */
    int32_t rope_dims;                 /* the first rope_dims of a head turn; 0 = head_dim */
    int32_t rope_scaling;              /* TFM_ROPE_PLAIN ... */
    float rope_theta, rope_factor, rope_low, rope_high, rope_attn_factor, rope_mscale, rope_mscale_all;
    int32_t rope_ctx_orig, rope_ctx_max, rope_no_truncate;
    /* feed-forward */
    int32_t ffn_kind, ffn_act, ffn_gated; /* gated: down(act(gate x) * up x); else down(act(up x)) */
    int32_t d_ff;                      /* width of the dense part; of a mixture: of its shared expert, 0 = none */
    float ffn_limit;                   /* 0 = none; gate is cut to at most it, up to [-it, it] */
    float ffn_up_offset;               /* is added to up, after that */
    /* a mixture of experts: see TFM_FFN_EXPERTS */
    int32_t d_expert, n_experts, n_experts_used;
    int32_t router_score, router_pick, router_weight;
    float router_norm, router_norm_eps, router_norm_floor, router_scale; /* norm 0 = none, 1 = L1 ...; scale 0 = 1 */
    float router_jitter;
    int32_t router_on_input;           /* 1: the weight multiplies the expert's input */
    int32_t n_groups, n_groups_used;   /* 0 = none; experts come only from the n_groups_used best groups */
    int32_t group_score;
    int32_t shared_gate;               /* 1: the shared expert has a gate */
} tfm_block;

typedef struct tfm_config {
    size_t size;                       /* sizeof(tfm_config) */
    int32_t n_layers, d_model, n_vocab; /* n_vocab: rows of the output matrix, padding rows included */
    int32_t n_ctx;                     /* positions the model is made for */
    int32_t n_blocks;
    const tfm_block *blocks;           /* [n_blocks] */
    const uint8_t *layer_block;        /* [n_layers], NULL = all 0 */
    float embed_scale;                 /* 0 = 1 */
    int32_t d_embed;                   /* width of embedding and output matrix if they are projected; 0 = d_model */
    int32_t pos_kind, pos_offset;      /* learned: row = position + pos_offset; added after the projection */
    int32_t embed_norm;                /* 1: a norm like the final one (kind, eps, weight, bias) over the embedding */
    int32_t norm_kind;                 /* the final norm */
    float norm_eps, norm_offset;
    int32_t norm_bias, norm_no_weight;
    int32_t tied;                      /* 1: the output matrix is the embedding: one tensor, one pointer */
    int32_t head_bias;
    float logit_scale;                 /* 0 = 1 */
    float logit_softcap;               /* 0 = none */
    int32_t bos, n_eos;                /* -1 = none */
    int32_t eos[16];
} tfm_config;

enum { TFM_STACK_DECODER = 0, TFM_STACK_ENCODER = 1, TFM_STACK_OTHER = 2 };

/* What a tensor is for. Names (tfm_role_name) follow GGUF: "attn_q.weight", "ffn_down.bias", ... */
enum {
    TFM_ROLE_EMBED = 1, TFM_ROLE_POS_EMBED = 2, TFM_ROLE_OUT_NORM = 3, TFM_ROLE_OUT_NORM_B = 4, TFM_ROLE_HEAD = 5,
    TFM_ROLE_HEAD_B = 6, TFM_ROLE_ROPE_FACTORS = 7, TFM_ROLE_ROPE_FACTORS_LONG = 8, TFM_ROLE_SLOPES = 9,
    TFM_ROLE_EMBED_PROJ = 10, TFM_ROLE_OUT_PROJ = 11, TFM_ROLE_EMBED_NORM = 12, TFM_ROLE_EMBED_NORM_B = 13,
    TFM_ROLE_ATTN_NORM = 16, TFM_ROLE_ATTN_NORM_B = 17, TFM_ROLE_ATTN_POST_NORM = 18, TFM_ROLE_ATTN_POST_NORM_B = 19,
    TFM_ROLE_Q = 20, TFM_ROLE_K = 21, TFM_ROLE_V = 22, TFM_ROLE_O = 23,
    TFM_ROLE_Q_B = 24, TFM_ROLE_K_B = 25, TFM_ROLE_V_B = 26, TFM_ROLE_O_B = 27,
    TFM_ROLE_Q_NORM = 28, TFM_ROLE_K_NORM = 29, TFM_ROLE_Q_NORM_B = 30, TFM_ROLE_K_NORM_B = 31,
    TFM_ROLE_FFN_NORM = 32, TFM_ROLE_FFN_NORM_B = 33, TFM_ROLE_FFN_POST_NORM = 34, TFM_ROLE_FFN_POST_NORM_B = 35,
    TFM_ROLE_GATE = 36, TFM_ROLE_UP = 37, TFM_ROLE_DOWN = 38,
    TFM_ROLE_GATE_B = 39, TFM_ROLE_UP_B = 40, TFM_ROLE_DOWN_B = 41,
    TFM_ROLE_ACT = 42, /* xIELU: alpha_p and alpha_n before softplus, beta, eps */
    TFM_ROLE_SINKS = 43, TFM_ROLE_ROUTER = 44, TFM_ROLE_ROUTER_B = 45, TFM_ROLE_ROUTER_SELECT_B = 46,
    TFM_ROLE_SHARED_GATE = 47, /* [1][d_model]; the shared expert itself is GATE, UP, DOWN */
    TFM_ROLE_EXPERT_GATE = 48, TFM_ROLE_EXPERT_UP = 49, TFM_ROLE_EXPERT_DOWN = 50, /* these six once an expert */
    TFM_ROLE_EXPERT_GATE_B = 51, TFM_ROLE_EXPERT_UP_B = 52, TFM_ROLE_EXPERT_DOWN_B = 53,
    TFM_ROLE_LIMIT = 64
};

/* A tensor's identity and data. layer -1: not of a layer. expert -1: not of an expert. The experts of a role and layer
   follow each other, 0 first. */
typedef struct tfm_weight {
    int32_t stack, layer, role, expert;
    tfm_tensor t;
} tfm_weight;

/* The shape that a description asks of a role. 1 and *rows, *cols if this layer has the role (vectors: rows 1), 0 if it
   has none. *optional = 1: may be missing (so far none may). layer -1 for the roles below TFM_ROLE_ATTN_NORM. */
TFM_API int tfm_role_shape(const tfm_config *c, int32_t layer, int32_t role, int64_t *rows, int64_t *cols,
                           int *optional);
/* How many experts have a tensor of this role in this layer, each of that shape; 0: it is one tensor, expert -1. */
TFM_API int32_t tfm_role_experts(const tfm_config *c, int32_t layer, int32_t role);
TFM_API const char *tfm_role_name(int32_t role); /* NULL for an unknown one */
/* "blk.3.attn_q.weight", "token_embd.weight", ... -> buf (48 bytes are enough); returns buf */
TFM_API char *tfm_weight_name(int32_t stack, int32_t layer, int32_t role, int32_t expert, char *buf, size_t n);

/* The description's fields as data: one row a record key; the file's reader and writer, tfm-inspect and --json run over
   it. kind: 1 int32, 2 float32, 3 int32 array. */
typedef struct tfm_field {
    uint16_t key;
    uint8_t kind, required;
    uint32_t offset, count;
    const char *name;
} tfm_field;
TFM_API const tfm_field *tfm_config_fields(int *n);
TFM_API const tfm_field *tfm_block_fields(int *n);
/* The name of an enum value of a field ("rms", "silu", "half", ...); NULL if the field is a plain number. */
TFM_API const char *tfm_field_value_name(const char *field, int32_t value);

/* Checks a description by itself: ranges, products, head counts. Every model passes it on opening. */
TFM_API tfm_result tfm_config_check(const tfm_config *c, tfm_error *err);

/* ====================================================================================================================
   [A5] FILE: the .tfm container, version 1. Every later header reads it: what is new comes as new keys, sections,
   roles, types and values of enums; older headers refuse only files that use it, and name what they lack.

   Little-endian: u8 u16 u32 u64 unsigned, i32 i64 two's complement, f32 IEEE 754.
   Header, 64 bytes:
     0  magic "tfm\x1a" · 4 u32 version · 8 u64 file size · 16 u32 sections, at most 64 · 20 u32 0 · 24 u64 hash of the
     section table · 32 u64 hash of the header's bytes [0, 32) · 40 zeros
   Section table, from 64 on, a row of 32 bytes:
     0  u32 id, TFM_SECTION_ · 4 u32 flags · 8 u64 offset in the file, a multiple of 64 behind the table ·
     16 u64 bytes · 24 u64 hash of these bytes (0 for DATA: see directory)
     Any order, each id once. Flag 1: required. A section of an unknown id is skipped unless it is required; a known one
     with another flag is refused. Padding is zeros. DESCRIPTION and DIRECTORY come together; without them the file
     holds a TOKENIZER alone. SELFTEST is kept for later, and skipped.
   DESCRIPTION: records, each {u16 key, u8 kind, u8 flags, u32 bytes, payload, zeros up to a multiple of 8}.
     Kinds: 1 i32 · 2 f32 · 3 i32[] · 4 bytes. Flag 1: required; a record of an unknown key is skipped unless it is.
     First fields of tfm_config: keys, kinds and names in tfm__config_fields [B5], meaning in [A4]. Then, if there is
     more than one block, TFM_KEY_LAYER_BLOCK, a byte a layer, its block; without it all are of block 0. Then for each
     block TFM_KEY_BLOCK without a payload and fields of tfm_block by tfm__block_fields. Keys ascend among the first and
     within each block. A field that is not there is zero; writers leave zeros out. A value that an enum does not have
     is refused. Keys below TFM_KEY_FIELDS are structure; those not named here are kept for more of it.
   DIRECTORY: an entry of 64 bytes a tensor:
     0  u16 stack · 2 u16 layout · 4 i32 layer · 8 i32 role · 12 i32 expert (layer, expert -1: none) · 16 u32 type ·
     20 u32 flags, 0; others are refused · 24 i64 rows · 32 i64 cols · 40 u64 offset in the file, a multiple of 64,
     inside DATA · 48 u64 bytes · 56 u64 hash of them
     Numbers: TFM_STACK_, TFM_ROWS and TFM_TILED, TFM_ROLE_, TFM_F32 ...; which roles a description asks for and their
     shapes: tfm__roles [B5]. The experts of a layer and role follow each other, 0 first. A tied head has no entry.
   TOKENIZER, CHAT: see [B10] · PROVENANCE: lines "name value\n" in UTF-8.
   DATA: tensors in the layouts of [B3], ROWS: row after row, each cols elements of the type.
   Hash (tfm_hash_feed): mix(h, w): h = (h ^ w) * 0x9e3779b97f4a7c15, h ^= h >> 29. Four 64-bit lanes start at 0; each
     32 bytes are mixed in as four little-endian words, one a lane. End: h = bytes * 0xd6e8feb86659fd93; the lanes, then
     each byte of the rest, are mixed into h; h = (h ^ h >> 32) * 0xd6e8feb86659fd93; h ^= h >> 32.
   ================================================================================================================= */

enum { TFM_FILE_MAGIC = 0x1a6d6674, TFM_FILE_VERSION = 1, TFM_FILE_HEADER_BYTES = 64, TFM_FILE_SECTION_BYTES = 32,
       TFM_FILE_ENTRY_BYTES = 64 };
enum { TFM_SECTION_DESCRIPTION = 1, TFM_SECTION_DIRECTORY = 2, TFM_SECTION_TOKENIZER = 3, TFM_SECTION_CHAT = 4,
       TFM_SECTION_PROVENANCE = 5, TFM_SECTION_SELFTEST = 6, TFM_SECTION_DATA = 7 };
enum { TFM_KEY_BLOCK = 1, TFM_KEY_LAYER_BLOCK = 2, TFM_KEY_FIELDS = 16 };

/* The file's hash, streaming: start with {0}, feed bytes in order in any pieces, then finish. */
typedef struct tfm_hash { uint64_t lane[4]; uint64_t n; uint8_t rest[32]; } tfm_hash;
TFM_API void tfm_hash_feed(tfm_hash *h, const void *data, size_t n);
TFM_API uint64_t tfm_hash_finish(const tfm_hash *h);

/* Writes the DESCRIPTION section of a config to buf; returns the bytes needed. If cap is smaller nothing is written. */
TFM_API size_t tfm_config_encode(const tfm_config *c, void *buf, size_t cap);

/* ====================================================================================================================
   [A6] MODEL AND SESSION
   A tfm_model is immutable and shared by any number of sessions and threads. A tfm_session is one timeline of tokens:
   KV cache, scratch, logits; one thread at a time. Both are single blocks of memory of a size known in advance.
   ================================================================================================================= */

typedef struct tfm_model tfm_model;
typedef struct tfm_session tfm_session;
typedef struct tfm_tokenizer tfm_tokenizer;

typedef struct tfm_model_config {
    size_t size;                    /* sizeof(tfm_model_config) */
    int32_t no_mmap;                /* 1: read the file into memory (where the file may change while in use) */
    const tfm_allocator *allocator; /* NULL = malloc; copied */
} tfm_model_config;

#ifndef TFM_NO_STDIO
/* Opens a .tfm file: mapped read-only on POSIX systems and Windows (the path is UTF-8 there), read into memory
   elsewhere. cfg may be NULL. */
TFM_API tfm_result tfm_model_open(const char *path, const tfm_model_config *cfg, tfm_model **out, tfm_error *err);
#endif
/* The same from memory (ROM, blob, fetched array): used in place, 64-byte aligned, must outlive the model. */
TFM_API tfm_result tfm_model_from_memory(const void *file, size_t bytes, const tfm_model_config *cfg, tfm_model **out,
                                         tfm_error *err);
/* The same from a description and the caller's arrays, no file. Shapes are checked; an error names layer and role.
   The description is copied, the arrays are borrowed. */
TFM_API tfm_result tfm_model_from_weights(const tfm_config *c, const tfm_weight *w, int64_t n_weights,
                                          const tfm_model_config *cfg, tfm_model **out, tfm_error *err);
/* The last two without an allocation: bytes needed, then the object in memory of the caller's (64-byte aligned; no
   close). */
TFM_API tfm_result tfm_model_size(const void *file, size_t bytes, size_t *need, tfm_error *err);
TFM_API tfm_result tfm_model_init(const void *file, size_t bytes, void *mem, size_t mem_bytes, tfm_model **out,
                                  tfm_error *err);
TFM_API void tfm_model_close(tfm_model *m); /* NULL is fine; sessions must be gone */

TFM_API const tfm_config *tfm_model_config_of(const tfm_model *m);
TFM_API const tfm_block *tfm_model_block(const tfm_model *m, int32_t layer);
/* NULL if the file has none: tfm_encode then is TFM_ERR_ARG, and nothing else may be called with it. */
TFM_API const tfm_tokenizer *tfm_model_tokenizer(const tfm_model *m);
/* Tensors in file order: i in [0, count). Returns 0 past the end. */
TFM_API int64_t tfm_model_weight_count(const tfm_model *m);
TFM_API int tfm_model_weight(const tfm_model *m, int64_t i, tfm_weight *out);
/* The tensor bound to a role, e.g. to compare pointers: TFM_ROLE_HEAD of a tied model is TFM_ROLE_EMBED. None: data is
   NULL. */
TFM_API tfm_tensor tfm_model_tensor(const tfm_model *m, int32_t layer, int32_t role);
TFM_API tfm_tensor tfm_model_expert(const tfm_model *m, int32_t layer, int32_t role, int32_t expert);
/* Raw bytes of a section (PROVENANCE, ...); NULL if absent. */
TFM_API const void *tfm_model_section(const tfm_model *m, int32_t id, size_t *bytes);
/* Checks the hashes of tokenizer and weights (open checks the others). */
TFM_API tfm_result tfm_model_verify(const tfm_model *m, tfm_error *err);

enum { TFM_KV_DEFAULT = 0, TFM_KV_F32 = 1, TFM_KV_F16 = 2, TFM_KV_BF16 = 3, TFM_KV_Q8_0 = 4 };   /* default F16 */
enum { TFM_ACT_MODE_DEFAULT = 0, TFM_ACT_MODE_F32 = 1, TFM_ACT_MODE_Q8 = 2 };                     /* default Q8 */
enum { TFM_WANT_LAST = 0, TFM_WANT_ALL = 1, TFM_WANT_HIDDEN = 2, TFM_WANT_NONE = 3 };

typedef struct tfm_session_config {
    size_t size;          /* sizeof(tfm_session_config) */
    int32_t n_ctx;        /* positions; 0 = the model's */
    int32_t n_batch;      /* tokens evaluated together; 0 = min(512, n_ctx); also the slack of window layers */
    int32_t kv;           /* TFM_KV_; K and V pass through this type before use */
    int32_t act;          /* TFM_ACT_MODE_: F32 = exact; Q8: quantised weights meet int8 activations */
    int32_t want;         /* LAST: logits of each eval's last token · ALL: of each token (eval <= n_batch tokens) ·
                             HIDDEN: final-norm rows of each token, no logits · NONE. Without a trace the last layer
                             leaves out tokens that are not wanted, but for their keys and values */
    int32_t isa;          /* TFM_ISA_; 0 = best */
    int32_t n_threads;    /* work is cut into at most so many shares (THREADS above); 0 = 1 */
    int32_t grain;        /* multiply-adds below which a part is not worth a thread; 0 = 65536, 1 = cut everything */
    int64_t rope_len;     /* sequence length for dynamic and long RoPE; 0 = n_ctx */
    tfm_parallel parallel;
    void *progress_user;  /* progress: called between layers; non-zero cancels the eval */
    int (*progress)(void *user, int64_t done, int64_t total);
    void *trace_user;     /* trace: each named intermediate, [rows][cols] float32, in order of computation; layer -1:
                             none */
    void (*trace)(void *user, const char *name, int32_t layer, const float *data, int64_t rows, int64_t cols);
    const tfm_allocator *allocator; /* of tfm_session_new */
} tfm_session_config;

/* Bytes of a session: from (model, context, batch, kv, act, want) alone, exact, the same on every host. */
TFM_API tfm_result tfm_session_size(const tfm_model *m, const tfm_session_config *cfg, size_t *bytes, tfm_error *err);
/* The KV cache's part of it: sum over layers of 2 * n_kv_heads * head_dim * length * bytes, length = n_ctx, or
   min(n_ctx, w + n_batch) for layers that see w positions at most: a window, a chunk or the near part of a pattern. */
TFM_API tfm_result tfm_session_kv_bytes(const tfm_model *m, const tfm_session_config *cfg, size_t *bytes,
                                        tfm_error *err);
/* A session in the caller's memory (64-byte aligned, tfm_session_size bytes), or in an allocation of its own. */
TFM_API tfm_result tfm_session_init(const tfm_model *m, const tfm_session_config *cfg, void *mem, size_t bytes,
                                    tfm_session **out, tfm_error *err);
TFM_API tfm_result tfm_session_new(const tfm_model *m, const tfm_session_config *cfg, tfm_session **out,
                                   tfm_error *err);
TFM_API void tfm_session_free(tfm_session *s); /* of tfm_session_new only */
/* A session is tfm_session_size bytes from its address on: write them, send them, keep them (scratch and cache that
   nobody used are what the memory held before: clear it first where that is secret). restore makes s go on where the
   session stood whose bytes are at `saved` (any address, of this process or another): an exact copy, whatever s held
   before. Both are of the same model, context, batch, kv, act, want and rope_len, else TFM_ERR_FORMAT names it; hooks,
   threads, instruction set and memory of s stay its own. TFM_ERR_UNSUPPORTED: another version of the bytes. After an
   error s is as it was. Of the bytes only the length is believed, once it is in range: forged caches give
   wrong logits, no wild reads. Models made from arrays are told apart by description and shapes alone. A big-endian
   host's bytes are not those of a little-endian one. */
TFM_API tfm_result tfm_session_restore(tfm_session *s, const void *saved, size_t bytes, tfm_error *err);
/* The bytes of a session where they lie, in the caller's memory (64-byte aligned), become one: attach gives them model
   and hooks (cfg: only grain, parallel, progress and trace are used; may be NULL), after checking all that restore
   checks and the layout. It also changes the hooks of a session in place. Not for memory of tfm_session_new that was
   written over: whose it was is overwritten, too, and tfm_session_free would not know it. */
TFM_API tfm_result tfm_session_attach(tfm_session *s, size_t bytes, const tfm_model *m, const tfm_session_config *cfg,
                                      tfm_error *err);

/* Appends n tokens, in chunks of at most n_batch. TFM_ERR_CONTEXT (they do not fit: there is no shifting) or
   TFM_ERR_ARG: nothing was done. TFM_ERR_CANCELLED, TFM_ERR_NUMERIC: the chunks before the one that stopped are in the
   session; tfm_session_length says how far it got. */
TFM_API tfm_result tfm_eval(tfm_session *s, const int32_t *ids, int64_t n, tfm_error *err);
/* After an eval: LAST: logits of the last token (i ignored) · ALL: of token i of it. [n_vocab], valid until the next
   eval. NULL if not wanted or out of range. */
TFM_API const float *tfm_logits(const tfm_session *s, int64_t i);
TFM_API const float *tfm_hidden(const tfm_session *s, int64_t i); /* after the final norm, [d_model]; same rule */
TFM_API int64_t tfm_session_length(const tfm_session *s);  /* tokens so far */
TFM_API int64_t tfm_session_context(const tfm_session *s);
/* Forgets the tokens from `length` on, e.g. down to the common beginning of an old prompt and a new one.
   TFM_ERR_CONTEXT, and nothing is done, if a window layer no longer holds what is needed: once more positions were
   written than it has slots, that is more than n_batch below the furthest one. 0 always works. */
TFM_API tfm_result tfm_session_rewind(tfm_session *s, int64_t length, tfm_error *err);
TFM_API int32_t tfm_session_isa(const tfm_session *s);
#ifndef TFM_NO_TEXT
/* ====================================================================================================================
   [A7] TOKENIZER: text to ids and back
   A tokenizer is an immutable view of one section of a model file (or of any bytes in that form): nothing is built when
   it is opened, any number of threads may use it at once, and nothing is allocated. What stands in the way of the text
   (normaliser, pre-tokenizer expressions, model, added tokens, post-processor, decoder) is data; its form: [B10].
   ================================================================================================================= */

/* A tokenizer without a model: `section` (size bytes, must outlive it) is checked; mem (tfm_tokenizer_size() bytes,
   aligned to 8) becomes the object *out. A model that was opened has its own, see tfm_model_tokenizer. */
TFM_API size_t tfm_tokenizer_size(void);
TFM_API tfm_result tfm_tokenizer_open(const void *section, size_t size, void *mem, size_t mem_bytes,
                                      const tfm_tokenizer **out, tfm_error *err);

/* Number of ids: every id that tfm_encode gives is below it. Ids without a piece (padding rows) count. */
TFM_API int32_t tfm_vocab_size(const tfm_tokenizer *t);

/* The bytes an id stands for in the middle of a text (perhaps not whole UTF-8 characters; may hold zeros; not
   zero-terminated), *n of them; they live as long as the tokenizer. NULL and 0: no such id, or one without a piece. */
TFM_API const char *tfm_token_piece(const tfm_tokenizer *t, int32_t id, size_t *n);

enum {
    TFM_TOKEN_SPECIAL = 1, /* a control token (end of text, turn markers ...), never part of a text */
    TFM_TOKEN_ADDED = 2,   /* matched in the text before everything else */
    TFM_TOKEN_BYTE = 4,    /* one byte that is spelled out because no piece covers its character */
    TFM_TOKEN_PRESENT = 8  /* the id has a piece */
};
TFM_API int32_t tfm_token_flags(const tfm_tokenizer *t, int32_t id); /* the above; 0 for an id out of range */

/* The id of a piece or special token given by the bytes that it has in the encoder ("<|im_end|>", "##ing"), or -1. */
TFM_API int32_t tfm_token_find(const tfm_tokenizer *t, const char *piece, size_t n);

/* The i-th id that encoding puts in front of every text (the begin-of-sequence token, if any), or -1. */
TFM_API int32_t tfm_token_prefix(const tfm_tokenizer *t, int32_t i);

/* Bounds for a text of n_bytes: the most ids it can give, and the bytes of scratch that tfm_encode needs (exact and the
   same on every host). n_bytes may be up to 2^28; above that, or if it does not fit in memory: -1 respectively 0. */
TFM_API int64_t tfm_encode_max(const tfm_tokenizer *t, size_t n_bytes);
TFM_API size_t tfm_encode_size(const tfm_tokenizer *t, size_t n_bytes);

enum {
    TFM_ENCODE_NO_SPECIAL = 1,   /* without the ids that stand around every text (begin of sequence ...) */
    TFM_ENCODE_PARSE_SPECIAL = 2 /* special tokens spelled in the text become their ids: never for text of a user */
};

/* text[0..n) -> ids[0 .. *n_ids). Text need not be UTF-8: each maximal bad sequence counts as U+FFFD.
   scratch: tfm_encode_size(t, n) bytes, aligned to 8.
   TFM_ERR_MEMORY: more than max_ids ids (*n_ids then says how many; the first max_ids are written), or too little
   scratch. TFM_ERR_ARG: n too large, an unknown flag. TFM_ERR_FORMAT: the tables contradict each other or take too
   long. */
TFM_API tfm_result tfm_encode(const tfm_tokenizer *t, const char *text, size_t n, int32_t flags, int32_t *ids,
                              int64_t max_ids, int64_t *n_ids, void *scratch, size_t scratch_bytes, tfm_error *err);

/* Like tfm_encode with NO_SPECIAL, but special tokens count where every byte of theirs is marked (marks[i] != 0) and
   are plain text elsewhere: what a format wrote is told from what a user typed. Text must be UTF-8. */
TFM_API tfm_result tfm_encode_marked(const tfm_tokenizer *t, const char *text, const uint8_t *marks, size_t n,
                                     int32_t *ids, int64_t max_ids, int64_t *n_ids, void *scratch,
                                     size_t scratch_bytes, tfm_error *err);

/* What the normaliser alone makes of a text without added tokens: the bytes of the result, of which the first cap are
   written to out (NULL: none). scratch as for tfm_encode. SIZE_MAX: the scratch is too small, or the text too long. */
TFM_API size_t tfm_normalize(const tfm_tokenizer *t, const char *text, size_t n, char *out, size_t cap, void *scratch,
                             size_t scratch_bytes);

enum {
    TFM_DECODE_SKIP_SPECIAL = 1, /* special tokens print nothing */
    TFM_DECODE_CONTINUATION = 2  /* what comes continues a text: no leading space is taken away */
};

/* Streaming decoder: hands out whole UTF-8 characters only, as soon as they are complete; bytes that cannot become a
   character turn into U+FFFD. Plain data of the caller's: copy it to try a continuation. */
typedef struct tfm_decoder {
    const tfm_tokenizer *tokenizer;
    int32_t flags;
    int32_t last;       /* the token before, -1 at the start */
    uint8_t started;    /* nothing is taken away from the start any more */
    uint8_t first_done; /* the first token was seen */
    uint8_t n_pending;
    uint8_t bad_run;    /* private to tfm_decode_text */
    uint8_t pending[4]; /* the begin of a character */
    uint8_t n_cut;      /* characters taken away from the start */
    uint8_t n_held;     /* characters that are printed unless the text ends here */
    uint8_t space;      /* a space stands before the next token, if there is one */
    uint8_t reserved;
} tfm_decoder;

TFM_API void tfm_decode_init(tfm_decoder *d, const tfm_tokenizer *t, int32_t flags);
/* The text that id completes; returns its bytes. If they are more than cap, out holds only the first of them and the
   decoder stays as it was: call again with more room. An id without a piece prints nothing. */
TFM_API size_t tfm_decode(tfm_decoder *d, int32_t id, char *out, size_t cap);
/* After the last id: what is left of an unfinished character. */
TFM_API size_t tfm_decode_flush(tfm_decoder *d, char *out, size_t cap);
/* A cap that is enough for every call of the two. */
TFM_API size_t tfm_decode_max(const tfm_tokenizer *t);

/* n ids at once. Returns the bytes of the text, of which the first cap are written to out (NULL: none). Differs from
   streaming only where the reference looks ahead: a run of byte tokens that is not UTF-8 as a whole gives one U+FFFD
   per byte. */
TFM_API size_t tfm_decode_text(const tfm_tokenizer *t, const int32_t *ids, int64_t n, int32_t flags, char *out,
                               size_t cap);

/* STOP STRINGS end an answer where one of them begins, though it comes in pieces and none of it may be shown. */
typedef struct tfm_stop { const char *text; size_t n; } tfm_stop; /* n >= 1 */
/* Looks for them in text[0..n), which is generated and not yet shown. Returns how many bytes may be shown: those before
   the first stop string, *which its index; or, *which = -1, all but the longest end that may become one. Keep the
   others and call again with what comes behind them; what is left when the answer ends otherwise may be shown. */
TFM_API size_t tfm_stop_scan(const tfm_stop *stops, int32_t n_stops, const char *text, size_t n, int32_t *which);

/* CHAT: how a model wants a conversation written, as data in its file. Rendering gives the text and a mark for each
   byte that the format wrote; tfm_encode_marked makes ids of the two. Render once with cap 0 for the size. A
   conversation that goes on is rendered whole each time; the ids at its beginning that did not change need no second
   tfm_eval. */
typedef struct tfm_chat tfm_chat;

enum { TFM_CHAT_SYSTEM = 1, TFM_CHAT_USER = 2, TFM_CHAT_ASSISTANT = 3 }; /* roles; SYSTEM only as the first turn */
enum { TFM_CHAT_PROMPT = 1 }; /* flags: end with what makes the model answer */

typedef struct tfm_turn { int32_t role; const char *text; size_t n; } tfm_turn;

/* NULL if the file has none. */
TFM_API const tfm_chat *tfm_model_chat(const tfm_model *m);
/* A format without a model: like tfm_tokenizer_open. */
TFM_API size_t tfm_chat_size(void);
TFM_API tfm_result tfm_chat_open(const void *section, size_t size, void *mem, size_t mem_bytes, const tfm_chat **out,
                                 tfm_error *err);
/* 0: the converter could not put this format into data. Then tfm_chat_render refuses; programs may interpret the
   template (tools/chat.c does). */
TFM_API int tfm_chat_known(const tfm_chat *c);
/* The template the format was taken from, *n bytes; and what it knows beside the turns: name and value of variable i,
   both zero-terminated, NULL if there are no more. */
TFM_API const char *tfm_chat_template(const tfm_chat *c, size_t *n);
TFM_API const char *tfm_chat_variable(const tfm_chat *c, int32_t i, const char **value);
/* The i-th id that ends an answer, beside those of the model's description; -1: no more. */
TFM_API int32_t tfm_chat_end(const tfm_chat *c, int32_t i);
/* The strftime format in which the format wants today's date, or NULL if it does not. */
TFM_API const char *tfm_chat_date_format(const tfm_chat *c);
/* The conversation as text[0 .. *need) with marks; text and marks may be NULL, and nothing is written past cap. date:
   today in tfm_chat_date_format, zero-terminated; NULL where that is NULL. Bad UTF-8 becomes U+FFFD.
   TFM_ERR_MEMORY: *need is more than cap. TFM_ERR_ARG: the format has no place for such a sequence of turns.
   TFM_ERR_UNSUPPORTED: see tfm_chat_known. */
TFM_API tfm_result tfm_chat_render(const tfm_chat *c, const tfm_turn *turns, int64_t n, int32_t flags, const char *date,
                                   char *text, uint8_t *marks, size_t cap, size_t *need, tfm_error *err);

/* The numbers of the chat section, for those who write one; their meaning stands in [B10]. */
enum { /* its head: little-endian uint32 words; from TFM_CHAT_TABLES on an (offset, count) pair for each table */
    TFM_CHAT_FORM = 0, TFM_CHAT_SIZE = 1, TFM_CHAT_FLAGS = 2, TFM_CHAT_DATE = 3, TFM_CHAT_TABLES = 4
};
enum { TFM_CHAT_JOINS = 0, TFM_CHAT_PARTS = 1, TFM_CHAT_RULES = 2, TFM_CHAT_ENDS = 3, TFM_CHAT_VARIABLES = 4,
       TFM_CHAT_TEMPLATE = 5, TFM_CHAT_STRINGS = 6, TFM_CHAT_N_TABLES = 7 };
enum { TFM_CHAT_KNOWN = 1, TFM_CHAT_NO_EMPTY = 2 };                                        /* flags of the section */
enum { TFM_CHAT_TEXT = 0, TFM_CHAT_SYSTEM_TEXT = 1, TFM_CHAT_DATE_TEXT = 2 };              /* kinds of parts */
enum { TFM_CHAT_HAS_SYSTEM = 1, TFM_CHAT_HAS_PROMPT = 2, TFM_CHAT_FIRST = 4,
       TFM_CHAT_LAST = 8 };                                                                /* place of a join or turn */
enum { TFM_CHAT_TRIM_LEFT = 1, TFM_CHAT_TRIM_RIGHT = 2, TFM_CHAT_TRIM_LINES_LEFT = 4, TFM_CHAT_TRIM_LINES_RIGHT = 8,
       TFM_CHAT_CUT_TRIM = 16, TFM_CHAT_CUT_TRIM_LINES = 32 };                             /* what a rule takes away */

/* The numbers of the tokenizer section, for those who write one; their meaning stands in [B10]. */
enum { /* its head: little-endian uint32 words; from TFM_TOK_TABLES on an (offset, count) pair for each table */
    TFM_TOK_FORM = 0, TFM_TOK_SIZE = 1, TFM_TOK_FLAGS = 2, TFM_TOK_MODEL = 3, TFM_TOK_N_IDS = 4, TFM_TOK_UNK = 5,
    TFM_TOK_MAX_PIECE = 6, TFM_TOK_MAX_ADDED = 7, TFM_TOK_GROW_MUL = 8, TFM_TOK_GROW_ADD = 9, TFM_TOK_WORD_CLASS = 10,
    TFM_TOK_N_NORM = 11, TFM_TOK_MAX_TEXT = 12, TFM_TOK_WORD_LIMIT = 13, TFM_TOK_INNER = 14, TFM_TOK_FINAL = 16,
    TFM_TOK_STRIP = 18, TFM_TOK_UNK_SCORE = 20, TFM_TOK_TABLES = 24
};
enum { /* tables */
    TFM_TOK_ENDS = 0, TFM_TOK_BYTES = 1, TFM_TOK_PIECE_FLAGS = 2, TFM_TOK_BYTE_IDS = 3, TFM_TOK_HASH = 4,
    TFM_TOK_MERGES = 5, TFM_TOK_ADDED = 6, TFM_TOK_ROOT_RAW = 7, TFM_TOK_TRIE_RAW = 8, TFM_TOK_ROOT_NORM = 9,
    TFM_TOK_TRIE_NORM = 10, TFM_TOK_PREFIX = 11, TFM_TOK_SUFFIX = 12, TFM_TOK_OPS = 13, TFM_TOK_CODE = 14,
    TFM_TOK_CLASSES = 15, TFM_TOK_RANGES = 16, TFM_TOK_STRINGS = 17, TFM_TOK_JOINS = 18, TFM_TOK_TEXT_ENDS = 19,
    TFM_TOK_TEXT_BYTES = 20, TFM_TOK_FIRST_ENDS = 21, TFM_TOK_FIRST_BYTES = 22, TFM_TOK_SCORES = 23,
    TFM_TOK_ROOT_PIECES = 24, TFM_TOK_TRIE_PIECES = 25, TFM_TOK_MAPS = 26, TFM_TOK_N_TABLES = 27
};
enum { TFM_TOK_BPE = 0, TFM_TOK_UNIGRAM = 1, TFM_TOK_WORDPIECE = 2, TFM_TOK_WORDLEVEL = 3 }; /* models */
enum { /* flags */
    TFM_TOK_BYTE_LEVEL = 1, TFM_TOK_BYTE_FALLBACK = 2, TFM_TOK_FUSE_UNK = 4, TFM_TOK_FLOAT_PATHS = 8,
    TFM_TOK_LONGEST = 16, TFM_TOK_ONCE = 32, TFM_TOK_FIRST_BARE = 64, TFM_TOK_BYTE_RUNS = 128, TFM_TOK_PER_BYTE = 256,
    TFM_TOK_WHOLE_WORDS = 512, TFM_TOK_STRIP_MARKS = 1024, TFM_TOK_DROP_UNKNOWN = 2048, TFM_TOK_STRIP_EACH = 4096
};
/* Beside TFM_TOKEN_... in the flags of a piece. */
enum { TFM_TOK_PIECE_WHOLE = 16, TFM_TOK_PIECE_LITERAL = 32, TFM_TOK_PIECE_SPACE = 64 };
enum { TFM_TOK_LSTRIP = 1, TFM_TOK_RSTRIP = 2, TFM_TOK_SINGLE_WORD = 4, TFM_TOK_CONTROL = 8 }; /* of added tokens */
enum { /* operations */
    TFM_TOK_NFC = 1, TFM_TOK_REPLACE = 2, TFM_TOK_PREPEND = 3, TFM_TOK_SQUEEZE = 4, TFM_TOK_SPLIT = 5, TFM_TOK_NFD = 6,
    TFM_TOK_REWRITE = 7, TFM_TOK_TRIM = 8, TFM_TOK_MAP = 9, TFM_TOK_CHARSMAP = 10, TFM_TOK_BYTE_CHARS = 11,
    TFM_TOK_GROUPS = 12, TFM_TOK_CHUNKS = 13
};
enum { TFM_TOK_ISOLATED = 0, TFM_TOK_REMOVED = 1, TFM_TOK_WITH_PREVIOUS = 2, TFM_TOK_WITH_NEXT = 3,
       TFM_TOK_CONTIGUOUS = 4, TFM_TOK_INVERT = 256 }; /* what a split does with its matches */
enum { TFM_TOK_ALWAYS = 0, TFM_TOK_IF_MISSING = 1, TFM_TOK_IF_FIRST_MISSING = 2 }; /* when a prepend happens */
enum { /* what a row of a map does with its characters */
    TFM_TOK_MAP_DROP = 0, TFM_TOK_MAP_ADD = 1, TFM_TOK_MAP_SECOND = 2, TFM_TOK_MAP_STRING = 3, TFM_TOK_MAP_AROUND = 4,
    TFM_TOK_MAP_GROUP = 5
};
enum { /* groups of characters for clusters (UAX 29): the property Grapheme_Cluster_Break and what GB9c and GB11 need */
    TFM_TOK_GCB_CR = 1, TFM_TOK_GCB_LF = 2, TFM_TOK_GCB_CONTROL = 3, TFM_TOK_GCB_EXTEND = 4, TFM_TOK_GCB_ZWJ = 5,
    TFM_TOK_GCB_REGIONAL = 6, TFM_TOK_GCB_PREPEND = 7, TFM_TOK_GCB_SPACING = 8, TFM_TOK_GCB_L = 9, TFM_TOK_GCB_V = 10,
    TFM_TOK_GCB_T = 11, TFM_TOK_GCB_LV = 12, TFM_TOK_GCB_LVT = 13, TFM_TOK_GCB_PICTURE = 14,
    TFM_TOK_GCB_CONSONANT = 15, TFM_TOK_GCB_LINKER = 16
};
enum { /* instructions of expressions */
    TFM_RE_MATCH = 0, TFM_RE_CHAR = 1, TFM_RE_CLASS = 2, TFM_RE_STAR = 3, TFM_RE_SPLIT = 4, TFM_RE_JUMP = 5,
    TFM_RE_AHEAD = 6, TFM_RE_NOT_AHEAD = 7, TFM_RE_RUN = 8, TFM_RE_TRY = 9, TFM_RE_START = 10, TFM_RE_END = 11,
    TFM_RE_LOOP = 12, TFM_RE_LOOP_LAZY = 13, TFM_RE_ATOMIC = 14, TFM_RE_BEHIND = 15, TFM_RE_NOT_BEHIND = 16,
    TFM_RE_BOUND = 17
};
enum { TFM_RE_MAX_MEMO = 128, TFM_RE_MAX_BODIES = 4, TFM_TOK_MAX_OPS = 32, TFM_TOK_PROBES = 64 };
#endif /* TFM_NO_TEXT */

/* ====================================================================================================================
   [A8] SAMPLER
   Order: bias, penalties, temperature, top-k, top-p, min-p, draw. Own exp in fixed arithmetic: the same logits and seed
   give the same ids everywhere.
   ================================================================================================================= */

typedef struct tfm_sampler tfm_sampler;

typedef struct tfm_logit_bias { int32_t id; float bias; } tfm_logit_bias; /* finite, or -infinity: never */

typedef struct tfm_sampler_config {
    size_t size;               /* sizeof(tfm_sampler_config) */
    float temp;                /* 0 = greedy, ties to the lowest id */
    int32_t top_k;             /* 0 = off */
    float top_p;               /* 0 or >= 1 = off; keeps the token that crosses */
    float min_p;               /* 0 = off; keeps p >= min_p * p_max */
    float repeat_penalty;      /* 0 or 1 = off; once per distinct token of the history: l > 0 ? l / r : l * r */
    float presence_penalty;    /* l -= p for tokens of the history */
    float frequency_penalty;   /* l -= p * count */
    int64_t repeat_last_n;     /* the history's last n tokens count; 0 = all */
    uint64_t seed;             /* every value is good, 0 too */
    const tfm_logit_bias *bias; /* [n_bias] added to the logits first; borrowed, must outlive the sampler */
    int64_t n_bias;
} tfm_sampler_config;

TFM_API tfm_result tfm_sampler_size(int32_t n_vocab, size_t *bytes);
/* A sampler in the caller's memory (64-byte aligned). */
TFM_API tfm_result tfm_sampler_init(const tfm_sampler_config *cfg, int32_t n_vocab, void *mem, size_t bytes,
                                    tfm_sampler **out, tfm_error *err);
/* One id from logits [n_vocab] and the tokens so far. TFM_ERR_NUMERIC if a logit is NaN or all are -inf. */
TFM_API tfm_result tfm_sample(tfm_sampler *s, const float *logits, const int32_t *history, int64_t n_history,
                              int32_t *id, tfm_error *err);
/* The id of the largest of n logits, ties to the lowest; n >= 1. NaN is never the largest, unless all are (then 0). */
TFM_API int32_t tfm_argmax(const float *logits, int32_t n);

#ifdef __cplusplus
}
#endif
#endif /* TFM_H: stop here if you are only interested in the API */

#if defined(TFM_IMPLEMENTATION) && !defined(TFM__PASS) && !defined(TFM__IMPLEMENTED)
#define TFM__IMPLEMENTED

/* ====================================================================================================================
   [B1] PLATFORM: the only place where operating systems and compilers differ
   ================================================================================================================= */

#include <string.h>
#include <stdarg.h>
#ifndef TFM_NO_MALLOC
#include <stdlib.h>
#endif
#ifndef TFM_NO_STDIO
#include <stdio.h>
#endif

#ifdef TFM_DEBUG
#include <assert.h>
#define TFM__ASSERT(condition) assert(condition) /* preconditions of kernels; a debugging build may end the process */
#else
#define TFM__ASSERT(condition) ((void)0)
#endif

/* Lanes that are read beyond a row, inside the cache, and dropped may never have been written; clang's sanitizer sees
   the first only. */
#define TFM__NO_OVERREAD 0
#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#undef TFM__NO_OVERREAD
#define TFM__NO_OVERREAD 1
#endif
#endif

/* No compiler may fuse a product into a sum on its own: results must not depend on flags. Undone at [B12]'s end. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__) && !defined(__TINYC__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#if defined(__i386__) && !defined(__SSE2_MATH__) /* the x87 unit keeps more digits than float32 has */
#pragma GCC target("sse2,fpmath=sse")
#endif
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

#if defined(__BYTE_ORDER__) && defined(__ORDER_BIG_ENDIAN__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define TFM__BIG_ENDIAN 1
#else
#define TFM__BIG_ENDIAN 0
#endif

#if !defined(TFM_NO_STDIO) && defined(_WIN32)
/* What is needed of windows.h, whose thousands of names stay out of the user's program; to the letter as there, so that
   it may come before or later. */
#ifdef __cplusplus
extern "C" {
#endif
struct _SECURITY_ATTRIBUTES;
union _LARGE_INTEGER;
#ifdef _WIN64
typedef unsigned long long tfm__win_size;
#else
typedef unsigned long tfm__win_size;
#endif
#define TFM__WINDOWS(type) __declspec(dllimport) type __stdcall
TFM__WINDOWS(void *) CreateFileW(const wchar_t *path, unsigned long access, unsigned long share,
                                 struct _SECURITY_ATTRIBUTES *security, unsigned long how, unsigned long flags,
                                 void *other);
TFM__WINDOWS(void *) CreateFileMappingW(void *file, struct _SECURITY_ATTRIBUTES *security, unsigned long protect,
                                        unsigned long size_high, unsigned long size_low, const wchar_t *name);
TFM__WINDOWS(void *) MapViewOfFile(void *mapping, unsigned long access, unsigned long high, unsigned long low,
                                   tfm__win_size bytes);
TFM__WINDOWS(int) UnmapViewOfFile(const void *view);
TFM__WINDOWS(int) GetFileSizeEx(void *file, union _LARGE_INTEGER *size);
TFM__WINDOWS(int) CloseHandle(void *handle);
TFM__WINDOWS(int) MultiByteToWideChar(unsigned int page, unsigned long flags, const char *text, int n, wchar_t *out,
                                      int room);
#ifdef __cplusplus
}
#endif
#endif

#if !defined(TFM_NO_MMAP) && !defined(TFM_NO_STDIO) /* elsewhere files are read into memory */
#if defined(_WIN32)
#define TFM__MAP_WINDOWS 1
#elif defined(__unix__) || defined(__APPLE__)
#define TFM__MAP_POSIX 1
#include <sys/types.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>
#endif
#endif

#if defined(__GNUC__) || defined(__clang__)
#define TFM__INLINE static inline __attribute__((always_inline))
#define TFM__NOINLINE static __attribute__((noinline))
#define TFM__UNUSED __attribute__((unused))
#define TFM__PREFETCH(p) __builtin_prefetch(p)
#if defined(__x86_64__) || defined(__i386__) /* gcc would need a flag; processors without it do nothing */
#define TFM__PREFETCH_OUT(p) __asm__ volatile("prefetchw %0" : : "m"(*(const char *)(p)))
#else
#define TFM__PREFETCH_OUT(p) __builtin_prefetch(p, 1)
#endif
#define TFM__ALIGNED(pointer, bytes) __builtin_assume_aligned(pointer, bytes)
#elif defined(_MSC_VER)
#define TFM__INLINE static __forceinline
#define TFM__NOINLINE static __declspec(noinline)
#define TFM__UNUSED
#define TFM__PREFETCH(p) (void)(p)
#define TFM__PREFETCH_OUT(p) (void)(p)
#define TFM__ALIGNED(pointer, bytes) (pointer)
#else
#define TFM__INLINE static inline
#define TFM__NOINLINE static
#define TFM__UNUSED
#define TFM__PREFETCH(p) (void)(p)
#define TFM__PREFETCH_OUT(p) (void)(p)
#define TFM__ALIGNED(pointer, bytes) (pointer)
#endif

/* ====================================================================================================================
   [B2] BASE: errors, checked size arithmetic, the byte cursor, hashing
   ================================================================================================================= */

/* Appends to a bounded string; returns the new length. */
static size_t tfm__append(char *buf, size_t cap, size_t n, const char *text, size_t len) {
    for (size_t i = 0; i < len && n + 1 < cap; i++) {
        unsigned char c = (unsigned char)text[i];
        buf[n++] = (c < 32 || c == 127) ? '?' : (char)c; /* names come from files: no control characters */
    }
    buf[n] = 0;
    return n;
}

/* *u / 10; returns the rest. In portions of 16 bits, as on paper: no 64-bit division, which small CPUs have not. */
static int tfm__tenth(uint64_t *u) {
    uint64_t q = 0;
    uint32_t rest = 0;
    for (int shift = 48; shift >= 0; shift -= 16) {
        const uint32_t part = rest << 16 | (uint32_t)(*u >> shift & 0xffffu);
        q |= (uint64_t)(part / 10) << shift;
        rest = part % 10;
    }
    *u = q;
    return (int)rest;
}

static size_t tfm__append_int(char *buf, size_t cap, size_t n, int64_t value) {
    char digits[24];
    int i = 24;
    uint64_t u = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do digits[--i] = (char)('0' + tfm__tenth(&u)); while (u);
    if (value < 0) digits[--i] = '-';
    return tfm__append(buf, cap, n, digits + i, (size_t)(24 - i));
}

#ifdef TFM_NO_MESSAGES
/* "error -3": the texts and what makes them stay out of the program. */
static tfm_result tfm__fail_bare(tfm_error *err, tfm_result code) {
    if (err) {
        err->code = code;
        tfm__append_int(err->msg, sizeof err->msg, tfm__append(err->msg, sizeof err->msg, 0, "error ", 6), code);
    }
    return code;
}
int tfm__message(const char *format, ...); /* never called: its arguments count as used */
#define tfm__fail(err, code, ...) ((void)sizeof(tfm__message(__VA_ARGS__)), tfm__fail_bare(err, code))
#else
/* Fills err and returns code. Format: %s const char *, %d int, %l int64_t, %% percent. */
static tfm_result tfm__fail(tfm_error *err, tfm_result code, const char *format, ...) {
    if (!err) return code;
    va_list args;
    va_start(args, format);
    size_t n = 0;
    const size_t cap = sizeof err->msg;
    err->code = code;
    err->msg[0] = 0;
    for (const char *f = format; *f; f++) {
        if (*f != '%') { n = tfm__append(err->msg, cap, n, f, 1); continue; }
        f++;
        if (*f == 's') {
            const char *s = va_arg(args, const char *);
            n = tfm__append(err->msg, cap, n, s, strlen(s));
        } else if (*f == 'd') {
            n = tfm__append_int(err->msg, cap, n, va_arg(args, int));
        } else if (*f == 'l') {
            n = tfm__append_int(err->msg, cap, n, va_arg(args, int64_t));
        } else {
            n = tfm__append(err->msg, cap, n, "%", 1);
        }
    }
    va_end(args);
    return code;
}
#endif

/* out = a * b, a + b; 0 on overflow. Sizes and counts that come from a file or a caller go through these. */
static int tfm__mul(size_t a, size_t b, size_t *out) {
    if (b && a > SIZE_MAX / b) return 0;
    *out = a * b;
    return 1;
}
static int tfm__add(size_t a, size_t b, size_t *out) {
    if (a > SIZE_MAX - b) return 0;
    *out = a + b;
    return 1;
}
static size_t tfm__align64(size_t n) { return (n + 63) & ~(size_t)63; }

/* a / b and a % b of counts and positions of things in memory: in the width of an address, which every CPU divides. */
TFM__INLINE int64_t tfm__quotient(int64_t a, int64_t b) { return (int64_t)((size_t)a / (size_t)b); }
TFM__INLINE int64_t tfm__remainder(int64_t a, int64_t b) { return (int64_t)((size_t)a % (size_t)b); }
TFM__INLINE float tfm__count(int64_t n) { return (float)(ptrdiff_t)n; }

/* The cursor: all parsing of untrusted bytes. Reading past the end sets `bad` and yields zeros; check once, last. */
typedef struct tfm__cursor { const uint8_t *data; size_t size, pos; int bad; } tfm__cursor;

static const uint8_t *tfm__take(tfm__cursor *c, size_t n) {
    if (c->bad || n > c->size - c->pos) { c->bad = 1; return NULL; }
    const uint8_t *p = c->data + c->pos;
    c->pos += n;
    return p;
}
static uint16_t tfm__le16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static uint32_t tfm__le32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static uint64_t tfm__le64(const uint8_t *p) { return tfm__le32(p) | (uint64_t)tfm__le32(p + 4) << 32; }
static uint16_t tfm__get16(tfm__cursor *c) {
    const uint8_t *p = tfm__take(c, 2);
    return p ? tfm__le16(p) : (uint16_t)0;
}
static uint32_t tfm__get32(tfm__cursor *c) { const uint8_t *p = tfm__take(c, 4); return p ? tfm__le32(p) : 0; }
static uint64_t tfm__get64(tfm__cursor *c) { const uint8_t *p = tfm__take(c, 8); return p ? tfm__le64(p) : 0; }

/* --- elementary functions: no libm, so that every host gives the same bits ---------------------------------------- */

static float tfm__bits_f32(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
static uint32_t tfm__f32_bits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }

#define TFM__INFINITY tfm__bits_f32(0x7f800000u)
#define TFM__NAN tfm__bits_f32(0x7fc00000u)

/* What is computed once, in double: relative errors below 2^-45. */

/* ln x for normal x > 0: x = 2^e m with m around 1, ln m = 2 artanh((m - 1) / (m + 1)). Other x come back unchanged. */
static double tfm__log(double x) {
    uint64_t u;
    memcpy(&u, &x, 8);
    if (u >> 52 == 0 || u >> 52 >= 0x7ff) return x;
    double e = (double)(int)(u >> 52) - 1023, m, t, s = 0;
    u = (u & 0xfffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&m, &u, 8);
    if (m > 1.4142135623730951) m *= 0.5, e += 1;
    t = (m - 1) / (m + 1);
    for (int k = 21; k > 0; k -= 2) s = s * (t * t) + 1.0 / k;
    return e * 0.69314718055994531 + 2 * t * s;
}

/* x^y for normal x > 0: e^(y ln x) = 2^n e^r, e^r by its series. */
static double tfm__pow(double x, double y) {
    const double a = y * tfm__log(x);
    if (!(a > -708 && a < 709)) return a < 0 ? 0.0 : (double)TFM__INFINITY;
    const int n = (int)(a * 1.4426950408889634 + (a < 0 ? -0.5 : 0.5));
    const double r = (a - n * 0.693147180369123816) - n * 1.90821492927058770e-10;
    const uint64_t u = (uint64_t)(n + 1023) << 52;
    double s = 1, scale;
    for (int k = 14; k > 0; k--) s = s * r / k + 1;
    memcpy(&scale, &u, 8);
    return s * scale;
}

/* The largest integer not above x, |x| < 2^62. */
static double tfm__floor(double x) {
    const double whole = (double)(int64_t)x;
    return whole > x ? whole - 1 : whole;
}

/* What is computed for every token: float32 and integers, since small CPUs have no double arithmetic. */

/* The root as IEEE 754 asks for it: 25 binary digits, of which the last one rounds (it can never be half way). */
static float tfm__sqrt(float x) {
    const uint32_t u = tfm__f32_bits(x), e = u >> 23;
    uint32_t root = 0;
    if (!(x > 0) || e == 255) return x < 0 ? TFM__NAN : x;
    if (!e) return tfm__sqrt(x * 16777216.0f) * 0.000244140625f;
    const uint64_t n = (uint64_t)((u & 0x7fffffu) | 0x800000u) << (e & 1 ? 25 : 26);
    for (uint32_t bit = (uint32_t)1 << 24; bit; bit >>= 1) {
        const uint64_t t = root | bit;
        if (t * t <= n) root |= bit;
    }
    return tfm__bits_f32((((e + 125) >> 1) << 23) + ((root + 1) >> 1));
}

/* e^x - 1 within 2 ulp, and e^x within 1.5; x = n ln 2 + r, e^x = 2^n e^r. Below -87 (and for NaN) that of -87. */
static float tfm__expm1(float x, float *e_x) {
    if (!(x > -87.0f)) x = -87.0f;
    if (x > 88.0f) x = 88.0f;
    const int n = (int)(x * 1.44269504f + (x < 0 ? -0.5f : 0.5f));
    const float k = (float)n, scale = tfm__bits_f32((uint32_t)(n + 127) << 23);
    const float r = (x - k * 0.693359375f) - k * -0.00021219444f;
    float p = 0.00139505998f;
    p = p * r + 0.00836895406f;
    p = p * r + 0.041666206f;
    p = p * r + 0.166665182f;
    p = p * r + 0.5f;
    p = r * r * p + r;
    *e_x = (p + 1.0f) * scale;
    return p * scale + (scale - 1.0f);
}

/* ln(1 + x) within 2.5 ulp for 0 <= x < infinity, as tfm__log. */
static float tfm__log1p(float x) {
    float t = x / (x + 2.0f), e = 0.0f;
    if (x > 0.41421356f) {
        const uint32_t u = tfm__f32_bits(x + 1.0f);
        float m = tfm__bits_f32((u & 0x7fffffu) | 0x3f800000u);
        e = (float)((int)(u >> 23) - 127);
        if (m > 1.4142135f) m *= 0.5f, e += 1.0f;
        t = (m - 1.0f) / (m + 1.0f);
    }
    const float z = t * t, s = 0.33333334f + z * (0.2f + z * (0.14285715f + z * 0.11111111f));
    return e * 0.69314718f + (2.0f * t + 2.0f * t * (z * s));
}

/* x^y, x > 0, within 1e-5 of it, for norms that are neither sums nor squares. */
static TFM__UNUSED float tfm__power(float x, float y) {
    float e_x;
    tfm__expm1(y * (x < 1.0f ? -tfm__log1p(1.0f / x - 1.0f) : tfm__log1p(x - 1.0f)), &e_x);
    return e_x;
}

/* ln(1 + e^x) */
static float tfm__softplus(float x) {
    float e_x;
    tfm__expm1(x < 0 ? x : -x, &e_x);
    return (x > 0 ? x : 0.0f) + tfm__log1p(e_x);
}

/* Upper half of a product: a and b as fractions of 2^32. */
static uint32_t tfm__mul_high(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }

/* An angle less the nearest multiple of pi / 2 (*quarters of it, modulo 4): its size is the fraction *size, whose top
   bit is set, over 2^*shift; 1 if it is negative. |angle| from 0.5 to 2^40: 2 / pi in 96 bits, times 24. */
static int tfm__reduce_angle(float angle, uint32_t *quarters, uint32_t *size, int *shift) {
    const uint32_t u = tfm__f32_bits(angle), m = (u & 0x7fffffu) | 0x800000u;
    const int down = 182 - (int)(u >> 23 & 255u); /* the product's bits below 2^-64 quarters */
    const uint64_t mid = (uint64_t)m * 0x4e441529u, end = (uint64_t)m * 0xfc2757d1u, low = end + (mid << 32);
    const uint64_t high = (uint64_t)m * 0xa2f9836eu + (mid >> 32) + (low < end);
    uint64_t f = low >> down | high << (64 - down);
    const int over = (int)(f >> 63); /* nearer to the next multiple */
    *quarters = (uint32_t)(high >> down) + (uint32_t)over;
    if (over) f = 0 - f;
    for (*shift = 0; !(f >> 63) && *shift < 63; f <<= 1) ++*shift;
    *size = tfm__mul_high((uint32_t)(f >> 32), 0xc90fdaa2u); /* pi / 4 */
    --*shift;
    if (!(*size >> 31)) *size <<= 1, ++*shift;
    return over;
}

/* sin and cos within 0.55 ulp, |angle| < 2^40; above that, and for NaN, NaN. Fractions of 2^32, and z = r^2:
   sin r = r - r z S(z), cos r = 1 - z/2 + z^2 C(z). */
static void tfm__sin_cos(float angle, float *sin_out, float *cos_out) {
    const uint32_t u = tfm__f32_bits(angle);
    const int e = (int)(u >> 23 & 255u) - 126; /* |angle| < 2^e */
    uint32_t quarters = 0, size = (u & 0x7fffffu) << 8 | 0x80000000u;
    int shift = -e, negative = 0;
    *sin_out = angle;
    *cos_out = 1.0f;
    if (e < -15) return;
    if (e > 40) *sin_out = *cos_out = TFM__NAN;
    if (e > 40) return;
    if (e >= 0) negative = tfm__reduce_angle(angle, &quarters, &size, &shift);
    const uint32_t z = shift < 16 ? tfm__mul_high(size, size) >> 2 * shift : 0;
    uint32_t s = 11835u - tfm__mul_high(z, 106u), c = 106514u - tfm__mul_high(z, 1168u);
    s = 852176u - tfm__mul_high(z, s);
    s = 35791394u - tfm__mul_high(z, s);
    s = 715827883u - tfm__mul_high(z, s);
    s = size - tfm__mul_high(size, tfm__mul_high(z, s));
    c = 5965230u - tfm__mul_high(z, c);
    c = 178956970u - tfm__mul_high(z, c);
    c = (z >> 1) - tfm__mul_high(z, tfm__mul_high(z, c));
    float even = (float)s * tfm__bits_f32((uint32_t)(95 - shift) << 23); /* over 2^(32 + shift) */
    float odd = c ? (float)(0 - c) * 2.3283064365386963e-10f : 1.0f;
    if (negative) even = -even;
    const float sine = quarters & 1 ? odd : even, cosine = quarters & 1 ? even : odd;
    *sin_out = ((quarters & 2) != 0) != (u >> 31 != 0) ? -sine : sine;
    *cos_out = (quarters + 1) & 2 ? -cosine : cosine;
}

/* ====================================================================================================================
   [B3] FORMATS: element types, their source blocks and their tiles
   This part is the specification of the TILED layout; the kernels of [C] read exactly what is written here.

   A strip is 16 rows. Rows beyond the matrix are zeros; a strip is padded to 64 bytes.
     floats       element (row, input) lies at [input][row]; inputs are not padded.
     block types  the codes of all blocks of the strip, then the scales of all blocks.

   Codes. The unit is 32 inputs x 16 rows = 64 * bits bytes, in chunks of 64 bytes whose byte 4*row + j belongs to input
   4*g + j of that row, g = 0..7 being the group of 4 inputs. A code of 8, 4 or 2 bits is one field, one of 5, 6 or 3 a
   low field (4, 4, 2 bits) followed by a high field (1, 2, 1 bits):
     8 bits  8 chunks   group g in chunk g
     4 bits  4 chunks   group g in chunk g % 4, at bit 4 * (g / 4)
     2 bits  2 chunks   group g in chunk g / 4, at bit 2 * (g % 4)
     1 bit   1 chunk    group g at bit g
   A block of 256 inputs is 8 units in a row.

   Scales of one block: 16 f16 d (one a row; MXFP4: 16 bytes e, d = 2^(e - 128)); 16 f16 m or dmin if the type has one;
   then for each sub-block in order 16 bytes of integer scales, signed, and, for Q4_K and Q5_K, 16 bytes of integer
   minima, unsigned (Q2_K: scale in the low nibble and minimum in the high nibble of one byte, as in the source).

   Values, with the bits, zero, book and sub-blocks that tfm__formats has for the type: q = code - zero (8-bit codes are
   signed bytes, zero 0) or, for types with a book, book[code] - zero; every
   operation rounded to float32:
     no sub-blocks  d * q            with m:    d * q + m
     sub-blocks     (d * scale) * q  with dmin: (d * scale) * q - dmin * minimum
   ================================================================================================================= */

/* Nothing here or in [C] may contract a product and a sum by itself: the bits are part of the contract. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__) && !defined(__TINYC__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif

/* The types in blocks, in the order of tfm__formats. */
#define TFM__BLOCK_TYPES(X) \
    X(Q8_0) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q2_K) X(Q3_K) X(Q4_K) X(Q5_K) X(Q6_K) X(IQ4_NL) X(IQ4_XS) X(MXFP4) \
    TFM__TEST_TYPE(X)
#ifdef TFM__TEST_PARTS
#define TFM__TEST_TYPE(X) X(TEST)
#else
#define TFM__TEST_TYPE(X)
#endif

/* Indices into tfm__formats. */
#define TFM__FORMAT_ID(F) TFM__##F,
enum { TFM__F32, TFM__F16, TFM__BF16, TFM__BLOCK_TYPES(TFM__FORMAT_ID) TFM__N_FORMATS };

/* How integer scales are stored in a source block. */
enum { TFM__SC_NONE, TFM__SC_NIBBLES, TFM__SC_SIGNED6, TFM__SC_SIX_SIX, TFM__SC_INT8, TFM__SC_SPLIT6, TFM__SC_E8M0 };

/* One field of the codes of a source block: `bits` wide; runs of `span` bytes hold span * 8 / bits elements, the first
   `span` of them at bit 0, the next at bit `bits`, ... */
typedef struct tfm__plane { int16_t offset; int8_t bits, span; } tfm__plane;

typedef struct tfm__format {
    tfm_type_info info;
    int8_t bits;          /* of a code: 8, 6, 5, 4, 3, 2; 0 for floats */
    int8_t wide;          /* bits of what a kernel multiplies: of a code or of an entry of the book; 8: signed */
    int8_t book;          /* of tfm__books; 0: none */
    int8_t zero;          /* q = code - zero or book[code] - zero */
    int8_t sub;           /* inputs under one integer scale, 0 if there is none */
    int8_t min;           /* 0 no minimum, 1 m per block, 2 dmin per block and integer minima */
    int8_t scale_kind;
    int16_t d_at, m_at, scales_at; /* offsets in the source block */
    tfm__plane low, high;
} tfm__format;

/* Books of codes; the last is twice the values of E2M1 + 12. */
static const int8_t tfm__books[3][16] = {
    { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 },
    { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 },
    { 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0 }
};

static const tfm__format tfm__formats[TFM__N_FORMATS] = {
    /* type  name  block bytes  bits wide book zero sub min  scales    d   m   sc  low            high */
    { { TFM_F32, "F32", 1, 4 },       0, 0, 0,  0,  0, 0, TFM__SC_NONE,      0,  0,   0, { 0, 0, 0 },   { 0, 0, 0 } },
    { { TFM_F16, "F16", 1, 2 },       0, 0, 0,  0,  0, 0, TFM__SC_NONE,      0,  0,   0, { 0, 0, 0 },   { 0, 0, 0 } },
    { { TFM_BF16, "BF16", 1, 2 },     0, 0, 0,  0,  0, 0, TFM__SC_NONE,      0,  0,   0, { 0, 0, 0 },   { 0, 0, 0 } },
    { { TFM_Q8_0, "Q8_0", 32, 34 },   8, 8, 0,  0,  0, 0, TFM__SC_NONE,      0,  0,   0, { 2, 8, 32 },  { 0, 0, 0 } },
    { { TFM_Q4_0, "Q4_0", 32, 18 },   4, 4, 0,  8,  0, 0, TFM__SC_NONE,      0,  0,   0, { 2, 4, 16 },  { 0, 0, 0 } },
    { { TFM_Q4_1, "Q4_1", 32, 20 },   4, 4, 0,  0,  0, 1, TFM__SC_NONE,      0,  2,   0, { 4, 4, 16 },  { 0, 0, 0 } },
    { { TFM_Q5_0, "Q5_0", 32, 22 },   5, 5, 0, 16,  0, 0, TFM__SC_NONE,      0,  0,   0, { 6, 4, 16 },  { 2, 1, 1 } },
    { { TFM_Q5_1, "Q5_1", 32, 24 },   5, 5, 0,  0,  0, 1, TFM__SC_NONE,      0,  2,   0, { 8, 4, 16 },  { 4, 1, 1 } },
    { { TFM_Q2_K, "Q2_K", 256, 84 },  2, 2, 0,  0, 16, 2, TFM__SC_NIBBLES,  80, 82,   0, { 16, 2, 32 }, { 0, 0, 0 } },
    { { TFM_Q3_K, "Q3_K", 256, 110 }, 3, 3, 0,  4, 16, 0, TFM__SC_SIGNED6, 108,  0,  96, { 32, 2, 32 }, { 0, 1, 32 } },
    { { TFM_Q4_K, "Q4_K", 256, 144 }, 4, 4, 0,  0, 32, 2, TFM__SC_SIX_SIX,   0,  2,   4, { 16, 4, 32 }, { 0, 0, 0 } },
    { { TFM_Q5_K, "Q5_K", 256, 176 }, 5, 5, 0,  0, 32, 2, TFM__SC_SIX_SIX,   0,  2,   4, { 48, 4, 32 }, { 16, 1, 32 } },
    { { TFM_Q6_K, "Q6_K", 256, 210 }, 6, 6, 0, 32, 16, 0, TFM__SC_INT8,    208, 0, 192, { 0, 4, 64 },  { 128, 2, 32 } },
    { { TFM_IQ4_NL, "IQ4_NL", 32, 18 }, 4, 8, 1, 0,  0, 0, TFM__SC_NONE,      0,  0,   0, { 2, 4, 16 }, { 0, 0, 0 } },
    { { TFM_IQ4_XS, "IQ4_XS", 256, 136 }, 4, 8, 1, 0, 32, 0, TFM__SC_SPLIT6,  0,  0,   2, { 8, 4, 16 }, { 0, 0, 0 } },
    { { TFM_MXFP4, "MXFP4", 32, 17 }, 4, 5, 2, 12,  0, 0, TFM__SC_E8M0,      0,  0,   0, { 1, 4, 16 },  { 0, 0, 0 } },
#ifdef TFM__TEST_PARTS
    { { TFM_TEST, "TEST", 32, 18 },   4, 4, 0,  5,  0, 0, TFM__SC_NONE,     16,  0,   0, { 0, 4, 16 },  { 0, 0, 0 } },
#endif
};

/* The types that this build has. */
#ifndef TFM_TYPES
#define TFM__HAS_TYPE(type) 1
#else
#define TFM__HAS_TYPE(type) ((type) == TFM_F32 || ((uint64_t)(TFM_TYPES) >> (type) & 1))
#endif

static const tfm__format *tfm__format_of(int32_t type) {
    for (int i = 0; i < TFM__N_FORMATS; i++) {
        if (tfm__formats[i].info.type == type) return TFM__HAS_TYPE(type) ? &tfm__formats[i] : NULL;
    }
    return NULL;
}

/* A type that exists, but not in this build: its name, else NULL. */
static const char *tfm__missing_type(int32_t type) {
    for (int i = 0; i < TFM__N_FORMATS; i++)
        if (tfm__formats[i].info.type == type) return TFM__HAS_TYPE(type) ? NULL : tfm__formats[i].info.name;
    return NULL;
}

TFM_API const tfm_type_info *tfm_type_get(int32_t type) {
    const tfm__format *f = tfm__format_of(type);
    return f ? &f->info : NULL;
}

static int tfm__lower(int c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }

TFM_API const tfm_type_info *tfm_type_find(const char *name) {
    for (int i = 0; i < TFM__N_FORMATS; i++) {
        const char *a = tfm__formats[i].info.name, *b = name;
        while (*a && tfm__lower(*a) == tfm__lower(*b)) a++, b++;
        if (!*a && !*b) return tfm_type_get(tfm__formats[i].info.type);
    }
    return NULL;
}

/* --- sizes ------------------------------------------------------------------------------------------------------- */

/* Bytes of the codes of one block of a strip, of one sub-block's scales and minima, and of all scales of a block. */
TFM__INLINE int tfm__code_bytes(const tfm__format *f) { return 2 * f->bits * f->info.block; }
TFM__INLINE int tfm__sub_bytes(const tfm__format *f) { return f->scale_kind == TFM__SC_SIX_SIX ? 32 : 16; }
TFM__INLINE int tfm__scale_bytes(const tfm__format *f) {
    if (f->scale_kind == TFM__SC_E8M0) return 16;
    return (f->min ? 64 : 32) + (f->sub ? f->info.block / f->sub * tfm__sub_bytes(f) : 0);
}

/* Bytes of a strip of a block type; nothing can overflow once tfm_strip_bytes has accepted it. */
TFM__INLINE size_t tfm__strip_of(const tfm__format *f, int64_t blocks) {
    return tfm__align64((size_t)blocks * (size_t)(tfm__code_bytes(f) + tfm__scale_bytes(f)));
}

TFM_API size_t tfm_strip_bytes(int32_t type, int64_t cols) {
    const tfm__format *f = tfm__format_of(type);
    if (!f || cols < 1 || cols > INT64_MAX / 64 || (uint64_t)cols > SIZE_MAX) return 0;
    size_t blocks = (size_t)cols / (size_t)f->info.block, n;
    if (blocks * (size_t)f->info.block != (size_t)cols) return 0;
    size_t block = f->bits ? (size_t)(tfm__code_bytes(f) + tfm__scale_bytes(f)) : (size_t)(16 * f->info.block_bytes);
    if (!tfm__mul(blocks, block, &n) || n > SIZE_MAX - 63) return 0;
    return tfm__align64(n);
}

TFM_API size_t tfm_tensor_bytes(int32_t type, int32_t layout, int64_t rows, int64_t cols) {
    const tfm__format *f = tfm__format_of(type);
    size_t n = 0;
    if (!f || rows < 1 || cols < 1 || rows > INT64_MAX - 15) return 0;
    if (layout == TFM_TILED) {
        int64_t strips = (rows + 15) / 16;
        if ((uint64_t)strips > SIZE_MAX || !tfm__mul(tfm_strip_bytes(type, cols), (size_t)strips, &n)) return 0;
        return n;
    }
    if (layout != TFM_ROWS || f->bits || (uint64_t)cols > SIZE_MAX || (uint64_t)rows > SIZE_MAX) return 0;
    if (!tfm__mul((size_t)cols, (size_t)f->info.block_bytes, &n) || !tfm__mul(n, (size_t)rows, &n)) return 0;
    return n;
}

/* --- float conversions: exact, or to the nearest, ties to even ---------------------------------------------------- */

#if defined(__arm__) && defined(__ARM_FP) && __ARM_ARCH_PROFILE == 'M' && defined(__GNUC__)
TFM__INLINE float tfm__f16_to_f32(uint16_t h) { /* every FPU of a Cortex-M can */
    float x = tfm__bits_f32(h);
    __asm__("vcvtb.f32.f16 %0, %0" : "+t"(x));
    return x;
}
#else
static float tfm__f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31u, m = h & 0x3ffu;
    if (e == 31) return tfm__bits_f32(sign | 0x7f800000u | m << 13);
    if (e) return tfm__bits_f32(sign | (e + 112) << 23 | m << 13);
    float f = (float)m * 5.9604644775390625e-8f; /* subnormal: m * 2^-24 */
    return sign ? -f : f;
}
#endif

static uint16_t tfm__f32_to_f16(float x) {
    uint32_t u = tfm__f32_bits(x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x3ffu)); /* NaN stays NaN */
    if (a >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);                     /* 65536 and more */
    if (a < 0x38800000u) { /* subnormal: 0.5 has the ulp 2^-24, so the addition rounds */
        return (uint16_t)(sign | (tfm__f32_bits(tfm__bits_f32(a) + 0.5f) - 0x3f000000u));
    }
    return (uint16_t)(sign | (a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13);
}

TFM_API float tfm_from_f16(uint16_t bits) { return tfm__f16_to_f32(bits); }
TFM_API uint16_t tfm_to_f16(float x) { return tfm__f32_to_f16(x); }

static float tfm__bf16_to_f32(uint16_t h) { return tfm__bits_f32((uint32_t)h << 16); }

static uint16_t tfm__f32_to_bf16(float x) {
    uint32_t u = tfm__f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

/* Element i of an array of a float type, which need not be aligned. */
static float tfm__float_get(const void *data, int32_t type, size_t i) {
    float x;
    uint16_t h;
    if (type == TFM_F32) {
        memcpy(&x, (const uint8_t *)data + 4 * i, 4);
        return x;
    }
    memcpy(&h, (const uint8_t *)data + 2 * i, 2);
    return type == TFM_F16 ? tfm__f16_to_f32(h) : tfm__bf16_to_f32(h);
}
static void tfm__float_put(void *data, int32_t type, size_t i, float x) {
    const uint16_t h = type == TFM_F16 ? tfm__f32_to_f16(x) : tfm__f32_to_bf16(x);
    if (type == TFM_F32) memcpy((uint8_t *)data + 4 * i, &x, 4);
    else memcpy((uint8_t *)data + 2 * i, &h, 2);
}

/* --- one block of one row, in neutral form ------------------------------------------------------------------------ */

/* to[i] |= (from[i] >> right & mask) << left for 4 bytes, and for a multiple of 8: no bit leaves its byte. */
TFM__INLINE void tfm__or_4(uint8_t *to, const uint8_t *from, int right, int mask, int left) {
    uint32_t a, b;
    memcpy(&a, to, 4);
    memcpy(&b, from, 4);
    a |= (b >> right & 0x01010101u * (uint32_t)mask) << left;
    memcpy(to, &a, 4);
}
TFM__INLINE void tfm__or_n(uint8_t *to, const uint8_t *from, int n, int right, int mask, int left) {
    for (int i = 0; i < n; i += 8) {
        uint64_t a, b;
        memcpy(&a, to + i, 8);
        memcpy(&b, from + i, 8);
        a |= (b >> right & 0x0101010101010101u * (uint64_t)mask) << left;
        memcpy(to + i, &a, 8);
    }
}

static void tfm__read_plane(uint8_t *code, int n, const uint8_t *src, tfm__plane p, int up) {
    const int mask = (1 << p.bits) - 1;
    src += p.offset;
    for (int i = 0; i < n; src += p.span) {
        for (int shift = 0; shift < 8 && p.span % 8 == 0; shift += p.bits, i += p.span)
            tfm__or_n(code + i, src, p.span, shift, mask, up);
        for (int shift = 0; shift < 8 && p.span % 8; shift += p.bits) {
            for (int b = 0; b < p.span; b++, i++) code[i] = (uint8_t)(code[i] | ((src[b] >> shift) & mask) << up);
        }
    }
}

static void tfm__read_scales(tfm_quant_block *out, int kind, const uint8_t *s) {
    for (int i = 0; i < 16; i++) {
        if (kind == TFM__SC_NIBBLES) {
            out->scale[i] = (int8_t)(s[i] & 15);
            out->minimum[i] = (uint8_t)(s[i] >> 4);
        } else if (kind == TFM__SC_SIGNED6) { /* low nibbles in bytes 0..7, upper two bits in bytes 8..11 */
            int low = s[i % 8] >> 4 * (i / 8) & 15, high = s[8 + i % 4] >> 2 * (i / 4) & 3;
            out->scale[i] = (int8_t)((low | high << 4) - 32);
        } else if (kind == TFM__SC_INT8) {
            out->scale[i] = (int8_t)s[i];
        } else if (kind == TFM__SC_SIX_SIX && i < 4) { /* 6 bits each; 4..7 have their upper two bits in bytes 0..7 */
            out->scale[i] = (int8_t)(s[i] & 63);
            out->minimum[i] = (uint8_t)(s[i + 4] & 63);
            out->scale[i + 4] = (int8_t)((s[i + 8] & 15) | (s[i] >> 6) << 4);
            out->minimum[i + 4] = (uint8_t)(s[i + 8] >> 4 | (s[i + 4] >> 6) << 4);
        } else if (kind == TFM__SC_SPLIT6 && i < 8) { /* upper two bits in bytes 0..1, low nibbles in bytes 2..5 */
            int low = s[2 + i / 2] >> 4 * (i % 2) & 15, high = s[i / 4] >> 2 * (i % 4) & 3;
            out->scale[i] = (int8_t)((low | high << 4) - 32);
        }
    }
}

/* Zeros, as far as a type uses a block: most have 32 inputs and no sub-blocks. */
static void tfm__clear_block(tfm_quant_block *out, const tfm__format *f) {
    memset(out->code, 0, (size_t)f->info.block);
    out->d = out->m = 0;
    if (!f->sub) return;
    memset(out->scale, 0, sizeof out->scale);
    memset(out->minimum, 0, sizeof out->minimum);
}

/* From the source form. */
static void tfm__read_source(tfm_quant_block *out, const tfm__format *f, const uint8_t *src) {
    const int n = f->info.block;
    tfm__clear_block(out, f);
    out->d = f->scale_kind == TFM__SC_E8M0 ? src[f->d_at] : tfm__le16(src + f->d_at);
    if (f->min) out->m = tfm__le16(src + f->m_at);
    tfm__read_plane(out->code, n, src, f->low, 0);
    if (f->high.bits) tfm__read_plane(out->code, n, src, f->high, f->low.bits);
    if (f->sub) tfm__read_scales(out, f->scale_kind, src + f->scales_at);
}

/* Back to the source form: the two functions above the other way round, into bytes that were zero. */
static void tfm__write_plane(uint8_t *dst, int n, const uint8_t *code, tfm__plane p, int up) {
    const int mask = (1 << p.bits) - 1;
    dst += p.offset;
    for (int i = 0; i < n; dst += p.span) {
        for (int shift = 0; shift < 8 && p.span % 8 == 0; shift += p.bits, i += p.span)
            tfm__or_n(dst, code + i, p.span, up, mask, shift);
        for (int shift = 0; shift < 8 && p.span % 8; shift += p.bits) {
            for (int b = 0; b < p.span; b++, i++) dst[b] = (uint8_t)(dst[b] | (code[i] >> up & mask) << shift);
        }
    }
}

static void tfm__write_scales(uint8_t *s, int kind, const tfm_quant_block *in) {
    for (int i = 0; i < 16; i++) {
        const int scale = in->scale[i], minimum = in->minimum[i], six = scale + 32;
        if (kind == TFM__SC_NIBBLES) {
            s[i] = (uint8_t)(scale | minimum << 4);
        } else if (kind == TFM__SC_SIGNED6) {
            s[i % 8] = (uint8_t)(s[i % 8] | (six & 15) << 4 * (i / 8));
            s[8 + i % 4] = (uint8_t)(s[8 + i % 4] | six >> 4 << 2 * (i / 4));
        } else if (kind == TFM__SC_INT8) {
            s[i] = (uint8_t)scale;
        } else if (kind == TFM__SC_SIX_SIX && i < 4) {
            s[i] = (uint8_t)(scale | in->scale[i + 4] >> 4 << 6);
            s[i + 4] = (uint8_t)(minimum | in->minimum[i + 4] >> 4 << 6);
            s[i + 8] = (uint8_t)((in->scale[i + 4] & 15) | (in->minimum[i + 4] & 15) << 4);
        } else if (kind == TFM__SC_SPLIT6 && i < 8) {
            s[2 + i / 2] = (uint8_t)(s[2 + i / 2] | (six & 15) << 4 * (i % 2));
            s[i / 4] = (uint8_t)(s[i / 4] | six >> 4 << 2 * (i % 4));
        }
    }
}

static void tfm__write_source(uint8_t *dst, const tfm__format *f, const tfm_quant_block *in) {
    const int n = f->info.block;
    memset(dst, 0, (size_t)f->info.block_bytes);
    dst[f->d_at] = (uint8_t)in->d;
    if (f->scale_kind != TFM__SC_E8M0) dst[f->d_at + 1] = (uint8_t)(in->d >> 8);
    if (f->min) dst[f->m_at] = (uint8_t)in->m;
    if (f->min) dst[f->m_at + 1] = (uint8_t)(in->m >> 8);
    tfm__write_plane(dst, n, in->code, f->low, 0);
    if (f->high.bits) tfm__write_plane(dst, n, in->code, f->high, f->low.bits);
    tfm__write_scales(dst + f->scales_at, f->scale_kind, in);
}

/* Q8_0 from 32 floats as its reference does: d = amax / 127 stored as f16, codes from the unrounded d, halves away from
   zero. A block that is not finite gets codes 0, and a d that makes every value NaN. */
static void tfm__quantize_q8_0(tfm_quant_block *out, const float *x) {
    uint32_t amax = 0;
    for (int i = 0; i < 32; i++) {
        uint32_t a = tfm__f32_bits(x[i]) & 0x7fffffffu;
        if (a > amax) amax = a;
    }
    const float d = tfm__bits_f32(amax) / 127.0f, inverse = d != 0.0f && amax < 0x7f800000u ? 1.0f / d : 0.0f;
    out->d = tfm__f32_to_f16(d);
    for (int i = 0; i < 32; i++) {
        float v = amax < 0x7f800000u ? x[i] * inverse : 0.0f, a = v < 0.0f ? -v : v;
        if (!(a <= 127.0f)) a = 127.0f; /* only where 1 / d overflowed */
        int q = (int)a;
        if (a - (float)q >= 0.5f) q++;
        out->code[i] = (uint8_t)(v < 0.0f ? -q : q);
    }
}

/* 2^(e - 128), the lowest two subnormal */
static float tfm__e8m0_to_f32(uint32_t e) { return tfm__bits_f32(e < 2 ? 0x00200000u << e : (e - 1) << 23); }

/* Values of a block: the specification of dequantisation. */
static void tfm__block_values(float *out, const tfm__format *f, const tfm_quant_block *b) {
    const float d = f->scale_kind == TFM__SC_E8M0 ? tfm__e8m0_to_f32(b->d) : tfm__f16_to_f32(b->d);
    const float m = tfm__f16_to_f32(b->m);
    for (int i = 0; i < f->info.block; i++) {
        const int code = f->bits == 8 ? (int)(int8_t)b->code[i] : (int)b->code[i];
        float q = (float)((f->book ? (int)tfm__books[f->book][code] : code) - f->zero);
        float scale = f->sub ? d * (float)b->scale[i / f->sub] : d;
        float v = scale * q;
        if (f->min == 1) v = v + m;
        if (f->min == 2) v = v - m * (float)b->minimum[i / f->sub];
        out[i] = v;
    }
}

/* --- tiles -------------------------------------------------------------------------------------------------------- */

/* A field of `bits` of group g lies in a chunk at a shift; the field is bits `up` ... of each code. Written out for
   every width, so that all of it is known when compiling. */
#define TFM__TILE_FIELDS(bits, chunk, shift, move) \
    case bits: for (int g = 0; g < 8; g++) { move(64 * (chunk) + 4 * row, 4 * g, shift, (1 << (bits)) - 1) } break;
#define TFM__EACH_WIDTH(move) \
    switch (bits) { \
    TFM__TILE_FIELDS(8, g, 0, move) \
    TFM__TILE_FIELDS(4, g % 4, 4 * (g / 4), move) \
    TFM__TILE_FIELDS(2, g / 4, 2 * (g % 4), move) \
    TFM__TILE_FIELDS(1, 0, g, move) \
    default: break; \
    }

/* Adds the field of one row to a unit whose bytes were zero, and reads it back. */
static void tfm__tile_put(uint8_t *unit, int row, const uint8_t *code, int bits, int up) {
#define TFM__MOVE(lane, at, shift, mask) tfm__or_4(unit + (lane), code + (at), up, mask, shift);
    TFM__EACH_WIDTH(TFM__MOVE)
#undef TFM__MOVE
}
static void tfm__tile_get(uint8_t *code, const uint8_t *unit, int row, int bits, int up) {
#define TFM__MOVE(lane, at, shift, mask) tfm__or_4(code + (at), unit + (lane), shift, mask, up);
    TFM__EACH_WIDTH(TFM__MOVE)
#undef TFM__MOVE
}
#undef TFM__EACH_WIDTH
#undef TFM__TILE_FIELDS

/* Codes and scales of block `b` of a strip of `blocks` blocks. */
static size_t tfm__codes_at(const tfm__format *f, int64_t b) { return (size_t)b * (size_t)tfm__code_bytes(f); }
static size_t tfm__scales_at(const tfm__format *f, int64_t blocks, int64_t b) {
    return tfm__codes_at(f, blocks) + (size_t)b * (size_t)tfm__scale_bytes(f);
}

static void tfm__write_tile(uint8_t *strip, const tfm__format *f, int64_t blocks, int64_t b, int row,
                            const tfm_quant_block *in) {
    uint8_t *codes = strip + tfm__codes_at(f, b), *scales = strip + tfm__scales_at(f, blocks, b);
    for (int u = 0; u < f->info.block / 32; u++) {
        uint8_t *unit = codes + 64 * f->bits * u;
        tfm__tile_put(unit, row, in->code + 32 * u, f->low.bits, 0);
        if (f->high.bits) tfm__tile_put(unit + 64 * f->low.bits, row, in->code + 32 * u, f->high.bits, f->low.bits);
    }
    if (f->scale_kind == TFM__SC_E8M0) scales[row] = (uint8_t)in->d;
    else memcpy(scales + 2 * row, &in->d, 2);
    if (f->min) memcpy(scales + 32 + 2 * row, &in->m, 2);
    scales += (f->min ? 64 : 32) + row;
    for (int s = 0; f->sub && s < f->info.block / f->sub; s++, scales += tfm__sub_bytes(f)) {
        scales[0] = (uint8_t)in->scale[s];
        if (f->scale_kind == TFM__SC_NIBBLES) scales[0] = (uint8_t)(in->scale[s] | in->minimum[s] << 4);
        if (f->scale_kind == TFM__SC_SIX_SIX) scales[16] = in->minimum[s];
    }
}

static void tfm__read_tile(tfm_quant_block *out, const tfm__format *f, const uint8_t *strip, int64_t blocks, int64_t b,
                           int row) {
    const uint8_t *codes = strip + tfm__codes_at(f, b), *scales = strip + tfm__scales_at(f, blocks, b);
    tfm__clear_block(out, f);
    for (int u = 0; u < f->info.block / 32; u++) {
        const uint8_t *unit = codes + 64 * f->bits * u;
        tfm__tile_get(out->code + 32 * u, unit, row, f->low.bits, 0);
        if (f->high.bits) tfm__tile_get(out->code + 32 * u, unit + 64 * f->low.bits, row, f->high.bits, f->low.bits);
    }
    if (f->scale_kind == TFM__SC_E8M0) out->d = scales[row];
    else memcpy(&out->d, scales + 2 * row, 2);
    if (f->min) memcpy(&out->m, scales + 32 + 2 * row, 2);
    scales += (f->min ? 64 : 32) + row;
    for (int s = 0; f->sub && s < f->info.block / f->sub; s++, scales += tfm__sub_bytes(f)) {
        const int nibbles = f->scale_kind == TFM__SC_NIBBLES;
        out->scale[s] = (int8_t)(nibbles ? scales[0] & 15 : scales[0]);
        if (nibbles) out->minimum[s] = (uint8_t)(scales[0] >> 4);
        if (f->scale_kind == TFM__SC_SIX_SIX) out->minimum[s] = scales[16];
    }
}

/* --- packing and reading rows ------------------------------------------------------------------------------------- */

/* Rows of floats of the same type: a stretch of each at a time, as a strip's inputs lie 16 floats apart. */
#define TFM__INTERLEAVE(size) \
    for (size_t from = 0; from < cols; from += 64) { \
        const size_t to = cols - from < 64 ? cols : from + 64; \
        for (size_t r = 0; r < (size_t)n_rows; r++) { \
            for (size_t c = from; c < to; c++) \
                memcpy(dst + (16 * c + r) * (size), src + r * stride + c * (size), size); \
        } \
    }
static void tfm__interleave(uint8_t *dst, const uint8_t *src, size_t stride, int n_rows, size_t cols, int size) {
    if (size == 2) { TFM__INTERLEAVE(2) }
    else { TFM__INTERLEAVE(4) }
}
#undef TFM__INTERLEAVE

static void tfm__pack_floats(int32_t dst_type, uint8_t *dst, int32_t src_type, const uint8_t *src, size_t stride,
                             int n_rows, int64_t cols) {
    if (dst_type == src_type) {
        tfm__interleave(dst, src, stride, n_rows, (size_t)cols, tfm_type_get(dst_type)->block_bytes);
        return;
    }
    for (int r = 0; r < n_rows; r++) {
        const uint8_t *row = src + (size_t)r * stride;
        for (size_t c = 0; c < (size_t)cols; c++) {
            const size_t at = 16 * c + (size_t)r;
            tfm__float_put(dst, dst_type, at, tfm__float_get(row, src_type, c));
        }
    }
}

TFM_API tfm_result tfm_pack_strip(int32_t dst_type, void *dst, int32_t src_type, const void *src, size_t src_stride,
                                  int n_rows, int64_t cols) {
    const tfm__format *f = tfm__format_of(dst_type), *g = tfm__format_of(src_type);
    const size_t bytes = tfm_strip_bytes(dst_type, cols);
    if (!f || !g) return TFM_ERR_UNSUPPORTED;
    if (!bytes || n_rows < 0 || n_rows > 16) return TFM_ERR_ARG;
    if (dst_type != src_type && (g->bits || (f->bits && dst_type != TFM_Q8_0))) return TFM_ERR_UNSUPPORTED;
    memset(dst, 0, bytes);
    if (!f->bits) {
        tfm__pack_floats(dst_type, (uint8_t *)dst, src_type, (const uint8_t *)src, src_stride, n_rows, cols);
        return TFM_OK;
    }
    const int64_t blocks = cols / f->info.block;
    tfm_quant_block block;
    memset(&block, 0, sizeof block);
    for (int64_t b = 0; b < blocks; b++) {
        for (int r = 0; r < n_rows; r++) {
            const uint8_t *row = (const uint8_t *)src + (size_t)r * src_stride;
            if (g->bits) {
                tfm__read_source(&block, f, row + (size_t)b * (size_t)f->info.block_bytes);
            } else {
                float x[32];
                for (int i = 0; i < 32; i++) x[i] = tfm__float_get(row, src_type, (size_t)(32 * b + i));
                tfm__quantize_q8_0(&block, x);
            }
            tfm__write_tile((uint8_t *)dst, f, blocks, b, r, &block);
        }
    }
    return TFM_OK;
}

TFM_API tfm_result tfm_pack(int32_t dst_type, void *dst, int32_t src_type, const void *src, int64_t rows,
                            int64_t cols) {
    const tfm_type_info *s = tfm_type_get(src_type);
    if (!s || !tfm_type_get(dst_type)) return TFM_ERR_UNSUPPORTED;
    if (!tfm_tensor_bytes(dst_type, TFM_TILED, rows, cols) || cols % s->block) return TFM_ERR_ARG;
    const size_t strip = tfm_strip_bytes(dst_type, cols), stride = (size_t)(cols / s->block) * (size_t)s->block_bytes;
    for (int64_t r = 0; r < rows; r += 16) {
        tfm_result code = tfm_pack_strip(dst_type, (uint8_t *)dst + (size_t)(r / 16) * strip, src_type,
                                         (const uint8_t *)src + (size_t)r * stride, stride,
                                         (int)(rows - r < 16 ? rows - r : 16), cols);
        if (code) return code;
    }
    return TFM_OK;
}

TFM_API void tfm_pack_block(int32_t type, void *strip, int64_t cols, int row, int64_t index,
                            const tfm_quant_block *block) {
    const tfm__format *f = tfm__format_of(type);
    TFM__ASSERT(f && f->bits && row >= 0 && row < 16 && index >= 0 && index < cols / f->info.block);
    tfm__write_tile((uint8_t *)strip, f, cols / f->info.block, index, row, block);
}

TFM_API void tfm_tensor_row(const tfm_tensor *t, int64_t row, float *out) {
    const tfm__format *f = tfm__format_of(t->type);
    const size_t cols = (size_t)t->cols;
    if (t->layout == TFM_ROWS) {
        for (size_t c = 0; c < cols; c++) out[c] = tfm__float_get(t->data, t->type, (size_t)row * cols + c);
        return;
    }
    const uint8_t *strip = (const uint8_t *)t->data + (size_t)(row / 16) * tfm_strip_bytes(t->type, t->cols);
    const int lane = (int)(row % 16);
    if (!f->bits) {
        for (size_t c = 0; c < cols; c++) out[c] = tfm__float_get(strip, t->type, 16 * c + (size_t)lane);
        return;
    }
    const int64_t blocks = tfm__quotient(t->cols, f->info.block);
    tfm_quant_block block;
    for (int64_t b = 0; b < blocks; b++) {
        tfm__read_tile(&block, f, strip, blocks, b, lane);
        tfm__block_values(out + b * f->info.block, f, &block);
    }
}

TFM_API void tfm_source_row(const tfm_tensor *t, int64_t row, void *out) {
    const tfm__format *f = tfm__format_of(t->type);
    const size_t size = (size_t)f->info.block_bytes, cols = (size_t)t->cols;
    if (t->layout == TFM_ROWS) {
        memcpy(out, (const uint8_t *)t->data + (size_t)row * cols * size, cols * size);
        return;
    }
    const uint8_t *strip = (const uint8_t *)t->data + (size_t)(row / 16) * tfm_strip_bytes(t->type, t->cols);
    const int lane = (int)(row % 16);
    const int64_t blocks = tfm__quotient(t->cols, f->info.block);
    for (size_t c = 0; !f->bits && c < cols; c++)
        memcpy((uint8_t *)out + c * size, strip + (16 * c + (size_t)lane) * size, size);
    for (int64_t b = 0; f->bits && b < blocks; b++) {
        tfm_quant_block block;
        tfm__read_tile(&block, f, strip, blocks, b, lane);
        tfm__write_source((uint8_t *)out + (size_t)b * size, f, &block);
    }
}

/* n numbers of `size` bytes the other way round. */
static void tfm__reverse(uint8_t *p, size_t n, size_t size) {
    for (; n; n--, p += size)
        for (size_t i = 0; i < size / 2; i++) {
            const uint8_t byte = p[i];
            p[i] = p[size - 1 - i];
            p[size - 1 - i] = byte;
        }
}

/* Wider than a byte are the elements of float types, and of blocks d and m: 16 of each where a block's scales begin. */
TFM_API void tfm_file_order(const tfm_tensor *t, void *out) {
    const tfm__format *f = tfm__format_of(t->type);
    const size_t bytes = tfm_tensor_bytes(t->type, t->layout, t->rows, t->cols), element = (size_t)f->info.block_bytes;
    uint8_t *p = (uint8_t *)out;
    if (out != t->data) memcpy(out, t->data, bytes);
    if (!TFM__BIG_ENDIAN || f->scale_kind == TFM__SC_E8M0) return;
    if (!f->bits) {
        tfm__reverse(p, bytes / element, element);
        return;
    }
    const int64_t blocks = t->cols / f->info.block;
    for (int64_t row = 0; row < t->rows; row += 16, p += tfm_strip_bytes(t->type, t->cols))
        for (int64_t b = 0; b < blocks; b++) tfm__reverse(p + tfm__scales_at(f, blocks, b), f->min ? 32 : 16, 2);
}

enum { TFM__UNIT_X = 48 }; /* bytes of 32 inputs in a q8 row */
#define TFM__SUM_ZERO (-12582912.0f) /* -1.5 * 2^23 */

TFM_API size_t tfm_q8_row_bytes(int64_t cols) {
    if (cols < 32 || cols % 32 || (uint64_t)cols > SIZE_MAX / 2) return 0;
    return tfm__align64((size_t)cols / 32 * TFM__UNIT_X);
}

#if defined(__clang__)
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__) && !defined(__TINYC__)
#pragma GCC pop_options
#endif
/* ====================================================================================================================
   [B4] THREADS: the one place that owns them. Work is cut into contiguous parts of the item range; which part an item
   falls into never changes a bit of its result.
   ================================================================================================================= */

typedef struct tfm__workers { int32_t n_threads, grain; tfm_parallel parallel; } tfm__workers;

/* Handing work to a waiting thread and waiting for its end costs one to two microseconds; a thread does so many
   multiply-adds in twice that time, and less is not worth handing over. */
#define TFM__GRAIN 65536

#ifndef TFM_NO_THREADS
/* Where share i of `shares` begins: items * i / shares, whose product may be wider than an address. */
static int64_t tfm__share_begin(int64_t items, int64_t i, int64_t shares) {
    const int64_t each = tfm__quotient(items, shares), rest = items - each * shares;
    return each * i + tfm__quotient(rest * i, shares);
}

typedef struct tfm__for_job {
    void (*fn)(void *ctx, int64_t first, int64_t last);
    void *ctx;
    int64_t items;
    int threads, halvings;
} tfm__for_job;

/* Each thread has a share of the items, always the same one, whose data stay in its caches. A share is cut into parts:
   half of it, half of what is left, and so on, so that who is done early can take the rest of another's (guided
   self-scheduling, Polychronopoulos and Kuck 1987). Part i belongs to share i % threads. */
static void tfm__for_part(void *arg, int index) {
    const tfm__for_job *j = (const tfm__for_job *)arg;
    const int share = index % j->threads, round = index / j->threads;
    const int64_t end = tfm__share_begin(j->items, share + 1, j->threads);
    const int64_t length = end - tfm__share_begin(j->items, share, j->threads);
    const int64_t first = end - (length >> round), last = round < j->halvings ? end - (length >> (round + 1)) : end;
    if (first < last) j->fn(j->ctx, first, last);
}

static void tfm__for_threads(const tfm__workers *w, tfm__for_job *job) {
    const int parts = job->threads * (job->halvings + 1);
    if (w->parallel.run) {
        w->parallel.run(w->parallel.user, tfm__for_part, job, parts);
        return;
    }
#ifdef _OPENMP
#pragma omp parallel for num_threads(job->threads) schedule(dynamic, 1)
#endif
    for (int i = 0; i < parts; i++) tfm__for_part(job, i);
}
#endif

/* fn(ctx, first, last) over [0, items), cut into parts of at least a grain; returns when all are done. work: what an
   item costs, in multiply-adds of a matmul, at least 1. */
static void tfm__for(const tfm__workers *w, int64_t items, int64_t work, void (*fn)(void *, int64_t, int64_t),
                     void *ctx) {
#ifndef TFM_NO_THREADS
    /* work may be wider than an address, which is all that tfm__quotient divides */
    const int64_t least = work < w->grain ? tfm__quotient(w->grain + work - 1, work) : 1;
    const int64_t most = tfm__quotient(items, least);
    tfm__for_job job;
    job.fn = fn;
    job.ctx = ctx;
    job.items = items;
    job.threads = most < w->n_threads ? (int)most : w->n_threads;
    job.halvings = 0;
    while (job.halvings < 4 && most >> (job.halvings + 1) >= job.threads) job.halvings++;
    if (job.threads > 1) {
        tfm__for_threads(w, &job);
        return;
    }
#endif
    (void)w, (void)work;
    if (items > 0) fn(ctx, 0, items);
}

/* ====================================================================================================================
   [B5] DESCRIPTION: fields, roles, shapes, checks. Everything that is known about an architecture is in these tables.
   ================================================================================================================= */

#define TFM__CONFIG_FIELD(key, kind, member, name) \
    { key, kind, 1, (uint32_t)offsetof(tfm_config, member), (uint32_t)(sizeof(((tfm_config *)0)->member) / 4), name }
#define TFM__BLOCK_FIELD(key, kind, member, name) \
    { key, kind, 1, (uint32_t)offsetof(tfm_block, member), (uint32_t)(sizeof(((tfm_block *)0)->member) / 4), name }

static const tfm_field tfm__config_fields[] = {
    TFM__CONFIG_FIELD(16, 1, n_layers, "n_layers"),
    TFM__CONFIG_FIELD(17, 1, d_model, "d_model"),
    TFM__CONFIG_FIELD(18, 1, n_vocab, "n_vocab"),
    TFM__CONFIG_FIELD(19, 1, n_ctx, "n_ctx"),
    TFM__CONFIG_FIELD(20, 2, embed_scale, "embed_scale"),
    TFM__CONFIG_FIELD(21, 1, pos_kind, "pos_kind"),
    TFM__CONFIG_FIELD(22, 1, pos_offset, "pos_offset"),
    TFM__CONFIG_FIELD(23, 1, norm_kind, "norm_kind"),
    TFM__CONFIG_FIELD(24, 2, norm_eps, "norm_eps"),
    TFM__CONFIG_FIELD(25, 2, norm_offset, "norm_offset"),
    TFM__CONFIG_FIELD(26, 1, norm_bias, "norm_bias"),
    TFM__CONFIG_FIELD(27, 1, norm_no_weight, "norm_no_weight"),
    TFM__CONFIG_FIELD(28, 1, tied, "tied"),
    TFM__CONFIG_FIELD(29, 1, head_bias, "head_bias"),
    TFM__CONFIG_FIELD(30, 2, logit_scale, "logit_scale"),
    TFM__CONFIG_FIELD(31, 2, logit_softcap, "logit_softcap"),
    TFM__CONFIG_FIELD(32, 1, bos, "bos"),
    TFM__CONFIG_FIELD(33, 1, n_eos, "n_eos"),
    TFM__CONFIG_FIELD(34, 3, eos, "eos"),
    TFM__CONFIG_FIELD(35, 1, d_embed, "d_embed"),
    TFM__CONFIG_FIELD(36, 1, embed_norm, "embed_norm"),
};

static const tfm_field tfm__block_fields[] = {
    TFM__BLOCK_FIELD(64, 1, norm_kind, "norm_kind"),
    TFM__BLOCK_FIELD(65, 1, norm_place, "norm_place"),
    TFM__BLOCK_FIELD(66, 2, norm_eps, "norm_eps"),
    TFM__BLOCK_FIELD(67, 2, norm_offset, "norm_offset"),
    TFM__BLOCK_FIELD(68, 1, norm_no_weight, "norm_no_weight"),
    TFM__BLOCK_FIELD(69, 1, residual, "residual"),
    TFM__BLOCK_FIELD(70, 2, residual_scale, "residual_scale"),
    TFM__BLOCK_FIELD(71, 1, bias, "bias"),
    TFM__BLOCK_FIELD(80, 1, attn_kind, "attn_kind"),
    TFM__BLOCK_FIELD(81, 1, mask, "mask"),
    TFM__BLOCK_FIELD(82, 1, n_heads, "n_heads"),
    TFM__BLOCK_FIELD(83, 1, n_kv_heads, "n_kv_heads"),
    TFM__BLOCK_FIELD(84, 1, head_dim, "head_dim"),
    TFM__BLOCK_FIELD(85, 2, attn_scale, "attn_scale"),
    TFM__BLOCK_FIELD(86, 2, attn_softcap, "attn_softcap"),
    TFM__BLOCK_FIELD(87, 1, window, "window"),
    TFM__BLOCK_FIELD(88, 1, qk_norm, "qk_norm"),
    TFM__BLOCK_FIELD(89, 1, qk_norm_kind, "qk_norm_kind"),
    TFM__BLOCK_FIELD(90, 2, qk_norm_eps, "qk_norm_eps"),
    TFM__BLOCK_FIELD(91, 2, qk_norm_offset, "qk_norm_offset"),
    TFM__BLOCK_FIELD(92, 1, qk_norm_late, "qk_norm_late"),
    TFM__BLOCK_FIELD(93, 2, qkv_clamp, "qkv_clamp"),
    TFM__BLOCK_FIELD(94, 1, alibi, "alibi"),
    TFM__BLOCK_FIELD(95, 2, temperature, "temperature"),
    TFM__BLOCK_FIELD(96, 1, temperature_ctx, "temperature_ctx"),
    TFM__BLOCK_FIELD(97, 1, temperature_offset, "temperature_offset"),
    TFM__BLOCK_FIELD(98, 1, sinks, "sinks"),
    TFM__BLOCK_FIELD(99, 1, qk_norm_no_weight, "qk_norm_no_weight"),
    TFM__BLOCK_FIELD(100, 1, log_ctx, "log_ctx"),
    TFM__BLOCK_FIELD(101, 1, mask_stride, "mask_stride"),
    TFM__BLOCK_FIELD(102, 1, mask_columns, "mask_columns"),
    TFM__BLOCK_FIELD(103, 1, mask_groups, "mask_groups"),
    TFM__BLOCK_FIELD(104, 1, mask_part, "mask_part"),
    TFM__BLOCK_FIELD(112, 1, rope_style, "rope_style"),
    TFM__BLOCK_FIELD(113, 1, rope_dims, "rope_dims"),
    TFM__BLOCK_FIELD(114, 1, rope_scaling, "rope_scaling"),
    TFM__BLOCK_FIELD(115, 2, rope_theta, "rope_theta"),
    TFM__BLOCK_FIELD(116, 2, rope_factor, "rope_factor"),
    TFM__BLOCK_FIELD(117, 2, rope_low, "rope_low"),
    TFM__BLOCK_FIELD(118, 2, rope_high, "rope_high"),
    TFM__BLOCK_FIELD(119, 2, rope_attn_factor, "rope_attn_factor"),
    TFM__BLOCK_FIELD(120, 2, rope_mscale, "rope_mscale"),
    TFM__BLOCK_FIELD(121, 2, rope_mscale_all, "rope_mscale_all"),
    TFM__BLOCK_FIELD(122, 1, rope_ctx_orig, "rope_ctx_orig"),
    TFM__BLOCK_FIELD(123, 1, rope_ctx_max, "rope_ctx_max"),
    TFM__BLOCK_FIELD(124, 1, rope_no_truncate, "rope_no_truncate"),
    TFM__BLOCK_FIELD(144, 1, ffn_kind, "ffn_kind"),
    TFM__BLOCK_FIELD(145, 1, ffn_act, "ffn_act"),
    TFM__BLOCK_FIELD(146, 1, ffn_gated, "ffn_gated"),
    TFM__BLOCK_FIELD(147, 1, d_ff, "d_ff"),
    TFM__BLOCK_FIELD(148, 2, ffn_limit, "ffn_limit"),
    TFM__BLOCK_FIELD(149, 2, ffn_up_offset, "ffn_up_offset"),
    TFM__BLOCK_FIELD(150, 1, d_expert, "d_expert"),
    TFM__BLOCK_FIELD(151, 1, n_experts, "n_experts"),
    TFM__BLOCK_FIELD(152, 1, n_experts_used, "n_experts_used"),
    TFM__BLOCK_FIELD(153, 1, router_score, "router_score"),
    TFM__BLOCK_FIELD(154, 1, router_pick, "router_pick"),
    TFM__BLOCK_FIELD(155, 1, router_weight, "router_weight"),
    TFM__BLOCK_FIELD(156, 2, router_norm, "router_norm"),
    TFM__BLOCK_FIELD(157, 2, router_norm_eps, "router_norm_eps"),
    TFM__BLOCK_FIELD(158, 2, router_norm_floor, "router_norm_floor"),
    TFM__BLOCK_FIELD(159, 2, router_scale, "router_scale"),
    TFM__BLOCK_FIELD(160, 2, router_jitter, "router_jitter"),
    TFM__BLOCK_FIELD(161, 1, router_on_input, "router_on_input"),
    TFM__BLOCK_FIELD(162, 1, n_groups, "n_groups"),
    TFM__BLOCK_FIELD(163, 1, n_groups_used, "n_groups_used"),
    TFM__BLOCK_FIELD(164, 1, group_score, "group_score"),
    TFM__BLOCK_FIELD(165, 1, shared_gate, "shared_gate"),
};

#define TFM__COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

TFM_API const tfm_field *tfm_config_fields(int *n) {
    *n = TFM__COUNT(tfm__config_fields);
    return tfm__config_fields;
}

TFM_API const tfm_field *tfm_block_fields(int *n) {
    *n = TFM__COUNT(tfm__block_fields);
    return tfm__block_fields;
}

/* Enums and flags: the number of values, and their names in order. A value at or past it is refused on opening. */
typedef struct tfm__enum_row { const char *field; int32_t count; const char *names; } tfm__enum_row;
#define TFM__PART_NAME(name, number, words, function) words "\0"
static const tfm__enum_row tfm__enums[] = {
    {"norm_kind", TFM__NORM_END, TFM__NORMS(TFM__PART_NAME)},
    {"norm_place", 5, "pre\0post-branch\0sandwich\0post-add\0pre-stream\0"},
    {"residual", 3, "sequential\0parallel-1\0parallel-2\0"},
    {"attn_kind", 1, "plain\0"},
    {"mask", 4, "causal\0chunked\0strided\0fixed\0"},
    {"mask_part", 4, "both\0near\0far\0heads\0"},
    {"qk_norm", 4, "none\0per-head\0full-width\0own-per-head\0"},
    {"qk_norm_kind", TFM__NORM_END, TFM__NORMS(TFM__PART_NAME)},
    {"alibi", 3, "none\0slopes\0bf16\0"},
    {"rope_style", 3, "none\0half-split\0interleaved\0"},
    {"rope_scaling", 8, "plain\0linear\0dynamic\0yarn\0long\0bands\0factors\0steps\0"},
    {"ffn_kind", 2, "dense\0experts\0"},
    {"router_score", 3, "logit\0softmax\0sigmoid\0"},
    {"router_pick", 2, "top\0sparse-mixer\0"},
    {"router_weight", 3, "score\0softmax\0sigmoid\0"},
    {"group_score", 2, "max\0two-largest\0"},
    {"ffn_act", TFM__ACT_END, TFM__ACTIVATIONS(TFM__PART_NAME)},
    {"pos_kind", 2, "none\0learned\0"},
    {"norm_no_weight", 2, "no\0yes\0"},
    {"norm_bias", 2, "no\0yes\0"},
    {"tied", 2, "no\0yes\0"},
    {"head_bias", 2, "no\0yes\0"},
    {"rope_no_truncate", 2, "no\0yes\0"},
    {"ffn_gated", 2, "no\0yes\0"},
    {"qk_norm_late", 2, "no\0yes\0"},
    {"qk_norm_no_weight", 2, "no\0yes\0"},
    {"sinks", 2, "no\0yes\0"},
    {"router_on_input", 2, "no\0yes\0"},
    {"shared_gate", 2, "no\0yes\0"},
    {"embed_norm", 2, "no\0yes\0"},
};

static const tfm__enum_row *tfm__enum_find(const char *field) {
    for (int i = 0; i < TFM__COUNT(tfm__enums); i++)
        if (!strcmp(tfm__enums[i].field, field)) return &tfm__enums[i];
    return NULL;
}

TFM_API const char *tfm_field_value_name(const char *field, int32_t value) {
    const tfm__enum_row *e = tfm__enum_find(field);
    if (!e || value < 0 || value >= e->count) return NULL;
    const char *name = e->names;
    while (value--) name += strlen(name) + 1;
    return name;
}

static int32_t tfm__field_int(const void *base, const tfm_field *f) {
    int32_t v;
    memcpy(&v, (const char *)base + f->offset, 4);
    return v;
}

static float tfm__field_float(const void *base, const tfm_field *f) {
    float v;
    memcpy(&v, (const char *)base + f->offset, 4);
    return v;
}

/* Checks that hold for every field alone: enums known, floats finite, integers not negative (ids may be -1). */
static tfm_result tfm__check_fields(const void *base, const tfm_field *fields, int n, const char *where,
                                    tfm_error *err) {
    for (int i = 0; i < n; i++) {
        const tfm_field *f = &fields[i];
        const tfm__enum_row *e = tfm__enum_find(f->name);
        if (f->kind == 2) {
            const float v = tfm__field_float(base, f);
            if (!(v > -1e30f && v < 1e30f))
                return tfm__fail(err, TFM_ERR_FORMAT, "%s%s is not a finite number", where, f->name);
        } else if (f->kind == 1) {
            const int32_t v = tfm__field_int(base, f), least = strcmp(f->name, "bos") ? 0 : -1;
            if (v < least) return tfm__fail(err, TFM_ERR_FORMAT, "%s%s is negative (%d)", where, f->name, (int)v);
            if (e && v >= e->count)
                return tfm__fail(err, TFM_ERR_UNSUPPORTED, "%s%s has the unknown value %d", where, f->name, (int)v);
        }
    }
    return TFM_OK;
}

#define TFM__NEED(condition, ...) do { if (!(condition)) return tfm__fail(err, TFM_ERR_FORMAT, __VA_ARGS__); } while (0)

static tfm_result tfm__check_rope(const tfm_block *b, int i, tfm_error *err) {
    if (!b->rope_style) return TFM_OK;
    const int32_t dims = b->rope_dims ? b->rope_dims : b->head_dim, scaling = b->rope_scaling;
    const int scaled = scaling != TFM_ROPE_PLAIN && scaling != TFM_ROPE_FACTORS && scaling != TFM_ROPE_STEPS;
    TFM__NEED(dims <= b->head_dim && dims % 2 == 0, "block %d: rope_dims %d must be even and at most head_dim %d", i,
              (int)dims, (int)b->head_dim);
    TFM__NEED(b->rope_theta > 0, "block %d: rope_theta must be above 0", i);
    TFM__NEED(!scaled || b->rope_factor > 0 || (scaling == TFM_ROPE_LONG && b->rope_attn_factor > 0),
              "block %d: rope_factor must be above 0", i);
    if (scaling == TFM_ROPE_BANDS) {
        TFM__NEED(b->rope_low > 0 && b->rope_high > b->rope_low,
                  "block %d: rope_high must be above rope_low above 0", i);
        TFM__NEED(b->rope_ctx_orig > 0, "block %d: rope_ctx_orig is missing", i);
    }
    if (scaling == TFM_ROPE_YARN) {
        TFM__NEED(b->rope_ctx_orig > 0, "block %d: rope_ctx_orig is missing", i);
        TFM__NEED(b->rope_low > 0, "block %d: rope_low (beta_slow) must be above 0", i);
        TFM__NEED(b->rope_high > 0, "block %d: rope_high (beta_fast) must be above 0", i);
        TFM__NEED(b->rope_theta > 1, "block %d: rope_theta must be above 1 for YaRN", i);
    }
    if (scaling == TFM_ROPE_LONG) TFM__NEED(b->rope_ctx_orig > 1, "block %d: rope_ctx_orig must be above 1", i);
    if (scaling == TFM_ROPE_DYNAMIC || scaling == TFM_ROPE_STEPS) {
        TFM__NEED(b->rope_factor >= 1 || scaling == TFM_ROPE_STEPS,
                  "block %d: rope_factor must be at least 1 for dynamic scaling", i);
        TFM__NEED(b->rope_ctx_max > 0, "block %d: rope_ctx_max is missing", i);
        TFM__NEED(dims > 2, "block %d: rope_dims must be above 2 for dynamic scaling", i);
    }
    return TFM_OK;
}

enum { TFM__MAX_EXPERTS = 4096, TFM__MAX_PICKS = 256, TFM__MAX_GROUPS = 64 };

static tfm_result tfm__check_groups(const tfm_block *b, int i, tfm_error *err) {
    const int32_t n = b->n_groups, size = n ? b->n_experts / n : 0;
    if (!n) return TFM_OK;
    TFM__NEED(n <= TFM__MAX_GROUPS && b->n_experts % n == 0,
              "block %d: n_groups %d does not divide n_experts %d, or is above %d", i, (int)n, (int)b->n_experts,
              (int)TFM__MAX_GROUPS);
    TFM__NEED(b->n_groups_used >= 1 && b->n_groups_used <= n, "block %d: n_groups_used %d is out of range (1 to %d)", i,
              (int)b->n_groups_used, (int)n);
    TFM__NEED(b->n_experts_used <= b->n_groups_used * size,
              "block %d: n_experts_used %d exceeds the %d experts of n_groups_used", i,
              (int)b->n_experts_used, (int)(b->n_groups_used * size));
    TFM__NEED(b->group_score != TFM_GROUP_TWO || size >= 2,
              "block %d: group_score two-largest of groups of one expert", i);
    return TFM_OK;
}

static tfm_result tfm__check_experts(const tfm_block *b, int i, tfm_error *err) {
#ifdef TFM_NO_EXPERTS
    if (b)
        return tfm__fail(err, TFM_ERR_UNSUPPORTED, "block %d is a mixture of experts, which this build cannot run", i);
#endif
    TFM__NEED(b->n_experts >= 1 && b->n_experts <= TFM__MAX_EXPERTS,
              "block %d: n_experts %d is out of range (1 to %d)", i, (int)b->n_experts, (int)TFM__MAX_EXPERTS);
    TFM__NEED(b->n_experts_used >= 1 && b->n_experts_used <= b->n_experts && b->n_experts_used <= TFM__MAX_PICKS,
              "block %d: n_experts_used %d is out of range (1 to n_experts %d, at most %d)", i, (int)b->n_experts_used,
              (int)b->n_experts, (int)TFM__MAX_PICKS);
    TFM__NEED(b->d_expert >= 1 && b->d_expert <= 1 << 24, "block %d: d_expert %d is out of range", i, (int)b->d_expert);
    TFM__NEED(b->d_ff || !b->shared_gate, "block %d: shared_gate without a shared expert (d_ff)", i);
    TFM__NEED(b->router_pick == TFM_PICK_TOP ||
              (b->router_score == TFM_SCORE_LOGIT && !b->n_groups && !(b->bias & TFM_BIAS_SELECT)),
              "block %d: router_pick sparse-mixer works on logits, without groups or bias", i);
    TFM__NEED(b->router_norm >= 0 && b->router_norm <= 64, "block %d: router_norm is out of range (0 to 64)", i);
    TFM__NEED(b->router_norm_eps >= 0, "block %d: router_norm_eps is negative", i);
    TFM__NEED(b->router_norm_floor >= 0, "block %d: router_norm_floor is negative", i);
    TFM__NEED(b->router_jitter >= 0, "block %d: router_jitter is negative", i);
    TFM__NEED(b->ffn_act != TFM_ACT_XIELU, "block %d: ffn_act xielu in a mixture of experts", i);
    return tfm__check_groups(b, i, err);
}

static tfm_result tfm__check_mask(const tfm_block *b, int i, tfm_error *err) {
    const int64_t groups = b->mask_groups ? b->mask_groups : 1;
    if (b->mask < TFM_MASK_STRIDED) return TFM_OK;
    TFM__NEED(b->mask_stride >= 1, "block %d: a mask without mask_stride", i);
    TFM__NEED(b->mask != TFM_MASK_FIXED || b->mask_part == TFM_PART_NEAR ||
              (b->mask_columns >= 1 && b->mask_columns <= b->mask_stride / groups),
              "block %d: mask_columns %d times mask_groups %d must be from 1 to mask_stride %d", i,
              (int)b->mask_columns, (int)groups, (int)b->mask_stride);
    return TFM_OK;
}

static tfm_result tfm__check_block(const tfm_block *b, int i, tfm_error *err) {
    char where[24];
    size_t n = tfm__append(where, sizeof where, 0, "block ", 6);
    n = tfm__append_int(where, sizeof where, n, i);
    tfm__append(where, sizeof where, n, ": ", 2);
    const tfm_result r = tfm__check_fields(b, tfm__block_fields, TFM__COUNT(tfm__block_fields), where, err);
    if (r) return r;
    TFM__NEED(b->n_heads >= 1 && b->n_heads <= 4096, "block %d: n_heads %d is out of range", i, (int)b->n_heads);
    TFM__NEED(b->n_kv_heads >= 1 && b->n_heads % b->n_kv_heads == 0,
              "block %d: n_heads %d is no multiple of n_kv_heads %d", i, (int)b->n_heads, (int)b->n_kv_heads);
    TFM__NEED(b->head_dim >= 1 && b->head_dim <= 1024,
              "block %d: head_dim %d is out of range (1 to 1024)", i, (int)b->head_dim);
    TFM__NEED(b->d_ff >= (b->ffn_kind == TFM_FFN_DENSE) && b->d_ff <= 1 << 24,
              "block %d: d_ff %d is out of range", i, (int)b->d_ff);
    TFM__NEED(b->norm_eps >= 0, "block %d: norm_eps is negative", i);
    TFM__NEED(b->qk_norm_eps >= 0, "block %d: qk_norm_eps is negative", i);
    TFM__NEED(b->attn_softcap >= 0, "block %d: attn_softcap is negative", i);
    TFM__NEED(b->attn_scale >= 0, "block %d: attn_scale is negative", i);
    if (b->bias & ~4095)
        return tfm__fail(err, TFM_ERR_UNSUPPORTED, "block %d: bias %d has unknown bits", i, (int)b->bias);
    TFM__NEED(b->ffn_gated || !(b->bias & TFM_BIAS_GATE), "block %d: bias of a gate, but ffn_gated is off", i);
    TFM__NEED(b->norm_kind == TFM_NORM_LAYER || !(b->bias & TFM_BIAS_NORM),
              "block %d: only layer norms have a bias", i);
    TFM__NEED(b->qk_norm_kind == TFM_NORM_LAYER || !(b->bias & TFM_BIAS_QK_NORM),
              "block %d: only layer norms of q and k have a bias", i);
    TFM__NEED(b->residual == TFM_RESIDUAL_SEQUENTIAL || b->norm_place == TFM_PLACE_PRE,
              "block %d: a parallel residual needs norm_place pre", i);
    TFM__NEED(!b->qk_norm || b->qk_norm_kind != TFM_NORM_NONE, "block %d: qk_norm without qk_norm_kind", i);
    TFM__NEED(b->ffn_act != TFM_ACT_XIELU || !b->ffn_gated, "block %d: ffn_act xielu has no gated form", i);
    TFM__NEED(b->qkv_clamp >= 0, "block %d: qkv_clamp is negative", i);
    TFM__NEED(b->temperature == 0 || b->temperature_ctx > 0, "block %d: temperature without temperature_ctx", i);
    TFM__NEED(b->mask != TFM_MASK_CHUNKED || b->window > 0,
              "block %d: mask chunked without window, the size of a chunk", i);
    TFM__NEED(b->ffn_limit >= 0, "block %d: ffn_limit is negative", i);
    TFM__NEED(b->ffn_gated || (b->ffn_limit == 0 && b->ffn_up_offset == 0),
              "block %d: ffn_limit or ffn_up_offset without ffn_gated", i);
    TFM__NEED(b->ffn_kind == TFM_FFN_EXPERTS || !(b->bias & (TFM_BIAS_ROUTER | TFM_BIAS_SELECT | TFM_BIAS_EXPERTS)),
              "block %d: bias of a router or of experts, but ffn_kind is dense", i);
    if (b->ffn_kind == TFM_FFN_EXPERTS) {
        const tfm_result bad = tfm__check_experts(b, i, err);
        if (bad) return bad;
    }
    TFM__NEED(b->log_ctx != 1, "block %d: log_ctx must be above 1", i);
    const tfm_result mask = tfm__check_mask(b, i, err);
    return mask ? mask : tfm__check_rope(b, i, err);
}

/* Blocks share the factor vectors of RoPE and the slopes of ALiBi, so the widths that read them must agree. */
static tfm_result tfm__check_shared(const tfm_config *c, tfm_error *err) {
    int32_t dims = 0, heads = 0;
    for (int i = 0; i < c->n_blocks; i++) {
        const tfm_block *b = &c->blocks[i];
        const int32_t own = b->rope_dims ? b->rope_dims : b->head_dim;
        if (b->rope_style && (b->rope_scaling == TFM_ROPE_FACTORS || b->rope_scaling == TFM_ROPE_LONG)) {
            if (!dims) dims = own;
            TFM__NEED(own == dims,
                      "block %d: rope_dims %d, but the factor vectors are made for %d", i, (int)own, (int)dims);
        }
        if (b->alibi) {
            if (!heads) heads = b->n_heads;
            TFM__NEED(b->n_heads == heads,
                      "block %d: n_heads %d, but the slopes are made for %d", i, (int)b->n_heads, (int)heads);
        }
    }
    return TFM_OK;
}

TFM_API tfm_result tfm_config_check(const tfm_config *c, tfm_error *err) {
    if (!c || c->size != sizeof *c) return tfm__fail(err, TFM_ERR_ARG, "config: size must be sizeof(tfm_config)");
    tfm_result r = tfm__check_fields(c, tfm__config_fields, TFM__COUNT(tfm__config_fields), "", err);
    if (r) return r;
    TFM__NEED(c->n_layers >= 1 && c->n_layers <= 4096, "n_layers %d is out of range (1 to 4096)", (int)c->n_layers);
    TFM__NEED(c->d_model >= 1 && c->d_model <= 1 << 20, "d_model %d is out of range", (int)c->d_model);
    TFM__NEED(c->n_vocab >= 1 && c->n_vocab <= 1 << 26, "n_vocab %d is out of range", (int)c->n_vocab);
    TFM__NEED(c->n_ctx >= 1, "n_ctx must be at least 1");
    TFM__NEED(c->n_blocks >= 1 && c->n_blocks <= 255 && c->blocks,
              "n_blocks %d is out of range (1 to 255)", (int)c->n_blocks);
    TFM__NEED(c->d_embed <= c->d_model, "d_embed %d exceeds d_model %d", (int)c->d_embed, (int)c->d_model);
    TFM__NEED(c->pos_offset <= 1 << 20, "pos_offset %d is out of range", (int)c->pos_offset);
    TFM__NEED(c->norm_eps >= 0, "norm_eps is negative");
    TFM__NEED(c->logit_softcap >= 0, "logit_softcap is negative");
    TFM__NEED(c->norm_kind == TFM_NORM_LAYER || !c->norm_bias, "norm_bias: only layer norms have a bias");
    TFM__NEED(c->bos < c->n_vocab, "bos %d is out of range (n_vocab %d)", (int)c->bos, (int)c->n_vocab);
    TFM__NEED(c->n_eos >= 0 && c->n_eos <= 16, "n_eos %d is out of range (0 to 16)", (int)c->n_eos);
    for (int i = 0; i < c->n_eos; i++)
        TFM__NEED(c->eos[i] >= 0 && c->eos[i] < c->n_vocab,
                  "eos %d is out of range (n_vocab %d)", (int)c->eos[i], (int)c->n_vocab);
    for (int i = 0; c->layer_block && i < c->n_layers; i++)
        TFM__NEED(c->layer_block[i] < c->n_blocks,
                  "layer %d names block %d of %d", i, (int)c->layer_block[i], (int)c->n_blocks);
    for (int i = 0; i < c->n_blocks; i++)
        if ((r = tfm__check_block(&c->blocks[i], i, err)) != TFM_OK) return r;
    return tfm__check_shared(c, err);
}

/* --- roles and shapes --- */

enum { TFM__DIM_1, TFM__DIM_EMBED, TFM__DIM_SLOPES, TFM__DIM_ACT, TFM__DIM_MODEL, TFM__DIM_VOCAB, TFM__DIM_POS,
       TFM__DIM_Q, TFM__DIM_KV, TFM__DIM_QNORM, TFM__DIM_KNORM, TFM__DIM_FF, TFM__DIM_ROPE, TFM__DIM_HEADS,
       TFM__DIM_EXPERTS, TFM__DIM_EXPERT };
enum { TFM__IF_ALWAYS, TFM__IF_POS, TFM__IF_OUT_NORM, TFM__IF_OUT_NORM_B, TFM__IF_UNTIED, TFM__IF_HEAD_B,
       TFM__IF_FACTORS, TFM__IF_LONG, TFM__IF_PRE, TFM__IF_PRE_B, TFM__IF_POST, TFM__IF_POST_B, TFM__IF_PRE_FFN,
       TFM__IF_PRE_FFN_B, TFM__IF_QK_NORM, TFM__IF_QK_NORM_B, TFM__IF_GATED, TFM__IF_BIAS, TFM__IF_SLOPES,
       TFM__IF_PROJ, TFM__IF_EMBED_NORM, TFM__IF_EMBED_NORM_B, TFM__IF_ACT, TFM__IF_SINKS, TFM__IF_DENSE,
       TFM__IF_DENSE_BIAS, TFM__IF_EXPERTS, TFM__IF_EXPERTS_GATED, TFM__IF_EXPERTS_BIAS, TFM__IF_EXPERTS_GATE_BIAS,
       TFM__IF_SHARED_GATE };

/* role · name · rows · cols · condition · bias bit (for TFM__IF_BIAS) */
typedef struct tfm__role_row { int32_t role; const char *name; uint8_t rows, cols, when; uint16_t bias; } tfm__role_row;
static const tfm__role_row tfm__roles[] = {
    {TFM_ROLE_EMBED, "token_embd.weight", TFM__DIM_VOCAB, TFM__DIM_EMBED, TFM__IF_ALWAYS, 0},
    {TFM_ROLE_POS_EMBED, "position_embd.weight", TFM__DIM_POS, TFM__DIM_MODEL, TFM__IF_POS, 0},
    {TFM_ROLE_OUT_NORM, "output_norm.weight", TFM__DIM_1, TFM__DIM_MODEL, TFM__IF_OUT_NORM, 0},
    {TFM_ROLE_OUT_NORM_B, "output_norm.bias", TFM__DIM_1, TFM__DIM_MODEL, TFM__IF_OUT_NORM_B, 0},
    {TFM_ROLE_HEAD, "output.weight", TFM__DIM_VOCAB, TFM__DIM_EMBED, TFM__IF_UNTIED, 0},
    {TFM_ROLE_HEAD_B, "output.bias", TFM__DIM_1, TFM__DIM_VOCAB, TFM__IF_HEAD_B, 0},
    {TFM_ROLE_ROPE_FACTORS, "rope_freqs.weight", TFM__DIM_1, TFM__DIM_ROPE, TFM__IF_FACTORS, 0},
    {TFM_ROLE_ROPE_FACTORS_LONG, "rope_freqs_long.weight", TFM__DIM_1, TFM__DIM_ROPE, TFM__IF_LONG, 0},
    {TFM_ROLE_SLOPES, "alibi_slopes.weight", TFM__DIM_1, TFM__DIM_SLOPES, TFM__IF_SLOPES, 0},
    {TFM_ROLE_EMBED_PROJ, "token_embd_proj.weight", TFM__DIM_MODEL, TFM__DIM_EMBED, TFM__IF_PROJ, 0},
    {TFM_ROLE_OUT_PROJ, "output_proj.weight", TFM__DIM_EMBED, TFM__DIM_MODEL, TFM__IF_PROJ, 0},
    {TFM_ROLE_EMBED_NORM, "token_embd_norm.weight", TFM__DIM_1, TFM__DIM_MODEL, TFM__IF_EMBED_NORM, 0},
    {TFM_ROLE_EMBED_NORM_B, "token_embd_norm.bias", TFM__DIM_1, TFM__DIM_MODEL, TFM__IF_EMBED_NORM_B, 0},
    {TFM_ROLE_ATTN_NORM, "attn_norm.weight", TFM__DIM_1, TFM__DIM_MODEL, TFM__IF_PRE, 0},
    {TFM_ROLE_ATTN_NORM_B, "attn_norm.bias", TFM__DIM_1, TFM__DIM_MODEL, TFM__IF_PRE_B, 0},
    {TFM_ROLE_ATTN_POST_NORM, "post_attention_norm.weight", TFM__DIM_1, TFM__DIM_MODEL, TFM__IF_POST, 0},
    {TFM_ROLE_ATTN_POST_NORM_B, "post_attention_norm.bias", TFM__DIM_1, TFM__DIM_MODEL, TFM__IF_POST_B, 0},
    {TFM_ROLE_Q, "attn_q.weight", TFM__DIM_Q, TFM__DIM_MODEL, TFM__IF_ALWAYS, 0},
    {TFM_ROLE_K, "attn_k.weight", TFM__DIM_KV, TFM__DIM_MODEL, TFM__IF_ALWAYS, 0},
    {TFM_ROLE_V, "attn_v.weight", TFM__DIM_KV, TFM__DIM_MODEL, TFM__IF_ALWAYS, 0},
    {TFM_ROLE_O, "attn_output.weight", TFM__DIM_MODEL, TFM__DIM_Q, TFM__IF_ALWAYS, 0},
    {TFM_ROLE_Q_B, "attn_q.bias", TFM__DIM_1, TFM__DIM_Q, TFM__IF_BIAS, TFM_BIAS_Q},
    {TFM_ROLE_K_B, "attn_k.bias", TFM__DIM_1, TFM__DIM_KV, TFM__IF_BIAS, TFM_BIAS_K},
    {TFM_ROLE_V_B, "attn_v.bias", TFM__DIM_1, TFM__DIM_KV, TFM__IF_BIAS, TFM_BIAS_V},
    {TFM_ROLE_O_B, "attn_output.bias", TFM__DIM_1, TFM__DIM_MODEL, TFM__IF_BIAS, TFM_BIAS_O},
    {TFM_ROLE_Q_NORM, "attn_q_norm.weight", TFM__DIM_1, TFM__DIM_QNORM, TFM__IF_QK_NORM, 0},
    {TFM_ROLE_K_NORM, "attn_k_norm.weight", TFM__DIM_1, TFM__DIM_KNORM, TFM__IF_QK_NORM, 0},
    {TFM_ROLE_Q_NORM_B, "attn_q_norm.bias", TFM__DIM_1, TFM__DIM_QNORM, TFM__IF_QK_NORM_B, 0},
    {TFM_ROLE_K_NORM_B, "attn_k_norm.bias", TFM__DIM_1, TFM__DIM_KNORM, TFM__IF_QK_NORM_B, 0},
    {TFM_ROLE_FFN_NORM, "ffn_norm.weight", TFM__DIM_1, TFM__DIM_MODEL, TFM__IF_PRE_FFN, 0},
    {TFM_ROLE_FFN_NORM_B, "ffn_norm.bias", TFM__DIM_1, TFM__DIM_MODEL, TFM__IF_PRE_FFN_B, 0},
    {TFM_ROLE_FFN_POST_NORM, "post_ffw_norm.weight", TFM__DIM_1, TFM__DIM_MODEL, TFM__IF_POST, 0},
    {TFM_ROLE_FFN_POST_NORM_B, "post_ffw_norm.bias", TFM__DIM_1, TFM__DIM_MODEL, TFM__IF_POST_B, 0},
    {TFM_ROLE_GATE, "ffn_gate.weight", TFM__DIM_FF, TFM__DIM_MODEL, TFM__IF_GATED, 0},
    {TFM_ROLE_UP, "ffn_up.weight", TFM__DIM_FF, TFM__DIM_MODEL, TFM__IF_DENSE, 0},
    {TFM_ROLE_DOWN, "ffn_down.weight", TFM__DIM_MODEL, TFM__DIM_FF, TFM__IF_DENSE, 0},
    {TFM_ROLE_GATE_B, "ffn_gate.bias", TFM__DIM_1, TFM__DIM_FF, TFM__IF_DENSE_BIAS, TFM_BIAS_GATE},
    {TFM_ROLE_UP_B, "ffn_up.bias", TFM__DIM_1, TFM__DIM_FF, TFM__IF_DENSE_BIAS, TFM_BIAS_UP},
    {TFM_ROLE_DOWN_B, "ffn_down.bias", TFM__DIM_1, TFM__DIM_MODEL, TFM__IF_DENSE_BIAS, TFM_BIAS_DOWN},
    {TFM_ROLE_ACT, "ffn_act.weight", TFM__DIM_1, TFM__DIM_ACT, TFM__IF_ACT, 0},
    {TFM_ROLE_SINKS, "attn_sinks.weight", TFM__DIM_1, TFM__DIM_HEADS, TFM__IF_SINKS, 0},
    {TFM_ROLE_ROUTER, "ffn_gate_inp.weight", TFM__DIM_EXPERTS, TFM__DIM_MODEL, TFM__IF_EXPERTS, 0},
    {TFM_ROLE_ROUTER_B, "ffn_gate_inp.bias", TFM__DIM_1, TFM__DIM_EXPERTS, TFM__IF_EXPERTS_BIAS, TFM_BIAS_ROUTER},
    {TFM_ROLE_ROUTER_SELECT_B, "exp_probs_b.bias", TFM__DIM_1, TFM__DIM_EXPERTS, TFM__IF_EXPERTS_BIAS, TFM_BIAS_SELECT},
    {TFM_ROLE_SHARED_GATE, "ffn_gate_inp_shexp.weight", TFM__DIM_1, TFM__DIM_MODEL, TFM__IF_SHARED_GATE, 0},
    {TFM_ROLE_EXPERT_GATE, "ffn_gate_exps.weight", TFM__DIM_EXPERT, TFM__DIM_MODEL, TFM__IF_EXPERTS_GATED, 0},
    {TFM_ROLE_EXPERT_UP, "ffn_up_exps.weight", TFM__DIM_EXPERT, TFM__DIM_MODEL, TFM__IF_EXPERTS, 0},
    {TFM_ROLE_EXPERT_DOWN, "ffn_down_exps.weight", TFM__DIM_MODEL, TFM__DIM_EXPERT, TFM__IF_EXPERTS, 0},
    {TFM_ROLE_EXPERT_GATE_B, "ffn_gate_exps.bias", TFM__DIM_1, TFM__DIM_EXPERT, TFM__IF_EXPERTS_GATE_BIAS,
     TFM_BIAS_EXPERTS},
    {TFM_ROLE_EXPERT_UP_B, "ffn_up_exps.bias", TFM__DIM_1, TFM__DIM_EXPERT, TFM__IF_EXPERTS_BIAS, TFM_BIAS_EXPERTS},
    {TFM_ROLE_EXPERT_DOWN_B, "ffn_down_exps.bias", TFM__DIM_1, TFM__DIM_MODEL, TFM__IF_EXPERTS_BIAS, TFM_BIAS_EXPERTS},
};

static const tfm__role_row *tfm__role_find(int32_t role) {
    for (int i = 0; i < TFM__COUNT(tfm__roles); i++)
        if (tfm__roles[i].role == role) return &tfm__roles[i];
    return NULL;
}

static const tfm_block *tfm__layer(const tfm_config *c, int32_t layer) {
    return &c->blocks[c->layer_block ? c->layer_block[layer] : 0];
}

static int32_t tfm__rope_dims(const tfm_block *b) { return b->rope_dims ? b->rope_dims : b->head_dim; }

/* The first block whose RoPE uses factor vectors; they are shared by all that do. */
static const tfm_block *tfm__factor_block(const tfm_config *c, int only_long) {
    for (int i = 0; i < c->n_blocks; i++) {
        const tfm_block *b = &c->blocks[i];
        if (!b->rope_style) continue;
        if (b->rope_scaling == TFM_ROPE_LONG || (!only_long && b->rope_scaling == TFM_ROPE_FACTORS)) return b;
    }
    return NULL;
}

/* The first block with ALiBi; its heads' slopes are shared by all that have it. */
static const tfm_block *tfm__slope_block(const tfm_config *c) {
    for (int i = 0; i < c->n_blocks; i++)
        if (c->blocks[i].alibi) return &c->blocks[i];
    return NULL;
}

static int tfm__role_present(const tfm_config *c, const tfm_block *b, const tfm__role_row *r) {
    const int weights = b && b->norm_kind != TFM_NORM_NONE && !b->norm_no_weight;
    const int biases = b && b->norm_kind == TFM_NORM_LAYER && (b->bias & TFM_BIAS_NORM);
    const int place = b ? b->norm_place : TFM_PLACE_PRE;
    const int pre = place == TFM_PLACE_PRE || place == TFM_PLACE_SANDWICH || place == TFM_PLACE_PRE_STREAM;
    const int post = place != TFM_PLACE_PRE && place != TFM_PLACE_PRE_STREAM;
    const int own_ffn_norm = b && b->residual != TFM_RESIDUAL_PARALLEL_1;
    const int dense = b && b->d_ff > 0, experts = b && b->ffn_kind == TFM_FFN_EXPERTS, bias = b && (b->bias & r->bias);
    switch (r->when) {
        case TFM__IF_ALWAYS: return 1;
        case TFM__IF_POS: return c->pos_kind == TFM_POS_LEARNED;
        case TFM__IF_OUT_NORM: return c->norm_kind != TFM_NORM_NONE && !c->norm_no_weight;
        case TFM__IF_OUT_NORM_B: return c->norm_kind == TFM_NORM_LAYER && c->norm_bias;
        case TFM__IF_UNTIED: return !c->tied;
        case TFM__IF_HEAD_B: return c->head_bias != 0;
        case TFM__IF_FACTORS: return tfm__factor_block(c, 0) != NULL;
        case TFM__IF_LONG: return tfm__factor_block(c, 1) != NULL;
        case TFM__IF_PRE: return weights && pre;
        case TFM__IF_PRE_B: return biases && pre;
        case TFM__IF_POST: return weights && post;
        case TFM__IF_POST_B: return biases && post;
        case TFM__IF_PRE_FFN: return weights && pre && own_ffn_norm;
        case TFM__IF_PRE_FFN_B: return biases && pre && own_ffn_norm;
        case TFM__IF_QK_NORM: return b && b->qk_norm != TFM_QKNORM_NONE && !b->norm_no_weight && !b->qk_norm_no_weight;
        case TFM__IF_QK_NORM_B: return b && b->qk_norm != TFM_QKNORM_NONE && (b->bias & TFM_BIAS_QK_NORM);
        case TFM__IF_ACT: return b && b->ffn_act == TFM_ACT_XIELU;
        case TFM__IF_SLOPES: return tfm__slope_block(c) != NULL;
        case TFM__IF_PROJ: return c->d_embed != 0;
        case TFM__IF_EMBED_NORM: return c->embed_norm && c->norm_kind != TFM_NORM_NONE && !c->norm_no_weight;
        case TFM__IF_EMBED_NORM_B: return c->embed_norm && c->norm_kind == TFM_NORM_LAYER && c->norm_bias;
        case TFM__IF_SINKS: return b && b->sinks;
        case TFM__IF_GATED: return dense && b->ffn_gated;
        case TFM__IF_DENSE: return dense;
        case TFM__IF_DENSE_BIAS: return dense && bias;
        case TFM__IF_EXPERTS: return experts;
        case TFM__IF_EXPERTS_GATED: return experts && b->ffn_gated;
        case TFM__IF_EXPERTS_BIAS: return experts && bias;
        case TFM__IF_EXPERTS_GATE_BIAS: return experts && bias && b->ffn_gated;
        case TFM__IF_SHARED_GATE: return experts && b->shared_gate;
        case TFM__IF_BIAS: return bias;
        default: return 0;
    }
}

static int64_t tfm__role_dim(const tfm_config *c, const tfm_block *b, int dim) {
    switch (dim) {
        case TFM__DIM_MODEL: return c->d_model;
        case TFM__DIM_EMBED: return c->d_embed ? c->d_embed : c->d_model;
        case TFM__DIM_ACT: return 4;
        case TFM__DIM_SLOPES: return tfm__slope_block(c)->n_heads;
        case TFM__DIM_VOCAB: return c->n_vocab;
        case TFM__DIM_POS: return (int64_t)c->n_ctx + c->pos_offset;
        case TFM__DIM_Q: return (int64_t)b->n_heads * b->head_dim;
        case TFM__DIM_KV: return (int64_t)b->n_kv_heads * b->head_dim;
        case TFM__DIM_QNORM: return b->qk_norm == TFM_QKNORM_HEAD ? b->head_dim : (int64_t)b->n_heads * b->head_dim;
        case TFM__DIM_KNORM: return b->qk_norm == TFM_QKNORM_HEAD ? b->head_dim : (int64_t)b->n_kv_heads * b->head_dim;
        case TFM__DIM_FF: return b->d_ff;
        case TFM__DIM_HEADS: return b->n_heads;
        case TFM__DIM_EXPERTS: return b->n_experts;
        case TFM__DIM_EXPERT: return b->d_expert;
        case TFM__DIM_ROPE: return tfm__rope_dims(tfm__factor_block(c, 0)) / 2;
        default: return 1;
    }
}

TFM_API int tfm_role_shape(const tfm_config *c, int32_t layer, int32_t role, int64_t *rows, int64_t *cols,
                           int *optional) {
    const tfm__role_row *r = tfm__role_find(role);
    const int global = role < TFM_ROLE_ATTN_NORM;
    if (!r || global != (layer < 0) || layer >= c->n_layers) return 0;
    const tfm_block *b = global ? NULL : tfm__layer(c, layer);
    if (!tfm__role_present(c, b, r)) return 0;
    *rows = tfm__role_dim(c, b, r->rows);
    *cols = tfm__role_dim(c, b, r->cols);
    *optional = 0;
    return 1;
}

TFM_API int32_t tfm_role_experts(const tfm_config *c, int32_t layer, int32_t role) {
    if (role < TFM_ROLE_EXPERT_GATE || role > TFM_ROLE_EXPERT_DOWN_B || layer < 0 || layer >= c->n_layers) return 0;
    return tfm__layer(c, layer)->ffn_kind == TFM_FFN_EXPERTS ? tfm__layer(c, layer)->n_experts : 0;
}

TFM_API const char *tfm_role_name(int32_t role) {
    const tfm__role_row *r = tfm__role_find(role);
    return r ? r->name : NULL;
}

TFM_API char *tfm_weight_name(int32_t stack, int32_t layer, int32_t role, int32_t expert, char *buf, size_t n) {
    const char *name = tfm_role_name(role);
    size_t at = 0;
    if (!n) return buf;
    buf[0] = 0;
    if (stack == TFM_STACK_ENCODER) at = tfm__append(buf, n, at, "enc.", 4);
    else if (stack != TFM_STACK_DECODER) at = tfm__append(buf, n, at, "other.", 6);
    if (layer >= 0) {
        at = tfm__append(buf, n, at, "blk.", 4);
        at = tfm__append_int(buf, n, at, layer);
        at = tfm__append(buf, n, at, ".", 1);
    }
    at = tfm__append(buf, n, at, name ? name : "role", name ? strlen(name) : 4);
    if (!name) at = tfm__append_int(buf, n, at, role);
    if (expert >= 0) {
        at = tfm__append(buf, n, at, ".", 1);
        tfm__append_int(buf, n, at, expert);
    }
    return buf;
}

/* --- records: the description as bytes --- */

typedef struct tfm__writer { uint8_t *data; size_t cap, n; } tfm__writer;

static void tfm__put(tfm__writer *w, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++, w->n++)
        if (w->data && w->n < w->cap) w->data[w->n] = (uint8_t)(value >> (8 * i));
}

static void tfm__put_head(tfm__writer *w, int key, int kind, int required, size_t bytes) {
    tfm__put(w, (uint64_t)key, 2);
    tfm__put(w, (uint64_t)kind, 1);
    tfm__put(w, (uint64_t)required, 1);
    tfm__put(w, bytes, 4);
}

static void tfm__put_pad(tfm__writer *w) { while (w->n % 8) tfm__put(w, 0, 1); }

static void tfm__put_fields(tfm__writer *w, const void *base, const tfm_field *fields, int n) {
    for (int i = 0; i < n; i++) {
        const tfm_field *f = &fields[i];
        uint32_t any = 0, word;
        for (uint32_t k = 0; k < f->count; k++) {
            memcpy(&word, (const char *)base + f->offset + 4 * k, 4);
            any |= word;
        }
        if (!any) continue;
        tfm__put_head(w, f->key, f->kind, f->required, (size_t)f->count * 4);
        for (uint32_t k = 0; k < f->count; k++) {
            memcpy(&word, (const char *)base + f->offset + 4 * k, 4);
            tfm__put(w, word, 4);
        }
        tfm__put_pad(w);
    }
}

TFM_API size_t tfm_config_encode(const tfm_config *c, void *buf, size_t cap) {
    tfm__writer w = {NULL, 0, 0};
    for (int pass = 0; pass < 2; pass++) {
        w.n = 0;
        tfm__put_fields(&w, c, tfm__config_fields, TFM__COUNT(tfm__config_fields));
        if (c->layer_block) {
            tfm__put_head(&w, TFM_KEY_LAYER_BLOCK, 4, 1, (size_t)c->n_layers);
            for (int i = 0; i < c->n_layers; i++) tfm__put(&w, c->layer_block[i], 1);
            tfm__put_pad(&w);
        }
        for (int i = 0; i < c->n_blocks; i++) {
            tfm__put_head(&w, TFM_KEY_BLOCK, 4, 1, 0);
            tfm__put_fields(&w, &c->blocks[i], tfm__block_fields, TFM__COUNT(tfm__block_fields));
        }
        if (!buf || w.n > cap) break;
        w.data = (uint8_t *)buf;
        w.cap = cap;
    }
    return w.n;
}

/* A record as read: its head and where its payload lies. */
typedef struct tfm__record { int key, kind, required; const uint8_t *data; size_t bytes; } tfm__record;

static int tfm__next_record(tfm__cursor *c, tfm__record *r) {
    r->key = tfm__get16(c);
    const int kind = tfm__get16(c);
    r->kind = kind & 255;
    r->required = kind >> 8 & 1;
    r->bytes = tfm__get32(c);
    r->data = tfm__take(c, r->bytes);
    return r->data && tfm__take(c, (8 - c->pos % 8) % 8);
}

static tfm_result tfm__unknown_key(const tfm__record *r, tfm_error *err) {
    return tfm__fail(err, TFM_ERR_UNSUPPORTED, "description: key %d is unknown to this version and required", r->key);
}

/* Stores a record into the struct its table describes; unknown keys are an error only if required. */
static tfm_result tfm__read_field(void *base, const tfm_field *fields, int n, const tfm__record *r, tfm_error *err) {
    for (int i = 0; i < n; i++) {
        const tfm_field *f = &fields[i];
        if (f->key != r->key) continue;
        if (r->kind != f->kind || r->bytes != (size_t)f->count * 4)
            return tfm__fail(err, TFM_ERR_FORMAT, "description: %s has kind %d and %l bytes", f->name,
                             r->kind, (int64_t)r->bytes);
        for (uint32_t k = 0; k < f->count; k++) {
            const uint32_t word = tfm__le32(r->data + 4 * k);
            memcpy((char *)base + f->offset + 4 * k, &word, 4);
        }
        return TFM_OK;
    }
    return r->required ? tfm__unknown_key(r, err) : TFM_OK;
}

/* Decodes the records into c, blocks (room for n_blocks) and layer_block (room for n_layers); with blocks NULL it only
   reads the global fields and counts the blocks. Keys ascend, so none comes twice and n_layers cannot change later. */
static tfm_result tfm__config_decode(const uint8_t *data, size_t size, tfm_config *c, tfm_block *blocks,
                                     uint8_t *layer_block, tfm_error *err) {
    tfm__cursor cur = {data, size, 0, 0};
    tfm__record rec;
    tfm_block ignored;
    int32_t n_blocks = 0;
    int last_key = 0;
    memset(c, 0, sizeof *c);
    c->size = sizeof *c;
    while (cur.pos < cur.size) {
        const size_t at = cur.pos;
        if (!tfm__next_record(&cur, &rec))
            return tfm__fail(err, TFM_ERR_FORMAT, "description: record at %l is cut off", (int64_t)at);
        tfm_result r = TFM_OK;
        if (rec.key == TFM_KEY_BLOCK) {
            TFM__NEED(!rec.bytes && n_blocks < 255,
                      "description: block record with a payload, or more than 255 blocks");
            n_blocks++;
            last_key = 0;
            continue;
        }
        if (rec.key == TFM_KEY_LAYER_BLOCK) {
            TFM__NEED(!n_blocks && !c->layer_block && rec.bytes && rec.bytes == (size_t)c->n_layers,
                      "description: layer_block has %l entries, or stands in a wrong place", (int64_t)rec.bytes);
            c->layer_block = layer_block ? layer_block : rec.data;
            if (layer_block) memcpy(layer_block, rec.data, rec.bytes);
            last_key = 65535; /* global fields stand before it */
            continue;
        }
        if (rec.key < TFM_KEY_FIELDS) { /* of a later version's structure */
            if (rec.required) return tfm__unknown_key(&rec, err);
            continue;
        }
        TFM__NEED(rec.key > last_key, "description: key %d comes after key %d", rec.key, last_key);
        last_key = rec.key;
        if (!n_blocks) r = tfm__read_field(c, tfm__config_fields, TFM__COUNT(tfm__config_fields), &rec, err);
        else r = tfm__read_field(blocks ? &blocks[n_blocks - 1] : &ignored, tfm__block_fields,
                                 TFM__COUNT(tfm__block_fields), &rec, err);
        if (r) return r;
    }
    c->n_blocks = n_blocks;
    c->blocks = blocks;
    return TFM_OK;
}

/* ====================================================================================================================
   [B6] FILE: one pass of checks over untrusted bytes; after it, everything the model points at lies inside the file.
   ================================================================================================================= */

#define TFM__HASH_K1 0x9e3779b97f4a7c15ull
#define TFM__HASH_K2 0xd6e8feb86659fd93ull

static uint64_t tfm__mix(uint64_t h, uint64_t word) {
    h = (h ^ word) * TFM__HASH_K1;
    return h ^ h >> 29;
}

static void tfm__hash_block(tfm_hash *h, const uint8_t *p) {
    for (int i = 0; i < 4; i++) h->lane[i] = tfm__mix(h->lane[i], tfm__le64(p + 8 * i));
}

TFM_API void tfm_hash_feed(tfm_hash *h, const void *data, size_t n) {
    const uint8_t *p = (const uint8_t *)data;
    size_t have = (size_t)(h->n % 32);
    h->n += n;
    if (n && have) {
        const size_t take = n < 32 - have ? n : 32 - have;
        memcpy(h->rest + have, p, take);
        if (have + take < 32) return;
        tfm__hash_block(h, h->rest);
        p += take;
        n -= take;
    }
    for (; n >= 32; p += 32, n -= 32) tfm__hash_block(h, p);
    if (n) memcpy(h->rest, p, n);
}

TFM_API uint64_t tfm_hash_finish(const tfm_hash *h) {
    uint64_t out = h->n * TFM__HASH_K2;
    for (int i = 0; i < 4; i++) out = tfm__mix(out, h->lane[i]);
    for (size_t i = 0; i < (size_t)(h->n % 32); i++) out = tfm__mix(out, h->rest[i]);
    out = (out ^ out >> 32) * TFM__HASH_K2;
    return out ^ out >> 32;
}

static uint64_t tfm__hash_of(const void *data, size_t n) {
    tfm_hash h;
    memset(&h, 0, sizeof h);
    tfm_hash_feed(&h, data, n);
    return tfm_hash_finish(&h);
}

/* Fuzzers cannot forge hashes: their build skips the comparison and tests what stands behind it. */
#ifdef TFM_FUZZING
#define TFM__HASH_OK(data, n, want) ((void)(want), 1)
#else
#define TFM__HASH_OK(data, n, want) (tfm__hash_of(data, n) == (want))
#endif

enum { TFM__MAX_SECTIONS = 64, TFM__KNOWN_SECTIONS = 8 };

typedef struct tfm__section { const uint8_t *data; size_t size; uint64_t hash; } tfm__section;
typedef struct tfm__file { const uint8_t *data; size_t size; tfm__section section[TFM__KNOWN_SECTIONS]; } tfm__file;

static const char *tfm__section_name(uint32_t id) {
    static const char *const names[TFM__KNOWN_SECTIONS] = {"?", "description", "directory", "tokenizer", "chat",
                                                           "provenance", "self-test", "data"};
    return id < TFM__KNOWN_SECTIONS ? names[id] : "?";
}

static tfm_result tfm__read_section(tfm__file *f, tfm__cursor *c, size_t table_end, tfm_error *err) {
    const uint32_t id = tfm__get32(c), flags = tfm__get32(c);
    const uint64_t offset = tfm__get64(c), bytes = tfm__get64(c), hash = tfm__get64(c);
    const char *name = tfm__section_name(id);
    TFM__NEED(offset % 64 == 0 && offset >= table_end && offset <= f->size && bytes <= f->size - offset,
              "section %s (%d) lies outside the file", name, (int)id);
    if (id == 0 || id >= TFM__KNOWN_SECTIONS) {
        if (flags & 1)
            return tfm__fail(err, TFM_ERR_UNSUPPORTED, "section %d is unknown to this version and required", (int)id);
        return TFM_OK;
    }
    if (flags & ~1u)
        return tfm__fail(err, TFM_ERR_UNSUPPORTED, "section %s has the unknown flags %l", name, (int64_t)flags);
    tfm__section *s = &f->section[id];
    TFM__NEED(!s->data, "section %s appears twice", name);
    s->data = f->data + (size_t)offset;
    s->size = (size_t)bytes;
    s->hash = hash;
    if (id != TFM_SECTION_DATA && id != TFM_SECTION_TOKENIZER)
        TFM__NEED(TFM__HASH_OK(s->data, s->size, hash), "section %s is damaged (hash differs)", name);
    return TFM_OK;
}

static tfm_result tfm__file_parse(tfm__file *f, const void *data, size_t size, tfm_error *err) {
    memset(f, 0, sizeof *f);
    f->data = (const uint8_t *)data;
    f->size = size;
    if ((uintptr_t)data % 64) return tfm__fail(err, TFM_ERR_ARG, "the file in memory must be aligned to 64 bytes");
    TFM__NEED(size >= TFM_FILE_HEADER_BYTES, "not a .tfm file (only %l bytes)", (int64_t)size);
    TFM__NEED(tfm__le32(f->data) == TFM_FILE_MAGIC, "not a .tfm file (wrong magic number)");
    const uint32_t version = tfm__le32(f->data + 4), n = tfm__le32(f->data + 16);
    if (version < TFM_FILE_VERSION)
        return tfm__fail(err, TFM_ERR_UNSUPPORTED,
                         "file version %l is older than the first fixed one: convert the model again",
                         (int64_t)version);
    if (version > TFM_FILE_VERSION)
        return tfm__fail(err, TFM_ERR_UNSUPPORTED, "file version %l is newer than this header, which reads version %d",
                         (int64_t)version, (int)TFM_FILE_VERSION);
    TFM__NEED(TFM__HASH_OK(f->data, 32, tfm__le64(f->data + 32)), "the file's header is damaged (hash differs)");
    TFM__NEED(!(tfm__le32(f->data + 20) | tfm__le64(f->data + 40) | tfm__le64(f->data + 48) | tfm__le64(f->data + 56)),
              "the file's header is damaged (reserved bytes)");
    TFM__NEED(tfm__le64(f->data + 8) == size, "the file is %l bytes long, its header says %l", (int64_t)size,
              (int64_t)tfm__le64(f->data + 8));
    TFM__NEED(n <= TFM__MAX_SECTIONS && n * (size_t)TFM_FILE_SECTION_BYTES <= size - TFM_FILE_HEADER_BYTES,
              "section count %l is out of range", (int64_t)n);
    const size_t table = n * (size_t)TFM_FILE_SECTION_BYTES;
    TFM__NEED(TFM__HASH_OK(f->data + TFM_FILE_HEADER_BYTES, table, tfm__le64(f->data + 24)),
              "the section table is damaged (hash differs)");
    tfm__cursor c = {f->data + TFM_FILE_HEADER_BYTES, table, 0, 0};
    for (uint32_t i = 0; i < n; i++) {
        const tfm_result r = tfm__read_section(f, &c, TFM_FILE_HEADER_BYTES + table, err);
        if (r) return r;
    }
    TFM__NEED(f->section[TFM_SECTION_DESCRIPTION].data || f->section[TFM_SECTION_TOKENIZER].data,
              "the file has neither a description nor a tokenizer");
    TFM__NEED(!f->section[TFM_SECTION_DESCRIPTION].data == !f->section[TFM_SECTION_DIRECTORY].data,
              "description and directory must both be there");
    TFM__NEED(f->section[TFM_SECTION_DIRECTORY].size % TFM_FILE_ENTRY_BYTES == 0,
              "the directory's size is no multiple of an entry");
    return TFM_OK;
}

/* Entry i of the directory, checked: known type and layout, dims and bytes that agree, a place inside DATA. */
static tfm_result tfm__file_entry(const tfm__file *f, size_t i, tfm_weight *w, uint64_t *hash, tfm_error *err) {
    const uint8_t *p = f->section[TFM_SECTION_DIRECTORY].data + i * TFM_FILE_ENTRY_BYTES;
    const tfm__section *d = &f->section[TFM_SECTION_DATA];
    char name[64];
    w->stack = tfm__le16(p);
    w->t.layout = tfm__le16(p + 2);
    w->layer = (int32_t)tfm__le32(p + 4);
    w->role = (int32_t)tfm__le32(p + 8);
    w->expert = (int32_t)tfm__le32(p + 12);
    w->t.type = (int32_t)tfm__le32(p + 16);
    w->t.rows = (int64_t)tfm__le64(p + 24);
    w->t.cols = (int64_t)tfm__le64(p + 32);
    const uint64_t offset = tfm__le64(p + 40), bytes = tfm__le64(p + 48);
    const size_t need = tfm_tensor_bytes(w->t.type, w->t.layout, w->t.rows, w->t.cols);
    *hash = tfm__le64(p + 56);
    tfm_weight_name(w->stack, w->layer, w->role, w->expert, name, sizeof name);
    if (tfm__le32(p + 20))
        return tfm__fail(err, TFM_ERR_UNSUPPORTED, "tensor %s has the unknown flags %l", name,
                         (int64_t)tfm__le32(p + 20));
    if (tfm__missing_type(w->t.type))
        return tfm__fail(err, TFM_ERR_UNSUPPORTED, "tensor %s: this build lacks the type %s", name,
                         tfm__missing_type(w->t.type));
    TFM__NEED(need && need == bytes, "tensor %s: type %d, layout %d, dims %l x %l and %l bytes do not go together",
              name, (int)w->t.type, (int)w->t.layout, w->t.rows, w->t.cols, (int64_t)bytes);
    TFM__NEED(offset % 64 == 0, "tensor %s: offset %l is not aligned to 64", name, (int64_t)offset);
    const size_t first = d->data ? (size_t)(d->data - f->data) : 0;
    TFM__NEED(d->data && offset >= first && offset - first <= d->size && bytes <= d->size - (offset - first),
              "tensor %s lies outside the data section", name);
    w->t.data = f->data + (size_t)offset;
    return TFM_OK;
}

/* ====================================================================================================================
   [B7] MODEL: weights bound to roles. One block of memory: the struct, its blocks, and a table of tensors with an index
   (layer, role) -> tensor. Sizing and carving are one function run twice.
   ================================================================================================================= */

/* Objects of a known size keep pointers in 8-byte slots on every host. */
typedef union tfm__ptr { const void *p; uint64_t room; } tfm__ptr;
typedef union tfm__config_slot { tfm_config c; uint64_t room[40]; } tfm__config_slot;
typedef union tfm__file_slot { tfm__file f; uint64_t room[32]; } tfm__file_slot;
typedef union tfm__allocator_slot { tfm_allocator a; uint64_t room[3]; } tfm__allocator_slot;

typedef struct tfm__bound { /* a tensor in the model's table: 56 bytes on every host */
    tfm__ptr data;
    int64_t rows, cols;
    int32_t type, layout, stack, layer, role, expert;
    uint64_t hash;
} tfm__bound;

enum { TFM__GLOBAL_ROLES = TFM_ROLE_ATTN_NORM, TFM__LAYER_ROLES = TFM_ROLE_LIMIT - TFM_ROLE_ATTN_NORM,
       TFM__MAX_WEIGHTS = 1 << 24 };

struct tfm_model {
    tfm__config_slot config;
    tfm__file_slot file;
    tfm__ptr blocks, layer_block, bound, index; /* tfm_block[], uint8_t[], tfm__bound[], int32_t[] (-1 = none) */
    tfm__ptr data;                              /* on big-endian hosts the DATA section in their byte order */
    int64_t n_bound;
    uint64_t identity;                          /* of description and tensor shapes; sessions remember it */
    uint64_t tokenizer[48];                     /* a tfm_tokenizer */
    uint64_t chat[16];                          /* a tfm_chat */
    int32_t has_tokenizer, has_chat;
    /* what tfm_model_close gives back; all zero for objects in the caller's memory */
    tfm__allocator_slot allocator;
    tfm__ptr owned, owned_file;
    uint64_t owned_bytes, owned_file_bytes;
    int32_t mapped, pad2;
};

typedef struct tfm__arena { uint8_t *base; size_t used; int overflow; } tfm__arena;

/* Takes count items of `size` bytes, 64-byte aligned; NULL while only sizing (base NULL). */
static void *tfm__carve(tfm__arena *a, size_t count, size_t size) {
    size_t bytes, end;
    if (!tfm__mul(count, size, &bytes) || !tfm__add(a->used, bytes, &end) || end > SIZE_MAX - 64) {
        a->overflow = 1;
        return NULL;
    }
    void *p = a->base ? a->base + a->used : NULL;
    a->used = tfm__align64(end);
    return p;
}

/* What a model's tables hold; data: bytes of the private copy of a file's weights, 0 where they are used in place. */
typedef struct tfm__counts { size_t layers, blocks, bound, data; } tfm__counts;

static tfm_model *tfm__model_carve(tfm__arena *a, const tfm__counts *n) {
    tfm_model *m = (tfm_model *)tfm__carve(a, 1, sizeof(tfm_model));
    void *blocks = tfm__carve(a, n->blocks, sizeof(tfm_block));
    void *layer_block = tfm__carve(a, n->layers, 1);
    void *bound = tfm__carve(a, n->bound, sizeof(tfm__bound));
    void *index = tfm__carve(a, TFM__GLOBAL_ROLES + n->layers * TFM__LAYER_ROLES, sizeof(int32_t));
    void *data = tfm__carve(a, n->data, 1);
    if (!m) return NULL;
    memset(m, 0, sizeof *m);
    memset(blocks, 0, n->blocks * sizeof(tfm_block));
    m->blocks.p = blocks;
    m->layer_block.p = layer_block;
    m->bound.p = bound;
    m->index.p = index;
    m->data.p = n->data ? data : NULL;
    m->n_bound = (int64_t)n->bound;
    return m;
}

static int32_t *tfm__index(const tfm_model *m, int32_t layer, int32_t role) {
    int32_t *index = (int32_t *)(uintptr_t)m->index.p;
    if (role <= 0 || role >= TFM_ROLE_LIMIT) return NULL;
    if (role < TFM_ROLE_ATTN_NORM) return layer < 0 ? index + role : NULL;
    if (layer < 0 || layer >= m->config.c.n_layers) return NULL;
    return index + TFM__GLOBAL_ROLES + (size_t)layer * TFM__LAYER_ROLES + (role - TFM_ROLE_ATTN_NORM);
}

static void tfm__bind(tfm_model *m, int64_t i, const tfm_weight *w, uint64_t hash) {
    tfm__bound *b = (tfm__bound *)(uintptr_t)m->bound.p + i;
    b->data.room = 0;
    b->data.p = w->t.data;
    b->rows = w->t.rows;
    b->cols = w->t.cols;
    b->type = w->t.type;
    b->layout = w->t.layout;
    b->stack = w->stack;
    b->layer = w->layer;
    b->role = w->role;
    b->expert = w->expert;
    b->hash = hash;
}

/* Whether weight i is `expert` of a role of a layer. */
static int tfm__is_expert(const tfm_model *m, int64_t i, int32_t layer, int32_t role, int32_t expert) {
    const tfm__bound *b = (const tfm__bound *)m->bound.p + i;
    return i >= 0 && i < m->n_bound && b->layer == layer && b->role == role && b->expert == expert;
}

/* Checks weight i against the shape its role asks for and enters it into the index: of experts the first, the others
   follow it. */
static tfm_result tfm__check_weight(tfm_model *m, int64_t i, tfm_error *err) {
    const tfm__bound *b = (const tfm__bound *)m->bound.p + i;
    const tfm_config *c = &m->config.c;
    int64_t rows = 0, cols = 0;
    int optional = 0;
    char name[64];
    tfm_weight_name(b->stack, b->layer, b->role, b->expert, name, sizeof name);
    const int32_t experts = tfm_role_experts(c, b->layer, b->role);
    if (b->stack != TFM_STACK_DECODER || (b->expert != -1 && !experts) || !tfm__role_find(b->role) || b->layer < -1)
        return tfm__fail(err, TFM_ERR_UNSUPPORTED,
                         "tensor %s (stack %d, role %d, expert %d) is unknown to this version", name,
                         (int)b->stack, (int)b->role, (int)b->expert);
    TFM__NEED(tfm_role_shape(c, b->layer, b->role, &rows, &cols, &optional),
              "tensor %s: the description has no such part in layer %d", name, (int)b->layer);
    TFM__NEED(b->rows == rows && b->cols == cols, "tensor %s is %l x %l, the description asks for %l x %l", name,
              b->rows, b->cols, rows, cols);
    if (rows == 1 && tfm__role_find(b->role)->rows == TFM__DIM_1)
        TFM__NEED(b->type == TFM_F32 && b->layout == TFM_ROWS, "tensor %s is a vector and must be F32", name);
    if (b->role == TFM_ROLE_ROUTER)
        TFM__NEED(tfm_type_get(b->type)->block == 1, "tensor %s is a router and must be of a float type", name);
    TFM__NEED(!experts || (b->expert >= 0 && b->expert < experts),
              "tensor %s: the layer has %d experts", name, (int)experts);
    if (experts && b->expert > 0) {
        TFM__NEED(tfm__is_expert(m, i - 1, b->layer, b->role, b->expert - 1),
                  "tensor %s does not follow expert %d", name, (int)(b->expert - 1));
        return TFM_OK;
    }
    int32_t *slot = tfm__index(m, b->layer, b->role);
    TFM__NEED(*slot < 0, "tensor %s appears twice", name);
    *slot = (int32_t)i;
    return TFM_OK;
}

/* Every role the description asks for must be bound; a tied head becomes the embedding's tensor. */
static tfm_result tfm__check_complete(tfm_model *m, tfm_error *err) {
    const tfm_config *c = &m->config.c;
    char name[64];
    for (int32_t layer = -1; layer < c->n_layers; layer++)
        for (int32_t role = 1; role < TFM_ROLE_LIMIT; role++) {
            int64_t rows, cols;
            int optional;
            if (!tfm_role_shape(c, layer, role, &rows, &cols, &optional) || optional) continue;
            const int32_t last = tfm_role_experts(c, layer, role) - 1, slot = *tfm__index(m, layer, role);
            TFM__NEED(slot >= 0 && (last < 0 || tfm__is_expert(m, (int64_t)slot + last, layer, role, last)),
                      "tensor %s is missing", tfm_weight_name(0, layer, role, last, name, sizeof name));
        }
    if (c->tied) *tfm__index(m, -1, TFM_ROLE_HEAD) = *tfm__index(m, -1, TFM_ROLE_EMBED);
    return TFM_OK;
}

static uint64_t tfm__model_identity(const tfm_model *m) {
    uint8_t head[64];
    uint64_t id = 0;
    const tfm_config *c = &m->config.c;
    for (int i = 0; i < TFM__COUNT(tfm__config_fields); i++)
        id = tfm__mix(id, tfm__hash_of((const char *)c + tfm__config_fields[i].offset,
                                       (size_t)tfm__config_fields[i].count * 4));
    for (int i = 0; i < c->n_blocks; i++) id = tfm__mix(id, tfm__hash_of(&c->blocks[i], sizeof(tfm_block)));
    for (int i = 0; i < c->n_layers; i++) id = tfm__mix(id, c->layer_block ? c->layer_block[i] : 0);
    for (int64_t i = 0; i < m->n_bound; i++) {
        const tfm__bound *b = (const tfm__bound *)m->bound.p + i;
        memset(head, 0, sizeof head);
        memcpy(head, &b->rows, 16);
        memcpy(head + 16, &b->type, 24);
        id = tfm__mix(id, tfm__hash_of(head, sizeof head) ^ b->hash);
    }
    return id;
}

static tfm_result tfm__model_finish(tfm_model *m, tfm_error *err) {
    int32_t *index = (int32_t *)(uintptr_t)m->index.p;
    const size_t slots = TFM__GLOBAL_ROLES + (size_t)m->config.c.n_layers * TFM__LAYER_ROLES;
    for (size_t i = 0; i < slots; i++) index[i] = -1;
    tfm_result r = tfm_config_check(&m->config.c, err);
    for (int64_t i = 0; !r && i < m->n_bound; i++) r = tfm__check_weight(m, i, err);
    if (!r) r = tfm__check_complete(m, err);
    if (!r) m->identity = tfm__model_identity(m);
    return r;
}

/* --- from a file in memory --- */

#ifndef TFM_NO_TEXT
static tfm_result tfm__tokenizer_open(tfm_tokenizer *t, const uint8_t *section, size_t size, tfm_error *err);
static tfm_result tfm__chat_open(tfm_chat *c, const uint8_t *section, size_t size, tfm_error *err);
#endif

static tfm_result tfm__file_counts(const tfm__file *f, tfm__counts *n, tfm_error *err) {
    tfm_config c;
    memset(n, 0, sizeof *n);
    const tfm__section *d = &f->section[TFM_SECTION_DESCRIPTION];
    if (!d->data) return TFM_OK;
    const tfm_result r = tfm__config_decode(d->data, d->size, &c, NULL, NULL, err);
    if (r) return r;
    TFM__NEED(c.n_layers >= 1 && c.n_layers <= 4096, "n_layers %d is out of range (1 to 4096)", (int)c.n_layers);
    n->layers = (size_t)c.n_layers;
    n->blocks = (size_t)c.n_blocks;
    n->bound = f->section[TFM_SECTION_DIRECTORY].size / TFM_FILE_ENTRY_BYTES;
    n->data = TFM__BIG_ENDIAN ? f->section[TFM_SECTION_DATA].size : 0;
    TFM__NEED(n->bound <= TFM__MAX_WEIGHTS, "the directory has %l entries", (int64_t)n->bound);
    return TFM_OK;
}

TFM_API tfm_result tfm_model_size(const void *file, size_t bytes, size_t *need, tfm_error *err) {
    tfm__file f;
    tfm__counts n;
    tfm__arena a = {NULL, 0, 0};
    tfm_result r = tfm__file_parse(&f, file, bytes, err);
    if (!r) r = tfm__file_counts(&f, &n, err);
    if (r) return r;
    tfm__model_carve(&a, &n);
    if (a.overflow) return tfm__fail(err, TFM_ERR_MEMORY, "the model's tables do not fit this host's memory");
    *need = a.used;
    return TFM_OK;
}

/* The same place in the private copy, if there is one. Entries may share bytes: each is made from the file's. */
static void tfm__own_weight(const tfm_model *m, tfm_tensor *t) {
    if (!m->data.p) return;
    const uint8_t *data = m->file.f.section[TFM_SECTION_DATA].data;
    uint8_t *own = (uint8_t *)(uintptr_t)m->data.p + ((const uint8_t *)t->data - data);
    tfm_file_order(t, own);
    t->data = own;
}

static tfm_result tfm__model_read(tfm_model *m, const tfm__file *f, tfm_error *err) {
    const tfm__section *d = &f->section[TFM_SECTION_DESCRIPTION], *t = &f->section[TFM_SECTION_TOKENIZER];
    tfm_result r = TFM_OK;
    m->file.f = *f;
    if (d->data) {
        r = tfm__config_decode(d->data, d->size, &m->config.c, (tfm_block *)(uintptr_t)m->blocks.p,
                               (uint8_t *)(uintptr_t)m->layer_block.p, err);
        for (int64_t i = 0; !r && i < m->n_bound; i++) {
            tfm_weight w;
            uint64_t hash = 0;
            memset(&w, 0, sizeof w);
            r = tfm__file_entry(f, (size_t)i, &w, &hash, err);
            if (r) break;
            tfm__own_weight(m, &w.t);
            tfm__bind(m, i, &w, hash);
        }
        if (!r) r = tfm__model_finish(m, err);
    }
#ifndef TFM_NO_TEXT
    if (!r && t->data) {
        r = tfm__tokenizer_open((tfm_tokenizer *)(void *)m->tokenizer, t->data, t->size, err);
        m->has_tokenizer = !r;
    }
    const tfm__section *chat = &f->section[TFM_SECTION_CHAT];
    if (!r && chat->data) {
        r = tfm__chat_open((tfm_chat *)(void *)m->chat, chat->data, chat->size, err);
        m->has_chat = !r;
    }
#else
    (void)t;
#endif
    return r;
}

static tfm_result tfm__check_buffer(const void *mem, size_t have, size_t need, tfm_error *err) {
    if (!mem || (uintptr_t)mem % 64) return tfm__fail(err, TFM_ERR_MEMORY, "the buffer must be aligned to 64 bytes");
    if (have < need)
        return tfm__fail(err, TFM_ERR_MEMORY, "the buffer has %l bytes, %l are needed", (int64_t)have, (int64_t)need);
    return TFM_OK;
}

TFM_API tfm_result tfm_model_init(const void *file, size_t bytes, void *mem, size_t mem_bytes, tfm_model **out,
                                  tfm_error *err) {
    tfm__file f;
    tfm__counts n;
    size_t need = 0;
    *out = NULL;
    tfm_result r = tfm_model_size(file, bytes, &need, err);
    if (!r) r = tfm__check_buffer(mem, mem_bytes, need, err);
    if (!r) r = tfm__file_parse(&f, file, bytes, err);
    if (!r) r = tfm__file_counts(&f, &n, err);
    if (r) return r;
    tfm__arena a = {(uint8_t *)mem, 0, 0};
    tfm_model *m = tfm__model_carve(&a, &n);
    if ((r = tfm__model_read(m, &f, err)) == TFM_OK) *out = m;
    return r;
}

/* --- allocation --- */

static void *tfm__alloc(const tfm_allocator *a, size_t bytes) {
    if (a && a->alloc) return a->alloc(a->user, bytes, 64);
#ifndef TFM_NO_MALLOC
    /* malloc aligned to 64 by hand: the raw pointer stands before the block */
    if (bytes > SIZE_MAX - 128) return NULL;
    uint8_t *raw = (uint8_t *)malloc(bytes + 128);
    if (!raw) return NULL;
    uint8_t *p = (uint8_t *)(((uintptr_t)raw + 128) & ~(uintptr_t)63);
    memcpy(p - sizeof raw, &raw, sizeof raw);
    return p;
#else
    return NULL;
#endif
}

static void tfm__release(const tfm_allocator *a, void *p, size_t bytes) {
    if (!p) return;
    if (a && a->alloc) {
        if (a->release) a->release(a->user, p, bytes);
        return;
    }
#ifndef TFM_NO_MALLOC
    void *raw;
    memcpy(&raw, (uint8_t *)p - sizeof raw, sizeof raw);
    free(raw);
#endif
}

TFM_API tfm_result tfm_model_from_memory(const void *file, size_t bytes, const tfm_model_config *cfg, tfm_model **out,
                                         tfm_error *err) {
    const tfm_allocator *a = cfg ? cfg->allocator : NULL;
    size_t need = 0;
    *out = NULL;
    if (cfg && cfg->size != sizeof *cfg)
        return tfm__fail(err, TFM_ERR_ARG, "tfm_model_config: size must be its sizeof");
    tfm_result r = tfm_model_size(file, bytes, &need, err);
    if (r) return r;
    void *mem = tfm__alloc(a, need);
    if (!mem) return tfm__fail(err, TFM_ERR_MEMORY, "out of memory for the model's tables (%l bytes)", (int64_t)need);
    r = tfm_model_init(file, bytes, mem, need, out, err);
    if (r) {
        tfm__release(a, mem, need);
        return r;
    }
    if (a) (*out)->allocator.a = *a;
    (*out)->owned.p = mem;
    (*out)->owned_bytes = need;
    return TFM_OK;
}

TFM_API tfm_result tfm_model_from_weights(const tfm_config *c, const tfm_weight *w, int64_t n_weights,
                                          const tfm_model_config *cfg, tfm_model **out, tfm_error *err) {
    const tfm_allocator *al = cfg ? cfg->allocator : NULL;
    *out = NULL;
    if (cfg && cfg->size != sizeof *cfg)
        return tfm__fail(err, TFM_ERR_ARG, "tfm_model_config: size must be its sizeof");
    tfm_result r = tfm_config_check(c, err);
    if (r) return r;
    if (n_weights < 0 || n_weights > TFM__MAX_WEIGHTS || (!w && n_weights))
        return tfm__fail(err, TFM_ERR_ARG, "n_weights %l is out of range", n_weights);
    const tfm__counts n = {(size_t)c->n_layers, (size_t)c->n_blocks, (size_t)n_weights, 0};
    tfm__arena a = {NULL, 0, 0};
    tfm__model_carve(&a, &n);
    void *mem = a.overflow ? NULL : tfm__alloc(al, a.used);
    if (!mem) return tfm__fail(err, TFM_ERR_MEMORY, "out of memory for the model's tables (%l bytes)", (int64_t)a.used);
    const size_t bytes = a.used;
    tfm__arena b = {(uint8_t *)mem, 0, 0};
    tfm_model *m = tfm__model_carve(&b, &n);
    m->config.c = *c;
    memcpy((void *)(uintptr_t)m->blocks.p, c->blocks, (size_t)c->n_blocks * sizeof(tfm_block));
    m->config.c.blocks = (const tfm_block *)m->blocks.p;
    if (c->layer_block) {
        memcpy((void *)(uintptr_t)m->layer_block.p, c->layer_block, (size_t)c->n_layers);
        m->config.c.layer_block = (const uint8_t *)m->layer_block.p;
    }
    for (int64_t i = 0; !r && i < n_weights; i++) {
        char name[64];
        const tfm_tensor *t = &w[i].t;
        tfm_weight_name(w[i].stack, w[i].layer, w[i].role, w[i].expert, name, sizeof name);
        if (tfm__missing_type(t->type))
            r = tfm__fail(err, TFM_ERR_UNSUPPORTED, "tensor %s: this build lacks the type %s", name,
                          tfm__missing_type(t->type));
        else if (!t->data || !tfm_tensor_bytes(t->type, t->layout, t->rows, t->cols))
            r = tfm__fail(err, TFM_ERR_ARG,
                          "tensor %s: no data, or type %d, layout %d and dims %l x %l do not go together", name,
                          (int)t->type, (int)t->layout, t->rows, t->cols);
        else if (t->layout == TFM_ROWS && (uintptr_t)t->data % (t->type == TFM_F32 ? 4 : 2))
            r = tfm__fail(err, TFM_ERR_ARG, "tensor %s: rows must be aligned to their elements", name);
        else if (t->layout == TFM_TILED && (uintptr_t)t->data % 64)
            r = tfm__fail(err, TFM_ERR_ARG, "tensor %s: tiled data must be aligned to 64 bytes", name);
        else
            tfm__bind(m, i, &w[i], 0);
    }
    if (!r) r = tfm__model_finish(m, err);
    if (r) {
        tfm__release(al, mem, bytes);
        return r;
    }
    if (al) m->allocator.a = *al;
    m->owned.p = mem;
    m->owned_bytes = bytes;
    *out = m;
    return TFM_OK;
}

/* --- from a path --- */

#ifndef TFM_NO_STDIO

#if defined(_WIN32)
enum { TFM__MAX_PATH = 1024 };

/* Paths are UTF-8: as UTF-16, or 0 if it is no such path. */
static int tfm__wide_path(const char *path, wchar_t *out) {
    return MultiByteToWideChar(65001 /* UTF-8 */, 8 /* no bad characters */, path, -1, out, TFM__MAX_PATH) > 0;
}

#if defined(_MSC_VER)
#pragma warning(push)
#pragma warning(disable : 4996) /* fopen is not what it calls safe */
#endif
static FILE *tfm__fopen(const char *path) {
    wchar_t wide[TFM__MAX_PATH];
    return tfm__wide_path(path, wide) ? _wfopen(wide, L"rb") : NULL;
}
#if defined(_MSC_VER)
#pragma warning(pop)
#endif
#else
static FILE *tfm__fopen(const char *path) { return fopen(path, "rb"); }
#endif

/* Reads the whole file into an allocation. */
static tfm_result tfm__read_file(const char *path, const tfm_allocator *a, void **data, size_t *bytes, tfm_error *err) {
    FILE *f = tfm__fopen(path);
    if (!f) return tfm__fail(err, TFM_ERR_IO, "%s: cannot be opened", path);
    int64_t size = -1;
#if defined(_WIN32)
    if (!_fseeki64(f, 0, SEEK_END)) size = _ftelli64(f);
    if (_fseeki64(f, 0, SEEK_SET)) size = -1;
#else
    if (!fseek(f, 0, SEEK_END)) size = (int64_t)ftell(f);
    if (fseek(f, 0, SEEK_SET)) size = -1;
#endif
    tfm_result r = TFM_OK;
    void *p = NULL;
    if (size < 0 || (uint64_t)size >= SIZE_MAX / 2) { /* a folder's size reads as the largest number there is */
        r = tfm__fail(err, TFM_ERR_IO, "%s: not a regular file, or too large for this host", path);
    } else if (!(p = tfm__alloc(a, size ? (size_t)size : 1))) {
        r = tfm__fail(err, TFM_ERR_MEMORY, "%s: out of memory for %l bytes", path, size);
    } else if (fread(p, 1, (size_t)size, f) != (size_t)size) {
        r = tfm__fail(err, TFM_ERR_IO, "%s: cannot be read", path);
        tfm__release(a, p, size ? (size_t)size : 1);
    }
    fclose(f);
    if (r) return r;
    *data = p;
    *bytes = (size_t)size;
    return TFM_OK;
}

#if defined(TFM__MAP_WINDOWS)
static tfm_result tfm__map_file(const char *path, void **data, size_t *bytes, tfm_error *err) {
    wchar_t wide[TFM__MAX_PATH];
    int64_t size = 0;
    void *file = tfm__wide_path(path, wide) /* to read, others too; one that is there, no flags */
                     ? CreateFileW(wide, 0x80000000ul, 1, NULL, 3, 0, NULL) : (void *)(intptr_t)-1;
    if (file == (void *)(intptr_t)-1) return tfm__fail(err, TFM_ERR_IO, "%s: cannot be opened", path);
    tfm_result r = TFM_OK;
    if (!GetFileSizeEx(file, (union _LARGE_INTEGER *)(void *)&size) || (uint64_t)size > SIZE_MAX / 2) {
        r = tfm__fail(err, TFM_ERR_IO, "%s: not a regular file, or too large for this host", path);
    } else if (size < TFM_FILE_HEADER_BYTES) {
        r = tfm__fail(err, TFM_ERR_FORMAT, "%s: not a .tfm file (only %l bytes)", path, size);
    } else {
        void *mapping = CreateFileMappingW(file, NULL, 2 /* read-only pages */, 0, 0, NULL);
        *data = mapping ? MapViewOfFile(mapping, 4 /* to read */, 0, 0, 0) : NULL;
        *bytes = (size_t)size;
        if (!*data) r = tfm__fail(err, TFM_ERR_IO, "%s: cannot be mapped", path);
        if (mapping) CloseHandle(mapping); /* the view holds it, and the file */
    }
    CloseHandle(file);
    return r;
}
#elif defined(TFM__MAP_POSIX)
static tfm_result tfm__map_file(const char *path, void **data, size_t *bytes, tfm_error *err) {
    struct stat st;
    const int fd = open(path, O_RDONLY | O_NONBLOCK); /* a pipe must not block */
    if (fd < 0) return tfm__fail(err, TFM_ERR_IO, "%s: cannot be opened", path);
    tfm_result r = TFM_OK;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        r = tfm__fail(err, TFM_ERR_IO, "%s: not a regular file", path);
    } else if (st.st_size < TFM_FILE_HEADER_BYTES) {
        r = tfm__fail(err, TFM_ERR_FORMAT, "%s: not a .tfm file (only %l bytes)", path, (int64_t)st.st_size);
    } else {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) r = tfm__fail(err, TFM_ERR_IO, "%s: cannot be mapped", path);
        *data = p;
        *bytes = (size_t)st.st_size;
    }
    close(fd);
    return r;
}
#endif

static void tfm__unload(const tfm_allocator *a, int mapped, void *data, size_t bytes) {
#if defined(TFM__MAP_WINDOWS)
    if (mapped) UnmapViewOfFile(data);
#elif defined(TFM__MAP_POSIX)
    if (mapped) munmap(data, bytes);
#endif
    if (mapped) return;
    tfm__release(a, data, bytes ? bytes : 1);
}

/* Puts "path: " before a message. */
static void tfm__name_file(tfm_error *err, const char *path) {
    char msg[sizeof err->msg];
    if (!err) return;
    memcpy(msg, err->msg, sizeof msg);
    size_t n = tfm__append(err->msg, sizeof err->msg, 0, path, strlen(path));
    n = tfm__append(err->msg, sizeof err->msg, n, ": ", 2);
    tfm__append(err->msg, sizeof err->msg, n, msg, strlen(msg));
}

TFM_API tfm_result tfm_model_open(const char *path, const tfm_model_config *cfg, tfm_model **out, tfm_error *err) {
    const tfm_allocator *a = cfg ? cfg->allocator : NULL;
    void *data = NULL;
    size_t bytes = 0;
    int mapped = 0;
    tfm_result r;
    *out = NULL;
    if (!path) return tfm__fail(err, TFM_ERR_ARG, "tfm_model_open: path is NULL");
#if defined(TFM__MAP_WINDOWS) || defined(TFM__MAP_POSIX)
    mapped = !(cfg && cfg->no_mmap);
    if (mapped) r = tfm__map_file(path, &data, &bytes, err);
    else
#endif
        r = tfm__read_file(path, a, &data, &bytes, err);
    if (r) return r;
    r = tfm_model_from_memory(data, bytes, cfg, out, err);
    if (r) {
        tfm__name_file(err, path);
        tfm__unload(a, mapped, data, bytes);
        return r;
    }
    (*out)->owned_file.p = data;
    (*out)->owned_file_bytes = bytes;
    (*out)->mapped = mapped;
    return TFM_OK;
}
#endif /* TFM_NO_STDIO */

TFM_API void tfm_model_close(tfm_model *m) {
    if (!m) return;
    const tfm_allocator a = m->allocator.a;
#ifndef TFM_NO_STDIO
    if (m->owned_file.p) tfm__unload(&a, m->mapped, (void *)(uintptr_t)m->owned_file.p, (size_t)m->owned_file_bytes);
#endif
    if (m->owned.p) tfm__release(&a, (void *)(uintptr_t)m->owned.p, (size_t)m->owned_bytes);
}

/* --- questions --- */

TFM_API const char *tfm_version(void) { return TFM_VERSION; }

TFM_API const tfm_config *tfm_model_config_of(const tfm_model *m) { return &m->config.c; }

TFM_API const tfm_block *tfm_model_block(const tfm_model *m, int32_t layer) {
    return layer >= 0 && layer < m->config.c.n_layers ? tfm__layer(&m->config.c, layer) : NULL;
}

TFM_API const tfm_tokenizer *tfm_model_tokenizer(const tfm_model *m) {
    return m->has_tokenizer ? (const tfm_tokenizer *)(const void *)m->tokenizer : NULL;
}

#ifndef TFM_NO_TEXT
TFM_API const tfm_chat *tfm_model_chat(const tfm_model *m) {
    return m->has_chat ? (const tfm_chat *)(const void *)m->chat : NULL;
}
#endif

TFM_API int64_t tfm_model_weight_count(const tfm_model *m) { return m->n_bound; }

static tfm_tensor tfm__bound_tensor(const tfm__bound *b) {
    tfm_tensor t;
    t.data = b->data.p;
    t.type = b->type;
    t.layout = b->layout;
    t.rows = b->rows;
    t.cols = b->cols;
    return t;
}

TFM_API int tfm_model_weight(const tfm_model *m, int64_t i, tfm_weight *out) {
    if (i < 0 || i >= m->n_bound) return 0;
    const tfm__bound *b = (const tfm__bound *)m->bound.p + i;
    out->stack = b->stack;
    out->layer = b->layer;
    out->role = b->role;
    out->expert = b->expert;
    out->t = tfm__bound_tensor(b);
    return 1;
}

TFM_API tfm_tensor tfm_model_tensor(const tfm_model *m, int32_t layer, int32_t role) {
    tfm_tensor none;
    memset(&none, 0, sizeof none);
    const int32_t *slot = m->config.c.n_layers ? tfm__index(m, layer, role) : NULL;
    return slot && *slot >= 0 ? tfm__bound_tensor((const tfm__bound *)m->bound.p + *slot) : none;
}

TFM_API tfm_tensor tfm_model_expert(const tfm_model *m, int32_t layer, int32_t role, int32_t expert) {
    tfm_tensor none;
    memset(&none, 0, sizeof none);
    if (expert < 0 || !m->config.c.n_layers || expert >= tfm_role_experts(&m->config.c, layer, role)) return none;
    const int32_t first = *tfm__index(m, layer, role);
    return first >= 0 ? tfm__bound_tensor((const tfm__bound *)m->bound.p + first + expert) : none;
}

TFM_API const void *tfm_model_section(const tfm_model *m, int32_t id, size_t *bytes) {
    *bytes = 0;
    if (id <= 0 || id >= TFM__KNOWN_SECTIONS) return NULL;
    *bytes = m->file.f.section[id].size;
    return m->file.f.section[id].data;
}

TFM_API tfm_result tfm_model_verify(const tfm_model *m, tfm_error *err) {
    const tfm__section *t = &m->file.f.section[TFM_SECTION_TOKENIZER];
    if (!m->file.f.data) return TFM_OK;
    if (t->data && tfm__hash_of(t->data, t->size) != t->hash)
        return tfm__fail(err, TFM_ERR_FORMAT, "section tokenizer is damaged (hash differs)");
    for (int64_t i = 0; i < m->n_bound; i++) {
        const tfm__bound *b = (const tfm__bound *)m->bound.p + i;
        char name[64];
        const uint8_t *stored = (const uint8_t *)b->data.p;
        if (m->data.p) stored = m->file.f.section[TFM_SECTION_DATA].data + (stored - (const uint8_t *)m->data.p);
        if (tfm__hash_of(stored, tfm_tensor_bytes(b->type, b->layout, b->rows, b->cols)) != b->hash)
            return tfm__fail(err, TFM_ERR_FORMAT, "tensor %s is damaged (hash differs)",
                             tfm_weight_name(b->stack, b->layer, b->role, b->expert, name, sizeof name));
    }
    return TFM_OK;
}

/* ====================================================================================================================
   [B8] SESSION: KV cache, scratch, logits in one relocatable block. Inside it everything is an offset from its start;
   the few pointers to things outside are set by tfm_session_attach.
   ================================================================================================================= */

typedef union tfm__run_slot {
    void (*run)(void *user, void (*fn)(void *arg, int index), void *arg, int n);
    uint64_t room;
} tfm__run_slot;
typedef union tfm__progress_slot {
    int (*fn)(void *user, int64_t done, int64_t total);
    uint64_t room;
} tfm__progress_slot;
typedef union tfm__trace_slot {
    void (*fn)(void *user, const char *name, int32_t layer, const float *data, int64_t rows, int64_t cols);
    uint64_t room;
} tfm__trace_slot;

typedef struct tfm__cache { uint64_t k, v; int64_t length; } tfm__cache; /* offsets; slots: position p in p % length */

/* Offsets of the parts, in bytes from the session's start. n = n_batch rows everywhere. */
typedef struct tfm__layout {
    uint64_t cache;    /* tfm__cache [n_layers] */
    uint64_t inv_freq; /* float [n_blocks][half], half = the widest block's rope_dims / 2 */
    uint64_t mscale;   /* float [n_blocks] */
    uint64_t scale;    /* float [n_blocks]: of attention's scores */
    uint64_t cos, sin; /* float [n_blocks][n][half] */
    uint64_t x;        /* float [n][d_model]: the residual stream */
    uint64_t xn;       /* float [n][d_model]: normalised input of a sublayer */
    uint64_t y, z;     /* float [n][d_model]: a sublayer's output; z: the second one of parallel blocks, else empty */
    uint64_t q8;       /* q8 rows [n] of the widest matmul input */
    uint64_t work;     /* float: q, k, v, attention [n][..], or what the feed-forward needs */
    uint64_t routes;   /* int32 and float: see tfm__routes */
    uint64_t hidden;   /* float [rows][d_model] after the final norm */
    uint64_t logits;   /* float [logit rows][n_vocab] */
    uint64_t kv;       /* the cache */
    uint64_t bytes;
} tfm__layout;

struct tfm_session {
    uint64_t magic, identity;
    tfm__layout at;
    int64_t length, high;   /* tokens so far; one past the furthest position ever written */
    int64_t rows, rope_len; /* rows of hidden/logits that the last eval left */
    int32_t n_ctx, n_batch, kv_type, q8, want, n_threads, grain, isa, half, version;
    /* pointers to the world outside */
    tfm__ptr model, kernels, parallel_user, progress_user, trace_user;
    tfm__run_slot parallel;
    tfm__progress_slot progress;
    tfm__trace_slot trace;
    tfm__allocator_slot allocator;
    tfm__ptr self;          /* where tfm_session_new made it: a copy elsewhere must not free */
    uint64_t owned_bytes;
};

#define TFM__SESSION_MAGIC 0x6e6f697373657366ull
enum { TFM__SESSION_VERSION = 1 }; /* of the bytes of a session: one more whenever they mean something else */

static float *tfm__floats(const tfm_session *s, uint64_t offset) {
    return (float *)(void *)((uint8_t *)(uintptr_t)s + (size_t)offset);
}
static const tfm_model *tfm__model_of(const tfm_session *s) { return (const tfm_model *)s->model.p; }
static const tfm_kernels *tfm__kernels_of(const tfm_session *s) { return (const tfm_kernels *)s->kernels.p; }

/* What a config means for a model: defaults filled in, widths found. */
typedef struct tfm__plan {
    int32_t n_ctx, n_batch, kv_type, q8, want, n_threads, half, parallel;
    int64_t rope_len;
    size_t width_in, width_work; /* widest matmul input; floats of `work` a token */
    size_t picks, experts;       /* of a mixture of experts: the most that a token picks, and has to pick from */
    size_t width_experts;        /* floats of `work` a row; there are n_batch rows, or more if a token picks more */
} tfm__plan;

static size_t tfm__kv_row_bytes(int32_t kv_type, size_t n) {
    return kv_type == TFM_F32 ? 4 * n : kv_type == TFM_Q8_0 ? n / 32 * 34 : 2 * n;
}

static size_t tfm__max(size_t a, size_t b) { return a > b ? a : b; }

/* By TFM_KV_. */
static const int32_t tfm__kv_types[] = {TFM_F16, TFM_F32, TFM_F16, TFM_BF16, TFM_Q8_0};

static void tfm__plan_feed_forward(tfm__plan *p, const tfm_block *b, size_t d_model) {
    const size_t d_ff = (size_t)b->d_ff, d_expert = (size_t)b->d_expert, experts = (size_t)b->n_experts;
    p->width_in = tfm__max(p->width_in, tfm__max(d_ff, d_expert));
    p->width_work = tfm__max(p->width_work, 2 * d_ff);
    if (b->ffn_kind != TFM_FFN_EXPERTS) return;
    p->width_work = tfm__max(p->width_work, 2 * d_ff + d_model + 1); /* the shared expert's output and gate */
    p->width_experts = tfm__max(p->width_experts, 2 * experts + d_model + 2 * d_expert);
    p->picks = tfm__max(p->picks, (size_t)b->n_experts_used);
    p->experts = tfm__max(p->experts, experts);
}

static tfm_result tfm__make_plan(const tfm_model *m, const tfm_session_config *cfg, tfm__plan *p, tfm_error *err) {
    tfm_session_config zero;
    memset(&zero, 0, sizeof zero);
    if (!cfg) cfg = &zero;
    else if (cfg->size != sizeof *cfg)
        return tfm__fail(err, TFM_ERR_ARG, "tfm_session_config: size must be its sizeof");
    const tfm_config *c = &m->config.c;
    memset(p, 0, sizeof *p);
    if (!c->n_layers) return tfm__fail(err, TFM_ERR_UNSUPPORTED, "the file holds a tokenizer only, no model");
    p->n_ctx = cfg->n_ctx ? cfg->n_ctx : c->n_ctx;
    p->n_batch = cfg->n_batch ? cfg->n_batch : (p->n_ctx < 512 ? p->n_ctx : 512);
    if (p->n_ctx < 1) return tfm__fail(err, TFM_ERR_ARG, "n_ctx %d must be at least 1", (int)p->n_ctx);
    if (p->n_batch < 1) return tfm__fail(err, TFM_ERR_ARG, "n_batch %d must be at least 1", (int)p->n_batch);
    if (p->n_batch > p->n_ctx) p->n_batch = p->n_ctx;
    if (c->pos_kind == TFM_POS_LEARNED && p->n_ctx > c->n_ctx)
        return tfm__fail(err, TFM_ERR_ARG, "n_ctx %d exceeds the %d learned positions", (int)p->n_ctx, (int)c->n_ctx);
    if (cfg->kv < 0 || cfg->kv > TFM_KV_Q8_0) return tfm__fail(err, TFM_ERR_ARG, "kv type %d is unknown", (int)cfg->kv);
    if (cfg->act < 0 || cfg->act > TFM_ACT_MODE_Q8)
        return tfm__fail(err, TFM_ERR_ARG, "act mode %d is unknown", (int)cfg->act);
    if (cfg->isa && !tfm_isa_name(cfg->isa))
        return tfm__fail(err, TFM_ERR_ARG, "instruction set %d is unknown", (int)cfg->isa);
    if (cfg->want < 0 || cfg->want > TFM_WANT_NONE)
        return tfm__fail(err, TFM_ERR_ARG, "want %d is unknown", (int)cfg->want);
    if (cfg->n_threads < 0 || cfg->n_threads > 1024)
        return tfm__fail(err, TFM_ERR_ARG, "n_threads %d is out of range (1 to 1024)", (int)cfg->n_threads);
    if (cfg->grain < 0) return tfm__fail(err, TFM_ERR_ARG, "grain %d is negative", (int)cfg->grain);
    if (cfg->rope_len < 0) return tfm__fail(err, TFM_ERR_ARG, "rope_len %l is negative", cfg->rope_len);
    p->kv_type = tfm__kv_types[cfg->kv];
    p->q8 = cfg->act != TFM_ACT_MODE_F32;
    p->want = cfg->want;
    p->n_threads = cfg->n_threads ? cfg->n_threads : 1;
    p->rope_len = cfg->rope_len ? cfg->rope_len : p->n_ctx;
    p->width_in = (size_t)c->d_model;
    for (int i = 0; i < c->n_blocks; i++) {
        const tfm_block *b = &c->blocks[i];
        const size_t q = (size_t)b->n_heads * (size_t)b->head_dim, kv = (size_t)b->n_kv_heads * (size_t)b->head_dim;
        if (p->kv_type == TFM_Q8_0 && b->head_dim % 32)
            return tfm__fail(err, TFM_ERR_ARG, "kv q8_0 needs head_dim to be a multiple of 32, block %d has %d", i,
                             (int)b->head_dim);
        p->width_in = tfm__max(p->width_in, q);
        p->width_work = tfm__max(p->width_work, 2 * q + 2 * kv);
        tfm__plan_feed_forward(p, b, (size_t)c->d_model);
        p->parallel |= b->residual != TFM_RESIDUAL_SEQUENTIAL;
        if (b->rope_style) p->half = (int32_t)tfm__max((size_t)p->half, (size_t)tfm__rope_dims(b) / 2);
    }
    if (p->picks && (size_t)p->n_batch > INT32_MAX / p->picks)
        return tfm__fail(err, TFM_ERR_ARG, "n_batch %d is too large for %d experts a token",
                         (int)p->n_batch, (int)p->picks);
    return TFM_OK;
}

/* How many positions up to its own a query can see at most; 0: all. */
static int64_t tfm__reach(const tfm_block *b) {
    if (b->mask < TFM_MASK_STRIDED || b->mask_part != TFM_PART_NEAR) return b->window;
    return b->window && b->window < b->mask_stride ? b->window : b->mask_stride;
}

/* Slots of a layer's cache: the whole context, or what a query can see and the slack behind it. */
static int64_t tfm__cache_length(const tfm_block *b, const tfm__plan *p) {
    const int64_t reach = tfm__reach(b), want = reach + p->n_batch;
    return reach && want < p->n_ctx ? want : p->n_ctx;
}

/* Sizes the session; with a base it also writes the cache table (the base then holds the struct already). */
static void tfm__session_carve(tfm__arena *a, const tfm_model *m, const tfm__plan *p, tfm__layout *at) {
    const tfm_config *c = &m->config.c;
    const size_t n = (size_t)p->n_batch, half = (size_t)p->half, d = (size_t)c->d_model, blocks = (size_t)c->n_blocks;
    const size_t hidden = p->want == TFM_WANT_LAST ? 1 : p->want == TFM_WANT_NONE ? 0 : n;
    const size_t logits = p->want == TFM_WANT_LAST ? 1 : p->want == TFM_WANT_ALL ? n : 0;
    const size_t expert_rows = tfm__max(n, p->picks);
    size_t count = 0, table_rows = 0, work = 0, experts_work = 0, routes = 0;
    if (!tfm__mul(blocks, n, &table_rows) || !tfm__mul(n, p->width_work, &work) ||
        !tfm__mul(expert_rows, p->width_experts, &experts_work) || !tfm__mul(n, 3 * p->picks, &routes) ||
        !tfm__add(routes, p->experts + 1, &routes)) a->overflow = 1;
#define TFM__PART(field, items, size) do { at->field = a->used; tfm__carve(a, items, size); } while (0)
#define TFM__ROWS(field, rows, width) \
    do { if (!tfm__mul(rows, width, &count)) a->overflow = 1; TFM__PART(field, count, 4); } while (0)
    tfm__carve(a, 1, sizeof(tfm_session));
    TFM__PART(cache, (size_t)c->n_layers, sizeof(tfm__cache));
    TFM__ROWS(inv_freq, blocks, half);
    TFM__ROWS(mscale, blocks, 1);
    TFM__ROWS(scale, blocks, 1);
    TFM__ROWS(cos, table_rows, half);
    TFM__ROWS(sin, table_rows, half);
    TFM__ROWS(x, n, d);
    TFM__ROWS(xn, n, d);
    TFM__ROWS(y, n, d);
    TFM__ROWS(z, p->parallel ? n : 0, d);
    TFM__PART(q8, p->q8 ? expert_rows : 0, tfm_q8_row_bytes((int64_t)((p->width_in + 31) / 32 * 32)));
    TFM__PART(work, tfm__max(work, experts_work), 4);
    TFM__PART(routes, p->picks ? routes : 0, 4);
    TFM__ROWS(hidden, hidden, d);
    TFM__ROWS(logits, logits, (size_t)c->n_vocab);
    at->kv = a->used;
    for (int i = 0; i < c->n_layers; i++) {
        const tfm_block *b = tfm__layer(c, i);
        tfm__cache cache;
        cache.length = tfm__cache_length(b, p);
        if (!tfm__mul((size_t)cache.length, tfm__kv_row_bytes(p->kv_type, (size_t)b->n_kv_heads * (size_t)b->head_dim),
                      &count)) a->overflow = 1;
        cache.k = a->used;
        if (!tfm__add(a->used, count, &a->used)) a->overflow = 1;
        cache.v = a->used;
        if (!tfm__add(a->used, count, &a->used)) a->overflow = 1;
        if (a->base && !a->overflow) memcpy(a->base + at->cache + (size_t)i * sizeof cache, &cache, sizeof cache);
    }
    if (a->used > SIZE_MAX - 64) a->overflow = 1;
    at->bytes = a->used = tfm__align64(a->used);
#undef TFM__PART
#undef TFM__ROWS
}

static tfm_result tfm__session_plan(const tfm_model *m, const tfm_session_config *cfg, tfm__plan *p, tfm__layout *at,
                                    tfm_error *err) {
    tfm__arena a = {NULL, 0, 0};
    if (!m) return tfm__fail(err, TFM_ERR_ARG, "session: the model is NULL");
    const tfm_result r = tfm__make_plan(m, cfg, p, err);
    if (r) return r;
    tfm__session_carve(&a, m, p, at);
    if (a.overflow || at->bytes > SIZE_MAX / 2 || at->bytes > (uint64_t)1 << 46)
        return tfm__fail(err, TFM_ERR_MEMORY, "a session of n_ctx %d and n_batch %d does not fit this host's memory",
                         (int)p->n_ctx, (int)p->n_batch);
    return TFM_OK;
}

TFM_API tfm_result tfm_session_size(const tfm_model *m, const tfm_session_config *cfg, size_t *bytes, tfm_error *err) {
    tfm__plan p;
    tfm__layout at;
    const tfm_result r = tfm__session_plan(m, cfg, &p, &at, err);
    if (!r) *bytes = (size_t)at.bytes;
    return r;
}

TFM_API tfm_result tfm_session_kv_bytes(const tfm_model *m, const tfm_session_config *cfg, size_t *bytes,
                                        tfm_error *err) {
    tfm__plan p;
    tfm__layout at;
    const tfm_result r = tfm__session_plan(m, cfg, &p, &at, err);
    if (r) return r;
    *bytes = 0;
    for (int i = 0; i < m->config.c.n_layers; i++) {
        const tfm_block *b = tfm__layer(&m->config.c, i);
        *bytes += 2 * (size_t)tfm__cache_length(b, &p) *
                  tfm__kv_row_bytes(p.kv_type, (size_t)b->n_kv_heads * (size_t)b->head_dim);
    }
    return TFM_OK;
}

/* No NaN and no infinity: the largest magnitude, as bits, stays below infinity's. Eight lanes, for speed. */
static int tfm__all_finite(const float *x, int64_t n) {
    uint32_t most[8] = {0, 0, 0, 0, 0, 0, 0, 0}, bits, top = 0;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&bits, x + i, 4);
        bits &= 0x7fffffffu;
        if (most[i & 7] < bits) most[i & 7] = bits;
    }
    for (int i = 0; i < 8; i++)
        if (top < most[i]) top = most[i];
    return top < 0x7f800000u;
}

/* The scale of each block's scores, once a session: 1 / sqrt(head_dim) needs double arithmetic. */
static void tfm__session_scales(tfm_session *s, const tfm_config *c) {
    float *scale = tfm__floats(s, s->at.scale);
    for (int i = 0; i < c->n_blocks; i++) {
        const tfm_block *b = &c->blocks[i];
        scale[i] = b->attn_scale > 0 ? b->attn_scale : (float)tfm__pow((double)b->head_dim, -0.5);
    }
}

/* Frequencies of each block, once a session. */
static tfm_result tfm__session_ropes(tfm_session *s, const tfm_model *m, tfm_error *err) {
    const tfm_config *c = &m->config.c;
    for (int i = 0; i < c->n_blocks; i++) {
        const tfm_block *b = &c->blocks[i];
        tfm_rope_params p;
        if (!b->rope_style) continue;
        memset(&p, 0, sizeof p);
        p.dims = tfm__rope_dims(b);
        p.scaling = b->rope_scaling;
        p.theta = b->rope_theta;
        p.factor = b->rope_factor;
        p.ctx_orig = b->rope_ctx_orig;
        p.ctx_max = b->rope_ctx_max;
        p.low = b->rope_low;
        p.high = b->rope_high;
        p.attn_factor = b->rope_attn_factor;
        p.mscale = b->rope_mscale;
        p.mscale_all = b->rope_mscale_all;
        p.no_truncate = b->rope_no_truncate;
        p.factors = (const float *)tfm_model_tensor(m, -1, TFM_ROLE_ROPE_FACTORS).data;
        p.factors_long = (const float *)tfm_model_tensor(m, -1, TFM_ROLE_ROPE_FACTORS_LONG).data;
        float *inv_freq = tfm__floats(s, s->at.inv_freq) + (size_t)i * (size_t)s->half;
        float *mscale = tfm__floats(s, s->at.mscale) + i;
        tfm_rope_freqs(&p, s->rope_len, inv_freq, mscale);
        if (!tfm__all_finite(inv_freq, p.dims / 2) || !tfm__all_finite(mscale, 1))
            return tfm__fail(err, TFM_ERR_FORMAT, "block %d: its RoPE frequencies are not finite", i);
    }
    return TFM_OK;
}

static tfm_result tfm__session_hooks(tfm_session *s, const tfm_model *m, const tfm_session_config *cfg,
                                     tfm_error *err) {
    const tfm_kernels *k = tfm_kernels_for(s->isa);
    const char *name = tfm_isa_name(s->isa);
    if (!k) return tfm__fail(err, TFM_ERR_UNSUPPORTED, "instruction set %s is not available here", name ? name : "?");
    s->model.room = s->kernels.room = s->parallel_user.room = s->progress_user.room = s->trace_user.room = 0;
    s->parallel.room = s->progress.room = s->trace.room = 0;
    s->model.p = m;
    s->kernels.p = k;
    if (cfg) s->grain = cfg->grain;
    if (s->grain < 1) s->grain = TFM__GRAIN;
    if (!cfg) return TFM_OK;
    s->parallel_user.p = cfg->parallel.user;
    s->parallel.run = cfg->parallel.run;
    s->progress_user.p = cfg->progress_user;
    s->progress.fn = cfg->progress;
    s->trace_user.p = cfg->trace_user;
    s->trace.fn = cfg->trace;
    return TFM_OK;
}

TFM_API tfm_result tfm_session_init(const tfm_model *m, const tfm_session_config *cfg, void *mem, size_t bytes,
                                    tfm_session **out, tfm_error *err) {
    tfm__plan p;
    tfm__layout at;
    *out = NULL;
    tfm_result r = tfm__session_plan(m, cfg, &p, &at, err);
    if (!r) r = tfm__check_buffer(mem, bytes, (size_t)at.bytes, err);
    if (r) return r;
    memset(mem, 0, (size_t)at.x); /* not scratch and cache: pages that nobody used cost nothing */
    memset((uint8_t *)mem + at.hidden, 0, (size_t)(at.kv - at.hidden));
    tfm_session *s = (tfm_session *)mem;
    s->isa = cfg ? cfg->isa : 0;
    if ((r = tfm__session_hooks(s, m, cfg, err)) != TFM_OK) return r;
    s->isa = tfm__kernels_of(s)->isa;
    s->magic = TFM__SESSION_MAGIC;
    s->version = TFM__SESSION_VERSION;
    s->identity = m->identity;
    s->n_ctx = p.n_ctx;
    s->n_batch = p.n_batch;
    s->kv_type = p.kv_type;
    s->q8 = p.q8;
    s->want = p.want;
    s->n_threads = p.n_threads;
    s->half = p.half;
    s->rope_len = p.rope_len;
    tfm__arena a = {(uint8_t *)mem, 0, 0};
    tfm__session_carve(&a, m, &p, &at);
    s->at = at;
    tfm__session_scales(s, &m->config.c);
    if ((r = tfm__session_ropes(s, m, err)) != TFM_OK) return r;
    *out = s;
    return TFM_OK;
}

/* Whether the bytes of a session can be what this model and the settings stored in them make: everything that is later
   used without a check is compared with a layout computed afresh. */
static int tfm__session_plausible(const tfm_session *s, const tfm_model *m) {
    static const int32_t kv[] = {TFM_KV_F32, TFM_KV_F16, TFM_KV_BF16, TFM_KV_Q8_0};
    tfm_session_config cfg;
    tfm__plan p;
    tfm__layout at;
    memset(&cfg, 0, sizeof cfg);
    memset(&at, 0, sizeof at);
    cfg.size = sizeof cfg;
    cfg.n_ctx = s->n_ctx;
    cfg.n_batch = s->n_batch;
    cfg.act = s->q8 ? TFM_ACT_MODE_Q8 : TFM_ACT_MODE_F32;
    cfg.want = s->want;
    cfg.n_threads = s->n_threads;
    cfg.rope_len = s->rope_len;
    for (int i = 0; i < TFM__COUNT(kv); i++)
        if (s->kv_type == tfm__kv_types[kv[i]]) cfg.kv = kv[i];
    if (tfm__session_plan(m, &cfg, &p, &at, NULL) || p.kv_type != s->kv_type || p.n_ctx != s->n_ctx ||
        p.n_batch != s->n_batch ||
        p.n_threads != s->n_threads || p.q8 != s->q8 || p.half != s->half || memcmp(&at, &s->at, sizeof at)) return 0;
    uint64_t k = at.kv;
    for (int i = 0; i < m->config.c.n_layers; i++) {
        const tfm_block *b = tfm__layer(&m->config.c, i);
        const tfm__cache *c = (const tfm__cache *)(const void *)((const uint8_t *)s + at.cache) + i;
        const uint64_t bytes = (uint64_t)tfm__cache_length(b, &p) *
                               tfm__kv_row_bytes(p.kv_type, (size_t)b->n_kv_heads * (size_t)b->head_dim);
        if (c->k != k || c->v != k + bytes || c->length != tfm__cache_length(b, &p)) return 0;
        k += 2 * bytes;
    }
    return s->length >= 0 && s->length <= s->high && s->high <= s->n_ctx && s->rows >= 0 && s->rows <= s->n_batch &&
           (s->rows <= 1 || s->want != TFM_WANT_LAST);
}

/* Whether bytes that begin with this head are a session of this model. */
static tfm_result tfm__check_session(const tfm_session *s, size_t bytes, const tfm_model *m, tfm_error *err) {
    TFM__NEED(s->magic == TFM__SESSION_MAGIC && s->at.bytes == bytes,
              "session: these bytes hold none of %l bytes", (int64_t)bytes);
    if (s->version != TFM__SESSION_VERSION)
        return tfm__fail(err, TFM_ERR_UNSUPPORTED, "session: version %d, this header reads version %d", (int)s->version,
                         (int)TFM__SESSION_VERSION);
    TFM__NEED(s->identity == m->identity, "session: it belongs to another model");
    return TFM_OK;
}

TFM_API tfm_result tfm_session_attach(tfm_session *s, size_t bytes, const tfm_model *m, const tfm_session_config *cfg,
                                      tfm_error *err) {
    if (!s || (uintptr_t)s % 64 || bytes < sizeof *s)
        return tfm__fail(err, TFM_ERR_ARG, "session: not 64-byte aligned, or too small");
    tfm_result r = tfm__check_session(s, bytes, m, err);
    if (r) return r;
    TFM__NEED(tfm__session_plausible(s, m), "session: its layout is damaged");
    r = tfm__session_hooks(s, m, cfg, err);
    if (!r && s->self.p != s) s->owned_bytes = 0; /* a copy owns nothing */
    return r;
}

TFM_API tfm_result tfm_session_restore(tfm_session *s, const void *saved, size_t bytes, tfm_error *err) {
    tfm_session from;
    if (!saved || bytes < sizeof from) return tfm__fail(err, TFM_ERR_ARG, "session: %l bytes are none", (int64_t)bytes);
    memcpy(&from, saved, sizeof from);
    const tfm_result r = tfm__check_session(&from, bytes, tfm__model_of(s), err);
    if (r) return r;
    TFM__NEED(!memcmp(&from.at, &s->at, sizeof from.at) && from.n_ctx == s->n_ctx && from.n_batch == s->n_batch &&
              from.kv_type == s->kv_type && from.q8 == s->q8 && from.want == s->want && from.rope_len == s->rope_len,
              "session: its context, batch, kv, act, want or rope_len is not that of the session it is to go into");
    TFM__NEED(from.length >= 0 && from.length <= from.high && from.high <= from.n_ctx && from.rows >= 0 &&
              from.rows <= from.n_batch && (from.rows <= 1 || s->want != TFM_WANT_LAST),
              "session: its length is damaged");
    s->length = from.length;
    s->high = from.high;
    s->rows = from.rows;
    const size_t results = (size_t)s->at.hidden; /* hidden rows, logits and the cache: the end of the session */
    memmove((uint8_t *)s + results, (const uint8_t *)saved + results, bytes - results);
    return TFM_OK;
}

TFM_API tfm_result tfm_session_new(const tfm_model *m, const tfm_session_config *cfg, tfm_session **out,
                                   tfm_error *err) {
    const tfm_allocator *a = cfg ? cfg->allocator : NULL;
    size_t bytes = 0;
    *out = NULL;
    tfm_result r = tfm_session_size(m, cfg, &bytes, err);
    if (r) return r;
    void *mem = tfm__alloc(a, bytes);
    if (!mem) return tfm__fail(err, TFM_ERR_MEMORY, "out of memory for a session of %l bytes", (int64_t)bytes);
    if ((r = tfm_session_init(m, cfg, mem, bytes, out, err)) != TFM_OK) {
        tfm__release(a, mem, bytes);
        return r;
    }
    if (a) (*out)->allocator.a = *a;
    (*out)->owned_bytes = bytes;
    (*out)->self.p = mem;
    return TFM_OK;
}

TFM_API void tfm_session_free(tfm_session *s) {
    if (!s || !s->owned_bytes || s->self.p != s) return;
    const tfm_allocator a = s->allocator.a;
    tfm__release(&a, s, (size_t)s->owned_bytes);
}

TFM_API int64_t tfm_session_length(const tfm_session *s) { return s->length; }
TFM_API int64_t tfm_session_context(const tfm_session *s) { return s->n_ctx; }
TFM_API int32_t tfm_session_isa(const tfm_session *s) { return s->isa; }

TFM_API tfm_result tfm_session_rewind(tfm_session *s, int64_t length, tfm_error *err) {
    const tfm_config *c = &tfm__model_of(s)->config.c;
    if (length < 0 || length > s->length)
        return tfm__fail(err, TFM_ERR_ARG, "rewind to %l: the session holds %l tokens", length, s->length);
    const tfm__cache *cache = (const tfm__cache *)(const void *)((const uint8_t *)s + s->at.cache);
    if (!length) s->high = 0; /* nothing of the past is needed */
    for (int i = 0; i < c->n_layers; i++)
        if (cache[i].length < s->n_ctx && s->high > cache[i].length && length < s->high - s->n_batch)
            return tfm__fail(err, TFM_ERR_CONTEXT,
                             "rewind to %l: layer %d keeps a window and %d positions were written up to %l", length, i,
                             (int)s->n_batch, s->high);
    s->length = length;
    s->rows = 0;
    return TFM_OK;
}

TFM_API const float *tfm_hidden(const tfm_session *s, int64_t i) {
    if (s->want == TFM_WANT_NONE || !s->rows) return NULL;
    if (s->want == TFM_WANT_LAST) i = 0;
    if (i < 0 || i >= s->rows) return NULL;
    return tfm__floats(s, s->at.hidden) + (size_t)i * (size_t)tfm__model_of(s)->config.c.d_model;
}

TFM_API const float *tfm_logits(const tfm_session *s, int64_t i) {
    if (s->want == TFM_WANT_LAST) i = 0;
    if ((s->want != TFM_WANT_LAST && s->want != TFM_WANT_ALL) || i < 0 || i >= s->rows) return NULL;
    return tfm__floats(s, s->at.logits) + (size_t)i * (size_t)tfm__model_of(s)->config.c.n_vocab;
}

/* ====================================================================================================================
   [B9] FORWARD: one step a function, each reads its part of the description. tfm__pass: a chunk of n tokens under way.
   ================================================================================================================= */

typedef struct tfm__pass {
    tfm_session *s;
    const tfm_model *m;
    const tfm_config *c;
    const tfm_kernels *k;
    tfm__workers w;
    int64_t n, pos;            /* tokens of this chunk; position of the first */
    int64_t unwanted;          /* the first of those: once keys and values are stored, nobody wants more of them */
    const float *q8_of;        /* rows that were quantised as they were written, for the next matmul; NULL: none */
    const tfm_block *b;        /* the layer under way */
    int32_t layer;
} tfm__pass;

static tfm_tensor tfm__weight_of(const tfm__pass *p, int32_t role) {
    return tfm_model_tensor(p->m, role < TFM_ROLE_ATTN_NORM ? -1 : p->layer, role);
}

static const float *tfm__vector_of(const tfm__pass *p, int32_t role) {
    return (const float *)tfm__weight_of(p, role).data;
}

static void tfm__trace(const tfm__pass *p, const char *name, const float *data, int64_t cols) {
    if (p->s->trace.fn) p->s->trace.fn((void *)(uintptr_t)p->s->trace_user.p, name, p->layer, data, p->n, cols);
}

/* --- q8 rows --- */

static int tfm__is_float(int32_t type) { return type == TFM_F32 || type == TFM_F16 || type == TFM_BF16; }

static int tfm__wants_q8(const tfm__pass *p, const tfm_tensor *w) { return p->s->q8 && !tfm__is_float(w->type); }

typedef struct tfm__q8_job {
    const tfm_kernels *k;
    uint8_t *out;   /* q8 rows, `stride` bytes apart */
    const float *x; /* [n][cols] */
    size_t stride;
    int64_t cols;
} tfm__q8_job;

static void tfm__q8_row(const tfm__q8_job *j, int64_t i) {
    j->k->quantize_row(j->out + (size_t)i * j->stride, j->x + i * j->cols, j->cols);
}

static void tfm__q8_part(void *ctx, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) tfm__q8_row((const tfm__q8_job *)ctx, i);
}

static tfm__q8_job tfm__q8_rows(const tfm__pass *p, const float *x, int64_t cols) {
    tfm__q8_job j;
    j.k = p->k;
    j.out = (uint8_t *)tfm__floats(p->s, p->s->at.q8);
    j.x = x;
    j.stride = tfm_q8_row_bytes(cols);
    j.cols = cols;
    return j;
}

/* For those who write x, which the weight of `role` will read: out is NULL where that wants float32. Else a row is to
   be quantised as soon as it is whole, while it is near. */
static tfm__q8_job tfm__q8_ahead(tfm__pass *p, const float *x, int64_t cols, int32_t role) {
    const tfm_tensor w = tfm__weight_of(p, role);
    tfm__q8_job j = tfm__q8_rows(p, x, cols);
    p->q8_of = w.data && tfm__wants_q8(p, &w) ? x : NULL;
    if (!p->q8_of) j.out = NULL;
    return j;
}

/* n rows of x [cols] as q8 rows; returns them. */
static const uint8_t *tfm__quantize(tfm__pass *p, const float *x, int64_t cols, int64_t n) {
    tfm__q8_job j = tfm__q8_rows(p, x, cols);
    if (p->q8_of != x) tfm__for(&p->w, n, 4 * cols, tfm__q8_part, &j);
    p->q8_of = NULL;
    return j.out;
}

/* --- norms over rows --- */

typedef struct tfm__norm_job {
    const tfm_kernels *k;
    float *out;                /* [n][width] */
    const float *x, *w, *bias; /* x [n][width] */
    int32_t kind;
    float offset, eps;
    int64_t width;
    tfm__q8_job q8;            /* out as q8 rows, too, unless q8.out is NULL */
} tfm__norm_job;

static void tfm__norm_rows(void *ctx, int64_t first, int64_t last) {
    const tfm__norm_job *j = (const tfm__norm_job *)ctx;
    for (int64_t i = first; i < last; i++) {
        float *out = j->out + i * j->width;
        const float *x = j->x + i * j->width;
        if (j->kind != TFM_NORM_NONE) j->k->norm(j->kind, out, x, j->w, j->bias, j->offset, j->eps, j->width);
        else if (out != x) memcpy(out, x, (size_t)j->width * sizeof(float));
        if (j->q8.out) tfm__q8_row(&j->q8, i);
    }
}

/* out = norm(x) with the block's norm and the weights of two roles. reader: role of the weight that reads it, or 0. */
static void tfm__block_norm(tfm__pass *p, float *out, const float *x, int32_t role_w, int32_t role_b,
                            int32_t reader) {
    tfm__norm_job j;
    j.k = p->k;
    j.out = out;
    j.x = x;
    j.w = tfm__vector_of(p, role_w);
    j.bias = tfm__vector_of(p, role_b);
    j.kind = p->b->norm_kind;
    j.offset = p->b->norm_offset;
    j.eps = p->b->norm_eps;
    j.width = p->c->d_model;
    j.q8 = tfm__q8_ahead(p, out, j.width, reader);
    tfm__for(&p->w, p->n, 4 * (int64_t)j.width, tfm__norm_rows, &j);
}

/* --- matmul: up to three weights over the same input, cut into strips --- */

typedef struct tfm__linear { int32_t role, role_bias; float *y; } tfm__linear; /* y [n][rows] */

typedef struct tfm__matmul_job {
    const tfm_kernels *k;
    tfm_tensor w[3];
    tfm_matmul_args a[3];
    int64_t end[3];   /* pairs of strips, as kernels take them, up to and including matmul i */
    int count;
    int32_t n, blocks; /* tokens, cut into blocks; items: the pairs of strips of the first block, of the next ... */
} tfm__matmul_job;

#ifdef TFM_NO_THREADS
static void tfm__matmuls(const tfm__pass *p, tfm__matmul_job *j, int64_t cols) {
    (void)p, (void)cols;
    for (int i = 0; i < j->count; i++) j->k->matmul(&j->a[i], 0, (j->w[i].rows + 15) / 16);
}
#else
/* Where each thread has so many tokens, they are cut into blocks, one a thread: it finds in its caches what it has
   written itself. With fewer, weights would be unpacked too often. */
#define TFM__BLOCK_TOKENS 96

/* Tokens of a block times pairs of strips [first, last) of all weights. */
static void tfm__matmul_block(const tfm__matmul_job *j, int64_t block, int64_t first, int64_t last) {
    const int64_t t0 = tfm__share_begin(j->n, block, j->blocks), t1 = tfm__share_begin(j->n, block + 1, j->blocks);
    for (int i = 0; i < j->count; i++) {
        const int64_t start = i ? j->end[i - 1] : 0;
        const int64_t s0 = first > start ? first : start, s1 = last < j->end[i] ? last : j->end[i];
        tfm_matmul_args a = j->a[i];
        a.n = (int32_t)(t1 - t0);
        a.x = (const uint8_t *)a.x + (size_t)t0 * a.x_stride;
        a.y += (size_t)t0 * a.y_stride;
        if (s0 < s1) j->k->matmul(&a, 2 * (s0 - start), 2 * (s1 - start));
    }
}

static void tfm__matmul_part(void *ctx, int64_t first, int64_t last) {
    const tfm__matmul_job *j = (const tfm__matmul_job *)ctx;
    const int64_t all = j->end[j->count - 1];
    for (int64_t b = tfm__quotient(first, all); b * all < last; b++) {
        const int64_t from = first - b * all, to = last - b * all;
        tfm__matmul_block(j, b, from > 0 ? from : 0, to < all ? to : all);
    }
}

static void tfm__matmuls(const tfm__pass *p, tfm__matmul_job *j, int64_t cols) {
    for (int i = 0; i < j->count; i++) j->end[i] = (j->w[i].rows + 31) / 32 + (i ? j->end[i - 1] : 0);
    j->blocks = j->n >= (int64_t)TFM__BLOCK_TOKENS * p->w.n_threads ? p->w.n_threads : 1;
    tfm__for(&p->w, j->blocks * j->end[j->count - 1], 32 * cols * tfm__quotient(j->n, j->blocks), tfm__matmul_part, j);
}
#endif

/* y_i = W_i x (+ bias) for `count` weights. x: n rows [cols], n rows of this call. */
static void tfm__linears(tfm__pass *p, const float *x, int64_t cols, int64_t n, const tfm__linear *l, int count) {
    tfm__matmul_job job;
    uint8_t *q8 = (uint8_t *)tfm__floats(p->s, p->s->at.q8);
    const size_t q8_stride = tfm_q8_row_bytes(cols);
    int quantized = 0;
    job.k = p->k;
    job.count = count;
    job.n = (int32_t)n;
    for (int i = 0; i < count; i++) {
        tfm_matmul_args *a = &job.a[i];
        job.w[i] = tfm__weight_of(p, l[i].role);
        a->w = &job.w[i];
        a->bias = l[i].role_bias ? tfm__vector_of(p, l[i].role_bias) : NULL;
        a->x_q8 = tfm__wants_q8(p, &job.w[i]);
        a->x = a->x_q8 ? (const void *)q8 : (const void *)x;
        a->x_stride = a->x_q8 ? q8_stride : (size_t)cols * sizeof(float);
        a->n = (int32_t)n;
        a->y = l[i].y;
        a->y_stride = (size_t)job.w[i].rows;
        a->scratch = NULL; /* the panel on the stack is enough */
        a->scratch_bytes = 0;
        quantized |= a->x_q8;
    }
    if (quantized) tfm__quantize(p, x, cols, n);
    p->q8_of = NULL;
    tfm__matmuls(p, &job, cols);
}

static tfm__linear tfm__to(float *y, int32_t role, int32_t role_bias) {
    tfm__linear l;
    l.role = role;
    l.role_bias = role_bias;
    l.y = y;
    return l;
}

/* --- attention --- */

typedef struct tfm__heads_job {
    const tfm__pass *p;
    float *q, *k, *v;
    const tfm__cache *cache;
} tfm__heads_job;

/* QK-norm of one row of heads: [n_heads][head_dim], per head or over the whole width. */
static void tfm__norm_heads(const tfm__pass *p, float *x, int32_t role, int32_t role_b, int64_t n_heads) {
    const tfm_block *b = p->b;
    tfm__norm_job j;
    j.k = p->k;
    j.out = x;
    j.x = x;
    j.w = tfm__vector_of(p, role);
    j.bias = tfm__vector_of(p, role_b);
    j.kind = b->qk_norm_kind;
    j.offset = b->qk_norm_offset;
    j.eps = b->qk_norm_eps;
    j.width = b->qk_norm == TFM_QKNORM_FULL ? n_heads * b->head_dim : b->head_dim;
    j.q8.out = NULL;
    if (b->qk_norm != TFM_QKNORM_HEADS) {
        tfm__norm_rows(&j, 0, b->qk_norm == TFM_QKNORM_FULL ? 1 : n_heads);
        return;
    }
    for (int64_t h = 0; h < n_heads; h++) { /* each head has its own weights */
        tfm__norm_rows(&j, 0, 1);
        j.out += j.width;
        j.x += j.width;
        if (j.w) j.w += j.width;
        if (j.bias) j.bias += j.width;
    }
}

static void tfm__norm_qk(const tfm__pass *p, float *q, float *k) {
    tfm__norm_heads(p, q, TFM_ROLE_Q_NORM, TFM_ROLE_Q_NORM_B, p->b->n_heads);
    tfm__norm_heads(p, k, TFM_ROLE_K_NORM, TFM_ROLE_K_NORM_B, p->b->n_kv_heads);
}

static void tfm__clamp(float *x, float most, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = x[i] > most ? most : x[i] < -most ? -most : x[i];
}

/* The factor on the query at a position: grows with the logarithm of how often the trained context fits before it. */
static float tfm__temperature(const tfm_block *b, int64_t pos) {
    const int64_t times = tfm__quotient(pos + b->temperature_offset, b->temperature_ctx);
    return 1.0f + b->temperature * tfm__log1p(tfm__count(times));
}

/* The same where it grows with the logarithm of the position itself. */
static float tfm__log_scale(const tfm_block *b, int64_t pos) {
    return pos < b->log_ctx ? 1.0f : tfm__log1p(tfm__count(pos)) / tfm__log1p((float)(b->log_ctx - 1));
}

/* Per token: QK-norm, clamp, RoPE, temperature, K and V into the cache. */
static void tfm__prepare_heads(void *ctx, int64_t first, int64_t last) {
    const tfm__heads_job *j = (const tfm__heads_job *)ctx;
    const tfm__pass *p = j->p;
    const tfm_block *b = p->b;
    tfm_session *s = p->s;
    const int64_t qw = (int64_t)b->n_heads * b->head_dim, kw = (int64_t)b->n_kv_heads * b->head_dim;
    const size_t row = tfm__kv_row_bytes(s->kv_type, (size_t)b->head_dim);
    uint8_t *base = (uint8_t *)s;
    for (int64_t t = first; t < last; t++) {
        float *q = j->q + t * qw, *k = j->k + t * kw, *v = j->v + t * kw;
        if (b->qk_norm && !b->qk_norm_late) tfm__norm_qk(p, q, k);
        if (b->qkv_clamp > 0) {
            tfm__clamp(q, b->qkv_clamp, qw);
            tfm__clamp(k, b->qkv_clamp, kw);
            tfm__clamp(v, b->qkv_clamp, kw);
        }
        if (b->rope_style) {
            const size_t at = ((size_t)(b - p->c->blocks) * (size_t)s->n_batch + (size_t)t) * (size_t)s->half;
            const float *cos_t = tfm__floats(s, s->at.cos) + at, *sin_t = tfm__floats(s, s->at.sin) + at;
            p->k->rope(q, cos_t, sin_t, b->rope_style, tfm__rope_dims(b), b->head_dim, b->n_heads);
            p->k->rope(k, cos_t, sin_t, b->rope_style, tfm__rope_dims(b), b->head_dim, b->n_kv_heads);
        }
        if (b->qk_norm && b->qk_norm_late) tfm__norm_qk(p, q, k);
        if (b->temperature != 0) p->k->scale(q, tfm__temperature(b, p->pos + t), qw);
        if (b->log_ctx) p->k->scale(q, tfm__log_scale(b, p->pos + t), qw);
        const int64_t slot = tfm__remainder(p->pos + t, j->cache->length);
        for (int32_t h = 0; h < b->n_kv_heads; h++) {
            const size_t at = ((size_t)h * (size_t)j->cache->length + (size_t)slot) * row;
            p->k->store_kv(base + j->cache->k + at, s->kv_type, k + (int64_t)h * b->head_dim, b->head_dim);
            p->k->store_kv(base + j->cache->v + at, s->kv_type, v + (int64_t)h * b->head_dim, b->head_dim);
        }
    }
}

typedef struct tfm__attention_job { const tfm_kernels *k; tfm_attention_args a; int64_t each; } tfm__attention_job;

static void tfm__attention_part(void *ctx, int64_t first, int64_t last) {
    const tfm__attention_job *j = (const tfm__attention_job *)ctx;
    const int64_t items = (int64_t)j->a.n * j->a.n_heads, end = last * j->each;
    j->k->attention(&j->a, first * j->each, end < items ? end : items);
}

/* The tokens that are wanted go on alone: their rows of the residual stream and of the normed one move to the front. */
static void tfm__drop_unwanted(tfm__pass *p) {
    const size_t d = (size_t)p->c->d_model, at = (size_t)p->unwanted * d;
    float *x = tfm__floats(p->s, p->s->at.x), *xn = tfm__floats(p->s, p->s->at.xn);
    p->n -= p->unwanted;
    p->pos += p->unwanted;
    p->unwanted = 0;
    p->q8_of = NULL;
    memmove(x, x + at, (size_t)p->n * d * sizeof(float));
    memmove(xn, xn + at, (size_t)p->n * d * sizeof(float));
}

/* What the attention kernel is told, but for its input and output. */
static void tfm__attention_args(const tfm__pass *p, const tfm__cache *cache, tfm_attention_args *a) {
    const tfm_block *b = p->b;
    const tfm_session *s = p->s;
    memset(a, 0, sizeof *a);
    a->k = (const uint8_t *)s + cache->k;
    a->v = (const uint8_t *)s + cache->v;
    a->kv_type = s->kv_type;
    a->n = (int32_t)p->n;
    a->n_heads = b->n_heads;
    a->n_kv_heads = b->n_kv_heads;
    a->head_dim = b->head_dim;
    a->pos = p->pos;
    a->length = cache->length;
    if (b->mask == TFM_MASK_CHUNKED) a->chunk = b->window;
    else a->window = b->window;
    a->sinks = b->sinks ? tfm__vector_of(p, TFM_ROLE_SINKS) : NULL;
    a->scale = tfm__floats(s, s->at.scale)[b - p->c->blocks];
    a->softcap = b->attn_softcap;
    a->slopes_bf16 = b->alibi == TFM_ALIBI_BF16;
    a->slopes = b->alibi ? tfm__vector_of(p, TFM_ROLE_SLOPES) : NULL;
    a->mask = b->mask >= TFM_MASK_STRIDED ? b->mask : 0;
    a->mask_stride = b->mask_stride;
    a->mask_columns = b->mask_columns;
    a->mask_groups = b->mask_groups;
    a->mask_part = b->mask_part;
}

/* y = O(attention(Q x, K x, V x)). x [n][d_model] */
static void tfm__attend(tfm__pass *p, float *y, const float *x) {
    const tfm_block *b = p->b;
    tfm_session *s = p->s;
    const int64_t qw = (int64_t)b->n_heads * b->head_dim, kw = (int64_t)b->n_kv_heads * b->head_dim;
    float *q = tfm__floats(s, s->at.work), *k = q + p->n * qw, *v = k + p->n * kw, *mixed = v + p->n * kw;
    const tfm__cache *cache = (const tfm__cache *)(const void *)((const uint8_t *)s + s->at.cache) + p->layer;

    tfm__linear qkv[3];
    qkv[0] = tfm__to(q, TFM_ROLE_Q, TFM_ROLE_Q_B);
    qkv[1] = tfm__to(k, TFM_ROLE_K, TFM_ROLE_K_B);
    qkv[2] = tfm__to(v, TFM_ROLE_V, TFM_ROLE_V_B);
    tfm__linears(p, x, p->c->d_model, p->n, qkv, 3);

    tfm__heads_job heads;
    heads.p = p;
    heads.q = q;
    heads.k = k;
    heads.v = v;
    heads.cache = cache;
    tfm__for(&p->w, p->n, 4 * (qw + 2 * kw), tfm__prepare_heads, &heads);
    tfm__trace(p, "q", q, qw);
    tfm__trace(p, "k", k, kw);
    tfm__trace(p, "v", v, kw);

    if (p->unwanted) {
        q += p->unwanted * qw;
        tfm__drop_unwanted(p);
        if (!p->n) return;
    }
    const int64_t seen = p->pos + p->n < cache->length ? p->pos + p->n : cache->length;
    tfm__attention_job job;
    job.k = p->k;
    tfm__attention_args(p, cache, &job.a);
    job.a.out = mixed;
    job.a.q = q;
    /* A token's heads stay together, unless a thread would have fewer than four tokens. */
    const int64_t items = p->n * b->n_heads, share = tfm__quotient(items - 1, p->w.n_threads) + 1;
    job.each = share < 4 * b->n_heads ? share : b->n_heads;
    const int64_t work = 4 * seen * b->head_dim * job.each;
    tfm__for(&p->w, tfm__quotient(items - 1, job.each) + 1, work, tfm__attention_part, &job);
    tfm__trace(p, "attn", mixed, qw);

    const tfm__linear o = tfm__to(y, TFM_ROLE_O, TFM_ROLE_O_B);
    tfm__linears(p, mixed, qw, p->n, &o, 1);
}

/* --- feed-forward --- */

/* xIELU, arXiv:2411.13010: ap x^2 + beta x above 0, an (exp(min(x, eps)) - 1 - x) + beta x below. */
static void tfm__xielu(float *x, const float *params, int64_t n) {
    const float beta = params[2], eps = params[3];
    const float ap = tfm__softplus(params[0]), an = beta + tfm__softplus(params[1]);
    for (int64_t i = 0; i < n; i++) {
        const float v = x[i];
        float e_v;
        x[i] = (v > 0 ? ap * v * v : (tfm__expm1(v < eps ? v : eps, &e_v) - v) * an) + beta * v;
    }
}

typedef struct tfm__act_job {
    const tfm_kernels *k;
    float *gate, *up;
    const float *params; /* of xIELU */
    float limit, up_offset;
    int32_t act, gated;
    int64_t width;
    tfm__q8_job q8;      /* the result as q8 rows, too, unless q8.out is NULL */
} tfm__act_job;

static void tfm__limit(float *gate, float *up, float limit, int64_t n) {
    tfm__clamp(up, limit, n);
    for (int64_t i = 0; i < n; i++)
        if (gate[i] > limit) gate[i] = limit;
}

static void tfm__act_row(const tfm__act_job *j, float *gate, float *up) {
    const int64_t n = j->width;
    if (j->limit > 0) tfm__limit(gate, up, j->limit, n);
    for (int64_t i = 0; j->up_offset != 0 && i < n; i++) up[i] += j->up_offset;
    if (j->act == TFM_ACT_XIELU) tfm__xielu(up, j->params, n);
    else if (j->gated) j->k->glu(gate, gate, up, j->act, n);
    else j->k->activate(up, j->act, n);
}

static void tfm__act_rows(void *ctx, int64_t first, int64_t last) {
    const tfm__act_job *j = (const tfm__act_job *)ctx;
    for (int64_t i = first; i < last; i++) {
        tfm__act_row(j, j->gate + i * j->width, j->up + i * j->width);
        if (j->q8.out) tfm__q8_row(&j->q8, i);
    }
}

/* n rows of up, and of gate if there are gates, become act(gate) * up or act(up); returns where that stands. reader:
   the role of the weight that reads it. */
static const float *tfm__act(tfm__pass *p, float *up, float *gate, int64_t n, int64_t width, int32_t reader) {
    const tfm_block *b = p->b;
    tfm__act_job act;
    act.k = p->k;
    act.up = up;
    act.gate = gate;
    act.params = tfm__vector_of(p, TFM_ROLE_ACT);
    act.limit = b->ffn_limit;
    act.up_offset = b->ffn_up_offset;
    act.act = b->ffn_act;
    act.gated = b->ffn_gated;
    act.width = width;
    act.q8 = tfm__q8_ahead(p, b->ffn_gated ? gate : up, width, reader);
    tfm__for(&p->w, n, 8 * width, tfm__act_rows, &act);
    return b->ffn_gated ? gate : up;
}

/* y = down(act(gate x) * up x), or down(act(up x)). x [n][d_model] */
static void tfm__dense(tfm__pass *p, float *y, const float *x) {
    const tfm_block *b = p->b;
    float *up = tfm__floats(p->s, p->s->at.work), *gate = up + p->n * b->d_ff;
    tfm__linear in[2];
    in[0] = tfm__to(up, TFM_ROLE_UP, TFM_ROLE_UP_B);
    in[1] = tfm__to(gate, TFM_ROLE_GATE, TFM_ROLE_GATE_B);
    tfm__linears(p, x, p->c->d_model, p->n, in, b->ffn_gated ? 2 : 1);
    const float *h = tfm__act(p, up, gate, p->n, b->d_ff, TFM_ROLE_DOWN);
    tfm__trace(p, "ffn_act", h, b->d_ff);
    const tfm__linear down = tfm__to(y, TFM_ROLE_DOWN, TFM_ROLE_DOWN_B);
    tfm__linears(p, h, b->d_ff, p->n, &down, 1);
}

#ifndef TFM_NO_EXPERTS
/* --- mixture of experts: routing --- */

/* What the router decided for the n tokens of a chunk; k = n_experts_used. A token and one of its experts are a pair:
   pair t * k + i is the i-th expert of token t. */
typedef struct tfm__routes {
    int32_t *pick;  /* [n * k]: the expert of a pair */
    float *weight;  /* [n * k] */
    int32_t *order; /* [n * k]: the pairs, by expert, then by token */
    int32_t *start; /* [n_experts + 1]: the first place in order of each expert's pairs */
} tfm__routes;

static tfm__routes tfm__routes_of(const tfm__pass *p) {
    tfm__routes r;
    const int64_t pairs = p->n * p->b->n_experts_used;
    float *at = tfm__floats(p->s, p->s->at.routes);
    r.weight = at;
    r.pick = (int32_t *)(void *)(at + pairs);
    r.order = r.pick + pairs;
    r.start = r.order + pairs;
    return r;
}

/* The k largest of n values, the largest first, equal ones by index; whatever the values are: k different ones. */
static void tfm__top(int32_t *pick, const float *v, int32_t n, int32_t k) {
    for (int32_t j = 0; j < n; j++) {
        int32_t at = j < k ? j : k;
        if (at == k && !(v[j] > v[pick[--at]])) continue;
        for (; at > 0 && v[j] > v[pick[at - 1]]; at--) pick[at] = pick[at - 1];
        pick[at] = j;
    }
}

/* Experts of all groups but the best become -inf. v [n_experts] */
static void tfm__keep_groups(const tfm_block *b, float *v) {
    const int32_t size = b->n_experts / b->n_groups;
    float score[TFM__MAX_GROUPS];
    int32_t best[TFM__MAX_GROUPS];
    uint8_t kept[TFM__MAX_GROUPS] = {0};
    for (int32_t g = 0; g < b->n_groups; g++) {
        int32_t two[2] = {0, 0};
        const float *of = v + g * size;
        tfm__top(two, of, size, size < 2 ? 1 : 2);
        score[g] = b->group_score == TFM_GROUP_TWO ? of[two[0]] + of[two[1]] : of[two[0]];
    }
    tfm__top(best, score, b->n_groups, b->n_groups_used);
    for (int32_t i = 0; i < b->n_groups_used; i++) kept[best[i]] = 1;
    for (int32_t j = 0; j < b->n_experts; j++)
        if (!kept[j / size]) v[j] = -TFM__INFINITY;
}

/* (sum of |w|^p)^(1/p), the terms in their order. */
static float tfm__p_norm(const float *w, int32_t n, float p) {
    float sum = 0;
    for (int32_t i = 0; i < n; i++) {
        const float a = w[i] < 0 ? -w[i] : w[i];
        sum += p == 1 || !(a > 0) ? a : p == 2 ? a * a : tfm__power(a, p);
    }
    return p == 1 || !(sum > 0) ? sum : p == 2 ? tfm__sqrt(sum) : tfm__power(sum, 1.0f / p);
}

/* The weights of the experts picked. score [n_experts] */
static void tfm__weigh_picks(const tfm_block *b, const tfm_kernels *k, float *w, const int32_t *pick,
                             const float *score) {
    const int32_t n = b->n_experts_used;
    for (int32_t i = 0; i < n; i++) w[i] = score[pick[i]];
    if (b->router_weight == TFM_WEIGH_SOFTMAX) k->softmax(w, n);
    if (b->router_weight == TFM_WEIGH_SIGMOID) k->activate(w, TFM_ACT_SIGMOID, n);
    if (b->router_norm > 0) {
        float norm = tfm__p_norm(w, n, b->router_norm) + b->router_norm_eps;
        if (norm < b->router_norm_floor) norm = b->router_norm_floor;
        for (int32_t i = 0; i < n; i++) w[i] /= norm;
    }
    if (b->router_scale != 0) k->scale(w, b->router_scale, n);
}

/* See TFM_PICK_SPARSE_MIXER. s [n_experts]: the logits; left [n_experts]: room. */
static void tfm__sparse_mixer(const tfm_block *b, const tfm_kernels *k, float *w, int32_t *pick,
                              const float *s, float *left) {
    const int32_t n = b->n_experts;
    const float most = 2 * b->router_jitter;
    uint8_t taken[TFM__MAX_EXPERTS] = {0};
    for (int32_t i = 0; i < b->n_experts_used; i++) {
        int32_t best = -1;
        for (int32_t j = 0; j < n; j++)
            if (!taken[j] && (best < 0 || s[j] > s[best])) best = j;
        for (int32_t j = 0; j < n; j++) {
            const float size = s[j] < 0 ? -s[j] : s[j], gap = (s[best] - s[j]) / (size > s[best] ? size : s[best]);
            left[j] = taken[j] || gap > most ? -TFM__INFINITY : s[j];
        }
        k->softmax(left, n);
        pick[i] = best;
        w[i] = left[best];
        taken[best] = 1;
    }
}

/* Both are [n][n_experts]; score: logits. */
typedef struct tfm__route_job { const tfm__pass *p; float *score, *rank; } tfm__route_job;

static void tfm__route_rows(void *ctx, int64_t first, int64_t last) {
    const tfm__route_job *j = (const tfm__route_job *)ctx;
    const tfm_block *b = j->p->b;
    const tfm_kernels *k = j->p->k;
    const tfm__routes r = tfm__routes_of(j->p);
    const float *bias = tfm__vector_of(j->p, TFM_ROLE_ROUTER_SELECT_B);
    const int32_t n = b->n_experts;
    for (int64_t t = first; t < last; t++) {
        float *score = j->score + t * n, *rank = j->rank + t * n, *w = r.weight + t * b->n_experts_used;
        int32_t *pick = r.pick + t * b->n_experts_used;
        if (b->router_pick == TFM_PICK_SPARSE_MIXER) {
            tfm__sparse_mixer(b, k, w, pick, score, rank);
            continue;
        }
        if (b->router_score == TFM_SCORE_SOFTMAX) k->softmax(score, n);
        if (b->router_score == TFM_SCORE_SIGMOID) k->activate(score, TFM_ACT_SIGMOID, n);
        memcpy(rank, score, (size_t)n * sizeof(float));
        if (bias) k->add(rank, bias, 1.0f, n);
        if (b->n_groups) tfm__keep_groups(b, rank);
        tfm__top(pick, rank, n, b->n_experts_used);
        tfm__weigh_picks(b, k, w, pick, score);
    }
}

/* Brings the pairs of the chunk into the order of their experts. */
static void tfm__order_pairs(const tfm__routes *r, int64_t pairs, int32_t n_experts) {
    memset(r->start, 0, ((size_t)n_experts + 1) * sizeof *r->start);
    for (int64_t i = 0; i < pairs; i++) r->start[r->pick[i] + 1]++;
    for (int32_t e = 0; e < n_experts; e++) r->start[e + 1] += r->start[e];
    for (int64_t i = 0; i < pairs; i++) r->order[r->start[r->pick[i]]++] = (int32_t)i;
    for (int32_t e = n_experts; e > 0; e--) r->start[e] = r->start[e - 1]; /* each had moved on to the next one's */
    r->start[0] = 0;
}

/* Routes the n tokens x [n][d_model]; work: [2][n][n_experts]. */
static tfm__routes tfm__route(tfm__pass *p, const float *x, float *work) {
    const tfm__linear router = tfm__to(work, TFM_ROLE_ROUTER, TFM_ROLE_ROUTER_B);
    const tfm__routes r = tfm__routes_of(p);
    tfm__route_job j;
    j.p = p;
    j.score = work;
    j.rank = work + p->n * p->b->n_experts;
    tfm__linears(p, x, p->c->d_model, p->n, &router, 1);
    tfm__trace(p, "router", work, p->b->n_experts);
    tfm__for(&p->w, p->n, (int64_t)p->b->n_experts * (8 + p->b->n_experts_used), tfm__route_rows, &j);
    tfm__order_pairs(&r, p->n * p->b->n_experts_used, p->b->n_experts);
    return r;
}

/* --- mixture of experts: running them ---
   A wave is a run of experts whose pairs fit into the rows there is room for; row i of a wave belongs to the pair
   order[first + i]. Which wave an expert falls into changes no bit: each row is a sequence of its own, and a token's
   sum goes on from wave to wave in the order of the experts. */

typedef struct tfm__wave {
    tfm__pass *p;
    const tfm__routes *r;
    int32_t e0, e1;          /* the experts */
    int64_t first, rows;     /* their pairs, as places in order */
    float *x;                /* [rows][d_model]: gathered inputs, then the experts' outputs */
    const float *in;         /* [n][d_model]: the tokens */
    float *y;                /* [n][d_model]: their sums */
} tfm__wave;

static void tfm__gather_rows(void *ctx, int64_t first, int64_t last) {
    const tfm__wave *v = (const tfm__wave *)ctx;
    const tfm__pass *p = v->p;
    const int64_t d = p->c->d_model;
    for (int64_t i = first; i < last; i++) {
        const int32_t pair = v->r->order[v->first + i];
        memcpy(v->x + i * d, v->in + pair / p->b->n_experts_used * d, (size_t)d * sizeof(float));
        if (p->b->router_on_input) p->k->scale(v->x + i * d, v->r->weight[pair], d);
    }
}

/* One matrix of each expert of a wave, or two over the same input. */
typedef struct tfm__experts_job {
    const tfm__wave *v;
    int32_t role[2], role_b[2];
    float *y[2];             /* [rows][out] */
    const float *x;          /* [rows][cols] */
    const uint8_t *q8;       /* the same as q8 rows, if any of the matrices wants them */
    int64_t cols, out;
    int count;
} tfm__experts_job;

/* Strips [s0, s1) of one matrix of one expert. */
static void tfm__expert_strips(const tfm__experts_job *j, int32_t e, int i, int64_t s0, int64_t s1) {
    const tfm__pass *p = j->v->p;
    const int32_t *start = j->v->r->start;
    const int64_t row = start[e] - j->v->first;
    const tfm_tensor w = tfm_model_expert(p->m, p->layer, j->role[i], e);
    tfm_matmul_args a;
    a.w = &w;
    a.bias = (const float *)tfm_model_expert(p->m, p->layer, j->role_b[i], e).data;
    a.x_q8 = tfm__wants_q8(p, &w);
    a.x_stride = a.x_q8 ? tfm_q8_row_bytes(j->cols) : (size_t)j->cols * sizeof(float);
    a.x = a.x_q8 ? j->q8 + (size_t)row * a.x_stride : (const uint8_t *)(const void *)(j->x + row * j->cols);
    a.n = start[e + 1] - start[e];
    a.y = j->y[i] + row * j->out;
    a.y_stride = (size_t)j->out;
    a.scratch = NULL;
    a.scratch_bytes = 0;
    p->k->matmul(&a, s0, s1);
}

/* How many of `all` strips, each `rows` long, begin before `at`. */
static int64_t tfm__strips_before(int64_t at, int64_t rows, int64_t all) {
    if (at <= 0) return 0;
    at = tfm__quotient(at + rows - 1, rows);
    return at < all ? at : all;
}

/* The wave's work stands in one line: expert by expert its strips, each as long as the expert has rows. A thread takes
   the strips that begin in its part. */
static void tfm__experts_part(void *ctx, int64_t first, int64_t last) {
    const tfm__experts_job *j = (const tfm__experts_job *)ctx;
    const int32_t *start = j->v->r->start;
    const int64_t strips = (j->out + 15) / 16, all = strips * j->count;
    for (int32_t e = j->v->e0; e < j->v->e1; e++) {
        const int64_t rows = start[e + 1] - start[e], at = (start[e] - j->v->first) * all;
        if (!rows || at >= last || at + rows * all <= first) continue;
        const int64_t s0 = tfm__strips_before(first - at, rows, all), s1 = tfm__strips_before(last - at, rows, all);
        for (int i = 0; i < j->count; i++) {
            const int64_t a = s0 > i * strips ? s0 - i * strips : 0;
            const int64_t b = s1 < (i + 1) * strips ? s1 - i * strips : strips;
            if (a < b) tfm__expert_strips(j, e, i, a, b);
        }
    }
}

static void tfm__experts_matmul(tfm__experts_job *j) {
    const tfm__wave *v = j->v;
    j->q8 = NULL;
    for (int32_t e = v->e0; e < v->e1 && !j->q8; e++)
        for (int i = 0; i < j->count && !j->q8; i++) {
            const tfm_tensor w = tfm_model_expert(v->p->m, v->p->layer, j->role[i], e);
            if (tfm__wants_q8(v->p, &w)) j->q8 = tfm__quantize(v->p, j->x, j->cols, v->rows);
        }
    tfm__for(&v->p->w, v->rows * j->count * ((j->out + 15) / 16), 16 * j->cols, tfm__experts_part, j);
    v->p->q8_of = NULL;
}

/* Columns [first, last) of the wave's outputs are added to the tokens' sums, row after row. */
static void tfm__scatter_columns(void *ctx, int64_t first, int64_t last) {
    const tfm__wave *v = (const tfm__wave *)ctx;
    const tfm__pass *p = v->p;
    const int64_t d = p->c->d_model;
    for (int64_t i = 0; i < v->rows; i++) {
        const int32_t pair = v->r->order[v->first + i];
        const float w = p->b->router_on_input ? 1.0f : v->r->weight[pair];
        p->k->add(v->y + pair / p->b->n_experts_used * d + first, v->x + i * d + first, w, last - first);
    }
}

/* y += the outputs of one wave. up: [rows][d_expert], and as much for gate behind it. */
static void tfm__run_wave(tfm__wave *v, float *up) {
    tfm__pass *p = v->p;
    const tfm_block *b = p->b;
    float *gate = up + v->rows * b->d_expert;
    tfm__experts_job j;
    tfm__for(&p->w, v->rows, p->c->d_model, tfm__gather_rows, v);
    j.v = v;
    j.x = v->x;
    j.cols = p->c->d_model;
    j.out = b->d_expert;
    j.count = b->ffn_gated ? 2 : 1;
    j.role[0] = TFM_ROLE_EXPERT_UP;
    j.role_b[0] = TFM_ROLE_EXPERT_UP_B;
    j.y[0] = up;
    j.role[1] = TFM_ROLE_EXPERT_GATE;
    j.role_b[1] = TFM_ROLE_EXPERT_GATE_B;
    j.y[1] = gate;
    tfm__experts_matmul(&j);
    j.x = tfm__act(p, up, gate, v->rows, b->d_expert, TFM_ROLE_EXPERT_DOWN);
    j.cols = b->d_expert;
    j.out = p->c->d_model;
    j.count = 1;
    j.role[0] = TFM_ROLE_EXPERT_DOWN;
    j.role_b[0] = TFM_ROLE_EXPERT_DOWN_B;
    j.y[0] = v->x;
    tfm__experts_matmul(&j);
    tfm__for(&p->w, p->c->d_model, v->rows, tfm__scatter_columns, v);
}

/* y += the shared expert, times its gate if it has one. */
static void tfm__add_shared(tfm__pass *p, float *y, const float *x) {
    const int64_t n = p->n, d = p->c->d_model;
    float *out = tfm__floats(p->s, p->s->at.work) + 2 * n * p->b->d_ff, *gate = out + n * d;
    tfm__dense(p, out, x);
    if (p->b->shared_gate) {
        const tfm__linear l = tfm__to(gate, TFM_ROLE_SHARED_GATE, 0);
        tfm__linears(p, x, d, n, &l, 1);
        p->k->activate(gate, TFM_ACT_SIGMOID, n);
    }
    for (int64_t t = 0; t < n; t++) p->k->add(y + t * d, out + t * d, p->b->shared_gate ? gate[t] : 1.0f, d);
}

/* y = sum over a token's experts of weight * expert(x), then the shared expert. x [n][d_model] */
static void tfm__mixture(tfm__pass *p, float *y, const float *x) {
    const tfm_block *b = p->b;
    const int64_t d = p->c->d_model, room = p->n > b->n_experts_used ? p->n : b->n_experts_used;
    float *work = tfm__floats(p->s, p->s->at.work);
    const tfm__routes r = tfm__route(p, x, work);
    tfm__wave v;
    v.p = p;
    v.r = &r;
    v.x = work;
    v.in = x;
    v.y = y;
    memset(y, 0, (size_t)(p->n * d) * sizeof(float));
    for (v.e0 = 0; v.e0 < b->n_experts; v.e0 = v.e1) {
        v.first = r.start[v.e0];
        for (v.e1 = v.e0 + 1; v.e1 < b->n_experts && r.start[v.e1 + 1] - v.first <= room; v.e1++) {}
        v.rows = r.start[v.e1] - v.first;
        if (v.rows) tfm__run_wave(&v, work + room * d);
    }
    tfm__trace(p, "experts", y, d);
    if (b->d_ff) tfm__add_shared(p, y, x);
}
#endif /* TFM_NO_EXPERTS */

static void tfm__feed_forward(tfm__pass *p, float *y, const float *x) {
#ifndef TFM_NO_EXPERTS
    if (p->b->ffn_kind == TFM_FFN_EXPERTS) {
        tfm__mixture(p, y, x);
        return;
    }
#endif
    tfm__dense(p, y, x);
}

/* --- the block --- */

typedef struct tfm__add_job {
    const tfm_kernels *k;
    float *x;
    const float *y;
    float scale;
    int64_t width;
} tfm__add_job;

static void tfm__add_rows(void *ctx, int64_t first, int64_t last) {
    const tfm__add_job *j = (const tfm__add_job *)ctx;
    j->k->add(j->x + first * j->width, j->y + first * j->width, j->scale, (last - first) * j->width);
}

static void tfm__add_branch(const tfm__pass *p, float *x, const float *y) {
    tfm__add_job j;
    j.k = p->k;
    j.x = x;
    j.y = y;
    j.scale = p->b->residual_scale != 0 ? p->b->residual_scale : 1.0f;
    j.width = p->c->d_model;
    tfm__for(&p->w, p->n, 2 * (int64_t)j.width, tfm__add_rows, &j);
}

/* The roles and names of a branch: attention or feed-forward. */
typedef struct tfm__branch {
    int32_t norm, norm_b, post, post_b, reader; /* reader: of the normed rows */
    const char *norm_name, *out_name;
    void (*run)(tfm__pass *p, float *y, const float *x);
} tfm__branch;

static const tfm__branch tfm__attention_branch = {TFM_ROLE_ATTN_NORM, TFM_ROLE_ATTN_NORM_B, TFM_ROLE_ATTN_POST_NORM,
                                                  TFM_ROLE_ATTN_POST_NORM_B, TFM_ROLE_Q, "attn_norm", "attn_out",
                                                  tfm__attend};
static const tfm__branch tfm__ffn_branch = {TFM_ROLE_FFN_NORM, TFM_ROLE_FFN_NORM_B, TFM_ROLE_FFN_POST_NORM,
                                            TFM_ROLE_FFN_POST_NORM_B, TFM_ROLE_UP, "ffn_norm", "ffn_out",
                                            tfm__feed_forward};

/* y = branch(x) with the norms where the description puts them, up to but not including the residual add. */
static void tfm__run_branch(tfm__pass *p, const tfm__branch *br, float *y, const float *x) {
    const int place = p->b->norm_place;
    float *xn = tfm__floats(p->s, p->s->at.xn);
    const float *in = x;
    if (place == TFM_PLACE_PRE || place == TFM_PLACE_SANDWICH) {
        const int experts = br->reader == TFM_ROLE_UP && p->b->ffn_kind == TFM_FFN_EXPERTS;
        tfm__block_norm(p, xn, x, br->norm, br->norm_b, experts ? TFM_ROLE_ROUTER : br->reader);
        tfm__trace(p, br->norm_name, xn, p->c->d_model);
        in = xn;
    }
    br->run(p, y, in);
    if (place == TFM_PLACE_POST_BRANCH || place == TFM_PLACE_SANDWICH)
        tfm__block_norm(p, y, y, br->post, br->post_b, 0);
    tfm__trace(p, br->out_name, y, p->c->d_model);
}

static void tfm__run_block(tfm__pass *p) {
    float *x = tfm__floats(p->s, p->s->at.x), *y = tfm__floats(p->s, p->s->at.y);
    const int post_add = p->b->norm_place == TFM_PLACE_POST_ADD, stream = p->b->norm_place == TFM_PLACE_PRE_STREAM;
    if (stream) tfm__block_norm(p, x, x, TFM_ROLE_ATTN_NORM, TFM_ROLE_ATTN_NORM_B, 0);
    tfm__run_branch(p, &tfm__attention_branch, y, x);
    if (!p->n) return;
    if (p->b->residual == TFM_RESIDUAL_SEQUENTIAL) {
        tfm__add_branch(p, x, y);
        if (post_add) tfm__block_norm(p, x, x, TFM_ROLE_ATTN_POST_NORM, TFM_ROLE_ATTN_POST_NORM_B, 0);
        if (stream) tfm__block_norm(p, x, x, TFM_ROLE_FFN_NORM, TFM_ROLE_FFN_NORM_B, 0);
        tfm__run_branch(p, &tfm__ffn_branch, y, x);
        tfm__add_branch(p, x, y);
        if (post_add) tfm__block_norm(p, x, x, TFM_ROLE_FFN_POST_NORM, TFM_ROLE_FFN_POST_NORM_B, 0);
        return;
    }
    /* parallel: both branches read x, so attention's result waits in y until the feed-forward has run */
    float *xn = tfm__floats(p->s, p->s->at.xn), *z = tfm__floats(p->s, p->s->at.z);
    if (p->b->residual == TFM_RESIDUAL_PARALLEL_1) {
        tfm__feed_forward(p, z, xn);
        tfm__trace(p, "ffn_out", z, p->c->d_model);
    } else {
        tfm__run_branch(p, &tfm__ffn_branch, z, x);
    }
    tfm__add_branch(p, x, y);
    tfm__add_branch(p, x, z);
}

/* --- embedding, head, eval --- */

/* out = norm(x), n rows, with the model's own norm: the final one, and that of the embedding. */
static void tfm__model_norm(const tfm__pass *p, float *out, const float *x, int64_t n, int32_t role_w, int32_t role_b) {
    tfm__norm_job j;
    j.k = p->k;
    j.out = out;
    j.x = x;
    j.w = tfm__vector_of(p, role_w);
    j.bias = tfm__vector_of(p, role_b);
    j.kind = p->c->norm_kind;
    j.offset = p->c->norm_offset;
    j.eps = p->c->norm_eps;
    j.width = p->c->d_model;
    j.q8.out = NULL;
    tfm__for(&p->w, n, 4 * (int64_t)j.width, tfm__norm_rows, &j);
}

typedef struct tfm__embed_job {
    const tfm__pass *p;
    const int32_t *ids;
    tfm_tensor w;
    float scale;
    float *x;
} tfm__embed_job;

static void tfm__embed_rows(void *ctx, int64_t first, int64_t last) {
    const tfm__embed_job *j = (const tfm__embed_job *)ctx;
    const tfm__pass *p = j->p;
    for (int64_t t = first; t < last; t++) p->k->embed(j->x + t * j->w.cols, &j->w, j->ids[t], j->scale);
}

static void tfm__add_positions(void *ctx, int64_t first, int64_t last) {
    const tfm__embed_job *j = (const tfm__embed_job *)ctx;
    const tfm__pass *p = j->p;
    const int64_t d = p->c->d_model;
    float *row = tfm__floats(p->s, p->s->at.y); /* free until the first sublayer */
    for (int64_t t = first; t < last; t++) {
        p->k->embed(row + t * d, &j->w, p->pos + t + p->c->pos_offset, 1.0f);
        p->k->add(j->x + t * d, row + t * d, 1.0f, d);
    }
}

/* x = norm(project(embedding) + position): whichever of the steps the description has. */
static void tfm__embed(tfm__pass *p, const int32_t *ids) {
    const tfm_config *c = p->c;
    float *x = tfm__floats(p->s, p->s->at.x), *y = tfm__floats(p->s, p->s->at.y);
    tfm__embed_job e;
    e.p = p;
    e.ids = ids;
    e.w = tfm__weight_of(p, TFM_ROLE_EMBED);
    e.scale = c->embed_scale != 0 ? c->embed_scale : 1.0f;
    e.x = c->d_embed ? y : x;
    tfm__for(&p->w, p->n, 4 * (int64_t)c->d_model, tfm__embed_rows, &e);
    if (c->d_embed) {
        const tfm__linear project = tfm__to(x, TFM_ROLE_EMBED_PROJ, 0);
        tfm__linears(p, y, c->d_embed, p->n, &project, 1);
    }
    e.w = tfm__weight_of(p, TFM_ROLE_POS_EMBED);
    e.x = x;
    if (c->pos_kind) tfm__for(&p->w, p->n, 4 * (int64_t)c->d_model, tfm__add_positions, &e);
    if (c->embed_norm) tfm__model_norm(p, x, x, p->n, TFM_ROLE_EMBED_NORM, TFM_ROLE_EMBED_NORM_B);
    tfm__trace(p, "embed", x, c->d_model);
}

/* cos and sin of this chunk's positions, for each kind of block that rotates. */
static void tfm__rope_tables(void *ctx, int64_t first, int64_t last) {
    const tfm__pass *p = (const tfm__pass *)ctx;
    tfm_session *s = p->s;
    const size_t half = (size_t)s->half;
    for (int i = 0; i < p->c->n_blocks; i++) {
        const tfm_block *b = &p->c->blocks[i];
        const float *inv_freq = tfm__floats(s, s->at.inv_freq) + (size_t)i * half;
        const float mscale = tfm__floats(s, s->at.mscale)[i];
        if (!b->rope_style) continue;
        for (int64_t t = first; t < last; t++) {
            const size_t at = ((size_t)i * (size_t)s->n_batch + (size_t)t) * half;
            p->k->rope_angles(tfm__floats(s, s->at.cos) + at, tfm__floats(s, s->at.sin) + at, inv_freq, mscale,
                              p->pos + t, tfm__rope_dims(b) / 2);
        }
    }
}

/* A result that is wanted must be finite. */
static tfm_result tfm__check_rows(const tfm__pass *p, const float *out, int64_t width, int64_t first,
                                  int64_t rows, tfm_error *err) {
    for (int64_t t = 0; t < rows; t++) {
        if (tfm__all_finite(out + t * width, width)) continue;
        p->s->rows = 0;
        return tfm__fail(err, TFM_ERR_NUMERIC, "a logit at position %l is not finite", p->pos + first + t);
    }
    return TFM_OK;
}

/* Final norm and logits of `rows` rows that start at row `first` of x. */
static tfm_result tfm__head(tfm__pass *p, int64_t first, int64_t rows, tfm_error *err) {
    tfm_session *s = p->s;
    const tfm_config *c = p->c;
    float *hidden = tfm__floats(s, s->at.hidden), *y = tfm__floats(s, s->at.y);
    p->layer = -1;
    p->n = rows;
    tfm__model_norm(p, hidden, tfm__floats(s, s->at.x) + first * c->d_model, rows,
                    TFM_ROLE_OUT_NORM, TFM_ROLE_OUT_NORM_B);
    tfm__trace(p, "final_norm", hidden, c->d_model);
    s->rows = rows;
    if (s->want == TFM_WANT_HIDDEN) return tfm__check_rows(p, hidden, c->d_model, first, rows, err);

    float *logits = tfm__floats(s, s->at.logits);
    const tfm__linear head = tfm__to(logits, TFM_ROLE_HEAD, TFM_ROLE_HEAD_B);
    if (c->d_embed) {
        const tfm__linear project = tfm__to(y, TFM_ROLE_OUT_PROJ, 0);
        tfm__linears(p, hidden, c->d_model, rows, &project, 1);
    }
    tfm__linears(p, c->d_embed ? y : hidden, c->d_embed ? c->d_embed : c->d_model, rows, &head, 1);
    for (int64_t t = 0; t < rows; t++) {
        float *l = logits + t * c->n_vocab;
        if (c->logit_scale != 0) p->k->scale(l, c->logit_scale, c->n_vocab);
    }
    const tfm_result r = tfm__check_rows(p, logits, c->n_vocab, first, rows, err);
    for (int64_t t = 0; !r && t < rows; t++) {
        float *l = logits + t * c->n_vocab;
        if (c->logit_softcap > 0) p->k->softcap(l, c->logit_softcap, c->n_vocab);
    }
    tfm__trace(p, "logits", logits, c->n_vocab);
    return r;
}

static int tfm__cancelled(const tfm_session *s, int64_t done, int64_t total) {
    return s->progress.fn && s->progress.fn((void *)(uintptr_t)s->progress_user.p, done, total) != 0;
}

/* One chunk of at most n_batch tokens; `last` = it ends the call. done, total: layers, for the progress callback. */
static tfm_result tfm__eval_chunk(tfm_session *s, const int32_t *ids, int64_t n, int last, int64_t done,
                                  int64_t total, tfm_error *err) {
    tfm__pass p;
    p.s = s;
    p.m = tfm__model_of(s);
    p.c = &p.m->config.c;
    p.k = tfm__kernels_of(s);
    p.w.n_threads = s->n_threads;
    p.w.grain = s->grain;
    p.w.parallel.user = (void *)(uintptr_t)s->parallel_user.p;
    p.w.parallel.run = s->parallel.run;
    p.n = n;
    p.pos = s->length;
    p.unwanted = 0;
    p.q8_of = NULL;
    p.b = NULL;
    p.layer = -1;
    if (s->high < p.pos + n) s->high = p.pos + n;

    tfm__embed(&p, ids);
    tfm__for(&p.w, n, 16 + 16 * (int64_t)s->half * p.c->n_blocks, tfm__rope_tables, &p);

    const int all = s->want == TFM_WANT_ALL || s->want == TFM_WANT_HIDDEN;
    const int64_t wanted = all ? n : last && s->want != TFM_WANT_NONE;
    for (int32_t i = 0; i < p.c->n_layers; i++) {
        if (tfm__cancelled(s, done + i, total)) return tfm__fail(err, TFM_ERR_CANCELLED, "cancelled");
        p.layer = i;
        p.b = tfm__layer(p.c, i);
        if (i + 1 == p.c->n_layers && !s->trace.fn) p.unwanted = n - wanted;
        tfm__run_block(&p);
        tfm__trace(&p, "out", tfm__floats(s, s->at.x), p.c->d_model);
    }
    tfm_result r = TFM_OK;
    if (wanted) r = tfm__head(&p, p.n - wanted, wanted, err);
    if (!r) s->length += n;
    return r;
}

TFM_API tfm_result tfm_eval(tfm_session *s, const int32_t *ids, int64_t n, tfm_error *err) {
    const tfm_config *c = &tfm__model_of(s)->config.c;
    if (n < 0) return tfm__fail(err, TFM_ERR_ARG, "n %l must not be negative", n);
    if (n && !ids) return tfm__fail(err, TFM_ERR_ARG, "ids is NULL");
    if (n > s->n_ctx - s->length)
        return tfm__fail(err, TFM_ERR_CONTEXT, "%l tokens do not fit: the context has %d positions, %l are used",
                         n, (int)s->n_ctx, s->length);
    if ((s->want == TFM_WANT_ALL || s->want == TFM_WANT_HIDDEN) && n > s->n_batch)
        return tfm__fail(err, TFM_ERR_ARG, "%l tokens at once: n_batch is %d and each one's result is wanted", n,
                         (int)s->n_batch);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= c->n_vocab)
            return tfm__fail(err, TFM_ERR_ARG, "token id %d is out of range (the embedding has %d rows)",
                             (int)ids[i], (int)c->n_vocab);
    if (!n) return TFM_OK;
    s->rows = 0;
    const int64_t chunks = tfm__quotient(n + s->n_batch - 1, s->n_batch), total = chunks * c->n_layers;
    for (int64_t i = 0; i < chunks; i++) {
        const int64_t first = i * s->n_batch, m = n - first < s->n_batch ? n - first : s->n_batch;
        const tfm_result r = tfm__eval_chunk(s, ids + first, m, i + 1 == chunks, i * c->n_layers, total, err);
        if (r) return r;
    }
    return TFM_OK;
}

#ifndef TFM_NO_TEXT
/* ====================================================================================================================
   [B10] TOKENIZER: everything is read in place from one section of the file; nothing here trusts a number in it
   ====================================================================================================================

   Section: all numbers little-endian uint32 unless said otherwise; a head of TFM_TOK_TABLES words:
     FORM 2 | SIZE bytes of the section | FLAGS | MODEL | N_IDS | UNK id or ~0 | MAX_PIECE, MAX_ADDED longest piece and
     longest added token in bytes | GROW_MUL, GROW_ADD a text of n bytes is at most n*MUL + ADD bytes after any
     operation (MUL >= 3: a bad byte becomes U+FFFD) | WORD_CLASS class of "\w" for single-word tokens | N_NORM |
     MAX_TEXT longest text of a piece | WORD_LIMIT WordPiece: a word of more characters is UNK | INNER, FINAL (offset,
     length) in STRINGS: what stands before the pieces inside a word, and after its last one | STRIP decoding: how many
     characters are taken away from the start of the text, << 8 from the end, << 16 the character (ASCII) | UNK_SCORE
     Unigram: float64 in two words, low one first, the score of a character without a piece
   FLAGS: BYTE_LEVEL symbols are bytes, else characters | BYTE_FALLBACK a character without a piece is spelled in bytes
     | FUSE_UNK several in a row make one UNK | DROP_UNKNOWN without UNK it is dropped before merging, else after |
     FLOAT_PATHS Unigram: sums of scores are rounded to float32 |
     WHOLE_WORDS see PIECE_WHOLE | LONGEST of added tokens that overlap the longest wins, and control tokens count only
     if they are wanted (else: the first wins, the longest there, and an unwanted one still covers its place)
     decoding: STRIP_MARKS strip only what is of a piece that is neither a byte nor LITERAL | STRIP_EACH every piece may
     lose as much, up to the first that prints | FIRST_BARE the first token
     loses all its spaces, unless LITERAL | ONCE a token like the one before prints nothing | BYTE_RUNS a run of byte
     tokens is UTF-8 as a whole or one U+FFFD per byte | PER_BYTE one U+FFFD per bad byte, else per maximal bad sequence
   and then for each table its byte offset in the section and its number of entries:
     ENDS         N_IDS + 1    piece i is BYTES[ENDS[i] .. ENDS[i+1])
     BYTES        bytes        what the pieces look like to the model; where spaces and bytes are written as other
                               characters in the vocabulary and both sides exchange them, the text keeps them as they
                               are
     PIECE_FLAGS  bytes        TFM_TOKEN_... | PIECE_WHOLE: a word that equals the piece is the piece |
                               PIECE_LITERAL: its spaces were spaces in the vocabulary |
                               PIECE_SPACE: a space is printed before the next token
     TEXT_ENDS, TEXT_BYTES     what the pieces print, FIRST_... at the start of a text; each may be missing: then what
                               the one before says (BYTES, TEXT_BYTES)
     BYTE_IDS     256          BYTE_LEVEL: the symbol of a byte; BYTE_FALLBACK: the token of a byte; ~0 none
     HASH         (hash, id+1) pieces the model can make; open addressing, linear probing, empty = 0
     MERGES       (left, right, rank, result) the same, empty = ~0; the lowest rank goes first, then the leftmost pair
     SCORES       float64      Unigram: of each piece
     ADDED        (id, flags)  added tokens
     ROOT_x, TRIE_x            their texts: ROOT has 256 entries, first byte -> node or 0; a node is two words,
                               first child | byte << 24 and added token + 1; its children end where those of the next
                               node begin (one node more than there are), ascending by byte. RAW is matched in the text
                               as it came, NORM in the normalised text. PIECES: the pieces of a Unigram, id + 1.
     PREFIX, SUFFIX            ids around every text
     OPS          6 words      kind and operands; the first N_NORM are the normaliser, the others the pre-tokenizer:
                               NFC, NFD | REPLACE (pattern offset, length | length << 16 of the content, its offset) |
                               REWRITE (first instruction, content offset, length, choice points): every match |
                               PREPEND (offset, length, when) |
                               SQUEEZE (1: U+2581 at the end too): no spaces at the ends, one between |
                               TRIM (1 start + 2 end): white space | MAP (first row, rows) |
                               CHARSMAP (offset, bytes, first row, rows): a precompiled map, see tfm__charsmap; with
                               rows of groups applied to clusters of less than 6 bytes as a whole by its shortest key,
                               else to characters; without rows the longest key at each place |
                               BYTE_CHARS each byte as the character byte-level vocabularies have for it |
                               SPLIT (first instruction, behaviour, choice points) | CHUNKS (characters each) |
                               GROUPS (first row, rows): a cut wherever the group changes; 0 changes nothing, and is
                               dropped at the start
     MAPS         4 words      rows ascending: low, high, action | length << 8, value. Of the characters in [low, high]:
                               DROP | ADD value | SECOND: ADD to every second from low | STRING value is the offset of
                               what replaces them | AROUND the same stands before and after | GROUP value
     CODE         8 bytes      op uint8, 0, a uint16, b uint32, see tfm__re_attempt
     CLASSES      8 words      bitmap of ASCII (4), mask of general categories, first range, ranges, negated
     RANGES       (low, high)  code points beyond ASCII, ascending within a class
     STRINGS      bytes
     JOINS        0 or 8       if there: a bit for each byte after which some merge has a space; at spaces after other
                               bytes a word can be cut without a difference
   Models. BPE: the symbols of a word (its bytes or characters) are merged. Unigram: the pieces whose scores have the
   greatest sum, of equal sums the one found first. WordPiece: the longest piece from the left, INNER before all but the
   first; a word that does not come out is UNK. WordLevel: the word, or UNK.
   ================================================================================================================= */

enum { TFM__NO_ID = -1 };
#define TFM__NONE 0xFFFFFFFFu
#define TFM__UNKNOWN 0x80000000u /* a symbol without an id: | its byte offset in the word */

typedef struct tfm__tok_table { uint32_t at, count; } tfm__tok_table;

typedef union tfm__bytes { const uint8_t *p; uint64_t room; } tfm__bytes; /* 8 bytes on every host */

struct tfm_tokenizer {
    tfm__bytes base;
    uint32_t flags, model, n_ids, unk, max_piece, max_added, max_text, grow_mul, grow_add;
    uint32_t word_class, n_norm, word_limit;
    uint32_t inner, n_inner, final, n_final; /* in STRINGS */
    uint32_t loops;                          /* some expression has LOOP */
    uint32_t strip_start, strip_end, strip_char;
    double unk_score;
    tfm__tok_table table[TFM_TOK_N_TABLES];
};
/* It lives inside the model: too large is an error here. */
typedef char tfm__tokenizer_fits[sizeof(tfm_tokenizer) <= sizeof(((tfm_model *)0)->tokenizer) ? 1 : -1];

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* Bytes of an entry of each table. */
static const uint8_t tfm__tok_entry[TFM_TOK_N_TABLES] = {4, 1, 1, 4, 8, 16, 8, 4, 8,
    4, 8, 4, 4, 24, 8, 32, 8, 1, 4, 4, 1, 4, 1, 8, 4, 8, 16};

/* Word `word` of entry i; the caller has i < count. */
static uint32_t tfm__tok_word(const tfm_tokenizer *t, int table, uint32_t i, uint32_t word) {
    return tfm__le32(t->base.p + t->table[table].at + (size_t)i * tfm__tok_entry[table] + word * 4);
}
static uint32_t tfm__tok_count(const tfm_tokenizer *t, int table) { return t->table[table].count; }

/* Entry `id` < n_ids of a pair of tables: where each ends, and bytes. */
static const uint8_t *tfm__tok_string(const tfm_tokenizer *t, int ends, uint32_t id, uint32_t *n) {
    uint32_t a = tfm__tok_word(t, ends, id, 0), b = tfm__tok_word(t, ends, id + 1, 0);
    *n = 0;
    if (b > tfm__tok_count(t, ends + 1) || a > b) return NULL;
    *n = b - a;
    return t->base.p + t->table[ends + 1].at + a;
}
static const uint8_t *tfm__tok_piece(const tfm_tokenizer *t, uint32_t id, uint32_t *n) {
    return tfm__tok_string(t, TFM_TOK_ENDS, id, n);
}
/* What it prints. */
static const uint8_t *tfm__tok_text(const tfm_tokenizer *t, uint32_t id, int first, uint32_t *n) {
    const int own = tfm__tok_count(t, TFM_TOK_TEXT_ENDS) ? TFM_TOK_TEXT_ENDS : TFM_TOK_ENDS;
    first &= tfm__tok_count(t, TFM_TOK_FIRST_ENDS) != 0;
    return tfm__tok_string(t, first ? TFM_TOK_FIRST_ENDS : own, id, n);
}
static uint32_t tfm__tok_flags(const tfm_tokenizer *t, uint32_t id) {
    return t->base.p[t->table[TFM_TOK_PIECE_FLAGS].at + id];
}

/* Hash of a piece; the converter computes the same. */
static uint32_t tfm__tok_hash(const uint8_t *p, uint32_t n) {
    uint32_t h = 0x9E3779B1u ^ n;
    for (; n >= 4; p += 4, n -= 4) {
        h = (h ^ tfm__le32(p)) * 0x85EBCA6Bu;
        h ^= h >> 15;
    }
    for (; n; p++, n--) h = (h ^ *p) * 0xC2B2AE35u;
    h ^= h >> 15;
    h *= 0x27D4EB2Fu;
    return h ^ h >> 16;
}

static uint32_t tfm__tok_find(const tfm_tokenizer *t, const uint8_t *p, uint32_t n) {
    uint32_t cap = tfm__tok_count(t, TFM_TOK_HASH), hash = tfm__tok_hash(p, n);
    if (!cap || n > t->max_piece) return TFM__NONE;
    uint32_t slot = (uint32_t)((uint64_t)hash * cap >> 32);
    for (int probe = 0; probe < TFM_TOK_PROBES; probe++) {
        uint32_t id = tfm__tok_word(t, TFM_TOK_HASH, slot, 1) - 1, m;
        if (id >= t->n_ids) return TFM__NONE;
        if (tfm__tok_word(t, TFM_TOK_HASH, slot, 0) == hash) {
            const uint8_t *q = tfm__tok_piece(t, id, &m);
            if (q && m == n && memcmp(p, q, n) == 0) return id;
        }
        if (++slot == cap) slot = 0;
    }
    return TFM__NONE;
}

/* The node below `node` for a byte, or 0. */
static uint32_t tfm__tok_child(const tfm_tokenizer *t, int trie, uint32_t node, uint8_t byte) {
    const uint32_t n_nodes = tfm__tok_count(t, trie) - 1;
    uint32_t a = tfm__tok_word(t, trie, node, 0) & 0xFFFFFF, end = tfm__tok_word(t, trie, node + 1, 0) & 0xFFFFFF;
    uint32_t b = end <= n_nodes ? end : a;
    while (a < b) {
        uint32_t mid = a + (b - a) / 2;
        if (tfm__tok_word(t, trie, mid, 0) >> 24 < byte) a = mid + 1;
        else b = mid;
    }
    return a < end && end <= n_nodes && tfm__tok_word(t, trie, a, 0) >> 24 == byte ? a : 0;
}

/* Hash of a pair of symbols; the converter computes the same. */
static uint32_t tfm__tok_pair_hash(uint32_t left, uint32_t right) {
    uint32_t h = left * 0x9E3779B1u + right * 0x85EBCA77u;
    h ^= h >> 15;
    h *= 0x2C1B3C6Du;
    return h ^ h >> 16;
}

/* The rank of merging two symbols and the id they become; TFM__NONE if they do not merge. */
static uint32_t tfm__tok_merge(const tfm_tokenizer *t, uint32_t left, uint32_t right, uint32_t *result) {
    uint32_t cap = tfm__tok_count(t, TFM_TOK_MERGES);
    *result = TFM__NONE;
    if (!cap || (left | right) & TFM__UNKNOWN) return TFM__NONE;
    uint32_t slot = (uint32_t)((uint64_t)tfm__tok_pair_hash(left, right) * cap >> 32);
    for (int probe = 0; probe < TFM_TOK_PROBES; probe++) {
        uint32_t a = tfm__tok_word(t, TFM_TOK_MERGES, slot, 0);
        if (a == TFM__NONE) return TFM__NONE;
        if (a == left && tfm__tok_word(t, TFM_TOK_MERGES, slot, 1) == right) {
            *result = tfm__tok_word(t, TFM_TOK_MERGES, slot, 3);
            return *result < t->n_ids ? tfm__tok_word(t, TFM_TOK_MERGES, slot, 2) : TFM__NONE;
        }
        if (++slot == cap) slot = 0;
    }
    return TFM__NONE;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Every jump stays inside and goes forward, but for loops, which count their turns; every class exists. */
static int tfm__tok_code_ok(const tfm_tokenizer *t) {
    uint32_t n = tfm__tok_count(t, TFM_TOK_CODE), n_classes = tfm__tok_count(t, TFM_TOK_CLASSES);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t head = tfm__tok_word(t, TFM_TOK_CODE, i, 0), b = tfm__tok_word(t, TFM_TOK_CODE, i, 1);
        uint32_t op = head & 255, a = head >> 16;
        int is_class = op == TFM_RE_CLASS || op == TFM_RE_STAR || op == TFM_RE_RUN || op == TFM_RE_TRY;
        int is_loop = op == TFM_RE_LOOP || op == TFM_RE_LOOP_LAZY;
        int is_jump = op == TFM_RE_SPLIT || op == TFM_RE_JUMP || op == TFM_RE_AHEAD || op == TFM_RE_NOT_AHEAD ||
                      op == TFM_RE_ATOMIC || op == TFM_RE_BEHIND || op == TFM_RE_NOT_BEHIND;
        if (op > TFM_RE_BOUND || ((is_class || op == TFM_RE_BOUND) && b >= n_classes)) return 0;
        if ((is_jump && (b <= i || b >= n)) || (is_loop && b >= i)) return 0;
        if ((op == TFM_RE_SPLIT || op == TFM_RE_STAR || op == TFM_RE_RUN || is_loop) && a >= TFM_RE_MAX_MEMO) return 0;
        if (op != TFM_RE_MATCH && i + 1 >= n) return 0;
    }
    for (uint32_t i = 0; i < n_classes; i++) {
        uint32_t first = tfm__tok_word(t, TFM_TOK_CLASSES, i, 5), m = tfm__tok_word(t, TFM_TOK_CLASSES, i, 6);
        uint32_t all = tfm__tok_count(t, TFM_TOK_RANGES);
        if (first > all || m > all - first) return 0;
    }
    return 1;
}

/* The strings that rows of maps name lie inside. */
static int tfm__tok_maps_ok(const tfm_tokenizer *t) {
    const uint32_t all = tfm__tok_count(t, TFM_TOK_STRINGS);
    for (uint32_t i = 0; i < tfm__tok_count(t, TFM_TOK_MAPS); i++) {
        uint32_t action = tfm__tok_word(t, TFM_TOK_MAPS, i, 2), at = tfm__tok_word(t, TFM_TOK_MAPS, i, 3);
        int is_string = (action & 255) == TFM_TOK_MAP_STRING || (action & 255) == TFM_TOK_MAP_AROUND;
        if ((action & 255) > TFM_TOK_MAP_GROUP || (is_string && (at > all || action >> 8 > all - at))) return 0;
    }
    return 1;
}

static int tfm__tok_string_ok(const tfm_tokenizer *t, uint32_t at, uint32_t n) {
    uint32_t all = tfm__tok_count(t, TFM_TOK_STRINGS);
    return at <= all && n <= all - at;
}

/* What the operands of an operation have to be: p instruction, s string (offset, length), r rows of MAPS. */
static int tfm__tok_op_ok(const tfm_tokenizer *t, uint32_t i, int is_norm) {
    uint32_t x[6];
    for (uint32_t k = 0; k < 6; k++) x[k] = tfm__tok_word(t, TFM_TOK_OPS, i, k);
    const uint32_t n_code = tfm__tok_count(t, TFM_TOK_CODE), n_rows = tfm__tok_count(t, TFM_TOK_MAPS);
    switch (x[0]) {
    case TFM_TOK_NFC: case TFM_TOK_NFD: case TFM_TOK_SQUEEZE: case TFM_TOK_TRIM: case TFM_TOK_BYTE_CHARS: return 1;
    case TFM_TOK_REPLACE:
        return x[2] & 0xFFFF && tfm__tok_string_ok(t, x[1], x[2] & 0xFFFF) && tfm__tok_string_ok(t, x[3], x[2] >> 16);
    case TFM_TOK_REWRITE: return x[1] < n_code && tfm__tok_string_ok(t, x[2], x[3]) && x[4] <= TFM_RE_MAX_MEMO;
    case TFM_TOK_PREPEND: return tfm__tok_string_ok(t, x[1], x[2]) && x[3] <= TFM_TOK_IF_FIRST_MISSING;
    case TFM_TOK_MAP: return x[1] <= n_rows && x[2] <= n_rows - x[1];
    case TFM_TOK_CHARSMAP:
        return tfm__tok_string_ok(t, x[1], x[2]) && x[3] <= n_rows && x[4] <= n_rows - x[3];
    case TFM_TOK_SPLIT: return !is_norm && x[1] < n_code && x[3] <= TFM_RE_MAX_MEMO;
    case TFM_TOK_CHUNKS: return !is_norm && x[1];
    case TFM_TOK_GROUPS: return !is_norm && x[1] <= n_rows && x[2] <= n_rows - x[1];
    default: return 0;
    }
}
static int tfm__tok_ops_ok(const tfm_tokenizer *t) {
    uint32_t n = tfm__tok_count(t, TFM_TOK_OPS);
    if (n > TFM_TOK_MAX_OPS || t->n_norm > n) return 0;
    for (uint32_t i = 0; i < n; i++) if (!tfm__tok_op_ok(t, i, i < t->n_norm)) return 0;
    return tfm__tok_maps_ok(t);
}

static int tfm__tok_shape_ok(const tfm_tokenizer *t) {
    const uint32_t bytes = tfm__tok_count(t, TFM_TOK_BYTE_IDS), most = 65536;
    if (t->n_ids >= 0x7FFFFFFFu || tfm__tok_count(t, TFM_TOK_ENDS) != t->n_ids + 1) return 0;
    for (int k = TFM_TOK_TEXT_ENDS; k <= TFM_TOK_FIRST_ENDS; k += 2) {
        if (tfm__tok_count(t, k) && tfm__tok_count(t, k) != t->n_ids + 1) return 0;
    }
    if (tfm__tok_count(t, TFM_TOK_PIECE_FLAGS) != t->n_ids || (bytes != 0 && bytes != 256)) return 0;
    if (tfm__tok_count(t, TFM_TOK_JOINS) != 0 && tfm__tok_count(t, TFM_TOK_JOINS) != 8) return 0;
    if (!bytes && t->flags & (TFM_TOK_BYTE_LEVEL | TFM_TOK_BYTE_FALLBACK)) return 0;
    static const int roots[3] = {TFM_TOK_ROOT_RAW, TFM_TOK_ROOT_NORM, TFM_TOK_ROOT_PIECES};
    for (int k = 0; k < 3; k++) {
        uint32_t root = tfm__tok_count(t, roots[k]);
        if (root && (root != 256 || tfm__tok_count(t, roots[k] + 1) < 2)) return 0;
    }
    if (t->model == TFM_TOK_UNIGRAM && tfm__tok_count(t, TFM_TOK_SCORES) != t->n_ids) return 0;
    if (!tfm__tok_string_ok(t, t->inner, t->n_inner) || !tfm__tok_string_ok(t, t->final, t->n_final)) return 0;
    if (t->n_inner > most || t->n_final > most || t->max_text > 0x1000000u || t->strip_char > 127) return 0;
    if (t->grow_mul < 3 || t->grow_mul > 3000 || t->grow_add > most || t->max_added > most) return 0;
    return t->max_piece < 0x1000000u &&
           (t->word_class == TFM__NONE || t->word_class < tfm__tok_count(t, TFM_TOK_CLASSES));
}

/* The words of the head after the ones that say whether the section can be read at all. */
static void tfm__tok_head(tfm_tokenizer *t, const uint8_t *head) {
    uint64_t bits = (uint64_t)tfm__le32(head + 4 * (TFM_TOK_UNK_SCORE + 1)) << 32 |
                    tfm__le32(head + 4 * TFM_TOK_UNK_SCORE);
    memcpy(&t->unk_score, &bits, 8);
    t->flags = tfm__le32(head + 4 * TFM_TOK_FLAGS);
    t->model = tfm__le32(head + 4 * TFM_TOK_MODEL);
    t->n_ids = tfm__le32(head + 4 * TFM_TOK_N_IDS);
    t->unk = tfm__le32(head + 4 * TFM_TOK_UNK);
    t->max_piece = tfm__le32(head + 4 * TFM_TOK_MAX_PIECE);
    t->max_added = tfm__le32(head + 4 * TFM_TOK_MAX_ADDED);
    t->max_text = tfm__le32(head + 4 * TFM_TOK_MAX_TEXT);
    t->grow_mul = tfm__le32(head + 4 * TFM_TOK_GROW_MUL);
    t->grow_add = tfm__le32(head + 4 * TFM_TOK_GROW_ADD);
    t->word_class = tfm__le32(head + 4 * TFM_TOK_WORD_CLASS);
    t->n_norm = tfm__le32(head + 4 * TFM_TOK_N_NORM);
    t->word_limit = tfm__le32(head + 4 * TFM_TOK_WORD_LIMIT);
    t->inner = tfm__le32(head + 4 * TFM_TOK_INNER);
    t->n_inner = tfm__le32(head + 4 * (TFM_TOK_INNER + 1));
    t->final = tfm__le32(head + 4 * TFM_TOK_FINAL);
    t->n_final = tfm__le32(head + 4 * (TFM_TOK_FINAL + 1));
    const uint32_t strip = tfm__le32(head + 4 * TFM_TOK_STRIP);
    t->strip_start = strip & 255;
    t->strip_end = strip >> 8 & 255;
    t->strip_char = strip >> 16;
}

static tfm_result tfm__tokenizer_open(tfm_tokenizer *t, const uint8_t *section, size_t size, tfm_error *err) {
    const size_t head = (TFM_TOK_TABLES + 2 * TFM_TOK_N_TABLES) * 4;
    memset(t, 0, sizeof *t);
    if (size < head) return tfm__fail(err, TFM_ERR_FORMAT,
                                      "tokenizer: the section has %l bytes, its head alone needs %l",
                                      (int64_t)size, (int64_t)head);
#define TFM__TOK_HEAD(word) tfm__le32(section + (word) * 4)
    if (TFM__TOK_HEAD(TFM_TOK_FORM) != 2) {
        return tfm__fail(err, TFM_ERR_UNSUPPORTED, "tokenizer: form %l is not known to this header (2 is)",
                         (int64_t)TFM__TOK_HEAD(TFM_TOK_FORM));
    }
    if (TFM__TOK_HEAD(TFM_TOK_SIZE) > size) {
        return tfm__fail(err, TFM_ERR_FORMAT, "tokenizer: the section is cut short");
    }
    if (TFM__TOK_HEAD(TFM_TOK_MODEL) > TFM_TOK_WORDLEVEL) {
        return tfm__fail(err, TFM_ERR_UNSUPPORTED, "tokenizer: model kind %l is not known to this header",
                         (int64_t)TFM__TOK_HEAD(TFM_TOK_MODEL));
    }
    t->base.p = section;
    size = TFM__TOK_HEAD(TFM_TOK_SIZE);
    tfm__tok_head(t, section);
    for (int k = 0; k < TFM_TOK_N_TABLES; k++) {
        uint32_t at = TFM__TOK_HEAD(TFM_TOK_TABLES + 2 * k), count = TFM__TOK_HEAD(TFM_TOK_TABLES + 2 * k + 1);
        if (at > size || count > (size - at) / tfm__tok_entry[k]) {
            return tfm__fail(err, TFM_ERR_FORMAT, "tokenizer: table %d lies outside the section", k);
        }
        t->table[k].at = at;
        t->table[k].count = count;
    }
#undef TFM__TOK_HEAD
    if (!tfm__tok_shape_ok(t)) {
        return tfm__fail(err, TFM_ERR_FORMAT, "tokenizer: sizes of its tables contradict each other");
    }
    if (!tfm__tok_code_ok(t)) return tfm__fail(err, TFM_ERR_FORMAT, "tokenizer: a compiled expression is damaged");
    if (!tfm__tok_ops_ok(t)) return tfm__fail(err, TFM_ERR_FORMAT, "tokenizer: an operation is damaged or unknown");
    for (uint32_t i = 0; i < tfm__tok_count(t, TFM_TOK_CODE); i++) {
        t->loops |= (tfm__tok_word(t, TFM_TOK_CODE, i, 0) & 255) == TFM_RE_LOOP;
    }
    return TFM_OK;
}

/* ---- UTF-8 ------------------------------------------------------------------------------------------------------- */

/* Length of the character that a lead byte announces; 0 if it is none. */
static uint32_t tfm__utf8_need(uint8_t lead) {
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    return lead < 0xE0 ? 2u : lead < 0xF0 ? 3u : 4u;
}
/* Whether b may follow the n >= 1 bytes at p, which begin a character. */
static int tfm__utf8_follows(const uint8_t *p, uint32_t n, uint8_t b) {
    uint8_t low = 0x80, high = 0xBF;
    if (n == 1 && p[0] == 0xE0) low = 0xA0;
    if (n == 1 && p[0] == 0xED) high = 0x9F;
    if (n == 1 && p[0] == 0xF0) low = 0x90;
    if (n == 1 && p[0] == 0xF4) high = 0x8F;
    return b >= low && b <= high;
}
/* Bytes of the character at p (n >= 1 left), *bad = 0; or of the maximal bad sequence there, *bad = 1. */
static uint32_t tfm__utf8_scan(const uint8_t *p, size_t n, int *bad) {
    uint32_t need = tfm__utf8_need(p[0]), have = 1;
    while (have < need && have < n && tfm__utf8_follows(p, have, p[have])) have++;
    *bad = !need || have < need;
    return have;
}
/* Code point at p (n >= 1 left) of valid text, its bytes in *len. Anything else gives some number and stays inside. */
static uint32_t tfm__utf8_get(const uint8_t *p, size_t n, uint32_t *len) {
    uint32_t c = p[0];
    if (c < 0x80) { *len = 1; return c; }
    if (c >= 0xF0 && n >= 4) {
        *len = 4;
        return (c & 7) << 18 | (p[1] & 63u) << 12 | (p[2] & 63u) << 6 | (p[3] & 63u);
    }
    if (c >= 0xE0 && n >= 3) { *len = 3; return (c & 15) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u); }
    if (c >= 0xC0 && n >= 2) { *len = 2; return (c & 31) << 6 | (p[1] & 63u); }
    *len = 1;
    return c;
}
static int tfm__is_space(uint32_t c) { /* White_Space */
    if (c < 0x80) return c == 32 || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}
/* Start of the character that ends before at > low. */
static uint32_t tfm__utf8_back(const uint8_t *text, uint32_t at, uint32_t low) {
    do at--; while (at > low && (text[at] & 0xC0) == 0x80);
    return at;
}

/* ---- characters -------------------------------------------------------------------------------------------------- */

/* General categories in the order of the bits of a class's mask:
   Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn Cs; two more for runs in which
   upper and lower case alternate. */
enum { TFM__EVEN_UPPER = 30, TFM__ODD_UPPER = 31 };

/* Unicode tables: made by tools/gen_unicode.py, begin */
/* General categories by tokenizers 0.23.3, the rest by Unicode 14.0.0: 33808 bytes, 24454 of them for NFC. */
/* Runs of one category: the first of each plane of 2^16 code points; then in columns the low and the high byte of where
   in its plane a run begins, and the category. */
static const uint16_t tfm__category_planes[18] = {
    0,1895,3067,3081,3085,3086,3087,3088,3089,3090,3091,3092,3093,3094,3095,3102,3104,3106,
};
static const uint8_t tfm__categories[9318] = {
    0,32,33,36,37,40,41,42,43,44,45,46,48,58,60,63,65,91,92,93,94,95,96,97,123,124,125,126,127,160,161,162,166,167,168,
    169,170,171,172,173,174,175,176,177,178,180,181,182,184,185,186,187,188,191,192,215,216,223,247,248,255,56,73,121,
    127,129,130,135,136,137,140,142,146,147,149,150,153,156,158,159,160,167,171,175,176,177,179,184,185,187,188,189,
    192,196,197,198,199,200,201,202,203,204,221,240,241,242,243,247,248,52,58,60,61,63,64,68,70,80,148,149,176,194,198,
    210,224,229,236,237,238,239,0,112,116,117,118,119,120,122,123,126,127,128,132,134,135,136,139,140,141,142,144,145,
    162,163,172,207,208,210,213,215,240,244,245,246,247,248,249,251,253,48,95,130,131,136,138,193,207,48,49,87,89,90,
    96,137,138,139,141,143,144,145,190,191,192,193,195,196,198,199,200,208,235,239,243,245,0,6,9,11,12,14,16,27,28,29,
    32,64,65,75,96,106,110,112,113,212,213,214,221,222,223,229,231,233,234,238,240,250,253,255,0,14,15,16,17,18,48,75,
    77,166,177,178,192,202,235,244,246,247,250,251,253,254,0,22,26,27,36,37,40,41,46,48,63,64,89,92,94,95,96,107,112,
    136,137,143,144,146,151,160,201,202,226,227,3,4,58,59,60,61,62,65,73,77,78,80,81,88,98,100,102,112,113,114,129,130,
    132,133,141,143,145,147,169,170,177,178,179,182,186,188,189,190,193,197,199,201,203,205,206,207,215,216,220,222,
    223,226,228,230,240,242,244,250,251,252,253,254,255,1,3,4,5,11,15,17,19,41,42,49,50,52,53,55,56,58,60,61,62,65,67,
    71,73,75,78,81,82,89,93,94,95,102,112,114,117,118,119,129,131,132,133,142,143,146,147,169,170,177,178,180,181,186,
    188,189,190,193,198,199,201,202,203,205,206,208,209,224,226,228,230,240,241,242,249,250,0,1,2,4,5,13,15,17,19,41,
    42,49,50,52,53,58,60,61,62,63,64,65,69,71,73,75,77,78,85,87,88,92,94,95,98,100,102,112,113,114,120,130,131,132,133,
    139,142,145,146,150,153,155,156,157,158,160,163,165,168,171,174,186,190,192,193,195,198,201,202,205,206,208,209,
    215,216,230,240,243,249,250,251,0,1,4,5,13,14,17,18,41,42,58,60,61,62,65,69,70,73,74,78,85,87,88,91,93,94,96,98,
    100,102,112,119,120,127,128,129,130,132,133,141,142,145,146,169,170,180,181,186,188,189,190,191,192,197,198,199,
    201,202,204,206,213,215,221,223,224,226,228,230,240,241,243,244,0,2,4,13,14,17,18,59,61,62,65,69,70,73,74,77,78,79,
    80,84,87,88,95,98,100,102,112,121,122,128,129,130,132,133,151,154,178,179,188,189,190,192,199,202,203,207,210,213,
    214,215,216,224,230,240,242,244,245,1,49,50,52,59,63,64,70,71,79,80,90,92,129,131,132,133,134,139,140,164,165,166,
    167,177,178,180,189,190,192,197,198,199,200,207,208,218,220,224,0,1,4,19,20,21,24,26,32,42,52,53,54,55,56,57,58,59,
    60,61,62,64,72,73,109,113,127,128,133,134,136,141,152,153,189,190,198,199,205,206,208,213,217,219,0,43,45,49,50,56,
    57,59,61,63,64,74,80,86,88,90,94,97,98,101,103,110,113,117,130,131,133,135,141,142,143,144,154,157,158,160,198,199,
    200,205,206,208,251,252,253,0,73,74,78,80,87,88,89,90,94,96,137,138,142,144,177,178,182,184,191,192,193,194,198,
    200,215,216,17,18,22,24,91,93,96,105,125,128,144,154,160,246,248,254,0,1,109,110,111,128,129,155,156,157,160,235,
    238,241,249,0,18,21,22,31,50,52,53,55,64,82,84,96,109,110,113,114,116,128,180,182,183,190,198,199,201,212,215,216,
    219,220,221,222,224,234,240,250,0,6,7,11,14,15,16,26,32,67,68,121,128,133,135,169,170,171,176,246,0,31,32,35,39,41,
    44,48,50,51,57,60,64,65,68,70,80,110,112,117,128,172,176,202,208,218,219,222,0,23,25,27,28,30,32,85,86,87,88,95,96,
    97,98,99,101,109,115,125,127,128,138,144,154,160,167,168,174,176,190,191,207,0,4,5,52,53,54,59,60,61,66,67,69,77,
    78,80,90,97,107,116,125,128,130,131,161,162,166,168,170,171,174,176,186,230,231,232,234,237,238,239,242,244,252,0,
    36,44,52,54,56,59,64,74,77,80,90,120,126,128,137,138,139,144,187,189,192,200,208,211,212,225,226,233,237,238,244,
    245,247,248,250,251,0,44,107,120,121,155,192,0,150,157,0,8,16,22,24,30,32,40,48,56,64,70,72,78,80,88,89,90,91,92,
    93,94,95,96,104,112,126,128,136,144,152,160,168,176,181,182,184,188,189,190,191,194,197,198,200,204,205,208,212,
    214,216,220,221,224,232,237,240,242,245,246,248,252,253,255,0,11,16,22,24,25,26,27,29,30,31,32,40,41,42,47,48,57,
    58,59,63,65,68,69,70,71,82,83,84,85,95,96,101,102,112,113,114,116,122,125,126,127,128,138,141,142,143,144,157,160,
    193,208,221,225,226,229,241,0,2,3,7,8,10,11,14,16,19,20,21,22,24,25,30,36,37,38,39,40,41,42,46,47,48,52,53,57,58,
    60,62,64,69,70,74,75,76,78,79,80,96,131,132,133,137,138,140,144,149,154,156,160,161,163,164,166,167,174,175,206,
    208,210,211,212,213,244,0,8,9,10,11,12,32,34,41,42,43,124,125,155,180,220,226,42,64,75,96,156,234,0,183,184,193,
    194,248,0,111,112,104,105,106,107,108,109,110,111,112,113,114,115,116,117,118,148,192,197,198,199,230,231,232,233,
    234,235,236,237,238,239,240,0,0,131,132,133,134,135,136,137,138,139,140,141,142,143,144,145,146,147,148,149,150,
    151,152,153,216,217,218,219,220,252,253,254,0,48,69,71,77,116,118,150,151,0,48,95,99,101,102,110,112,116,117,118,
    124,126,128,228,229,235,239,242,243,244,249,253,254,0,38,39,40,45,46,48,104,111,112,113,127,128,151,160,167,168,
    175,176,183,184,191,192,199,200,207,208,215,216,223,224,0,2,3,4,5,6,9,10,11,12,13,14,23,24,26,27,28,29,30,32,33,34,
    35,36,37,38,39,40,41,42,47,48,58,60,64,65,66,67,80,82,85,86,87,88,89,90,91,92,93,94,128,154,155,244,0,214,240,0,1,
    4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,20,21,22,23,24,25,26,27,28,29,30,32,33,42,46,48,49,54,56,59,60,61,62,64,65,
    151,153,155,157,159,160,161,251,252,255,0,5,48,49,143,144,146,150,160,192,230,239,240,0,31,32,42,72,80,81,96,128,
    138,177,192,0,192,0,21,22,141,144,199,208,248,254,0,12,13,16,32,42,44,64,110,111,112,115,116,126,127,128,156,158,
    160,230,240,242,248,0,23,32,34,48,49,112,113,120,126,136,137,139,143,144,148,149,171,175,176,180,197,199,204,205,
    206,208,209,210,211,212,213,221,242,245,246,247,248,250,251,2,3,6,7,11,12,35,37,39,40,44,45,48,54,56,57,58,64,116,
    120,128,130,180,196,198,206,208,218,224,242,248,251,252,253,255,0,10,38,46,48,71,82,84,95,96,125,128,131,132,179,
    180,182,186,188,190,193,206,207,208,218,222,224,229,230,231,240,250,255,0,41,47,49,51,53,55,64,67,68,76,77,78,80,
    90,92,96,112,113,119,122,123,124,125,126,176,177,178,181,183,185,190,192,193,194,195,219,221,222,224,235,236,238,
    240,242,243,245,246,247,1,7,9,15,17,23,32,39,40,47,48,91,92,96,105,106,108,112,192,227,229,230,232,233,235,236,237,
    238,240,250,0,164,176,199,203,252,0,0,0,110,112,218,0,7,19,24,29,30,31,41,42,55,56,61,62,63,64,66,67,69,70,178,195,
    211,62,63,64,80,144,146,200,207,208,240,252,253,0,16,23,24,25,26,32,48,49,51,53,54,55,56,57,58,59,60,61,62,63,64,
    65,66,67,68,69,71,72,73,77,80,83,84,88,89,90,91,92,93,94,95,98,99,100,103,104,105,106,108,112,117,118,253,255,0,1,
    4,5,8,9,10,11,12,13,14,16,26,28,31,33,59,60,61,62,63,64,65,91,92,93,94,95,96,97,98,99,100,102,112,113,158,160,191,
    194,200,202,208,210,216,218,221,224,226,227,228,229,231,232,233,237,239,249,252,254,0,12,13,39,40,59,60,62,63,78,
    80,94,128,251,0,3,7,52,55,64,117,121,138,140,143,144,157,160,161,208,253,254,128,157,160,209,224,225,252,0,32,36,
    45,65,66,74,75,80,118,123,128,158,159,160,196,200,208,209,214,0,40,80,158,160,170,176,212,216,252,0,40,48,100,111,
    112,123,124,139,140,147,148,150,151,162,163,178,179,186,187,189,192,244,0,55,64,86,96,104,128,134,135,177,178,187,
    0,6,8,9,10,54,55,57,60,61,63,86,87,88,96,119,121,128,159,167,176,224,243,244,246,251,0,22,28,31,32,58,63,64,128,
    184,188,190,192,208,210,0,1,4,5,7,12,16,20,21,24,25,54,56,59,63,64,73,80,89,96,125,127,128,157,160,192,200,201,229,
    231,235,240,247,0,54,57,64,86,88,96,115,120,128,146,153,157,169,176,0,73,128,179,192,243,250,0,36,40,48,58,64,74,
    78,79,80,102,105,110,111,112,134,142,144,96,127,128,170,171,173,174,176,178,194,197,252,0,29,39,40,48,70,81,85,90,
    112,130,134,138,176,197,204,224,247,0,1,2,3,56,71,78,82,102,112,113,115,117,118,127,130,131,176,179,183,185,187,
    189,190,194,195,205,206,208,233,240,250,0,3,39,44,45,53,54,64,68,69,71,72,80,115,116,118,119,128,130,131,179,182,
    191,193,197,201,205,206,207,208,218,219,220,221,224,225,245,0,18,19,44,47,50,52,53,54,56,62,63,65,66,128,135,136,
    137,138,142,143,158,159,169,170,176,223,224,227,235,240,250,0,2,4,5,13,15,17,19,41,42,49,50,52,53,58,59,61,62,64,
    65,69,71,73,75,78,80,81,87,88,93,98,100,102,109,112,117,128,138,139,140,142,143,144,182,183,184,187,193,194,195,
    197,198,199,203,204,206,207,208,209,210,211,212,214,215,217,225,227,0,53,56,64,66,69,70,71,75,80,90,92,93,94,95,98,
    128,176,179,185,186,187,191,193,194,196,198,199,200,208,218,128,175,178,182,184,188,190,191,193,216,220,222,0,48,
    51,59,61,62,63,65,68,69,80,90,96,109,128,171,172,173,174,176,182,183,184,185,186,192,202,208,228,0,27,29,30,31,32,
    34,38,39,44,48,58,60,63,64,71,0,44,47,56,57,59,60,160,192,224,234,243,255,7,9,10,12,20,21,23,24,48,54,55,57,59,61,
    62,63,64,65,66,67,68,71,80,90,160,168,170,209,212,216,218,220,224,225,226,227,228,229,0,1,11,51,57,58,59,63,71,72,
    80,81,87,89,92,138,151,152,154,157,158,163,176,249,0,10,192,225,226,240,250,0,9,10,47,48,55,56,62,63,64,65,70,80,
    90,109,112,114,144,146,168,169,170,177,178,180,181,183,0,7,8,10,11,49,55,58,59,60,62,63,70,71,72,80,90,96,102,103,
    105,106,138,143,144,146,147,149,150,151,152,153,160,170,224,243,245,247,249,0,2,3,4,17,18,52,54,59,62,64,65,66,67,
    80,90,91,176,177,192,213,221,225,242,255,0,154,0,111,112,117,128,68,144,241,243,0,48,64,65,71,86,96,251,0,71,0,30,
    42,45,48,58,0,57,64,95,96,106,110,112,191,192,202,208,238,240,245,246,0,48,55,60,64,68,69,70,80,90,91,98,99,120,
    125,144,64,67,107,109,112,122,64,96,128,151,155,0,75,79,80,81,136,143,147,160,224,226,227,228,229,240,242,0,248,0,
    214,255,9,240,244,245,252,253,255,0,35,50,51,80,83,85,86,100,104,112,252,0,107,112,125,128,137,144,154,156,157,159,
    160,164,0,240,250,0,180,0,46,48,71,80,196,0,246,0,39,41,101,103,106,109,115,123,131,133,140,170,174,235,0,66,69,70,
    192,212,224,244,0,87,96,121,0,26,52,78,85,86,104,130,156,157,158,160,162,163,165,167,169,173,174,182,186,187,188,
    189,196,197,208,234,4,6,7,11,13,21,22,29,30,56,58,59,63,64,69,70,71,74,81,82,108,134,160,186,212,238,8,34,60,86,
    112,138,166,168,193,194,219,220,226,251,252,21,22,28,53,54,79,80,86,111,112,137,138,144,169,170,195,196,202,203,
    204,206,0,0,55,59,109,117,118,132,133,135,140,155,160,161,176,0,10,11,31,37,43,0,7,8,25,27,34,35,37,38,43,48,110,
    143,144,0,45,48,55,62,64,74,78,79,80,144,174,175,192,236,240,250,255,0,208,235,236,240,250,208,238,240,241,251,255,
    0,224,231,232,236,237,239,240,255,0,197,199,208,215,0,34,68,75,76,80,90,94,96,113,172,173,176,177,181,1,46,47,62,0,
    4,5,32,33,35,36,37,39,40,41,51,52,56,57,58,59,60,66,67,71,72,73,74,75,76,77,80,81,83,84,85,87,88,89,90,91,92,93,94,
    95,96,97,99,100,101,103,107,108,115,116,120,121,125,126,127,128,138,139,156,161,164,165,170,171,188,240,242,0,44,
    48,148,160,175,177,192,193,208,209,246,0,13,174,230,3,16,60,64,73,80,82,96,102,0,251,0,216,220,237,240,253,0,119,
    123,218,224,236,240,241,0,12,16,72,80,90,96,136,144,174,176,188,192,194,0,84,96,110,112,125,128,138,143,199,206,
    221,223,234,240,249,0,147,148,240,250,0,224,0,58,64,30,32,162,176,225,240,94,0,30,0,75,80,176,0,0,0,0,0,0,0,0,0,0,
    0,1,2,32,128,0,240,0,254,0,254,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,
    0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,
    1,1,1,1,1,1,1,1,1,1,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,
    3,3,3,3,3,3,3,3,3,3,3,3,3,4,4,4,4,4,4,4,4,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,5,6,6,6,6,6,6,6,6,6,
    6,6,6,6,6,6,6,6,6,6,6,6,6,6,6,6,6,6,6,6,6,6,6,6,6,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,8,8,8,8,8,8,8,8,8,8,
    8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,
    9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,
    10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,
    10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,
    11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,
    11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,11,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,
    12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,
    12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,12,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,
    13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,14,14,
    14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,14,15,
    15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,
    15,15,15,15,15,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,
    16,16,16,16,16,16,16,16,16,16,16,16,17,18,18,18,18,18,18,18,18,18,18,18,18,18,18,18,18,18,18,18,18,18,18,18,18,18,
    18,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,20,20,22,22,22,22,22,22,22,22,22,22,22,22,22,23,23,23,23,23,23,
    23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,24,24,24,24,24,24,24,
    24,24,24,24,24,24,24,24,24,24,24,24,24,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,
    25,25,25,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,27,27,
    27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,27,
    27,27,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,
    28,29,29,29,29,29,29,29,30,30,30,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,
    31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,32,
    32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,
    32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,32,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,
    33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,33,
    33,33,33,33,33,33,33,33,33,35,35,35,35,35,35,35,35,35,35,35,35,35,35,35,35,35,36,36,36,36,36,36,37,37,37,37,37,37,
    38,38,38,39,39,39,39,39,39,39,39,39,39,39,39,39,39,39,39,39,39,39,39,39,39,39,39,39,39,39,39,39,39,39,40,41,41,41,
    41,41,41,41,41,41,41,41,41,41,41,41,41,41,41,41,41,41,41,41,41,41,41,41,41,41,41,41,41,43,43,43,43,43,43,43,43,43,
    44,44,44,44,44,44,44,44,44,44,44,44,44,44,44,44,44,44,44,44,44,44,44,44,45,45,45,45,45,45,45,45,45,45,45,45,45,45,
    45,45,45,45,45,45,45,45,45,45,45,45,45,45,45,45,45,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,
    46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,46,47,47,47,48,48,
    48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,48,
    48,48,48,48,48,48,48,48,48,48,48,48,49,49,49,49,49,49,49,49,49,49,49,49,49,50,50,50,50,50,50,50,50,50,50,50,50,52,
    77,78,160,160,164,164,164,164,164,164,165,166,166,166,166,166,166,166,166,166,166,166,166,166,166,166,166,166,166,
    166,166,166,166,167,167,167,167,167,167,167,167,167,167,167,167,167,167,167,167,167,167,167,167,167,167,167,167,
    167,167,167,167,167,167,167,167,167,167,167,167,167,167,167,167,168,168,168,168,168,168,168,168,168,168,168,168,
    168,168,168,168,168,168,168,168,168,168,168,168,168,168,168,168,168,168,168,168,168,168,168,169,169,169,169,169,
    169,169,169,169,169,169,169,169,169,169,169,169,169,169,169,169,169,169,169,169,169,169,169,169,169,169,169,169,
    170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,
    170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,170,171,171,171,171,171,171,171,
    171,171,171,171,171,171,171,171,171,171,171,171,171,171,171,171,171,171,171,171,171,171,171,172,215,215,215,215,
    215,216,224,249,250,250,250,251,251,251,251,251,251,251,251,251,251,251,251,251,251,251,251,251,251,251,251,251,
    251,253,253,253,253,253,253,253,253,253,253,253,253,254,254,254,254,254,254,254,254,254,254,254,254,254,254,254,
    254,254,254,254,254,254,254,254,254,254,254,254,254,254,254,254,254,254,254,254,254,254,254,254,254,254,254,254,
    254,254,254,254,254,254,254,254,254,254,254,254,255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,
    255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,
    255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,255,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,1,1,1,1,1,1,1,1,1,1,
    1,1,1,1,1,1,1,2,2,2,2,2,2,2,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,4,4,4,4,4,4,4,4,4,4,5,5,5,5,5,5,5,5,5,5,5,5,5,
    5,5,5,5,5,5,5,5,5,5,6,7,7,7,7,7,7,7,7,7,7,7,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,9,9,9,9,9,9,9,9,9,
    9,9,9,9,9,9,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,10,11,
    11,11,11,11,11,11,11,11,11,11,11,11,11,11,12,12,12,12,12,12,12,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,13,
    13,14,14,14,14,14,14,14,14,14,14,14,14,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,16,16,16,16,16,16,16,
    16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,17,17,17,17,17,17,17,17,17,17,17,17,17,
    17,17,17,17,17,17,17,17,17,17,17,17,17,17,17,17,17,17,17,17,17,17,17,17,18,18,18,18,18,18,18,18,18,18,18,18,18,18,
    18,18,18,18,18,18,18,18,18,18,18,18,18,18,18,18,18,18,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,
    19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,19,
    19,19,19,19,19,19,19,19,19,20,20,20,20,20,20,20,20,20,20,20,20,20,20,20,20,20,20,20,20,20,20,20,20,20,20,20,20,20,
    20,20,21,21,21,21,21,21,21,21,21,21,21,21,22,22,22,22,22,22,22,22,22,22,22,22,22,22,22,22,22,22,22,22,22,22,22,22,
    22,22,22,22,22,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,23,24,24,24,24,24,24,24,24,24,24,24,24,24,25,25,25,25,
    25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,25,26,26,26,26,
    26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,26,27,27,27,27,27,27,27,28,28,28,28,28,28,28,28,28,28,28,
    28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,28,29,29,29,29,29,29,29,29,29,29,29,29,29,29,29,29,29,29,29,29,29,29,
    29,29,29,29,29,29,29,29,29,29,29,29,30,30,30,30,30,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,31,
    31,31,31,31,32,35,36,36,36,36,36,37,47,47,47,48,52,52,52,52,52,52,67,68,70,97,97,97,97,97,97,104,106,106,106,106,
    106,106,106,106,106,106,106,106,106,106,106,107,107,107,107,107,107,107,107,107,107,107,107,107,107,107,107,109,
    109,109,109,109,109,110,110,110,110,110,111,111,111,111,111,111,111,111,111,111,111,111,111,111,111,111,112,135,
    136,140,140,141,175,175,175,175,175,175,176,177,177,177,177,177,177,177,177,177,177,178,188,188,188,188,188,188,
    188,188,188,188,188,188,188,204,204,204,205,206,207,207,207,207,207,207,208,208,209,209,209,209,209,209,209,209,
    209,209,209,209,209,209,209,210,210,210,210,210,210,210,210,211,211,211,211,212,212,212,212,212,212,212,212,212,
    212,212,212,212,212,212,212,212,212,212,212,212,212,212,212,212,212,212,212,213,213,213,213,213,213,213,213,213,
    213,213,213,213,213,213,213,213,213,213,213,213,213,213,213,213,213,214,214,214,214,214,214,214,214,214,214,214,
    214,214,214,214,215,215,215,215,215,215,215,215,215,215,215,215,215,215,215,215,215,215,215,215,215,216,218,218,
    218,218,218,218,218,218,218,218,218,218,218,218,223,223,223,223,223,223,224,224,224,224,224,224,224,224,224,224,
    224,224,224,224,225,225,225,225,225,225,225,225,225,225,226,226,226,226,226,226,226,226,227,228,228,228,228,228,
    229,229,229,229,229,229,230,231,231,231,231,231,231,231,231,232,232,232,232,232,233,233,233,233,233,233,233,233,
    233,236,236,236,236,236,236,237,237,237,237,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,
    238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,
    238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,238,240,240,240,240,240,
    240,240,240,240,240,240,240,241,241,241,241,242,242,242,242,242,242,242,242,242,243,243,244,246,246,246,246,246,
    247,247,247,247,247,247,247,247,248,248,248,248,248,248,248,248,248,248,248,248,248,248,249,250,250,250,250,250,
    250,250,250,250,250,250,250,250,250,250,251,251,251,251,251,0,166,167,183,183,184,184,206,206,235,235,238,248,250,
    0,19,19,35,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,1,0,255,0,255,25,22,17,19,17,13,14,17,18,17,12,17,8,17,18,17,0,13,17,14,
    20,11,20,1,13,18,14,18,25,22,17,19,21,17,20,21,4,15,18,26,21,20,21,18,10,20,1,17,20,10,4,16,10,17,0,18,0,1,18,1,30,
    31,30,31,1,0,30,0,1,0,1,0,1,0,1,0,1,0,1,0,30,31,30,0,1,0,31,0,1,4,0,1,4,0,2,1,0,2,1,0,2,31,30,1,0,2,30,0,30,1,0,1,
    0,1,31,0,30,1,4,1,3,20,3,20,3,20,3,20,3,20,5,30,3,20,0,1,28,3,1,17,0,28,20,0,17,0,28,0,28,0,1,0,28,0,1,0,1,0,1,30,
    1,0,1,18,0,1,0,1,0,1,30,21,5,7,30,31,30,28,0,28,3,17,1,17,12,28,21,19,28,5,12,5,17,5,17,5,17,5,28,4,28,4,17,28,26,
    18,17,19,17,21,5,17,26,17,4,3,4,5,8,17,4,5,4,17,4,5,26,21,5,3,5,21,5,4,8,4,21,4,17,28,26,4,5,4,5,28,4,5,4,28,8,4,5,
    3,21,17,3,28,5,19,4,5,3,5,3,5,3,5,28,17,28,4,5,28,17,28,4,28,4,20,4,28,26,28,5,4,3,5,26,5,6,4,5,6,5,4,6,5,6,5,6,4,
    5,4,5,17,8,17,3,4,5,6,28,4,28,4,28,4,28,4,28,4,28,4,28,5,4,6,5,28,6,28,6,5,4,28,6,28,4,28,4,5,28,8,4,19,10,21,19,4,
    17,5,28,5,6,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,5,28,6,5,28,5,28,5,28,5,28,4,28,4,28,8,5,4,5,17,28,5,6,28,4,28,4,
    28,4,28,4,28,4,28,4,28,5,4,6,5,28,5,6,28,6,5,28,4,28,4,5,28,8,17,19,28,4,5,28,5,6,28,4,28,4,28,4,28,4,28,4,28,4,28,
    5,4,6,5,6,5,28,6,28,6,5,28,5,6,28,4,28,4,5,28,8,21,4,10,28,5,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,6,5,
    6,28,6,28,6,5,28,4,28,6,28,8,10,21,19,21,28,5,6,5,4,28,4,28,4,28,4,28,5,4,5,6,28,5,28,5,28,5,28,4,28,4,28,4,5,28,8,
    28,17,10,21,4,5,6,17,4,28,4,28,4,28,4,28,4,28,5,4,6,5,6,28,5,6,28,6,5,28,6,28,4,28,4,5,28,8,28,4,6,28,5,6,4,28,4,
    28,4,5,4,6,5,28,6,28,6,5,4,21,28,4,6,10,4,5,28,8,10,21,4,28,5,6,28,4,28,4,28,4,28,4,28,4,28,5,28,6,5,28,5,28,6,28,
    8,28,6,17,28,4,5,4,5,28,19,4,3,5,17,8,17,28,4,28,4,28,4,28,4,28,4,28,4,5,4,5,4,28,4,28,3,28,5,28,8,28,4,28,4,21,17,
    21,17,21,5,21,8,10,21,5,21,5,21,5,13,14,13,14,6,4,28,4,28,5,6,5,17,5,4,5,28,5,28,21,5,21,28,21,17,21,17,28,4,6,5,6,
    5,6,5,6,5,4,8,17,4,6,5,4,5,4,6,4,6,4,5,4,5,6,5,6,5,4,6,8,6,5,21,0,28,0,28,0,28,1,17,3,1,4,28,4,28,4,28,4,28,4,28,4,
    28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,5,17,10,28,4,21,28,0,28,1,28,12,4,21,17,4,22,4,13,14,28,4,17,
    9,4,28,4,5,6,28,4,5,6,17,28,4,5,28,4,28,4,28,5,28,4,5,6,5,6,5,6,5,17,3,17,19,4,5,28,8,28,10,28,17,12,17,5,26,5,8,
    28,4,3,4,28,4,5,4,5,4,28,4,28,4,28,5,6,5,6,28,6,5,6,5,28,21,28,17,8,4,28,4,28,4,28,4,28,8,10,28,21,4,5,6,5,28,17,4,
    6,5,6,5,28,5,6,5,6,5,6,5,28,5,8,28,8,28,17,3,17,28,5,7,5,28,5,6,4,5,6,5,6,5,6,5,6,4,28,17,8,17,21,5,21,17,5,6,4,6,
    5,6,5,6,5,4,8,4,5,6,5,6,5,6,5,6,28,17,4,6,5,6,5,28,17,8,28,4,8,4,3,17,1,0,1,28,0,28,0,17,28,5,17,5,6,5,4,5,4,5,4,6,
    5,4,28,1,3,1,3,1,3,5,30,1,30,1,0,1,28,0,28,1,0,1,0,1,28,0,28,1,28,0,28,0,28,0,28,0,1,0,1,28,1,2,1,2,1,2,1,28,1,0,2,
    20,1,20,1,28,1,0,2,20,1,28,1,0,28,20,1,0,20,28,1,28,1,0,2,20,28,22,26,12,17,15,16,13,15,16,13,15,17,23,24,26,22,17,
    15,16,17,11,17,18,13,14,17,18,17,11,17,22,26,28,26,10,3,28,10,18,13,14,3,10,18,13,14,28,3,28,19,28,5,7,5,7,5,28,21,
    0,21,0,21,1,0,1,0,1,21,0,21,18,0,21,0,21,0,21,0,21,0,21,1,0,1,4,1,21,1,0,18,0,1,21,18,21,1,21,10,9,0,1,9,10,21,28,
    18,21,18,21,18,21,18,21,18,21,18,21,18,21,18,21,18,21,18,21,13,14,13,14,21,18,21,13,14,21,18,21,18,21,18,21,28,21,
    28,10,21,10,21,18,21,18,21,18,21,18,21,13,14,13,14,13,14,13,14,13,14,13,14,13,14,10,21,18,13,14,18,13,14,13,14,13,
    14,13,14,13,14,18,21,18,13,14,13,14,13,14,13,14,13,14,13,14,13,14,13,14,13,14,13,14,13,14,18,13,14,13,14,18,13,14,
    18,21,18,21,18,21,28,21,28,21,0,1,30,0,1,31,0,30,1,0,1,3,0,30,1,21,31,5,0,1,28,17,10,17,1,28,1,28,1,28,4,28,3,17,
    28,5,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,5,17,15,16,15,16,17,15,16,17,15,16,17,12,17,12,17,15,16,17,15,16,
    13,14,13,14,13,14,13,14,17,3,17,12,17,12,17,13,17,21,17,13,14,13,14,13,14,13,14,12,28,21,28,21,28,21,28,21,22,17,
    21,3,4,9,13,14,13,14,13,14,13,14,13,14,21,13,14,13,14,13,14,13,14,12,13,14,21,9,5,6,12,3,21,9,3,4,17,21,28,4,28,5,
    20,3,4,12,4,17,3,4,28,4,28,4,28,21,10,21,4,21,28,21,4,21,28,10,21,10,21,10,21,10,21,10,21,4,21,4,3,4,28,21,28,4,3,
    17,4,3,17,4,8,4,28,30,4,5,7,17,5,17,3,30,3,5,4,9,5,17,28,20,3,20,30,1,30,3,1,31,30,3,20,31,4,30,1,30,0,1,0,30,0,31,
    0,1,28,0,1,28,1,28,30,28,3,0,1,4,3,1,4,5,4,5,4,5,4,6,5,6,21,5,28,10,21,19,21,28,4,17,28,6,4,6,5,28,17,8,28,5,4,17,
    4,17,4,5,8,4,5,17,4,5,6,28,17,4,28,5,6,4,5,6,5,6,5,6,17,28,3,8,28,17,4,5,3,4,8,4,28,4,5,6,5,6,5,28,4,5,4,5,6,28,8,
    28,17,4,3,4,21,4,6,5,6,4,5,4,5,4,5,4,5,4,5,4,28,4,3,17,4,6,5,6,17,4,3,6,5,28,4,28,4,28,4,28,4,28,4,28,1,20,3,1,3,
    20,28,1,4,6,5,6,5,6,17,6,5,28,8,28,4,28,4,28,4,28,29,27,4,28,4,28,1,28,1,28,4,5,4,18,4,28,4,28,4,28,4,28,4,28,4,20,
    28,4,14,13,21,4,28,4,28,21,28,4,19,21,5,17,13,14,17,28,5,17,12,11,13,14,13,14,13,14,13,14,13,14,13,14,13,14,13,14,
    17,13,14,17,11,17,28,17,12,13,14,13,14,13,14,17,18,12,18,28,17,19,17,28,4,28,4,28,26,28,17,19,17,13,14,17,18,17,12,
    17,8,17,18,17,0,13,17,14,20,11,20,1,13,18,14,18,13,14,17,13,14,17,4,3,4,3,4,28,4,28,4,28,4,28,4,28,19,18,20,21,19,
    28,21,18,21,28,26,21,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,17,28,10,28,21,9,10,21,10,21,28,21,28,21,28,21,5,28,4,
    28,4,28,5,10,28,4,10,28,4,9,4,9,28,4,5,28,4,28,17,4,28,4,17,9,28,0,1,4,28,8,28,0,28,1,28,4,28,4,28,17,0,28,0,28,0,
    28,0,28,1,28,1,28,1,28,1,28,4,28,4,28,4,28,4,28,3,28,3,28,3,28,4,28,4,28,4,28,4,28,4,28,4,28,17,10,4,21,10,4,28,10,
    28,4,28,4,28,10,4,10,28,17,4,28,17,28,4,28,10,4,10,28,10,4,5,28,5,28,5,4,28,4,28,4,28,5,28,5,10,28,17,28,4,10,17,4,
    10,28,4,21,4,5,28,10,17,28,4,28,17,4,28,10,4,28,10,4,28,17,28,10,28,4,28,0,28,1,28,10,4,5,28,8,28,8,4,3,4,0,28,5,
    12,3,1,28,18,28,10,28,4,28,5,12,28,4,28,4,28,5,4,10,4,28,4,5,10,17,28,4,5,17,28,4,10,28,4,28,6,5,6,4,5,17,28,10,8,
    5,4,5,4,28,5,6,4,6,5,6,5,17,26,17,5,28,26,28,4,28,8,28,5,4,5,6,5,28,8,17,4,6,4,28,4,5,17,4,28,5,6,4,6,5,6,4,17,5,
    17,6,5,8,4,17,4,17,28,10,28,4,28,4,6,5,6,5,6,5,17,5,4,5,28,4,28,4,28,4,28,4,28,4,17,28,4,5,6,5,28,8,28,5,6,28,4,28,
    4,28,4,28,4,28,4,28,4,28,5,4,6,5,6,28,6,28,6,28,4,28,6,28,4,6,28,5,28,5,28,4,28,4,28,4,28,4,28,4,6,5,28,6,28,6,28,
    6,28,6,5,6,5,4,5,4,17,28,17,28,5,28,4,6,5,6,5,6,5,4,17,8,17,28,17,5,4,28,4,6,5,6,5,6,5,6,5,4,17,4,28,8,28,4,6,5,28,
    6,5,6,5,17,4,5,28,4,6,5,6,5,6,5,17,4,28,8,28,17,28,4,5,6,5,6,5,6,5,4,17,28,8,28,8,28,4,28,5,6,5,6,5,6,5,28,8,10,17,
    21,4,28,4,6,5,6,5,17,28,0,1,8,10,28,4,28,4,28,4,28,4,28,4,6,28,6,28,5,6,5,4,6,4,6,5,17,28,8,28,4,28,4,6,5,28,5,6,5,
    4,17,4,6,28,4,5,4,5,6,4,5,17,5,28,4,5,6,5,4,5,6,5,17,4,17,28,4,28,17,28,4,17,28,8,28,4,28,4,6,5,28,5,6,5,4,17,28,8,
    10,28,17,4,28,5,28,6,5,6,5,6,5,28,4,28,4,28,4,5,28,5,28,5,28,5,4,5,28,8,28,4,28,4,28,4,6,28,5,28,6,5,6,5,4,28,8,28,
    4,5,6,17,28,5,4,6,4,28,4,6,5,28,6,5,6,5,17,8,5,28,4,28,10,21,19,21,28,17,4,28,9,28,17,28,4,28,4,17,28,4,26,5,4,5,
    28,4,28,4,28,4,5,6,5,8,28,4,28,4,28,8,28,17,4,28,8,28,4,28,5,17,28,4,5,17,21,3,17,21,28,8,28,10,28,4,28,4,28,3,4,3,
    17,8,28,0,1,10,17,28,4,28,5,4,6,28,5,3,28,3,17,3,5,28,6,28,4,28,4,28,4,28,3,28,3,28,3,28,4,28,4,28,4,28,4,28,4,28,
    4,28,4,28,4,28,4,28,4,28,21,5,17,26,28,21,8,28,21,28,5,28,5,28,21,28,21,28,21,28,21,6,5,21,6,26,5,21,5,21,5,21,28,
    21,5,21,28,10,28,10,28,21,28,10,28,0,1,0,1,28,1,0,1,0,28,0,28,0,28,0,28,0,28,0,1,28,1,28,1,28,1,0,1,0,28,0,28,0,28,
    0,28,1,0,28,0,28,0,28,0,28,0,28,1,0,1,0,1,0,1,0,1,0,1,0,1,28,0,18,1,18,1,0,18,1,18,1,0,18,1,18,1,0,18,1,18,1,0,18,
    1,18,1,0,1,28,8,21,5,21,5,21,5,21,5,21,17,28,5,28,5,28,1,4,1,28,1,28,5,28,5,28,5,28,5,28,5,28,3,28,5,28,4,28,5,3,
    28,8,28,4,21,28,4,5,28,4,5,8,28,19,28,4,3,5,8,28,4,5,4,8,28,17,28,4,28,4,28,4,28,4,28,4,28,10,5,28,0,1,5,3,28,8,28,
    17,28,10,21,10,19,10,28,10,21,10,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,
    28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,4,28,18,28,21,28,21,28,21,28,21,
    28,21,28,21,28,10,21,28,21,28,21,28,21,28,21,28,21,28,21,20,21,28,21,28,21,28,21,28,21,28,21,28,21,28,21,28,21,28,
    21,28,21,28,21,28,21,28,21,28,21,28,21,28,21,28,21,28,21,28,21,28,21,28,21,28,21,28,21,8,28,4,28,4,28,4,28,4,28,4,
    28,4,28,4,28,4,28,4,28,28,28,28,28,28,28,28,28,28,28,28,26,28,26,28,5,28,27,28,27,28,
};
#ifndef TFM_NO_NFC
/* Where a run of one combining class begins: code point << 8 | class. */
static const uint32_t tfm__combining[495] = {
    196838,202216,202460,203496,203736,203996,205258,205788,206794,207324,209921,211420,212454,214512,214758,215004,
    215782,216540,216832,217318,218076,219110,219368,219612,220134,220393,220650,221161,221418,221929,222182,225280,
    295910,296960,365020,365286,366300,366566,367326,367580,367846,369372,370918,371420,371686,372190,372452,372710,
    372746,373003,373260,373517,373774,374031,374288,374545,374802,375059,375572,375829,376086,376320,376599,376832,
    377112,377369,377600,378086,378332,378368,378642,378880,397542,399390,399647,399904,400128,412443,412700,412957,
    413214,413471,413728,413985,414242,414694,415196,415718,416988,417254,417756,417792,421923,422144,448230,449792,
    450534,451548,451814,451840,452582,452864,453340,453606,454108,454144,463140,463360,471270,471516,471782,472284,
    472550,473052,473830,474076,474598,474844,475110,475868,476134,476380,476646,476892,477158,477404,477670,477952,
    519142,520924,521190,521216,530150,530944,531430,533504,533990,534528,535014,536064,547292,547840,578790,582144,
    582620,582886,583388,583654,584156,584422,585180,585755,586012,586269,586726,587484,587750,588252,588774,589824,
    605191,605440,609545,609792,610790,611036,611302,611584,637959,638208,642313,642560,670727,670976,675081,675328,
    703495,703744,707849,708096,736263,736512,740617,740864,773385,773632,806153,806400,808276,808539,808704,834567,
    834816,838921,839168,871689,871936,903689,903936,931943,932361,932608,936043,936960,964726,965120,968826,969728,
    989404,989696,996828,996864,997340,997376,997848,997888,1012097,1012354,1012480,1012868,1012992,1014402,1015296,
    1015938,1016064,1016550,1016841,1017088,1017574,1017856,1033948,1033984,1062663,1062912,1063177,1063680,1084892,
    1084928,1269222,1269760,1512457,1512704,1520649,1520896,1561097,1561344,1564134,1564160,1616356,1616384,1653214,
    1653478,1653724,1653760,1710054,1710300,1710336,1728521,1728768,1734118,1735936,1736668,1736704,1749222,1750492,
    1752038,1752540,1752576,1782791,1783040,1786889,1787136,1797094,1797340,1797606,1799168,1813001,1813504,1828359,
    1828608,1831433,1831936,1849095,1849344,1888486,1889024,1889281,1889756,1891046,1891548,1892582,1892608,1892865,
    1894656,1895900,1895936,1897702,1897728,1898726,1899008,1949926,1950428,1950694,1952476,1952742,1953258,1953494,
    1953756,1953994,1954278,1963520,1965030,1965289,1965532,1965798,1966044,1966080,2150630,2150913,2151654,2152449,
    2153446,2153728,2154982,2155008,2155777,2156518,2156764,2157030,2157057,2157788,2158822,2158848,2944998,2945536,
    2981641,2981888,3006694,3014656,3156698,3156964,3157224,3157470,3157728,3158016,3184904,3185408,10907622,10907648,
    10908902,10911232,10919654,10919936,10940646,10940928,11011593,11011840,11060233,11060480,11067622,11072000,
    11086812,11087360,11096841,11097088,11121415,11121664,11124745,11124992,11186406,11186432,11186918,11187420,
    11187456,11188198,11188480,11189990,11190272,11190758,11190784,11204105,11204352,11267337,11267584,16457242,
    16457472,16654566,16656348,16658150,16658432,16907740,16907776,16965852,16965888,17004262,17005312,17436124,
    17436160,17436646,17436672,17447142,17447169,17447644,17447680,17448713,17448960,17491430,17491676,17491712,
    17843721,17843968,17858313,17858560,17873161,17873415,17873664,17891558,17892096,17904393,17904896,17920775,
    17921024,17940489,17940736,17943047,17943296,17970441,17970695,17970944,18016519,18016777,18017024,18037767,
    18038016,18042121,18042368,18048742,18050304,18051302,18052352,18104841,18105088,18105863,18106112,18137609,
    18137863,18138112,18202377,18202631,18202880,18235145,18235392,18265609,18265863,18266112,18295561,18295808,
    18628361,18628608,23785473,23786752,23802086,23803648,29138433,29138688,30500312,30500609,30501376,30502370,
    30502616,30503680,30505948,30507776,30508518,30509788,30510080,30517990,30518784,30556902,30557440,31457510,
    31459072,31459558,31463680,31464422,31465984,31466470,31466752,31467238,31468288,32035036,32036608,32064742,
    32066055,32066304,
};
/* Canonical decompositions in columns. Into one: from, to; into two: from, first, second; then the places of those
   that compose again, ordered by (first, second). */
static const uint32_t tfm__singletons[2070] = {
    832,833,835,884,894,903,8049,8051,8053,8055,8057,8059,8061,8123,8126,8137,8139,8147,8155,8163,8171,8174,8175,8185,
    8187,8189,8192,8193,8486,8490,8491,9001,9002,63744,63745,63746,63747,63748,63749,63750,63751,63752,63753,63754,
    63755,63756,63757,63758,63759,63760,63761,63762,63763,63764,63765,63766,63767,63768,63769,63770,63771,63772,63773,
    63774,63775,63776,63777,63778,63779,63780,63781,63782,63783,63784,63785,63786,63787,63788,63789,63790,63791,63792,
    63793,63794,63795,63796,63797,63798,63799,63800,63801,63802,63803,63804,63805,63806,63807,63808,63809,63810,63811,
    63812,63813,63814,63815,63816,63817,63818,63819,63820,63821,63822,63823,63824,63825,63826,63827,63828,63829,63830,
    63831,63832,63833,63834,63835,63836,63837,63838,63839,63840,63841,63842,63843,63844,63845,63846,63847,63848,63849,
    63850,63851,63852,63853,63854,63855,63856,63857,63858,63859,63860,63861,63862,63863,63864,63865,63866,63867,63868,
    63869,63870,63871,63872,63873,63874,63875,63876,63877,63878,63879,63880,63881,63882,63883,63884,63885,63886,63887,
    63888,63889,63890,63891,63892,63893,63894,63895,63896,63897,63898,63899,63900,63901,63902,63903,63904,63905,63906,
    63907,63908,63909,63910,63911,63912,63913,63914,63915,63916,63917,63918,63919,63920,63921,63922,63923,63924,63925,
    63926,63927,63928,63929,63930,63931,63932,63933,63934,63935,63936,63937,63938,63939,63940,63941,63942,63943,63944,
    63945,63946,63947,63948,63949,63950,63951,63952,63953,63954,63955,63956,63957,63958,63959,63960,63961,63962,63963,
    63964,63965,63966,63967,63968,63969,63970,63971,63972,63973,63974,63975,63976,63977,63978,63979,63980,63981,63982,
    63983,63984,63985,63986,63987,63988,63989,63990,63991,63992,63993,63994,63995,63996,63997,63998,63999,64000,64001,
    64002,64003,64004,64005,64006,64007,64008,64009,64010,64011,64012,64013,64016,64018,64021,64022,64023,64024,64025,
    64026,64027,64028,64029,64030,64032,64034,64037,64038,64042,64043,64044,64045,64046,64047,64048,64049,64050,64051,
    64052,64053,64054,64055,64056,64057,64058,64059,64060,64061,64062,64063,64064,64065,64066,64067,64068,64069,64070,
    64071,64072,64073,64074,64075,64076,64077,64078,64079,64080,64081,64082,64083,64084,64085,64086,64087,64088,64089,
    64090,64091,64092,64093,64094,64095,64096,64097,64098,64099,64100,64101,64102,64103,64104,64105,64106,64107,64108,
    64109,64112,64113,64114,64115,64116,64117,64118,64119,64120,64121,64122,64123,64124,64125,64126,64127,64128,64129,
    64130,64131,64132,64133,64134,64135,64136,64137,64138,64139,64140,64141,64142,64143,64144,64145,64146,64147,64148,
    64149,64150,64151,64152,64153,64154,64155,64156,64157,64158,64159,64160,64161,64162,64163,64164,64165,64166,64167,
    64168,64169,64170,64171,64172,64173,64174,64175,64176,64177,64178,64179,64180,64181,64182,64183,64184,64185,64186,
    64187,64188,64189,64190,64191,64192,64193,64194,64195,64196,64197,64198,64199,64200,64201,64202,64203,64204,64205,
    64206,64207,64208,64209,64210,64211,64212,64213,64214,64215,64216,64217,194560,194561,194562,194563,194564,194565,
    194566,194567,194568,194569,194570,194571,194572,194573,194574,194575,194576,194577,194578,194579,194580,194581,
    194582,194583,194584,194585,194586,194587,194588,194589,194590,194591,194592,194593,194594,194595,194596,194597,
    194598,194599,194600,194601,194602,194603,194604,194605,194606,194607,194608,194609,194610,194611,194612,194613,
    194614,194615,194616,194617,194618,194619,194620,194621,194622,194623,194624,194625,194626,194627,194628,194629,
    194630,194631,194632,194633,194634,194635,194636,194637,194638,194639,194640,194641,194642,194643,194644,194645,
    194646,194647,194648,194649,194650,194651,194652,194653,194654,194655,194656,194657,194658,194659,194660,194661,
    194662,194663,194664,194665,194666,194667,194668,194669,194670,194671,194672,194673,194674,194675,194676,194677,
    194678,194679,194680,194681,194682,194683,194684,194685,194686,194687,194688,194689,194690,194691,194692,194693,
    194694,194695,194696,194697,194698,194699,194700,194701,194702,194703,194704,194705,194706,194707,194708,194709,
    194710,194711,194712,194713,194714,194715,194716,194717,194718,194719,194720,194721,194722,194723,194724,194725,
    194726,194727,194728,194729,194730,194731,194732,194733,194734,194735,194736,194737,194738,194739,194740,194741,
    194742,194743,194744,194745,194746,194747,194748,194749,194750,194751,194752,194753,194754,194755,194756,194757,
    194758,194759,194760,194761,194762,194763,194764,194765,194766,194767,194768,194769,194770,194771,194772,194773,
    194774,194775,194776,194777,194778,194779,194780,194781,194782,194783,194784,194785,194786,194787,194788,194789,
    194790,194791,194792,194793,194794,194795,194796,194797,194798,194799,194800,194801,194802,194803,194804,194805,
    194806,194807,194808,194809,194810,194811,194812,194813,194814,194815,194816,194817,194818,194819,194820,194821,
    194822,194823,194824,194825,194826,194827,194828,194829,194830,194831,194832,194833,194834,194835,194836,194837,
    194838,194839,194840,194841,194842,194843,194844,194845,194846,194847,194848,194849,194850,194851,194852,194853,
    194854,194855,194856,194857,194858,194859,194860,194861,194862,194863,194864,194865,194866,194867,194868,194869,
    194870,194871,194872,194873,194874,194875,194876,194877,194878,194879,194880,194881,194882,194883,194884,194885,
    194886,194887,194888,194889,194890,194891,194892,194893,194894,194895,194896,194897,194898,194899,194900,194901,
    194902,194903,194904,194905,194906,194907,194908,194909,194910,194911,194912,194913,194914,194915,194916,194917,
    194918,194919,194920,194921,194922,194923,194924,194925,194926,194927,194928,194929,194930,194931,194932,194933,
    194934,194935,194936,194937,194938,194939,194940,194941,194942,194943,194944,194945,194946,194947,194948,194949,
    194950,194951,194952,194953,194954,194955,194956,194957,194958,194959,194960,194961,194962,194963,194964,194965,
    194966,194967,194968,194969,194970,194971,194972,194973,194974,194975,194976,194977,194978,194979,194980,194981,
    194982,194983,194984,194985,194986,194987,194988,194989,194990,194991,194992,194993,194994,194995,194996,194997,
    194998,194999,195000,195001,195002,195003,195004,195005,195006,195007,195008,195009,195010,195011,195012,195013,
    195014,195015,195016,195017,195018,195019,195020,195021,195022,195023,195024,195025,195026,195027,195028,195029,
    195030,195031,195032,195033,195034,195035,195036,195037,195038,195039,195040,195041,195042,195043,195044,195045,
    195046,195047,195048,195049,195050,195051,195052,195053,195054,195055,195056,195057,195058,195059,195060,195061,
    195062,195063,195064,195065,195066,195067,195068,195069,195070,195071,195072,195073,195074,195075,195076,195077,
    195078,195079,195080,195081,195082,195083,195084,195085,195086,195087,195088,195089,195090,195091,195092,195093,
    195094,195095,195096,195097,195098,195099,195100,195101,768,769,787,697,59,183,940,941,942,943,972,973,974,902,953,
    904,905,912,906,944,910,901,96,908,911,180,8194,8195,937,75,197,12296,12297,35912,26356,36554,36040,28369,20018,
    21477,40860,40860,22865,37329,21895,22856,25078,30313,32645,34367,34746,35064,37007,27138,27931,28889,29662,33853,
    37226,39409,20098,21365,27396,29211,34349,40478,23888,28651,34253,35172,25289,33240,34847,24266,26391,28010,29436,
    37070,20358,20919,21214,25796,27347,29200,30439,32769,34310,34396,36335,38706,39791,40442,30860,31103,32160,33737,
    37636,40575,35542,22751,24324,31840,32894,29282,30922,36034,38647,22744,23650,27155,28122,28431,32047,32311,38475,
    21202,32907,20956,20940,31260,32190,33777,38517,35712,25295,27138,35582,20025,23527,24594,29575,30064,21271,30971,
    20415,24489,19981,27852,25976,32034,21443,22622,30465,33865,35498,27578,36784,27784,25342,33509,25504,30053,20142,
    20841,20937,26753,31975,33391,35538,37327,21237,21570,22899,24300,26053,28670,31018,38317,39530,40599,40654,21147,
    26310,27511,36706,24180,24976,25088,25754,28451,29001,29833,31178,32244,32879,36646,34030,36899,37706,21015,21155,
    21693,28872,35010,35498,24265,24565,25467,27566,31806,29557,20196,22265,23527,23994,24604,29618,29801,32666,32838,
    37428,38646,38728,38936,20363,31150,37300,38584,24801,20102,20698,23534,23615,26009,27138,29134,30274,34044,36988,
    40845,26248,38446,21129,26491,26611,27969,28316,29705,30041,30827,32016,39006,20845,25134,38520,20523,23833,28138,
    36650,24459,24900,26647,29575,38534,21033,21519,23653,26131,26446,26792,27877,29702,30178,32633,35023,35041,37324,
    38626,21311,28346,21533,29136,29848,34298,38563,40023,40607,26519,28107,33256,31435,31520,31890,29376,28825,35672,
    20160,33590,21050,20999,24230,25299,31958,23429,27934,26292,36667,34892,38477,35211,24275,20800,21952,22618,26228,
    20958,29482,30410,31036,31070,31077,31119,38742,31934,32701,34322,35576,36920,37117,39151,39164,39208,40372,37086,
    38583,20398,20711,20813,21193,21220,21329,21917,22022,22120,22592,22696,23652,23662,24724,24936,24974,25074,25935,
    26082,26257,26757,28023,28186,28450,29038,29227,29730,30865,31038,31049,31048,31056,31062,31069,31117,31118,31296,
    31361,31680,32244,32265,32321,32626,32773,33261,33401,33401,33879,35088,35222,35585,35641,36051,36104,36790,36920,
    38627,38911,38971,24693,148206,33304,20006,20917,20840,20352,20805,20864,21191,21242,21917,21845,21913,21986,22618,
    22707,22852,22868,23138,23336,24274,24281,24425,24493,24792,24910,24840,24974,24928,25074,25140,25540,25628,25682,
    25942,26228,26391,26395,26454,27513,27578,27969,28379,28363,28450,28702,29038,30631,29237,29359,29482,29809,29958,
    30011,30237,30239,30410,30427,30452,30538,30528,30924,31409,31680,31867,32091,32244,32574,32773,33618,33775,34681,
    35137,35206,35222,35519,35576,35531,35585,35582,35565,35641,35722,36104,36664,36978,37273,37494,38524,38627,38742,
    38875,38911,38923,38971,39698,40860,141386,141380,144341,15261,16408,16441,152137,154832,163539,40771,40846,20029,
    20024,20033,131362,20320,20398,20411,20482,20602,20633,20711,20687,13470,132666,20813,20820,20836,20855,132380,
    13497,20839,20877,132427,20887,20900,20172,20908,20917,168415,20981,20995,13535,21051,21062,21106,21111,13589,
    21191,21193,21220,21242,21253,21254,21271,21321,21329,21338,21363,21373,21375,21375,21375,133676,28784,21450,21471,
    133987,21483,21489,21510,21662,21560,21576,21608,21666,21750,21776,21843,21859,21892,21892,21913,21931,21939,21954,
    22294,22022,22295,22097,22132,20999,22766,22478,22516,22541,22411,22578,22577,22700,136420,22770,22775,22790,22810,
    22818,22882,136872,136938,23020,23067,23079,23000,23142,14062,14076,23304,23358,23358,137672,23491,23512,23527,
    23539,138008,23551,23558,24403,23586,14209,23648,23662,23744,23693,138724,23875,138726,23918,23915,23932,24033,
    24034,14383,24061,24104,24125,24169,14434,139651,14460,24240,24243,24246,24266,172946,24318,140081,140081,33281,
    24354,24354,14535,144056,156122,24418,24427,14563,24474,24525,24535,24569,24705,14650,14620,24724,141012,24775,
    24904,24908,24910,24908,24954,24974,25010,24996,25007,25054,25074,25078,25104,25115,25181,25265,25300,25424,142092,
    25405,25340,25448,25475,25572,142321,25634,25541,25513,14894,25705,25726,25757,25719,14956,25935,25964,143370,
    26083,26360,26185,15129,26257,15112,15076,20882,20885,26368,26268,32941,17369,26391,26395,26401,26462,26451,144323,
    15177,26618,26501,26706,26757,144493,26766,26655,26900,15261,26946,27043,27114,27304,145059,27355,15384,27425,
    145575,27476,15438,27506,27551,27578,27579,146061,138507,146170,27726,146620,27839,27853,27751,27926,27966,28023,
    27969,28009,28024,28037,146718,27956,28207,28270,15667,28363,28359,147153,28153,28526,147294,147342,28614,28729,
    28702,28699,15766,28746,28797,28791,28845,132389,28997,148067,29084,148395,29224,29237,29264,149000,29312,29333,
    149301,149524,29562,29579,16044,29605,16056,16056,29767,29788,29809,29829,29898,16155,29988,150582,30014,150674,
    30064,139679,30224,151457,151480,151620,16380,16392,30452,151795,151794,151833,151859,30494,30495,30495,30538,
    16441,30603,16454,16534,152605,30798,30860,30924,16611,153126,31062,153242,153285,31119,31211,16687,31296,31306,
    31311,153980,154279,154279,31470,16898,154539,31686,31689,16935,154752,31954,17056,31976,31971,32000,155526,32099,
    17153,32199,32258,32325,17204,156200,156231,17241,156377,32634,156478,32661,32762,32773,156890,156963,32864,157096,
    32880,144223,17365,32946,33027,17419,33086,23221,157607,157621,144275,144284,33281,33284,36766,17515,33425,33419,
    33437,21171,33457,33459,33469,33510,158524,33509,33565,33635,33709,33571,33725,33767,33879,33619,33738,33740,33756,
    158774,159083,158933,17707,34033,34035,34070,160714,34148,159532,17757,17761,159665,159954,17771,34384,34396,34407,
    34409,34473,34440,34574,34530,34681,34600,34667,34694,17879,34785,34817,17913,34912,34915,161383,35031,35038,17973,
    35066,13499,161966,162150,18110,18119,35488,35565,35722,35925,162984,36011,36033,36123,36215,163631,133124,36299,
    36284,36336,133342,36564,36664,165330,165357,37012,37105,37137,165678,37147,37432,37591,37592,37500,37881,37909,
    166906,38283,18837,38327,167287,18918,38595,23986,38691,168261,168474,19054,19062,38880,168970,19122,169110,38923,
    38923,38953,169398,39138,19251,39209,39335,39362,39422,19406,170800,39698,40000,40189,19662,19693,40295,172238,
    19704,172293,172558,172689,40635,19798,40697,40702,40709,40719,40726,40763,173568,
};
static const uint32_t tfm__pairs[3078] = {
    192,193,194,195,196,197,199,200,201,202,203,204,205,206,207,209,210,211,212,213,214,217,218,219,220,221,224,225,
    226,227,228,229,231,232,233,234,235,236,237,238,239,241,242,243,244,245,246,249,250,251,252,253,255,256,257,258,
    259,260,261,262,263,264,265,266,267,268,269,270,271,274,275,276,277,278,279,280,281,282,283,284,285,286,287,288,
    289,290,291,292,293,296,297,298,299,300,301,302,303,304,308,309,310,311,313,314,315,316,317,318,323,324,325,326,
    327,328,332,333,334,335,336,337,340,341,342,343,344,345,346,347,348,349,350,351,352,353,354,355,356,357,360,361,
    362,363,364,365,366,367,368,369,370,371,372,373,374,375,376,377,378,379,380,381,382,416,417,431,432,461,462,463,
    464,465,466,467,468,469,470,471,472,473,474,475,476,478,479,480,481,482,483,486,487,488,489,490,491,492,493,494,
    495,496,500,501,504,505,506,507,508,509,510,511,512,513,514,515,516,517,518,519,520,521,522,523,524,525,526,527,
    528,529,530,531,532,533,534,535,536,537,538,539,542,543,550,551,552,553,554,555,556,557,558,559,560,561,562,563,
    836,901,902,904,905,906,908,910,911,912,938,939,940,941,942,943,944,970,971,972,973,974,979,980,1024,1025,1027,
    1031,1036,1037,1038,1049,1081,1104,1105,1107,1111,1116,1117,1118,1142,1143,1217,1218,1232,1233,1234,1235,1238,1239,
    1242,1243,1244,1245,1246,1247,1250,1251,1252,1253,1254,1255,1258,1259,1260,1261,1262,1263,1264,1265,1266,1267,1268,
    1269,1272,1273,1570,1571,1572,1573,1574,1728,1730,1747,2345,2353,2356,2392,2393,2394,2395,2396,2397,2398,2399,2507,
    2508,2524,2525,2527,2611,2614,2649,2650,2651,2654,2888,2891,2892,2908,2909,2964,3018,3019,3020,3144,3264,3271,3272,
    3274,3275,3402,3403,3404,3546,3548,3549,3550,3907,3917,3922,3927,3932,3945,3955,3957,3958,3960,3969,3987,3997,4002,
    4007,4012,4025,4134,6918,6920,6922,6924,6926,6930,6971,6973,6976,6977,6979,7680,7681,7682,7683,7684,7685,7686,7687,
    7688,7689,7690,7691,7692,7693,7694,7695,7696,7697,7698,7699,7700,7701,7702,7703,7704,7705,7706,7707,7708,7709,7710,
    7711,7712,7713,7714,7715,7716,7717,7718,7719,7720,7721,7722,7723,7724,7725,7726,7727,7728,7729,7730,7731,7732,7733,
    7734,7735,7736,7737,7738,7739,7740,7741,7742,7743,7744,7745,7746,7747,7748,7749,7750,7751,7752,7753,7754,7755,7756,
    7757,7758,7759,7760,7761,7762,7763,7764,7765,7766,7767,7768,7769,7770,7771,7772,7773,7774,7775,7776,7777,7778,7779,
    7780,7781,7782,7783,7784,7785,7786,7787,7788,7789,7790,7791,7792,7793,7794,7795,7796,7797,7798,7799,7800,7801,7802,
    7803,7804,7805,7806,7807,7808,7809,7810,7811,7812,7813,7814,7815,7816,7817,7818,7819,7820,7821,7822,7823,7824,7825,
    7826,7827,7828,7829,7830,7831,7832,7833,7835,7840,7841,7842,7843,7844,7845,7846,7847,7848,7849,7850,7851,7852,7853,
    7854,7855,7856,7857,7858,7859,7860,7861,7862,7863,7864,7865,7866,7867,7868,7869,7870,7871,7872,7873,7874,7875,7876,
    7877,7878,7879,7880,7881,7882,7883,7884,7885,7886,7887,7888,7889,7890,7891,7892,7893,7894,7895,7896,7897,7898,7899,
    7900,7901,7902,7903,7904,7905,7906,7907,7908,7909,7910,7911,7912,7913,7914,7915,7916,7917,7918,7919,7920,7921,7922,
    7923,7924,7925,7926,7927,7928,7929,7936,7937,7938,7939,7940,7941,7942,7943,7944,7945,7946,7947,7948,7949,7950,7951,
    7952,7953,7954,7955,7956,7957,7960,7961,7962,7963,7964,7965,7968,7969,7970,7971,7972,7973,7974,7975,7976,7977,7978,
    7979,7980,7981,7982,7983,7984,7985,7986,7987,7988,7989,7990,7991,7992,7993,7994,7995,7996,7997,7998,7999,8000,8001,
    8002,8003,8004,8005,8008,8009,8010,8011,8012,8013,8016,8017,8018,8019,8020,8021,8022,8023,8025,8027,8029,8031,8032,
    8033,8034,8035,8036,8037,8038,8039,8040,8041,8042,8043,8044,8045,8046,8047,8048,8050,8052,8054,8056,8058,8060,8064,
    8065,8066,8067,8068,8069,8070,8071,8072,8073,8074,8075,8076,8077,8078,8079,8080,8081,8082,8083,8084,8085,8086,8087,
    8088,8089,8090,8091,8092,8093,8094,8095,8096,8097,8098,8099,8100,8101,8102,8103,8104,8105,8106,8107,8108,8109,8110,
    8111,8112,8113,8114,8115,8116,8118,8119,8120,8121,8122,8124,8129,8130,8131,8132,8134,8135,8136,8138,8140,8141,8142,
    8143,8144,8145,8146,8150,8151,8152,8153,8154,8157,8158,8159,8160,8161,8162,8164,8165,8166,8167,8168,8169,8170,8172,
    8173,8178,8179,8180,8182,8183,8184,8186,8188,8602,8603,8622,8653,8654,8655,8708,8713,8716,8740,8742,8769,8772,8775,
    8777,8800,8802,8813,8814,8815,8816,8817,8820,8821,8824,8825,8832,8833,8836,8837,8840,8841,8876,8877,8878,8879,8928,
    8929,8930,8931,8938,8939,8940,8941,10972,12364,12366,12368,12370,12372,12374,12376,12378,12380,12382,12384,12386,
    12389,12391,12393,12400,12401,12403,12404,12406,12407,12409,12410,12412,12413,12436,12446,12460,12462,12464,12466,
    12468,12470,12472,12474,12476,12478,12480,12482,12485,12487,12489,12496,12497,12499,12500,12502,12503,12505,12506,
    12508,12509,12532,12535,12536,12537,12538,12542,64285,64287,64298,64299,64300,64301,64302,64303,64304,64305,64306,
    64307,64308,64309,64310,64312,64313,64314,64315,64316,64318,64320,64321,64323,64324,64326,64327,64328,64329,64330,
    64331,64332,64333,64334,69786,69788,69803,69934,69935,70475,70476,70843,70844,70846,71098,71099,71992,119134,
    119135,119136,119137,119138,119139,119140,119227,119228,119229,119230,119231,119232,65,65,65,65,65,65,67,69,69,69,
    69,73,73,73,73,78,79,79,79,79,79,85,85,85,85,89,97,97,97,97,97,97,99,101,101,101,101,105,105,105,105,110,111,111,
    111,111,111,117,117,117,117,121,121,65,97,65,97,65,97,67,99,67,99,67,99,67,99,68,100,69,101,69,101,69,101,69,101,
    69,101,71,103,71,103,71,103,71,103,72,104,73,105,73,105,73,105,73,105,73,74,106,75,107,76,108,76,108,76,108,78,110,
    78,110,78,110,79,111,79,111,79,111,82,114,82,114,82,114,83,115,83,115,83,115,83,115,84,116,84,116,85,117,85,117,85,
    117,85,117,85,117,85,117,87,119,89,121,89,90,122,90,122,90,122,79,111,85,117,65,97,73,105,79,111,85,117,220,252,
    220,252,220,252,220,252,196,228,550,551,198,230,71,103,75,107,79,111,490,491,439,658,106,71,103,78,110,197,229,198,
    230,216,248,65,97,65,97,69,101,69,101,73,105,73,105,79,111,79,111,82,114,82,114,85,117,85,117,83,115,84,116,72,104,
    65,97,69,101,214,246,213,245,79,111,558,559,89,121,776,168,913,917,919,921,927,933,937,970,921,933,945,949,951,953,
    971,953,965,959,965,969,978,978,1045,1045,1043,1030,1050,1048,1059,1048,1080,1077,1077,1075,1110,1082,1080,1091,
    1140,1141,1046,1078,1040,1072,1040,1072,1045,1077,1240,1241,1046,1078,1047,1079,1048,1080,1048,1080,1054,1086,1256,
    1257,1069,1101,1059,1091,1059,1091,1059,1091,1063,1095,1067,1099,1575,1575,1608,1575,1610,1749,1729,1746,2344,2352,
    2355,2325,2326,2327,2332,2337,2338,2347,2351,2503,2503,2465,2466,2479,2610,2616,2582,2583,2588,2603,2887,2887,2887,
    2849,2850,2962,3014,3015,3014,3142,3263,3270,3270,3270,3274,3398,3399,3398,3545,3545,3548,3545,3906,3916,3921,3926,
    3931,3904,3953,3953,4018,4019,3953,3986,3996,4001,4006,4011,3984,4133,6917,6919,6921,6923,6925,6929,6970,6972,6974,
    6975,6978,65,97,66,98,66,98,66,98,199,231,68,100,68,100,68,100,68,100,68,100,274,275,274,275,69,101,69,101,552,553,
    70,102,71,103,72,104,72,104,72,104,72,104,72,104,73,105,207,239,75,107,75,107,75,107,76,108,7734,7735,76,108,76,
    108,77,109,77,109,77,109,78,110,78,110,78,110,78,110,213,245,213,245,332,333,332,333,80,112,80,112,82,114,82,114,
    7770,7771,82,114,83,115,83,115,346,347,352,353,7778,7779,84,116,84,116,84,116,84,116,85,117,85,117,85,117,360,361,
    362,363,86,118,86,118,87,119,87,119,87,119,87,119,87,119,88,120,88,120,89,121,90,122,90,122,90,122,104,116,119,121,
    383,65,97,65,97,194,226,194,226,194,226,194,226,7840,7841,258,259,258,259,258,259,258,259,7840,7841,69,101,69,101,
    69,101,202,234,202,234,202,234,202,234,7864,7865,73,105,73,105,79,111,79,111,212,244,212,244,212,244,212,244,7884,
    7885,416,417,416,417,416,417,416,417,416,417,85,117,85,117,431,432,431,432,431,432,431,432,431,432,89,121,89,121,
    89,121,89,121,945,945,7936,7937,7936,7937,7936,7937,913,913,7944,7945,7944,7945,7944,7945,949,949,7952,7953,7952,
    7953,917,917,7960,7961,7960,7961,951,951,7968,7969,7968,7969,7968,7969,919,919,7976,7977,7976,7977,7976,7977,953,
    953,7984,7985,7984,7985,7984,7985,921,921,7992,7993,7992,7993,7992,7993,959,959,8000,8001,8000,8001,927,927,8008,
    8009,8008,8009,965,965,8016,8017,8016,8017,8016,8017,933,8025,8025,8025,969,969,8032,8033,8032,8033,8032,8033,937,
    937,8040,8041,8040,8041,8040,8041,945,949,951,953,959,965,969,7936,7937,7938,7939,7940,7941,7942,7943,7944,7945,
    7946,7947,7948,7949,7950,7951,7968,7969,7970,7971,7972,7973,7974,7975,7976,7977,7978,7979,7980,7981,7982,7983,8032,
    8033,8034,8035,8036,8037,8038,8039,8040,8041,8042,8043,8044,8045,8046,8047,945,945,8048,945,940,945,8118,913,913,
    913,913,168,8052,951,942,951,8134,917,919,919,8127,8127,8127,953,953,970,953,970,921,921,921,8190,8190,8190,965,
    965,971,961,961,965,971,933,933,933,929,168,8060,969,974,969,8182,927,937,937,8592,8594,8596,8656,8660,8658,8707,
    8712,8715,8739,8741,8764,8771,8773,8776,61,8801,8781,60,62,8804,8805,8818,8819,8822,8823,8826,8827,8834,8835,8838,
    8839,8866,8872,8873,8875,8828,8829,8849,8850,8882,8883,8884,8885,10973,12363,12365,12367,12369,12371,12373,12375,
    12377,12379,12381,12383,12385,12388,12390,12392,12399,12399,12402,12402,12405,12405,12408,12408,12411,12411,12358,
    12445,12459,12461,12463,12465,12467,12469,12471,12473,12475,12477,12479,12481,12484,12486,12488,12495,12495,12498,
    12498,12501,12501,12504,12504,12507,12507,12454,12527,12528,12529,12530,12541,1497,1522,1513,1513,64329,64329,1488,
    1488,1488,1489,1490,1491,1492,1493,1494,1496,1497,1498,1499,1500,1502,1504,1505,1507,1508,1510,1511,1512,1513,1514,
    1493,1489,1499,1508,69785,69787,69797,69937,69938,70471,70471,70841,70841,70841,71096,71097,71989,119127,119128,
    119135,119135,119135,119135,119135,119225,119226,119227,119228,119227,119228,768,769,770,771,776,778,807,768,769,
    770,776,768,769,770,776,771,768,769,770,771,776,768,769,770,776,769,768,769,770,771,776,778,807,768,769,770,776,
    768,769,770,776,771,768,769,770,771,776,768,769,770,776,769,776,772,772,774,774,808,808,769,769,770,770,775,775,
    780,780,780,780,772,772,774,774,775,775,808,808,780,780,770,770,774,774,775,775,807,807,770,770,771,771,772,772,
    774,774,808,808,775,770,770,807,807,769,769,807,807,780,780,769,769,807,807,780,780,772,772,774,774,779,779,769,
    769,807,807,780,780,769,769,770,770,807,807,780,780,807,807,780,780,771,771,772,772,774,774,778,778,779,779,808,
    808,770,770,770,770,776,769,769,775,775,780,780,795,795,795,795,780,780,780,780,780,780,780,780,772,772,769,769,
    780,780,768,768,772,772,772,772,772,772,780,780,780,780,808,808,772,772,780,780,780,769,769,768,768,769,769,769,
    769,769,769,783,783,785,785,783,783,785,785,783,783,785,785,783,783,785,785,783,783,785,785,783,783,785,785,806,
    806,806,806,780,780,775,775,807,807,772,772,772,772,775,775,772,772,772,772,769,769,769,769,769,769,769,769,769,
    769,776,776,769,769,769,769,769,776,776,769,769,769,769,776,768,776,769,776,769,768,774,774,774,768,776,769,776,
    769,768,774,783,783,774,774,774,774,776,776,774,774,776,776,776,776,776,776,772,772,776,776,776,776,776,776,776,
    776,772,772,776,776,779,779,776,776,776,776,1619,1620,1620,1621,1620,1620,1620,1620,2364,2364,2364,2364,2364,2364,
    2364,2364,2364,2364,2364,2494,2519,2492,2492,2492,2620,2620,2620,2620,2620,2620,2902,2878,2903,2876,2876,3031,3006,
    3006,3031,3158,3285,3285,3286,3266,3285,3390,3390,3415,3530,3535,3530,3551,4023,4023,4023,4023,4023,4021,3954,3956,
    3968,3968,3968,4023,4023,4023,4023,4023,4021,4142,6965,6965,6965,6965,6965,6965,6965,6965,6965,6965,6965,805,805,
    775,775,803,803,817,817,769,769,775,775,803,803,817,817,807,807,813,813,768,768,769,769,813,813,816,816,774,774,
    775,775,772,772,775,775,803,803,776,776,807,807,814,814,816,816,769,769,769,769,803,803,817,817,803,803,772,772,
    817,817,813,813,769,769,775,775,803,803,775,775,803,803,817,817,813,813,769,769,776,776,768,768,769,769,769,769,
    775,775,775,775,803,803,772,772,817,817,775,775,803,803,775,775,775,775,775,775,775,775,803,803,817,817,813,813,
    804,804,816,816,813,813,769,769,776,776,771,771,803,803,768,768,769,769,776,776,775,775,803,803,775,775,776,776,
    775,775,770,770,803,803,817,817,817,776,778,778,775,803,803,777,777,769,769,768,768,777,777,771,771,770,770,769,
    769,768,768,777,777,771,771,774,774,803,803,777,777,771,771,769,769,768,768,777,777,771,771,770,770,777,777,803,
    803,803,803,777,777,769,769,768,768,777,777,771,771,770,770,769,769,768,768,777,777,771,771,803,803,803,803,777,
    777,769,769,768,768,777,777,771,771,803,803,768,768,803,803,777,777,771,771,787,788,768,768,769,769,834,834,787,
    788,768,768,769,769,834,834,787,788,768,768,769,769,787,788,768,768,769,769,787,788,768,768,769,769,834,834,787,
    788,768,768,769,769,834,834,787,788,768,768,769,769,834,834,787,788,768,768,769,769,834,834,787,788,768,768,769,
    769,787,788,768,768,769,769,787,788,768,768,769,769,834,834,788,768,769,834,787,788,768,768,769,769,834,834,787,
    788,768,768,769,769,834,834,768,768,768,768,768,768,768,837,837,837,837,837,837,837,837,837,837,837,837,837,837,
    837,837,837,837,837,837,837,837,837,837,837,837,837,837,837,837,837,837,837,837,837,837,837,837,837,837,837,837,
    837,837,837,837,837,837,774,772,837,837,837,834,837,774,772,768,837,834,837,837,837,834,837,768,768,837,768,769,
    834,774,772,768,834,834,774,772,768,768,769,834,774,772,768,787,788,834,834,774,772,768,788,768,837,837,837,834,
    837,768,768,837,824,824,824,824,824,824,824,824,824,824,824,824,824,824,824,824,824,824,824,824,824,824,824,824,
    824,824,824,824,824,824,824,824,824,824,824,824,824,824,824,824,824,824,824,824,824,12441,12441,12441,12441,12441,
    12441,12441,12441,12441,12441,12441,12441,12441,12441,12441,12441,12442,12441,12442,12441,12442,12441,12442,12441,
    12442,12441,12441,12441,12441,12441,12441,12441,12441,12441,12441,12441,12441,12441,12441,12441,12441,12441,12441,
    12442,12441,12442,12441,12442,12441,12442,12441,12442,12441,12441,12441,12441,12441,12441,1460,1463,1473,1474,1473,
    1474,1463,1464,1468,1468,1468,1468,1468,1468,1468,1468,1468,1468,1468,1468,1468,1468,1468,1468,1468,1468,1468,1468,
    1468,1468,1465,1471,1471,1471,69818,69818,69818,69927,69927,70462,70487,70842,70832,70845,71087,71087,71984,119141,
    119141,119150,119151,119152,119153,119154,119141,119141,119150,119150,119151,119151,
};
static const uint16_t tfm__composing[941] = {
    881,878,882,0,1,2,3,53,55,238,4,566,5,165,208,210,564,409,57,411,413,415,59,61,63,65,6,419,67,421,425,427,423,7,8,
    9,592,69,71,73,10,590,77,212,214,588,240,75,433,435,439,198,79,441,81,83,187,85,87,443,447,236,445,449,451,11,12,
    13,89,91,93,97,14,604,167,216,218,606,95,453,98,457,189,459,100,461,102,106,463,104,469,467,471,473,475,200,108,15,
    477,112,479,110,483,481,16,17,18,19,114,116,246,20,610,118,169,220,222,161,608,191,493,495,120,497,124,224,226,499,
    122,503,126,128,505,132,507,232,130,515,136,517,234,134,521,519,21,22,23,138,140,142,24,634,144,146,171,228,230,
    163,632,523,148,527,525,533,535,537,539,150,543,541,545,547,549,646,25,152,652,250,551,154,650,648,155,553,157,159,
    555,557,26,27,28,29,54,56,239,30,567,31,166,209,211,565,410,58,412,414,416,60,62,64,66,32,420,68,422,426,428,424,
    33,34,35,593,70,72,74,36,591,78,213,215,589,241,76,434,436,440,199,80,442,82,84,188,86,88,444,448,237,446,450,452,
    559,37,38,39,90,92,94,40,605,168,217,219,607,96,454,99,197,458,190,460,101,462,103,107,464,105,470,468,472,474,476,
    201,109,41,478,113,480,111,484,482,42,43,44,45,115,117,247,46,611,119,170,221,223,162,609,192,494,496,121,498,125,
    225,227,500,123,504,127,129,506,133,508,233,131,516,560,137,518,235,135,522,520,47,48,49,139,141,143,50,635,145,
    147,172,229,231,164,633,524,149,528,526,534,536,538,540,151,544,542,561,546,548,550,647,51,153,653,251,552,52,651,
    562,649,156,554,158,160,556,558,854,253,820,570,568,574,572,181,202,204,185,417,596,594,600,598,455,614,612,618,
    616,485,244,487,242,206,179,175,173,177,571,569,575,573,182,203,205,186,418,597,595,601,599,456,615,613,619,617,
    486,245,488,243,207,180,176,174,178,580,578,584,582,581,579,585,583,429,431,430,432,489,491,490,492,509,510,511,
    512,529,530,531,532,563,624,622,628,626,630,625,623,629,627,631,638,636,642,640,644,639,637,643,641,645,195,193,
    194,183,184,437,438,248,249,196,818,254,817,816,662,663,819,826,255,676,677,827,256,690,691,828,839,257,838,837,
    262,706,707,860,258,720,721,853,852,259,851,850,263,734,861,260,746,747,862,813,823,754,264,810,809,654,655,814,
    812,755,265,670,671,756,266,682,683,824,822,757,267,833,832,269,698,699,835,758,271,714,715,846,847,759,272,844,
    843,270,726,727,848,760,273,738,739,858,856,834,261,836,845,268,849,857,274,275,279,296,298,278,276,300,277,294,
    304,306,281,308,283,310,280,312,318,282,320,322,324,326,316,297,299,287,285,301,286,295,305,307,290,309,284,311,
    289,313,319,291,321,323,325,327,317,288,292,293,302,303,314,315,328,329,331,330,332,334,335,333,336,337,338,347,
    348,359,358,360,363,364,366,365,367,368,371,369,370,372,373,375,374,376,377,379,378,397,398,399,400,401,402,403,
    404,405,406,407,408,465,466,501,502,513,514,576,586,577,587,602,603,620,621,656,658,660,761,657,659,661,762,763,
    764,765,766,767,768,664,666,668,769,665,667,669,770,771,772,773,774,775,776,672,674,673,675,678,680,679,681,684,
    686,688,777,685,687,689,778,779,780,781,782,783,784,692,694,696,785,693,695,697,786,787,788,789,790,791,792,700,
    702,704,701,703,705,708,710,712,709,711,713,716,718,717,719,722,724,723,725,728,730,732,729,731,733,735,736,737,
    740,742,744,793,741,743,745,794,795,796,797,798,799,800,748,750,752,801,749,751,753,802,803,804,805,806,807,808,
    811,821,855,815,829,830,831,825,859,840,841,842,863,864,865,866,868,867,869,870,871,872,873,874,875,876,877,880,
    879,883,884,885,886,887,888,889,890,899,900,891,892,893,894,901,902,895,896,897,898,903,904,905,906,933,908,909,
    910,911,912,913,914,915,916,917,918,919,920,921,922,923,924,925,926,927,928,929,930,931,932,934,960,935,936,937,
    938,939,940,941,942,943,944,945,946,947,948,949,950,951,952,953,954,955,956,957,958,959,961,962,963,964,965,1000,
    1001,1002,1003,1004,1005,1006,1008,1007,1009,1010,1011,1012,
};
#endif
/* Unicode tables: end */

/* The run of equal category around c: [low, high), within its plane. */
static void tfm__category_run(uint32_t c, uint32_t *low, uint32_t *high, uint32_t *category) {
    enum { RUNS = sizeof tfm__categories / 3 };
    const uint8_t *lows = tfm__categories, *highs = lows + RUNS, *kinds = highs + RUNS;
    if (c > 0x10FFFF) c = 0x10FFFF; /* bytes that a damaged file put into the text */
    const uint32_t plane = c & ~(uint32_t)0xFFFF, end = tfm__category_planes[(c >> 16) + 1];
    uint32_t a = tfm__category_planes[c >> 16], b = end;
    while (b - a > 1) {
        const uint32_t mid = a + (b - a) / 2;
        if ((plane | (uint32_t)highs[mid] << 8 | lows[mid]) <= c) a = mid;
        else b = mid;
    }
    *low = plane | (uint32_t)highs[a] << 8 | lows[a];
    *high = a + 1 < end ? (plane | (uint32_t)highs[a + 1] << 8 | lows[a + 1]) : plane + 0x10000;
    *category = kinds[a];
}
static uint32_t tfm__category_in(uint32_t run, uint32_t c) { /* the category of c in a run of that kind */
    return run == TFM__EVEN_UPPER ? c & 1 : run == TFM__ODD_UPPER ? ~c & 1 : run;
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

/* One run of a program over one text. STAR and RUN repeat one class; every other jump but LOOP goes forward, so that a
   path without loops is never longer than the program. Backtracking could still take long on an unlucky text: after
   TFM__RE_PATIENCE turns an attempt starts again with one bit per choice point and position that marks what failed
   before, also in earlier attempts on the same text; then no choice is tried twice. Bodies of look-arounds have no such
   bits. What they cost comes off the steps of the call, as everything does; without steps left nothing matches. */
enum { TFM__RE_PATIENCE = 512 };

typedef struct tfm__re {
    const tfm_tokenizer *t;
    const uint8_t *text;
    uint32_t n;
    uint32_t n_memo, *memo; /* n_memo * (n + 1) bits */
    int memo_ready;
    uint32_t run_low, run_high, run_category; /* the last look-up of a category */
    struct tfm__re_choice *stack; /* where there are loops: cap_stack choices, else NULL */
    uint32_t cap_stack, base;     /* base: what the attempts around this one have on it */
    uint64_t *steps;              /* what the call has left, see tfm__tok_spend */
} tfm__re;

/* Takes n steps of work off those that are left; 0 if that was too much. */
static int tfm__tok_spend(uint64_t *steps, uint64_t n) {
    *steps = n < *steps ? *steps - n : 0;
    return *steps != 0;
}

/* go on at pc; star: also at places down to low */
typedef struct tfm__re_choice { uint32_t pc, at, low; } tfm__re_choice;

static int tfm__re_in_class(tfm__re *r, uint32_t class_index, uint32_t c) {
    const tfm_tokenizer *t = r->t;
    if (c < 128) return (int)(tfm__tok_word(t, TFM_TOK_CLASSES, class_index, c >> 5) >> (c & 31) & 1);
    uint32_t mask = tfm__tok_word(t, TFM_TOK_CLASSES, class_index, 4);
    uint32_t first = tfm__tok_word(t, TFM_TOK_CLASSES, class_index, 5);
    uint32_t end = first + tfm__tok_word(t, TFM_TOK_CLASSES, class_index, 6);
    int negated = (int)tfm__tok_word(t, TFM_TOK_CLASSES, class_index, 7) & 1, in = 0;
    if (mask) {
        if (c < r->run_low || c >= r->run_high) tfm__category_run(c, &r->run_low, &r->run_high, &r->run_category);
        in = (int)(mask >> tfm__category_in(r->run_category, c) & 1);
    }
    while (first < end && !in) { /* ascending */
        uint32_t mid = first + (end - first) / 2;
        if (c > tfm__tok_word(t, TFM_TOK_RANGES, mid, 1)) first = mid + 1;
        else if (c < tfm__tok_word(t, TFM_TOK_RANGES, mid, 0)) end = mid;
        else in = 1;
    }
    return in != negated;
}

static int tfm__re_memo(tfm__re *r, uint32_t choice, uint32_t at, int set) {
    if (choice >= r->n_memo) return set; /* a damaged program: nothing is tried twice either */
    size_t bit = (size_t)choice * ((size_t)r->n + 1) + at;
    int was = (int)(r->memo[bit >> 5] >> (bit & 31) & 1);
    if (set) r->memo[bit >> 5] |= 1u << (bit & 31);
    else r->memo[bit >> 5] &= ~(1u << (bit & 31));
    return was;
}

/* Bytes of the character at `at` if it is in the class, else 0. */
static uint32_t tfm__re_one(tfm__re *r, uint32_t class_index, uint32_t at) {
    uint32_t len;
    if (at >= r->n) return 0;
    uint32_t c = tfm__utf8_get(r->text + at, r->n - at, &len);
    return tfm__re_in_class(r, class_index, c) ? len : 0;
}

static uint32_t tfm__re_attempt(tfm__re *r, uint32_t pc, uint32_t at, uint32_t *patience, int slow, int depth);

/* The body of a look-around or an atomic group on its own; the attempt around it has `top` choices on the stack. Its
   end, or NONE. */
static uint32_t tfm__re_body(tfm__re *r, uint32_t pc, uint32_t at, uint32_t top, int depth) {
    uint32_t end, patience = TFM__NONE; /* the steps end it */
    if (depth == TFM_RE_MAX_BODIES || !tfm__tok_spend(r->steps, 1)) return TFM__NONE;
    r->base += top;
    end = tfm__re_attempt(r, pc, at, &patience, 0, depth + 1);
    r->base -= top;
    return end;
}
/* Whether the body matches the `back` characters before `at`. */
static int tfm__re_behind(tfm__re *r, uint32_t pc, uint32_t at, uint32_t back, uint32_t top, int depth) {
    uint32_t from = at;
    for (; back && from; back--) from = tfm__utf8_back(r->text, from, 0);
    return !back && tfm__re_body(r, pc, from, top, depth) == at;
}
/* Whether `at` stands between a character of the class and one outside it. */
static int tfm__re_bound(tfm__re *r, uint32_t class_index, uint32_t at) {
    int before = at && tfm__re_one(r, class_index, tfm__utf8_back(r->text, at, 0)) != 0;
    return before != (tfm__re_one(r, class_index, at) != 0);
}

/* Whether an instruction that takes no text lets the attempt go on at `at`. */
static int tfm__re_holds(tfm__re *r, const uint8_t *code, uint32_t pc, uint32_t at, uint32_t top, int depth) {
    const uint32_t a = tfm__le16(code + 2), b = tfm__le32(code + 4);
    switch (code[0]) {
    case TFM_RE_AHEAD: return tfm__re_body(r, pc, at, top, depth) != TFM__NONE;
    case TFM_RE_NOT_AHEAD: return tfm__re_body(r, pc, at, top, depth) == TFM__NONE;
    case TFM_RE_BEHIND: return tfm__re_behind(r, pc, at, a, top, depth);
    case TFM_RE_NOT_BEHIND: return !tfm__re_behind(r, pc, at, a, top, depth);
    case TFM_RE_BOUND: return tfm__re_bound(r, b, at) != (int)a;
    case TFM_RE_START: return !at || (b && at < r->n && r->text[at - 1] == '\n'); /* b: at every line */
    default: return at == r->n || (b && r->text[at] == '\n'); /* TFM_RE_END */
    }
}

static void tfm__re_push(tfm__re_choice *stack, uint32_t *top, uint32_t pc, uint32_t at, uint32_t low) {
    stack[*top].pc = pc;
    stack[*top].at = at;
    stack[*top].low = low;
    ++*top;
}

/* Takes the last choice back: where to go on. */
static uint32_t tfm__re_back(const tfm__re *r, tfm__re_choice *stack, uint32_t *top, uint32_t *at) {
    tfm__re_choice *c = &stack[--*top];
    *at = c->at;
    if (c->at > c->low) { /* a star gives one character back; the last time it is off the stack */
        *at = c->at = tfm__utf8_back(r->text, c->at, c->low);
        if (c->at > c->low) ++*top;
    }
    return c->pc;
}

/* A star from `at`: where it ends. *known: it ran into a place from where it is known to fail; what it covered before
   that place is returned. */
static uint32_t tfm__re_star(tfm__re *r, uint32_t class_index, uint32_t choice, uint32_t at, int slow, int *known) {
    uint32_t len;
    *known = 0;
    for (; (len = tfm__re_one(r, class_index, at)) != 0; at += len) {
        if (slow && tfm__re_memo(r, choice, at + len, 1)) { *known = 1; break; }
    }
    return at;
}

/* The end of the match that starts at `at`, or TFM__NONE; *patience counts the choices that were taken back. An
   instruction or a character of a star is a step. */
static uint32_t tfm__re_attempt(tfm__re *r, uint32_t pc, uint32_t at, uint32_t *patience, int slow, int depth) {
    tfm__re_choice few[TFM_RE_MAX_MEMO], *stack = r->stack ? r->stack + r->base : few;
    uint32_t top = 0, cap = stack == few ? (uint32_t)TFM_RE_MAX_MEMO : r->cap_stack - r->base, done = 0;
    for (;; done++) {
        const uint8_t *code = r->t->base.p + r->t->table[TFM_TOK_CODE].at + (size_t)pc * 8;
        uint32_t a = tfm__le16(code + 2), b = tfm__le32(code + 4), len = 0, end;
        int ok = 1, known;
        pc++;
        switch (code[0]) {
        case TFM_RE_MATCH: return tfm__tok_spend(r->steps, done) ? at : TFM__NONE;
        case TFM_RE_CHAR:
            ok = at < r->n && tfm__utf8_get(r->text + at, r->n - at, &len) == b;
            if (ok) at += len;
            break;
        case TFM_RE_CLASS:
            len = tfm__re_one(r, b, at);
            ok = len != 0;
            at += len;
            break;
        case TFM_RE_TRY: at += tfm__re_one(r, b, at); break; /* optional, never given back */
        case TFM_RE_STAR:
        case TFM_RE_RUN: /* a star that never gives back */
            if (slow && tfm__re_memo(r, a, at, 1)) { ok = 0; break; }
            end = tfm__re_star(r, b, a, at, slow, &known);
            done += end - at;
            if (known && code[0] == TFM_RE_RUN) { ok = 0; break; }
            *patience -= (end - at) / 16 < *patience ? (end - at) / 16 : *patience;
            if (end > at && code[0] == TFM_RE_STAR && top < cap) tfm__re_push(stack, &top, pc, end, at);
            at = end;
            break;
        case TFM_RE_LOOP:      /* at b first, then on */
        case TFM_RE_LOOP_LAZY: /* the other way round */
            if (!*patience || !tfm__tok_spend(r->steps, done)) return TFM__NONE;
            done = 0;
            --*patience; /* fall through */
        case TFM_RE_SPLIT: /* here first, then at b */
            if ((slow && tfm__re_memo(r, a, at, 1)) || top == cap) { ok = 0; break; }
            tfm__re_push(stack, &top, code[0] == TFM_RE_LOOP ? pc : b, at, at);
            if (code[0] == TFM_RE_LOOP) pc = b;
            break;
        case TFM_RE_JUMP: pc = b; break;
        case TFM_RE_ATOMIC:
            end = tfm__re_body(r, pc, at, top, depth);
            ok = end != TFM__NONE;
            at = ok ? end : at;
            pc = b;
            break;
        case TFM_RE_BOUND: case TFM_RE_START: case TFM_RE_END: ok = tfm__re_holds(r, code, pc, at, top, depth); break;
        default: /* look-arounds; their bodies stand here */
            ok = tfm__re_holds(r, code, pc, at, top, depth);
            pc = b;
            break;
        }
        if (ok) continue;
        if (!tfm__tok_spend(r->steps, done) || !top || !*patience) return TFM__NONE;
        done = 0;
        --*patience;
        pc = tfm__re_back(r, stack, &top, &at);
    }
}

/* The match of the program at pc that starts at `at`: its end, or TFM__NONE. */
static uint32_t tfm__re_match(tfm__re *r, uint32_t pc, uint32_t at) {
    uint32_t patience = TFM__RE_PATIENCE;
    uint32_t end = r->memo_ready ? TFM__NONE : tfm__re_attempt(r, pc, at, &patience, 0, 0);
    if (r->memo_ready || (end == TFM__NONE && !patience)) {
        const size_t words = ((size_t)r->n_memo * ((size_t)r->n + 1) + 31) / 32;
        if (!r->memo_ready && tfm__tok_spend(r->steps, words)) memset(r->memo, 0, words * 4);
        r->memo_ready = 1;
        patience = TFM__NONE;
        end = tfm__re_attempt(r, pc, at, &patience, 1, 0);
        for (uint32_t k = 0; end != TFM__NONE && k < r->n_memo; k++) tfm__re_memo(r, k, end, 0);
    }
    return end;
}

/* The next match in a text, as the reference finds them: from *at on, no empty one where the last ended (`last`, or
   TFM__NONE). Its begin goes to *at. Returns its end, or TFM__NONE. */
static uint32_t tfm__re_next(tfm__re *r, uint32_t pc, uint32_t *at, uint32_t last) {
    uint32_t len;
    for (;;) {
        uint32_t end = *at <= r->n ? tfm__re_match(r, pc, *at) : TFM__NONE;
        if (end != TFM__NONE && !(end == *at && end == last)) return end;
        if (*at >= r->n || !*r->steps) return TFM__NONE;
        tfm__utf8_get(r->text + *at, r->n - *at, &len);
        *at += len;
    }
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

/* Steps of work for each byte of a text. Real texts and tokenizers need 20, odd ones 200; but bytes can be made for
   which each look-up or operation takes as long as the text, or multiplies it: the steps keep time linear. */
enum { TFM__TOK_STEPS = 2048 };

/* The state of one call. Everything that grows with the text lies in the caller's scratch. */
typedef struct tfm__tok_work {
    const tfm_tokenizer *t;
    int32_t flags, *ids;
    int64_t n, max;
    int damaged;    /* the section promised something that is not so */
    uint64_t steps; /* work that is left, see tfm__tok_spend; 0: the call has failed and ends */
    size_t text_cap, symbol_cap;
    uint8_t *clean;                          /* the text in valid UTF-8 */
    uint8_t *word;                           /* one word with what INNER and FINAL put into it */
    uint8_t *normal[2];                      /* operations of the normaliser write from one to the other */
    uint8_t *changed[TFM_TOK_MAX_OPS];       /* operations of the pre-tokenizer that write, one buffer each */
    uint32_t *memo[TFM_TOK_MAX_OPS];         /* of the expressions */
    uint32_t *symbol, *next, *previous, *rank; /* of one word; rank: all levels of tfm__rank_tree */
    double *score;                             /* Unigram: of the best way to each place in a word */
    uint32_t *from, *piece;                    /* where its last piece begins, and which it is */
    uint32_t *points, *spare;                  /* of one run while it is normalised */
    tfm__re_choice *choices;                   /* of expressions with loops, n_choices of them */
    uint32_t n_choices;
} tfm__tok_work;

static void tfm__re_begin(tfm__re *r, tfm__tok_work *w, uint32_t op, const uint8_t *text, uint32_t n, uint32_t n_memo) {
    memset(r, 0, sizeof *r);
    r->t = w->t;
    r->text = text;
    r->n = n;
    r->n_memo = n_memo;
    r->memo = w->memo[op];
    r->steps = &w->steps;
    r->stack = w->choices;
    r->cap_stack = w->n_choices;
}

typedef void tfm__tok_step(tfm__tok_work *w, const uint8_t *text, uint32_t n, int first);

static void tfm__tok_emit(tfm__tok_work *w, uint32_t id) {
    if (id >= w->t->n_ids) { w->damaged = 1; return; }
    if (w->n < w->max) w->ids[w->n] = (int32_t)id;
    w->n++;
}

/* Entries of a tree of minima over n ranks: 16 ranks to one entry of the level above, up to a level of at most 16. */
static size_t tfm__rank_tree_size(size_t n) {
    size_t total = n;
    while (n > 16) { n = (n + 15) / 16; total += n; }
    return total;
}

/* Whether an operation of that kind writes a new text, runs an expression, decomposes. */
static int tfm__tok_op_writes(uint32_t kind) {
    return kind != TFM_TOK_SPLIT && kind != TFM_TOK_GROUPS && kind != TFM_TOK_CHUNKS;
}

#define TFM__TOK_TAKE(field, type, bytes) \
    do { if (base) (field) = (type *)(void *)(base + at); at += ((uint64_t)(bytes) + 7) & ~(uint64_t)7; } while (0)

/* The arrays of one word or one run, which are never in use at the same time. Returns where they end. */
static uint64_t tfm__tok_carve_word(tfm__tok_work *w, const tfm_tokenizer *t, uint64_t text, uint64_t symbols,
                                    int forms, uint8_t *base, const uint64_t begin) {
    uint64_t at = begin, end = begin;
    if (t->model == TFM_TOK_BPE) {
        TFM__TOK_TAKE(w->symbol, uint32_t, 4 * symbols);
        TFM__TOK_TAKE(w->next, uint32_t, 4 * symbols);
        TFM__TOK_TAKE(w->previous, uint32_t, 4 * symbols);
        TFM__TOK_TAKE(w->rank, uint32_t, 4 * (uint64_t)tfm__rank_tree_size((size_t)symbols));
    } else if (t->model == TFM_TOK_UNIGRAM) {
        TFM__TOK_TAKE(w->score, double, 8 * (text + 1));
        TFM__TOK_TAKE(w->from, uint32_t, 4 * (text + 1));
        TFM__TOK_TAKE(w->piece, uint32_t, 4 * (text + 1));
    }
    if (t->model == TFM_TOK_WORDPIECE || t->n_inner || t->n_final) {
        TFM__TOK_TAKE(w->word, uint8_t, text + t->n_inner + t->n_final + 8);
    }
    end = at;
    at = begin;
    if (forms) {
        TFM__TOK_TAKE(w->points, uint32_t, 4 * text);
        TFM__TOK_TAKE(w->spare, uint32_t, 4 * text);
    }
    return end > at ? end : at;
}

/* Hands out the scratch for n bytes of text from base; base NULL only counts. 0: too large. */
static size_t tfm__tok_carve(tfm__tok_work *w, const tfm_tokenizer *t, size_t n, uint8_t *base) {
    if (n > (size_t)1 << 28) return 0;
    uint64_t text = (uint64_t)n * t->grow_mul + t->grow_add, at = 0;
    int by_bytes = (t->flags & TFM_TOK_BYTE_LEVEL) != 0, forms = 0;
    if (text > 0x7FFFFFF0u) return 0;
    TFM__TOK_TAKE(w->clean, uint8_t, 3 * (uint64_t)n);
    if (t->n_norm) {
        TFM__TOK_TAKE(w->normal[0], uint8_t, text);
        TFM__TOK_TAKE(w->normal[1], uint8_t, text);
    }
    for (uint32_t i = 0; i < tfm__tok_count(t, TFM_TOK_OPS); i++) {
        const uint32_t kind = tfm__tok_word(t, TFM_TOK_OPS, i, 0);
        const uint32_t n_memo = kind == TFM_TOK_SPLIT     ? tfm__tok_word(t, TFM_TOK_OPS, i, 3)
                                : kind == TFM_TOK_REWRITE ? tfm__tok_word(t, TFM_TOK_OPS, i, 4) : 0;
        forms |= kind == TFM_TOK_NFC || kind == TFM_TOK_NFD;
        if (n_memo) TFM__TOK_TAKE(w->memo[i], uint32_t, (n_memo * (text + 1) + 31) / 32 * 4);
        if (i >= t->n_norm && tfm__tok_op_writes(kind)) TFM__TOK_TAKE(w->changed[i], uint8_t, text);
    }
    const uint64_t n_choices = t->loops ? 2 * text + TFM_RE_MAX_MEMO : 0;
    if (t->loops) TFM__TOK_TAKE(w->choices, tfm__re_choice, n_choices * sizeof(tfm__re_choice));
    uint64_t symbols = by_bytes || forms ? text : (uint64_t)n * (t->grow_mul / 3) + t->grow_add;
    at = tfm__tok_carve_word(w, t, text, symbols, forms, base, at);
    if (base) {
        w->t = t;
        w->text_cap = (size_t)text;
        w->symbol_cap = (size_t)symbols;
        w->n_choices = (uint32_t)n_choices;
        w->steps = TFM__TOK_STEPS * ((uint64_t)n + 64);
    }
    return at <= SIZE_MAX - 64 ? (size_t)at + 8 : 0;
}
#undef TFM__TOK_TAKE

/* ---- encoding: the model, byte-pair encoding (arXiv:1508.07909) -------------------------------------------------- */

/* Whether every byte of a character has a token of its own. */
static int tfm__tok_spelled(const tfm_tokenizer *t, const uint8_t *p, uint32_t n) {
    int spelled = (t->flags & TFM_TOK_BYTE_FALLBACK) != 0;
    for (uint32_t i = 0; i < n && spelled; i++) spelled = tfm__tok_word(t, TFM_TOK_BYTE_IDS, p[i], 0) < t->n_ids;
    return spelled;
}

/* Looks up n bytes of a word with what INNER and FINAL put before and after them. */
static uint32_t tfm__tok_find_part(tfm__tok_work *w, const uint8_t *p, uint32_t n, int inner, int last) {
    const tfm_tokenizer *t = w->t;
    const uint8_t *strings = t->base.p + t->table[TFM_TOK_STRINGS].at;
    const uint32_t before = inner ? t->n_inner : 0, after = last ? t->n_final : 0;
    if (!before && !after) return tfm__tok_find(t, p, n);
    tfm__tok_spend(&w->steps, (before + after) / 4); /* hashed by 4 bytes */
    if (before) memcpy(w->word, strings + t->inner, before);
    memcpy(w->word + before, p, n);
    if (after) memcpy(w->word + before + n, strings + t->final, after);
    return tfm__tok_find(t, w->word, before + n + after);
}

/* The symbols a word starts from. Returns their number. */
static uint32_t tfm__bpe_symbols(tfm__tok_work *w, const uint8_t *word, uint32_t n) {
    const tfm_tokenizer *t = w->t;
    uint32_t count = 0, len, id;
    int byte_level = (t->flags & TFM_TOK_BYTE_LEVEL) != 0;
    for (uint32_t i = 0; i < n && w->steps; i += len) {
        len = 1;
        if (!byte_level) tfm__utf8_get(word + i, n - i, &len);
        if (count == w->symbol_cap) { w->damaged = 1; break; }
        if (byte_level) id = tfm__tok_word(t, TFM_TOK_BYTE_IDS, word[i], 0);
        else id = tfm__tok_find_part(w, word + i, len, i > 0, i + len == n);
        if (id >= t->n_ids && t->flags & TFM_TOK_DROP_UNKNOWN && !tfm__tok_spelled(t, word + i, len)) continue;
        w->symbol[count++] = id < t->n_ids ? id : TFM__UNKNOWN | i;
    }
    return count;
}

/* Short words: look at every pair each time, close the gap. Ranks and results of pair (i, i+1) stand at i. */
enum { TFM__BPE_SHORT = 24 };
static uint32_t tfm__bpe_short(const tfm_tokenizer *t, uint32_t *symbol, uint32_t n) {
    uint32_t rank[TFM__BPE_SHORT], result[TFM__BPE_SHORT];
    for (uint32_t i = 0; i + 1 < n; i++) rank[i] = tfm__tok_merge(t, symbol[i], symbol[i + 1], &result[i]);
    while (n > 1) {
        uint32_t best = 0;
        for (uint32_t i = 1; i + 1 < n; i++) if (rank[i] < rank[best]) best = i;
        if (rank[best] == TFM__NONE) break;
        symbol[best] = result[best];
        n--;
        for (uint32_t i = best + 1; i < n; i++) {
            symbol[i] = symbol[i + 1];
            rank[i - 1] = rank[i];
            result[i - 1] = result[i];
        }
        if (best) rank[best - 1] = tfm__tok_merge(t, symbol[best - 1], symbol[best], &result[best - 1]);
        if (best + 1 < n) rank[best] = tfm__tok_merge(t, symbol[best], symbol[best + 1], &result[best]);
    }
    return n;
}

/* Long words: symbols in a list, ranks under a tree of minima with 16 children a node; n log n whatever the word. */
typedef struct tfm__rank_tree { uint32_t *level[9], count[9]; int levels; } tfm__rank_tree;

static uint32_t tfm__rank_min(const uint32_t *rank, uint32_t begin, uint32_t end) { /* the first lowest */
    uint32_t best = begin;
    for (uint32_t i = begin + 1; i < end; i++) if (rank[i] < rank[best]) best = i;
    return best;
}
static uint32_t tfm__rank_block_end(const tfm__rank_tree *r, int level, uint32_t block) {
    uint32_t left = r->count[level] - block * 16;
    return block * 16 + (left < 16 ? left : 16);
}
static void tfm__rank_build(tfm__rank_tree *r, uint32_t *rank, uint32_t n) {
    r->levels = 1;
    r->level[0] = rank;
    r->count[0] = n;
    while (n > 16) {
        int k = r->levels++;
        r->level[k] = r->level[k - 1] + n;
        n = r->count[k] = (n + 15) / 16;
        for (uint32_t b = 0; b < n; b++) {
            r->level[k][b] = r->level[k - 1][tfm__rank_min(r->level[k - 1], b * 16, tfm__rank_block_end(r, k - 1, b))];
        }
    }
}
static void tfm__rank_set(tfm__rank_tree *r, uint32_t i, uint32_t value) {
    r->level[0][i] = value;
    for (int k = 1; k < r->levels; k++) {
        uint32_t b = i / 16, low = r->level[k - 1][tfm__rank_min(r->level[k - 1], b * 16, tfm__rank_block_end(r, k - 1,
                b))];
        if (r->level[k][b] == low) break;
        r->level[k][b] = low;
        i = b;
    }
}
static uint32_t tfm__rank_first(const tfm__rank_tree *r) {
    int k = r->levels - 1;
    uint32_t i = tfm__rank_min(r->level[k], 0, r->count[k]);
    while (k-- > 0) i = tfm__rank_min(r->level[k], i * 16, tfm__rank_block_end(r, k, i));
    return i;
}

static uint32_t tfm__bpe_long(tfm__tok_work *w, uint32_t n) {
    const tfm_tokenizer *t = w->t;
    uint32_t *symbol = w->symbol, *next = w->next, *previous = w->previous, result;
    tfm__rank_tree tree;
    for (uint32_t i = 0; i < n; i++) {
        next[i] = i + 1;
        previous[i] = i - 1; /* TFM__NONE before the first */
        w->rank[i] = i + 1 < n ? tfm__tok_merge(t, symbol[i], symbol[i + 1], &result) : TFM__NONE;
    }
    tfm__rank_build(&tree, w->rank, n);
    for (;;) {
        uint32_t i = tfm__rank_first(&tree);
        if (w->rank[i] == TFM__NONE) break;
        uint32_t j = next[i], after = next[j];
        tfm__tok_merge(t, symbol[i], symbol[j], &symbol[i]);
        next[i] = after;
        if (after < n) previous[after] = i;
        tfm__rank_set(&tree, j, TFM__NONE);
        tfm__rank_set(&tree, i, after < n ? tfm__tok_merge(t, symbol[i], symbol[after], &result) : TFM__NONE);
        uint32_t p = previous[i];
        if (p != TFM__NONE) tfm__rank_set(&tree, p, tfm__tok_merge(t, symbol[p], symbol[i], &result));
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i = next[i]) symbol[count++] = symbol[i];
    return count;
}

/* A character that is no piece: its bytes, or the unknown token (one for several in a row if FUSE_UNK). */
static void tfm__tok_emit_unknown(tfm__tok_work *w, const uint8_t *p, uint32_t n, int *in_unknown) {
    const tfm_tokenizer *t = w->t;
    int spelled = tfm__tok_spelled(t, p, n);
    for (uint32_t i = 0; i < n && spelled; i++) tfm__tok_emit(w, tfm__tok_word(t, TFM_TOK_BYTE_IDS, p[i], 0));
    if (!spelled && t->unk != TFM__NONE && !(*in_unknown && t->flags & TFM_TOK_FUSE_UNK)) tfm__tok_emit(w, t->unk);
    *in_unknown = !spelled;
}

static void tfm__bpe_word(tfm__tok_work *w, const uint8_t *word, uint32_t n) {
    const tfm_tokenizer *t = w->t;
    if (t->flags & TFM_TOK_WHOLE_WORDS) {
        uint32_t id = tfm__tok_find(t, word, n);
        if (id < t->n_ids && tfm__tok_flags(t, id) & TFM_TOK_PIECE_WHOLE) { tfm__tok_emit(w, id); return; }
    }
    uint32_t count = tfm__bpe_symbols(w, word, n);
    count = count <= TFM__BPE_SHORT ? tfm__bpe_short(t, w->symbol, count) : tfm__bpe_long(w, count);
    int in_unknown = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = w->symbol[i], at = id & ~TFM__UNKNOWN, len = 1;
        if (id & TFM__UNKNOWN) {
            if (!(t->flags & TFM_TOK_BYTE_LEVEL)) tfm__utf8_get(word + at, n - at, &len);
            tfm__tok_emit_unknown(w, word + at, len, &in_unknown);
        } else {
            tfm__tok_emit(w, id);
            in_unknown = 0;
        }
    }
}

/* Where no merge crosses from something else to a space, what stands on both sides may go on its own. */
static void tfm__bpe_text(tfm__tok_work *w, const uint8_t *text, uint32_t n) {
    uint32_t begin = 0;
    if (tfm__tok_count(w->t, TFM_TOK_JOINS)) {
        for (uint32_t i = 1; i < n; i++) {
            uint8_t before = text[i - 1];
            if (text[i] != ' ' || tfm__tok_word(w->t, TFM_TOK_JOINS, before >> 5, 0) >> (before & 31) & 1) continue;
            tfm__bpe_word(w, text + begin, i - begin);
            begin = i;
        }
    }
    if (begin < n) tfm__bpe_word(w, text + begin, n - begin);
}

/* ---- encoding: the other models ---------------------------------------------------------------------------------- */

/* The best way to [at, at + len) of a word through piece `id`, if it is better than what is known. */
static void tfm__unigram_reach(tfm__tok_work *w, uint32_t at, uint32_t len, uint32_t id, double score) {
    const uint32_t end = at + len;
    score += w->score[at];
    if (w->t->flags & TFM_TOK_FLOAT_PATHS) score = (double)(float)score;
    if (w->from[end] != TFM__NONE && !(score > w->score[end])) return;
    w->score[end] = score;
    w->from[end] = at;
    w->piece[end] = id;
}

static double tfm__unigram_score(const tfm_tokenizer *t, uint32_t id) {
    const uint64_t high = tfm__tok_word(t, TFM_TOK_SCORES, id, 1), low = tfm__tok_word(t, TFM_TOK_SCORES, id, 0);
    const uint64_t bits = high << 32 | low;
    double score;
    memcpy(&score, &bits, 8);
    return score;
}

/* Viterbi over all cuts of a word into pieces (arXiv:1804.10959). */
static void tfm__unigram_paths(tfm__tok_work *w, const uint8_t *word, uint32_t n) {
    const tfm_tokenizer *t = w->t;
    const uint32_t n_nodes = tfm__tok_count(t, TFM_TOK_TRIE_PIECES), roots = tfm__tok_count(t, TFM_TOK_ROOT_PIECES);
    uint32_t width;
    memset(w->from, 0xFF, ((size_t)n + 1) * sizeof *w->from);
    w->score[0] = 0;
    for (uint32_t at = 0; at < n && w->steps; at += width) {
        uint32_t node = roots ? tfm__tok_word(t, TFM_TOK_ROOT_PIECES, word[at], 0) : 0, single = 0;
        tfm__utf8_get(word + at, n - at, &width);
        uint32_t len = 1;
        for (; node && node + 1 < n_nodes; len++) {
            uint32_t id = tfm__tok_word(t, TFM_TOK_TRIE_PIECES, node, 1) - 1;
            if (id < t->n_ids) {
                tfm__unigram_reach(w, at, len, id, tfm__unigram_score(t, id));
                single |= len == width;
            }
            if (at + len >= n) break;
            node = tfm__tok_child(t, TFM_TOK_TRIE_PIECES, node, word[at + len]);
        }
        if (!single) tfm__unigram_reach(w, at, width, TFM__NONE, t->unk_score);
        tfm__tok_spend(&w->steps, len); /* the nodes of a forged trie may form a ring */
    }
}

/* Characters without a piece, [p, p + n): as a whole they may be one after all. */
static void tfm__unigram_unknown(tfm__tok_work *w, const uint8_t *p, uint32_t n) {
    int in_unknown = 0;
    uint32_t id = tfm__tok_find(w->t, p, n);
    if (id < w->t->n_ids) tfm__tok_emit(w, id);
    else tfm__tok_emit_unknown(w, p, n, &in_unknown);
}

static void tfm__unigram_word(tfm__tok_work *w, const uint8_t *word, uint32_t n) {
    uint32_t at = n, end = 0, piece = TFM__NONE, unknown = 0;
    tfm__unigram_paths(w, word, n);
    if (!w->steps) return;
    /* Turn the links round: from and piece of a place become the end and piece of the part that begins there. */
    while (at) {
        const uint32_t from = w->from[at], own = w->piece[at];
        if (from >= at) { w->damaged = 1; return; }
        w->from[at] = end;
        w->piece[at] = piece;
        end = at;
        piece = own;
        at = from;
    }
    for (; at < n; end = w->from[at], piece = w->piece[at]) {
        const int is_unknown = piece == TFM__NONE || piece == w->t->unk;
        if (!is_unknown && unknown < at) tfm__unigram_unknown(w, word + unknown, at - unknown);
        if (!is_unknown) { tfm__tok_emit(w, piece); unknown = end; }
        at = end;
    }
    if (unknown < n) tfm__unigram_unknown(w, word + unknown, n - unknown);
}

/* The longest piece from the left, again and again; nothing but UNK if that does not come out. */
static void tfm__wordpiece_word(tfm__tok_work *w, const uint8_t *word, uint32_t n) {
    const tfm_tokenizer *t = w->t;
    const int64_t before = w->n;
    uint32_t at = 0, chars = 0;
    for (uint32_t i = 0; i < n; i++) chars += (word[i] & 0xC0) != 0x80;
    while (at < n && chars <= t->word_limit && w->steps) {
        uint32_t end = n - at > t->max_piece ? at + t->max_piece : n, id = TFM__NONE;
        while (end < n && end > at && (word[end] & 0xC0) == 0x80) end--;
        for (; end > at && tfm__tok_spend(&w->steps, (end - at) / 4 + 1); end = tfm__utf8_back(word, end, at)) {
            id = tfm__tok_find_part(w, word + at, end - at, at > 0, end == n);
            if (id < t->n_ids) break;
        }
        if (end == at) break;
        tfm__tok_emit(w, id);
        at = end;
    }
    if (at == n) return;
    w->n = before;
    if (t->unk < t->n_ids) tfm__tok_emit(w, t->unk);
}

static void tfm__tok_model(tfm__tok_work *w, const uint8_t *text, uint32_t n) {
    uint32_t id;
    switch (w->t->model) {
    case TFM_TOK_BPE: tfm__bpe_text(w, text, n); break;
    case TFM_TOK_UNIGRAM: tfm__unigram_word(w, text, n); break;
    case TFM_TOK_WORDPIECE: tfm__wordpiece_word(w, text, n); break;
    default:
        id = tfm__tok_find(w->t, text, n);
        if (id >= w->t->n_ids) id = w->t->unk;
        if (id < w->t->n_ids) tfm__tok_emit(w, id);
        break;
    }
}

/* ---- encoding: operations on the text ---------------------------------------------------------------------------- */

/* A growing text of bounded size. */
typedef struct tfm__tok_out { uint8_t *data; size_t n, cap; int full; } tfm__tok_out;

static void tfm__tok_put(tfm__tok_out *o, const uint8_t *p, size_t n) {
    if (n > o->cap - o->n) { o->full = 1; return; }
    if (n) memcpy(o->data + o->n, p, n);
    o->n += n;
}
static TFM__UNUSED void tfm__tok_put_char(tfm__tok_out *o, uint32_t c) {
    uint8_t b[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (n == 1) b[0] = (uint8_t)c;
    for (size_t i = n; n > 1 && i-- > 1; c >>= 6) b[i] = (uint8_t)(0x80 | (c & 63));
    if (n > 1) b[0] = (uint8_t)((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | c);
    tfm__tok_put(o, b, n);
}

/* ---- normalisation forms C and D (UAX 15) ------------------------------------------------------------------------ */

#ifdef TFM_NO_NFC
static int tfm__form_stable(const uint8_t *text, uint32_t n, int compose) {
    (void)text; (void)n; (void)compose;
    return 1;
}
static void tfm__form(tfm__tok_work *w, tfm__tok_out *o, const uint8_t *text, uint32_t n, int compose) {
    (void)w; (void)compose;
    tfm__tok_put(o, text, n);
}
#else
/* Nothing below U+0300 ever changes when composing, nothing below U+00C0 when decomposing. */
static int tfm__form_stable(const uint8_t *text, uint32_t n, int compose) {
    const uint8_t low = compose ? 0xCC : 0xC3;
    for (uint32_t i = 0; i < n; i++) if (text[i] >= low) return 0;
    return 1;
}

static uint32_t tfm__combining_class(uint32_t c) {
    uint32_t a = 0, b = (uint32_t)(sizeof tfm__combining / sizeof tfm__combining[0]);
    if (c < tfm__combining[0] >> 8) return 0;
    while (b - a > 1) {
        uint32_t mid = a + (b - a) / 2;
        if (tfm__combining[mid] >> 8 <= c) a = mid;
        else b = mid;
    }
    return tfm__combining[a] & 255;
}

/* One step of decomposition: 1 or 2 parts, 0 if there is none. `width` columns of n words, ordered by the first. */
static int tfm__decompose_in(const uint32_t *table, uint32_t n, uint32_t width, uint32_t c, uint32_t *parts) {
    uint32_t a = 0, b = n;
    while (a < b) {
        uint32_t mid = a + (b - a) / 2;
        if (table[mid] < c) a = mid + 1;
        else b = mid;
    }
    if (a == n || table[a] != c) return 0;
    for (uint32_t k = 1; k < width; k++) parts[k - 1] = table[n * k + a];
    return (int)width - 1;
}
static int tfm__decompose(uint32_t c, uint32_t *parts) {
    if (c >= 0xAC00 && c < 0xAC00 + 11172) { /* Hangul: (leading, vowel) + trailing */
        uint32_t s = c - 0xAC00;
        parts[0] = s % 28 ? c - s % 28 : 0x1100 + s / 588;
        parts[1] = s % 28 ? 0x11A7 + s % 28 : 0x1161 + s % 588 / 28;
        return 2;
    }
    int n = tfm__decompose_in(tfm__pairs, (uint32_t)(sizeof tfm__pairs / 12), 3, c, parts);
    return n ? n : tfm__decompose_in(tfm__singletons, (uint32_t)(sizeof tfm__singletons / 8), 2, c, parts);
}

/* The character that a and b compose to, or 0. */
static uint32_t tfm__compose(uint32_t a, uint32_t b) {
    if (a >= 0x1100 && a < 0x1113 && b >= 0x1161 && b < 0x1176) return 0xAC00 + (a - 0x1100) * 588 + (b - 0x1161) * 28;
    if (a >= 0xAC00 && a < 0xAC00 + 11172 && (a - 0xAC00) % 28 == 0 && b > 0x11A7 && b < 0x11C3) return a + b - 0x11A7;
    enum { PAIRS = sizeof tfm__pairs / 12 };
    uint32_t low = 0, high = (uint32_t)(sizeof tfm__composing / 2), n = high;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        const uint32_t *p = tfm__pairs + tfm__composing[mid];
        if (p[PAIRS] < a || (p[PAIRS] == a && p[2 * PAIRS] < b)) low = mid + 1;
        else high = mid;
    }
    if (low == n) return 0;
    const uint32_t *p = tfm__pairs + tfm__composing[low];
    return p[PAIRS] == a && p[2 * PAIRS] == b ? p[0] : 0;
}

/* Appends the full decomposition of c to a[0..n), combining classes in the upper 8 bits. Returns the new n, or n if
   there is no room. */
static size_t tfm__nfd_push(uint32_t *a, size_t n, size_t cap, uint32_t c) {
    uint32_t parts[2], stack[8];
    int top = 0;
    stack[top++] = c;
    while (top) {
        c = stack[--top];
        int k = tfm__decompose(c, parts);
        if (k && top + k <= 8) {
            while (k) stack[top++] = parts[--k];
            continue;
        }
        if (n == cap) return n;
        a[n++] = c | tfm__combining_class(c) << 24;
    }
    return n;
}

/* Canonical order: the marks of each run by class, those of one class in the order they came (counting sort, so that
   a long run takes no longer than many short ones). */
static void tfm__nfd_order(uint32_t *a, size_t n, uint32_t *spare) {
    for (size_t i = 0, end; i < n; i = end) {
        size_t count[256], at = 0;
        int sorted = 1;
        for (end = i + 1; a[i] >> 24 && end < n && a[end] >> 24; end++) sorted &= a[end - 1] >> 24 <= a[end] >> 24;
        if (sorted) continue;
        memset(count, 0, sizeof count);
        for (size_t j = i; j < end; j++) count[a[j] >> 24]++;
        for (int k = 0; k < 256; k++) { size_t m = count[k]; count[k] = at; at += m; }
        for (size_t j = i; j < end; j++) spare[count[a[j] >> 24]++] = a[j];
        memcpy(a + i, spare, (end - i) * sizeof *a);
    }
}

/* Composes a[0..n) in place. Returns the new length. */
static size_t tfm__nfc_compose(uint32_t *a, size_t n) {
    size_t out = 0, starter = SIZE_MAX;
    uint32_t last = 0; /* class of the last one kept after the starter */
    for (size_t i = 0; i < n; i++) {
        uint32_t c = a[i] & 0xFFFFFF, k = a[i] >> 24, whole = 0;
        if (starter != SIZE_MAX && (out == starter + 1 || (last < k && last))) whole = tfm__compose(a[starter], c);
        if (whole) { a[starter] = whole; continue; }
        if (!k) starter = out;
        last = k;
        a[out++] = c;
    }
    return out;
}

/* Runs of text that begin with a character nothing composes with are normalised one at a time. */
static void tfm__form(tfm__tok_work *w, tfm__tok_out *o, const uint8_t *text, uint32_t n, int compose) {
    uint32_t i = 0, len, *a = w->points;
    size_t cap = w->text_cap, m = 0;
    while (i < n) {
        uint32_t begin = i;
        while (i < n && text[i] < 0x80) i++; /* ASCII stays; its last character may be a base */
        if (i < n && i > begin) i--;
        tfm__tok_put(o, text + begin, i - begin);
        m = 0;
        begin = i;
        while (i < n && (i == begin || text[i] >= 0x80)) {
            size_t before = m;
            m = tfm__nfd_push(a, m, cap, tfm__utf8_get(text + i, n - i, &len));
            if (m == before) { w->damaged = 1; return; }
            i += len;
        }
        tfm__nfd_order(a, m, w->spare);
        if (compose) m = tfm__nfc_compose(a, m);
        for (size_t j = 0; j < m; j++) tfm__tok_put_char(o, a[j] & 0xFFFFFF);
    }
}
#endif

static void tfm__tok_replace(tfm__tok_work *w, tfm__tok_out *o, const uint8_t *text, uint32_t n, uint32_t op) {
    const tfm_tokenizer *t = w->t;
    const uint8_t *strings = t->base.p + t->table[TFM_TOK_STRINGS].at;
    const uint8_t *from = strings + tfm__tok_word(t, TFM_TOK_OPS, op, 1);
    const uint8_t *to = strings + tfm__tok_word(t, TFM_TOK_OPS, op, 3);
    const uint32_t lengths = tfm__tok_word(t, TFM_TOK_OPS, op, 2), n_from = lengths & 0xFFFF, n_to = lengths >> 16;
    uint32_t begin = 0, i = 0;
    while (n_from <= n && i <= n - n_from && tfm__tok_spend(&w->steps, n_from / 16)) {
        const uint8_t *hit = (const uint8_t *)memchr(text + i, from[0], n - n_from - i + 1);
        if (!hit) break;
        i = (uint32_t)(hit - text);
        if (memcmp(hit, from, n_from) != 0) { i++; continue; }
        tfm__tok_put(o, text + begin, i - begin);
        tfm__tok_put(o, to, n_to);
        begin = i += n_from;
    }
    tfm__tok_put(o, text + begin, n - begin);
}

/* Drops spaces at both ends (at the end also U+2581 if marks) and all but one of several between. */
static void tfm__tok_squeeze(tfm__tok_out *o, const uint8_t *text, uint32_t n, uint32_t marks) {
    for (;;) {
        if (n && text[n - 1] == ' ') n--;
        else if (marks && n >= 3 && memcmp(text + n - 3, "\xE2\x96\x81", 3) == 0) n -= 3;
        else break;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (text[i] != ' ' || (o->n && o->data[o->n - 1] != ' ')) tfm__tok_put(o, text + i, 1);
    }
}

/* White space at the ends: 1 at the start, 2 at the end. *n becomes the rest. */
static const uint8_t *tfm__tok_trim(const uint8_t *text, uint32_t *n, uint32_t sides) {
    uint32_t begin = 0, end = *n, len;
    while (sides & 1 && begin < end && tfm__is_space(tfm__utf8_get(text + begin, end - begin, &len))) begin += len;
    while (sides & 2 && end > begin) {
        uint32_t before = tfm__utf8_back(text, end, begin);
        if (!tfm__is_space(tfm__utf8_get(text + before, end - before, &len))) break;
        end = before;
    }
    *n = end - begin;
    return text + begin;
}

/* ---- encoding: maps of characters -------------------------------------------------------------------------------- */

/* The row among n from `first` on that has c, or TFM__NONE. */
static uint32_t tfm__map_row(const tfm_tokenizer *t, uint32_t first, uint32_t n, uint32_t c) {
    uint32_t a = first, b = first + n;
    while (a < b) {
        uint32_t mid = a + (b - a) / 2;
        if (c > tfm__tok_word(t, TFM_TOK_MAPS, mid, 1)) a = mid + 1;
        else if (c < tfm__tok_word(t, TFM_TOK_MAPS, mid, 0)) b = mid;
        else return mid;
    }
    return TFM__NONE;
}
static uint32_t tfm__map_group(const tfm_tokenizer *t, uint32_t first, uint32_t n, uint32_t c) {
    uint32_t row = tfm__map_row(t, first, n, c);
    return row == TFM__NONE ? 0 : tfm__tok_word(t, TFM_TOK_MAPS, row, 3);
}

/* What a row makes of c, whose bytes are p[0..len). */
static void tfm__map_put(const tfm_tokenizer *t, tfm__tok_out *o, uint32_t row, uint32_t c, const uint8_t *p,
                         uint32_t len) {
    const uint8_t *strings = t->base.p + t->table[TFM_TOK_STRINGS].at;
    const uint32_t action = tfm__tok_word(t, TFM_TOK_MAPS, row, 2), value = tfm__tok_word(t, TFM_TOK_MAPS, row, 3);
    switch (action & 255) {
    case TFM_TOK_MAP_DROP: break;
    case TFM_TOK_MAP_SECOND:
        if ((c - tfm__tok_word(t, TFM_TOK_MAPS, row, 0)) & 1) { tfm__tok_put(o, p, len); break; } /* fall through */
    case TFM_TOK_MAP_ADD: tfm__tok_put_char(o, (c + value) & 0x1FFFFF); break;
    case TFM_TOK_MAP_AROUND:
        tfm__tok_put(o, strings + value, action >> 8);
        tfm__tok_put(o, p, len); /* fall through */
    case TFM_TOK_MAP_STRING: tfm__tok_put(o, strings + value, action >> 8); break;
    default: tfm__tok_put(o, p, len); break; /* TFM_TOK_MAP_GROUP says something about the character, changes nothing */
    }
}

/* What the rows make of ASCII is looked up once. */
static void tfm__tok_map(tfm__tok_work *w, tfm__tok_out *o, const uint8_t *text, uint32_t n, uint32_t first,
                         uint32_t rows) {
    const tfm_tokenizer *t = w->t;
    uint8_t plain[128];
    uint32_t len, begin = 0;
    for (uint32_t c = 0; c < 128; c++) plain[c] = tfm__map_row(t, first, rows, c) == TFM__NONE;
    for (uint32_t i = 0; i < n; i += len) {
        len = 1;
        if (text[i] < 128 && plain[text[i]]) continue;
        uint32_t c = tfm__utf8_get(text + i, n - i, &len), row = tfm__map_row(t, first, rows, c);
        if (row == TFM__NONE) continue;
        tfm__tok_put(o, text + begin, i - begin);
        tfm__map_put(t, o, row, c, text + i, len);
        begin = i + len;
    }
    tfm__tok_put(o, text + begin, n - begin);
}

/* Each byte as a character: those that print as U+0021 .., the others as U+0100 .. in order. */
static void tfm__tok_byte_chars(tfm__tok_out *o, const uint8_t *text, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = text[i];
        if (c <= 32) c += 256;
        else if (c >= 127 && c <= 160) c += 289 - 127;
        else if (c == 173) c = 323;
        tfm__tok_put_char(o, c);
    }
}

/* ---- encoding: clusters and precompiled maps --------------------------------------------------------------------- */

/* Where clusters end (UAX 29): what counts of the characters before. */
typedef struct tfm__cluster { uint32_t previous; int picture, conjunct, regional; } tfm__cluster;

/* Whether a character of group g goes on with the cluster. */
static int tfm__cluster_goes_on(const tfm__cluster *s, uint32_t g) {
    const uint32_t p = s->previous;
    if (p == TFM_TOK_GCB_CR && g == TFM_TOK_GCB_LF) return 1;
    if ((p >= TFM_TOK_GCB_CR && p <= TFM_TOK_GCB_CONTROL) || (g >= TFM_TOK_GCB_CR && g <= TFM_TOK_GCB_CONTROL))
        return 0;
    if (g == TFM_TOK_GCB_EXTEND || g == TFM_TOK_GCB_ZWJ || g == TFM_TOK_GCB_SPACING || g == TFM_TOK_GCB_LINKER)
        return 1;
    if (p == TFM_TOK_GCB_PREPEND) return 1;
    if (p == TFM_TOK_GCB_L) return g == TFM_TOK_GCB_L || g == TFM_TOK_GCB_V || g >= TFM_TOK_GCB_LV;
    if (p == TFM_TOK_GCB_LV || p == TFM_TOK_GCB_V) return g == TFM_TOK_GCB_V || g == TFM_TOK_GCB_T;
    if (p == TFM_TOK_GCB_LVT || p == TFM_TOK_GCB_T) return g == TFM_TOK_GCB_T;
    if (g == TFM_TOK_GCB_PICTURE) return p == TFM_TOK_GCB_ZWJ && s->picture;
    if (g == TFM_TOK_GCB_CONSONANT) return s->conjunct == 2;
    return g == TFM_TOK_GCB_REGIONAL && s->regional & 1;
}
static void tfm__cluster_step(tfm__cluster *s, uint32_t g) {
    const int extends = g == TFM_TOK_GCB_EXTEND || g == TFM_TOK_GCB_ZWJ || g == TFM_TOK_GCB_LINKER;
    s->picture = g == TFM_TOK_GCB_PICTURE || (s->picture && extends);
    if (g == TFM_TOK_GCB_CONSONANT) s->conjunct = 1; /* 2: and a linker */
    else if (g == TFM_TOK_GCB_LINKER && s->conjunct) s->conjunct = 2;
    else if (!extends) s->conjunct = 0;
    s->regional = g == TFM_TOK_GCB_REGIONAL ? s->regional + 1 : 0;
    s->previous = g;
}
static uint32_t tfm__cluster_end(const tfm_tokenizer *t, uint32_t first, uint32_t rows, const uint8_t *text,
                                 uint32_t at, uint32_t n) {
    tfm__cluster s;
    uint32_t len;
    memset(&s, 0, sizeof s);
    for (uint32_t i = at; i < n; i += len) {
        uint32_t g = tfm__map_group(t, first, rows, tfm__utf8_get(text + i, n - i, &len));
        if (i > at && !tfm__cluster_goes_on(&s, g)) return i;
        tfm__cluster_step(&s, g);
    }
    return n;
}

/* A precompiled map: uint32 bytes of its units, units (a double-array trie), texts that end in zeros. */
typedef struct tfm__charsmap {
    const uint8_t *units, *texts;
    uint32_t n_units, n_texts;
    uint64_t *steps;
} tfm__charsmap;

/* The text for a key that begins at p, the shortest or longest; its bytes in *n_text, those of the key in *n_key. */
static const uint8_t *tfm__charsmap_find(const tfm__charsmap *m, const uint8_t *p, uint32_t n, int longest,
                                         uint32_t *n_key, uint32_t *n_text) {
    const uint8_t *found = NULL;
    uint32_t node = 0;
    for (uint32_t i = 0; i <= n && node < m->n_units && tfm__tok_spend(m->steps, 1); i++) {
        uint32_t unit = tfm__le32(m->units + (size_t)node * 4), value;
        if (i && (unit & 0x800000FFu) != p[i - 1]) break;
        node ^= unit >> 10 << ((unit & 512) >> 6);
        if (i && unit >> 8 & 1 && node < m->n_units) {
            value = tfm__le32(m->units + (size_t)node * 4) & 0x7FFFFFFF;
            const uint8_t *end = NULL;
            if (value < m->n_texts) end = (const uint8_t *)memchr(m->texts + value, 0, m->n_texts - value);
            tfm__tok_spend(m->steps, (end ? (uint32_t)(end - m->texts) : m->n_texts) / 16 - value / 16);
            if (!end) break;
            found = m->texts + value;
            *n_text = (uint32_t)(end - found);
            *n_key = i;
            if (!longest) break;
        }
        if (i == n || !p[i]) break;
        node ^= p[i];
    }
    return found;
}

static void tfm__tok_charsmap(tfm__tok_work *w, tfm__tok_out *o, const uint8_t *text, uint32_t n, uint32_t op) {
    const tfm_tokenizer *t = w->t;
    const uint8_t *blob = t->base.p + t->table[TFM_TOK_STRINGS].at + tfm__tok_word(t, TFM_TOK_OPS, op, 1);
    const uint32_t size = tfm__tok_word(t, TFM_TOK_OPS, op, 2), first = tfm__tok_word(t, TFM_TOK_OPS, op, 3);
    const uint32_t rows = tfm__tok_word(t, TFM_TOK_OPS, op, 4), unit_bytes = size >= 4 ? tfm__le32(blob) : 0;
    tfm__charsmap m;
    uint32_t end, len, n_key = 0, n_text = 0;
    if (size < 4 || unit_bytes > size - 4) { w->damaged = 1; return; }
    m.units = blob + 4;
    m.n_units = unit_bytes / 4;
    m.texts = m.units + unit_bytes;
    m.n_texts = size - 4 - unit_bytes;
    m.steps = &w->steps;
    for (uint32_t at = 0, cluster = 0; at < n && w->steps; at = end) {
        const uint8_t *to = NULL;
        tfm__utf8_get(text + at, n - at, &len);
        end = at + len;
        if (!rows) {
            to = tfm__charsmap_find(&m, text + at, n - at, 1, &n_key, &n_text);
            if (to) end = at + n_key;
        } else {
            if (at >= cluster) {
                const uint8_t after = end < n ? text[end] : ' ';
                const int alone = text[at] >= 32 && text[at] < 127 && after >= 32 && after < 127;
                cluster = alone ? end : tfm__cluster_end(t, first, rows, text, at, n);
                if (cluster - at < 6) to = tfm__charsmap_find(&m, text + at, cluster - at, 0, &n_key, &n_text);
                if (to) end = cluster;
            }
            if (!to) to = tfm__charsmap_find(&m, text + at, end - at, 0, &n_key, &n_text);
        }
        tfm__tok_put(o, to ? to : text + at, to ? n_text : end - at);
    }
}

/* ---- encoding: one operation after the other --------------------------------------------------------------------- */

static void tfm__tok_rewrite_matches(tfm__tok_work *w, tfm__tok_out *o, const uint8_t *text, uint32_t n, uint32_t op) {
    const tfm_tokenizer *t = w->t;
    const uint8_t *to = t->base.p + t->table[TFM_TOK_STRINGS].at + tfm__tok_word(t, TFM_TOK_OPS, op, 2);
    const uint32_t pc = tfm__tok_word(t, TFM_TOK_OPS, op, 1), n_to = tfm__tok_word(t, TFM_TOK_OPS, op, 3);
    uint32_t at = 0, done = 0, end, last = TFM__NONE;
    tfm__re r;
    tfm__re_begin(&r, w, op, text, n, tfm__tok_word(t, TFM_TOK_OPS, op, 4));
    while ((end = tfm__re_next(&r, pc, &at, last)) != TFM__NONE) {
        tfm__tok_put(o, text + done, at - done);
        tfm__tok_put(o, to, n_to);
        at = done = last = end;
    }
    tfm__tok_put(o, text + done, n - done);
}

/* Whether a text begins with what is put before it, or this is not the place to put it. */
static int tfm__tok_prefixed(const uint8_t *text, uint32_t n, const uint8_t *prefix, uint32_t n_prefix, uint32_t when,
                             int first) {
    if (!n || (when == TFM_TOK_IF_FIRST_MISSING && !first)) return 1;
    return when != TFM_TOK_ALWAYS && n >= n_prefix && memcmp(text, prefix, n_prefix) == 0;
}

/* Operation i, one that rewrites, from text into buffer; *n becomes the new length, *first 0 if the text loses its
   start. Returns the text to go on with. */
static const uint8_t *tfm__tok_rewrite(tfm__tok_work *w, uint32_t i, const uint8_t *text, uint32_t *n, int *first,
                                       uint8_t *buffer) {
    const tfm_tokenizer *t = w->t;
    const uint8_t *strings = t->base.p + t->table[TFM_TOK_STRINGS].at, *rest;
    const uint32_t kind = tfm__tok_word(t, TFM_TOK_OPS, i, 0), a = tfm__tok_word(t, TFM_TOK_OPS, i, 1);
    const uint32_t b = tfm__tok_word(t, TFM_TOK_OPS, i, 2), c = tfm__tok_word(t, TFM_TOK_OPS, i, 3);
    uint32_t row;
    tfm__tok_out out;
    if (!*n) return text;
    out.data = buffer;
    out.n = 0;
    out.cap = w->text_cap;
    out.full = 0;
    switch (kind) {
    case TFM_TOK_NFC:
    case TFM_TOK_NFD:
        if (tfm__form_stable(text, *n, kind == TFM_TOK_NFC)) return text;
        tfm__form(w, &out, text, *n, kind == TFM_TOK_NFC);
        break;
    case TFM_TOK_REPLACE: tfm__tok_replace(w, &out, text, *n, i); break;
    case TFM_TOK_REWRITE: tfm__tok_rewrite_matches(w, &out, text, *n, i); break;
    case TFM_TOK_SQUEEZE: tfm__tok_squeeze(&out, text, *n, a); break;
    case TFM_TOK_TRIM:
        rest = tfm__tok_trim(text, n, a);
        if (rest != text) *first = 0;
        return rest;
    case TFM_TOK_MAP:
        row = tfm__map_row(t, a, b, tfm__utf8_get(text, *n, &row));
        if (row != TFM__NONE && (tfm__tok_word(t, TFM_TOK_MAPS, row, 2) & 255) == TFM_TOK_MAP_DROP) *first = 0;
        tfm__tok_map(w, &out, text, *n, a, b);
        break;
    case TFM_TOK_CHARSMAP: tfm__tok_charsmap(w, &out, text, *n, i); break;
    case TFM_TOK_BYTE_CHARS: tfm__tok_byte_chars(&out, text, *n); break;
    default: /* TFM_TOK_PREPEND */
        if (tfm__tok_prefixed(text, *n, strings + a, b, c, *first)) return text;
        tfm__tok_put(&out, strings + a, b);
        tfm__tok_put(&out, text, *n);
        break;
    }
    if (out.full) { w->damaged = 1; out.n = 0; }
    tfm__tok_spend(&w->steps, *n + (uint64_t)out.n);
    *n = (uint32_t)out.n;
    return buffer;
}

static void tfm__tok_pre(tfm__tok_work *w, uint32_t i, const uint8_t *text, uint32_t n, int first);

/* What a split does with the next stretch [begin, end) of its text, a match or what lies between. */
typedef struct tfm__tok_split {
    tfm__tok_work *w;
    const uint8_t *text;
    uint32_t op, behaviour, begin, end; /* [begin, end) waits: it may still grow */
    int held, held_match, first;
} tfm__tok_split;

static void tfm__tok_split_flush(tfm__tok_split *s) {
    if (s->held && s->end > s->begin) {
        tfm__tok_pre(s->w, s->op + 1, s->text + s->begin, s->end - s->begin, s->first && s->begin == 0);
    }
    s->held = 0;
}
static void tfm__tok_split_add(tfm__tok_split *s, uint32_t begin, uint32_t end, int match) {
    int joins = 0;
    if (s->behaviour == TFM_TOK_WITH_PREVIOUS) joins = match && !s->held_match;
    if (s->behaviour == TFM_TOK_WITH_NEXT) joins = !match && s->held_match;
    if (s->behaviour == TFM_TOK_CONTIGUOUS) joins = match == s->held_match;
    if (s->held && joins) {
        s->end = end;
    } else {
        tfm__tok_split_flush(s);
        s->held = !(match && s->behaviour == TFM_TOK_REMOVED);
        s->begin = begin;
        s->end = end;
    }
    s->held_match = match;
}

static void tfm__tok_split_text(tfm__tok_work *w, uint32_t i, const uint8_t *text, uint32_t n, int first) {
    const tfm_tokenizer *t = w->t;
    uint32_t pc = tfm__tok_word(t, TFM_TOK_OPS, i, 1), how = tfm__tok_word(t, TFM_TOK_OPS, i, 2);
    uint32_t gap = 0, at = 0, end, last = TFM__NONE;
    int invert = (how & TFM_TOK_INVERT) != 0;
    tfm__tok_split s;
    tfm__re r;
    memset(&s, 0, sizeof s);
    s.w = w;
    s.text = text;
    s.op = i;
    s.behaviour = how & 255;
    s.first = first;
    tfm__re_begin(&r, w, i, text, n, tfm__tok_word(t, TFM_TOK_OPS, i, 3));
    while ((end = tfm__re_next(&r, pc, &at, last)) != TFM__NONE) {
        if (gap < at) tfm__tok_split_add(&s, gap, at, invert);
        tfm__tok_split_add(&s, at, end, !invert);
        gap = at = last = end;
    }
    if (gap < n) tfm__tok_split_add(&s, gap, n, invert);
    tfm__tok_split_flush(&s);
}

/* Pieces of the same number of characters. */
static void tfm__tok_split_chunks(tfm__tok_work *w, uint32_t i, const uint8_t *text, uint32_t n, int first) {
    const uint32_t most = tfm__tok_word(w->t, TFM_TOK_OPS, i, 1);
    uint32_t len;
    for (uint32_t begin = 0, end = 0; begin < n && w->steps; begin = end) {
        for (uint32_t k = 0; k < most && end < n; k++, end += len) tfm__utf8_get(text + end, n - end, &len);
        tfm__tok_pre(w, i + 1, text + begin, end - begin, first && !begin);
    }
}

/* Cuts where the group of the characters changes. */
static void tfm__tok_split_groups(tfm__tok_work *w, uint32_t i, const uint8_t *text, uint32_t n, int first) {
    const uint32_t rows = tfm__tok_word(w->t, TFM_TOK_OPS, i, 1), n_rows = tfm__tok_word(w->t, TFM_TOK_OPS, i, 2);
    uint32_t len, begin = TFM__NONE, current = 0;
    for (uint32_t at = 0; at < n && w->steps; at += len) {
        uint32_t group = tfm__map_group(w->t, rows, n_rows, tfm__utf8_get(text + at, n - at, &len));
        if (!group || group == current) continue;
        if (begin != TFM__NONE) tfm__tok_pre(w, i + 1, text + begin, at - begin, first && !begin);
        begin = at;
        current = group;
    }
    if (begin != TFM__NONE) tfm__tok_pre(w, i + 1, text + begin, n - begin, first && !begin);
}

/* The pre-tokenizer from operation i on, then the model. Recursion ends after TFM_TOK_MAX_OPS. */
static void tfm__tok_pre(tfm__tok_work *w, uint32_t i, const uint8_t *text, uint32_t n, int first) {
    if (!tfm__tok_spend(&w->steps, (uint64_t)n + 1)) return;
    for (; i < tfm__tok_count(w->t, TFM_TOK_OPS); i++) {
        switch (tfm__tok_word(w->t, TFM_TOK_OPS, i, 0)) {
        case TFM_TOK_SPLIT: tfm__tok_split_text(w, i, text, n, first); return;
        case TFM_TOK_CHUNKS: tfm__tok_split_chunks(w, i, text, n, first); return;
        case TFM_TOK_GROUPS: tfm__tok_split_groups(w, i, text, n, first); return;
        default: text = tfm__tok_rewrite(w, i, text, &n, &first, w->changed[i]); break;
        }
    }
    if (n) tfm__tok_model(w, text, n);
}

/* ---- encoding: added tokens -------------------------------------------------------------------------------------- */

/* The longest added token that begins at p; its length in *len, or TFM__NONE. Control tokens only if wanted. */
static uint32_t tfm__tok_added_at(const tfm_tokenizer *t, int root, const uint8_t *p, uint32_t n, int control,
                                  uint32_t *len, uint64_t *steps) {
    const int trie = root + 1;
    uint32_t found = TFM__NONE, node = tfm__tok_word(t, root, p[0], 0), n_nodes = tfm__tok_count(t, trie) - 1;
    for (uint32_t depth = 1; node && node < n_nodes && tfm__tok_spend(steps, 1); depth++) {
        uint32_t added = tfm__tok_word(t, trie, node, 1) - 1;
        if (added < tfm__tok_count(t, TFM_TOK_ADDED) &&
            (control || !(tfm__tok_word(t, TFM_TOK_ADDED, added, 1) & TFM_TOK_CONTROL))) {
            found = added;
            *len = depth;
        }
        if (depth >= n || depth >= t->max_added) break;
        node = tfm__tok_child(t, trie, node, p[depth]);
    }
    return found;
}

/* The first added token in text[at, n): its place in *begin and *len. */
static uint32_t tfm__tok_added_next(tfm__tok_work *w, int root, const uint8_t *text, uint32_t at, uint32_t n,
                                    int control, uint32_t *begin, uint32_t *len) {
    const tfm_tokenizer *t = w->t;
    for (; at < n && w->steps; at++) {
        if (!tfm__tok_word(t, root, text[at], 0)) continue;
        uint32_t added = tfm__tok_added_at(t, root, text + at, n - at, control, len, &w->steps);
        if (added == TFM__NONE) continue;
        *begin = at;
        return added;
    }
    return TFM__NONE;
}

/* The same where the longest goes first wherever it stands: one that begins inside another and is longer wins, and the
   text before it is looked at again on its own. */
static uint32_t tfm__tok_added_longest(tfm__tok_work *w, int root, const uint8_t *text, uint32_t at, uint32_t n,
                                       int control, uint32_t *begin, uint32_t *len) {
    uint32_t limit = n;
    for (;;) {
        uint32_t added = tfm__tok_added_next(w, root, text, at, limit, control, begin, len), winner = added;
        if (added == TFM__NONE && limit == n) return TFM__NONE;
        if (added == TFM__NONE) { at = limit; limit = n; continue; }
        uint32_t place = *begin, length = *len, other_len = 0;
        for (uint32_t i = place + 1; i < place + length; i++) {
            uint32_t other = tfm__tok_added_at(w->t, root, text + i, limit - i, control, &other_len, &w->steps);
            if (other == TFM__NONE || other_len <= length) continue;
            winner = other;
            place = i;
            length = other_len;
        }
        if (place == *begin) return winner;
        limit = place;
    }
}

/* does text begin with a word character? */
static int tfm__tok_word_at(tfm__tok_work *w, const uint8_t *text, uint32_t n) {
    tfm__re r;
    memset(&r, 0, sizeof r);
    r.t = w->t;
    r.text = text;
    r.n = n;
    return w->t->word_class != TFM__NONE && tfm__re_one(&r, w->t->word_class, 0) != 0;
}

/* Whether the token at [begin, end) of text counts; widens it over the white space it takes with it. */
static int tfm__tok_added_fits(tfm__tok_work *w, uint32_t flags, const uint8_t *text, uint32_t n, uint32_t done,
                               uint32_t *begin, uint32_t *end) {
    uint32_t len;
    if (flags & TFM_TOK_CONTROL && !(w->flags & TFM_ENCODE_PARSE_SPECIAL)) return 0;
    if (flags & TFM_TOK_SINGLE_WORD) {
        uint32_t before = *begin ? tfm__utf8_back(text, *begin, 0) : 0;
        if (*begin && tfm__tok_word_at(w, text + before, *begin - before)) return 0;
        if (*end < n && tfm__tok_word_at(w, text + *end, n - *end)) return 0;
    }
    while (flags & TFM_TOK_LSTRIP && *begin > done) {
        uint32_t before = tfm__utf8_back(text, *begin, done);
        if (!tfm__is_space(tfm__utf8_get(text + before, *begin - before, &len))) break;
        *begin = before;
    }
    if (flags & TFM_TOK_RSTRIP && *end < done) *end = done; /* inside white space that is taken already */
    while (flags & TFM_TOK_RSTRIP && *end < n && tfm__is_space(tfm__utf8_get(text + *end, n - *end, &len))) *end += len;
    return 1;
}

/* Cuts text at the added tokens of a trie and hands what lies between to `rest`. */
static void tfm__tok_cut(tfm__tok_work *w, int root, const uint8_t *text, uint32_t n, int first, tfm__tok_step *rest) {
    const tfm_tokenizer *t = w->t;
    int longest = (t->flags & TFM_TOK_LONGEST) != 0, control = !longest || w->flags & TFM_ENCODE_PARSE_SPECIAL;
    uint32_t done = 0, at = 0, begin = 0, len = 0;
    while (tfm__tok_count(t, root) && at < n) {
        uint32_t added = longest ? tfm__tok_added_longest(w, root, text, at, n, control, &begin, &len)
                                 : tfm__tok_added_next(w, root, text, at, n, control, &begin, &len);
        if (added == TFM__NONE) break;
        uint32_t end = begin + len;
        at = end;
        if (!tfm__tok_added_fits(w, tfm__tok_word(t, TFM_TOK_ADDED, added, 1), text, n, done, &begin, &end)) continue;
        if (begin > done) rest(w, text + done, begin - done, first && done == 0);
        tfm__tok_emit(w, tfm__tok_word(t, TFM_TOK_ADDED, added, 0));
        done = end;
    }
    if (done < n) rest(w, text + done, n - done, first && done == 0);
}

static void tfm__tok_words(tfm__tok_work *w, const uint8_t *text, uint32_t n, int first) {
    tfm__tok_pre(w, w->t->n_norm, text, n, first);
}
static const uint8_t *tfm__tok_norm(tfm__tok_work *w, const uint8_t *text, uint32_t *n, int *first) {
    int spare = 0; /* an operation may leave the text where it is, or give a part of it */
    for (uint32_t i = 0; i < w->t->n_norm; i++) {
        text = tfm__tok_rewrite(w, i, text, n, first, w->normal[spare]);
        if (text == w->normal[spare]) spare ^= 1;
    }
    return text;
}
static void tfm__tok_normalise(tfm__tok_work *w, const uint8_t *text, uint32_t n, int first) {
    text = tfm__tok_norm(w, text, &n, &first);
    tfm__tok_cut(w, TFM_TOK_ROOT_NORM, text, n, first, tfm__tok_words);
}

/* text as valid UTF-8: itself, or a copy in clean. */
static const uint8_t *tfm__tok_clean(uint8_t *clean, const uint8_t *text, size_t n, size_t *n_clean) {
    static const uint8_t mark[3] = {0xEF, 0xBF, 0xBD};
    size_t good = 0, m;
    int bad = 0;
    while (good < n && !bad) {
        uint32_t len = text[good] < 0x80 ? 1 : tfm__utf8_scan(text + good, n - good, &bad);
        if (!bad) good += len;
    }
    *n_clean = n;
    if (good == n) return text;
    memcpy(clean, text, good);
    m = good;
    for (size_t i = good, len; i < n; i += len) {
        len = tfm__utf8_scan(text + i, n - i, &bad);
        memcpy(clean + m, bad ? mark : text + i, bad ? 3 : len);
        m += bad ? 3 : len;
    }
    *n_clean = m;
    return clean;
}

/* ---- encoding: the calls ----------------------------------------------------------------------------------------- */

TFM_API size_t tfm_tokenizer_size(void) { return sizeof(tfm_tokenizer); }

TFM_API tfm_result tfm_tokenizer_open(const void *section, size_t size, void *mem, size_t mem_bytes,
                                      const tfm_tokenizer **out, tfm_error *err) {
    *out = NULL;
    if (!mem || mem_bytes < sizeof(tfm_tokenizer) || (size_t)mem % 8) {
        return tfm__fail(err, TFM_ERR_MEMORY, "tfm_tokenizer_open: mem has %l bytes, needs %l, aligned to 8",
                         (int64_t)mem_bytes, (int64_t)sizeof(tfm_tokenizer));
    }
    tfm_result code = tfm__tokenizer_open((tfm_tokenizer *)mem, (const uint8_t *)section, size, err);
    if (code == TFM_OK) *out = (const tfm_tokenizer *)mem;
    return code;
}

TFM_API int32_t tfm_vocab_size(const tfm_tokenizer *t) { return (int32_t)t->n_ids; }

TFM_API const char *tfm_token_piece(const tfm_tokenizer *t, int32_t id, size_t *n) {
    uint32_t len = 0;
    const uint8_t *p = NULL;
    if (tfm_token_flags(t, id) & TFM_TOKEN_PRESENT) p = tfm__tok_text(t, (uint32_t)id, 0, &len);
    if (n) *n = len;
    return (const char *)p;
}

TFM_API int32_t tfm_token_flags(const tfm_tokenizer *t, int32_t id) {
    if (id < 0 || (uint32_t)id >= t->n_ids) return 0;
    return (int32_t)(tfm__tok_flags(t, (uint32_t)id) &
                     (TFM_TOKEN_SPECIAL | TFM_TOKEN_ADDED | TFM_TOKEN_BYTE | TFM_TOKEN_PRESENT));
}

TFM_API int32_t tfm_token_find(const tfm_tokenizer *t, const char *piece, size_t n) {
    const uint8_t *p = (const uint8_t *)piece;
    if (!n || n > 0x1000000) return TFM__NO_ID;
    for (int root = TFM_TOK_ROOT_RAW; root <= TFM_TOK_ROOT_NORM; root += 2) {
        uint32_t len = 0;
        uint64_t steps = UINT64_MAX; /* once over the piece */
        if (!tfm__tok_count(t, root)) continue;
        uint32_t added = tfm__tok_added_at(t, root, p, (uint32_t)n, 1, &len, &steps);
        uint32_t id = added == TFM__NONE ? TFM__NONE : tfm__tok_word(t, TFM_TOK_ADDED, added, 0);
        if (len == n && id < t->n_ids) return (int32_t)id;
    }
    uint32_t id = tfm__tok_find(t, p, (uint32_t)n);
    return id < t->n_ids ? (int32_t)id : TFM__NO_ID;
}

TFM_API int32_t tfm_token_prefix(const tfm_tokenizer *t, int32_t i) {
    if (i < 0 || (uint32_t)i >= tfm__tok_count(t, TFM_TOK_PREFIX)) return TFM__NO_ID;
    uint32_t id = tfm__tok_word(t, TFM_TOK_PREFIX, (uint32_t)i, 0);
    return id < t->n_ids ? (int32_t)id : TFM__NO_ID;
}

/* Every byte may be an id, and every stretch between two added tokens grows by what is put before it. */
TFM_API int64_t tfm_encode_max(const tfm_tokenizer *t, size_t n_bytes) {
    if (n_bytes > (size_t)1 << 28) return -1;
    return (int64_t)((uint64_t)n_bytes * t->grow_mul + ((uint64_t)n_bytes / 2 + 1) * t->grow_add +
                     tfm__tok_count(t, TFM_TOK_PREFIX) + tfm__tok_count(t, TFM_TOK_SUFFIX));
}

TFM_API size_t tfm_encode_size(const tfm_tokenizer *t, size_t n_bytes) {
    return t ? tfm__tok_carve(NULL, t, n_bytes, NULL) : 0;
}

/* The control token that begins at p and has only marked bytes, of which there are `run`; its length in *len. */
static uint32_t tfm__tok_marked_at(tfm__tok_work *w, const uint8_t *p, uint32_t run, uint32_t *len) {
    const tfm_tokenizer *t = w->t;
    for (int root = TFM_TOK_ROOT_RAW; root <= TFM_TOK_ROOT_NORM; root += 2) {
        if (!tfm__tok_count(t, root) || !tfm__tok_word(t, root, p[0], 0)) continue;
        uint32_t added = tfm__tok_added_at(t, root, p, run, 1, len, &w->steps);
        if (added != TFM__NONE && tfm__tok_word(t, TFM_TOK_ADDED, added, 1) & TFM_TOK_CONTROL) return added;
    }
    return TFM__NONE;
}

/* Cuts text at the control tokens that stand in marked bytes. */
static void tfm__tok_cut_marked(tfm__tok_work *w, const uint8_t *text, const uint8_t *marks, uint32_t n) {
    uint32_t done = 0, run = 0, len = 0;
    for (uint32_t at = 0; at < n;) {
        for (run = run > at ? run : at; run < n && marks[run]; run++) {}
        uint32_t added = run > at ? tfm__tok_marked_at(w, text + at, run - at, &len) : TFM__NONE;
        if (added == TFM__NONE) { at++; continue; }
        uint32_t begin = at, end = at + len;
        w->flags |= TFM_ENCODE_PARSE_SPECIAL;
        const int fits = tfm__tok_added_fits(w, tfm__tok_word(w->t, TFM_TOK_ADDED, added, 1), text, n, done,
                                             &begin, &end);
        w->flags &= ~TFM_ENCODE_PARSE_SPECIAL;
        at = fits ? end : at + len;
        if (!fits) continue;
        if (begin > done) tfm__tok_cut(w, TFM_TOK_ROOT_RAW, text + done, begin - done, done == 0, tfm__tok_normalise);
        tfm__tok_emit(w, tfm__tok_word(w->t, TFM_TOK_ADDED, added, 0));
        done = end;
    }
    if (done < n) tfm__tok_cut(w, TFM_TOK_ROOT_RAW, text + done, n - done, done == 0, tfm__tok_normalise);
}

/* tfm_encode, tfm_encode_marked (marks not NULL). */
static tfm_result tfm__encode(const tfm_tokenizer *t, const char *text, const uint8_t *marks, size_t n, int32_t flags,
                              int32_t *ids, int64_t max_ids, int64_t *n_ids, void *scratch, size_t scratch_bytes,
                              tfm_error *err) {
    tfm__tok_work w;
    size_t need = tfm_encode_size(t, n), n_clean;
    *n_ids = 0;
    if (!t) return tfm__fail(err, TFM_ERR_ARG, "tfm_encode: there is no tokenizer");
    if (flags & ~(TFM_ENCODE_NO_SPECIAL | TFM_ENCODE_PARSE_SPECIAL)) {
        return tfm__fail(err, TFM_ERR_ARG, "tfm_encode: unknown flags %d", (int)flags);
    }
    if (!need) return tfm__fail(err, TFM_ERR_ARG, "tfm_encode: a text of %l bytes is too long", (int64_t)n);
    if (!scratch || scratch_bytes < need || (size_t)scratch % 8) {
        return tfm__fail(err, TFM_ERR_MEMORY, "tfm_encode: scratch has %l bytes, needs %l, aligned to 8",
                         (int64_t)scratch_bytes, (int64_t)need);
    }
    memset(&w, 0, sizeof w);
    tfm__tok_carve(&w, t, n, (uint8_t *)scratch);
    w.flags = flags;
    w.ids = ids;
    w.max = ids ? max_ids : 0;
    for (uint32_t i = 0; !(flags & TFM_ENCODE_NO_SPECIAL) && i < tfm__tok_count(t, TFM_TOK_PREFIX); i++) {
        tfm__tok_emit(&w, tfm__tok_word(t, TFM_TOK_PREFIX, i, 0));
    }
    const uint8_t *clean = tfm__tok_clean(w.clean, (const uint8_t *)text, n, &n_clean);
    if (marks && clean != (const uint8_t *)text)
        return tfm__fail(err, TFM_ERR_ARG, "tfm_encode_marked: text is not UTF-8");
    if (marks) tfm__tok_cut_marked(&w, clean, marks, (uint32_t)n);
    else tfm__tok_cut(&w, TFM_TOK_ROOT_RAW, clean, (uint32_t)n_clean, 1, tfm__tok_normalise);
    for (uint32_t i = 0; !(flags & TFM_ENCODE_NO_SPECIAL) && i < tfm__tok_count(t, TFM_TOK_SUFFIX); i++) {
        tfm__tok_emit(&w, tfm__tok_word(t, TFM_TOK_SUFFIX, i, 0));
    }
    *n_ids = w.n;
    if (!w.steps)
        return tfm__fail(err, TFM_ERR_FORMAT, "tokenizer: its tables would take too long over a text of %l bytes",
                         (int64_t)n);
    if (w.damaged) return tfm__fail(err, TFM_ERR_FORMAT, "tokenizer: its tables contradict each other");
    if (w.n > w.max) {
        return tfm__fail(err, TFM_ERR_MEMORY, "tfm_encode: the text has %l ids, there is room for %l", w.n, w.max);
    }
    return TFM_OK;
}

TFM_API tfm_result tfm_encode(const tfm_tokenizer *t, const char *text, size_t n, int32_t flags, int32_t *ids,
                              int64_t max_ids, int64_t *n_ids, void *scratch, size_t scratch_bytes, tfm_error *err) {
    return tfm__encode(t, text, NULL, n, flags, ids, max_ids, n_ids, scratch, scratch_bytes, err);
}

TFM_API tfm_result tfm_encode_marked(const tfm_tokenizer *t, const char *text, const uint8_t *marks, size_t n,
                                     int32_t *ids, int64_t max_ids, int64_t *n_ids, void *scratch,
                                     size_t scratch_bytes, tfm_error *err) {
    static const uint8_t nothing = 0;
    *n_ids = 0;
    if (n && !marks) return tfm__fail(err, TFM_ERR_ARG, "tfm_encode_marked: marks is NULL");
    return tfm__encode(t, text, n ? marks : &nothing, n, TFM_ENCODE_NO_SPECIAL, ids, max_ids, n_ids,
                       scratch, scratch_bytes, err);
}

TFM_API size_t tfm_normalize(const tfm_tokenizer *t, const char *text, size_t n, char *out, size_t cap, void *scratch,
                             size_t scratch_bytes) {
    tfm__tok_work w;
    size_t need = tfm_encode_size(t, n), n_clean;
    int first = 1;
    if (!need || !scratch || scratch_bytes < need || (size_t)scratch % 8) return SIZE_MAX;
    memset(&w, 0, sizeof w);
    tfm__tok_carve(&w, t, n, (uint8_t *)scratch);
    const uint8_t *clean = tfm__tok_clean(w.clean, (const uint8_t *)text, n, &n_clean);
    uint32_t length = (uint32_t)n_clean;
    const uint8_t *normal = tfm__tok_norm(&w, clean, &length, &first);
    const size_t kept = !out ? 0 : length < cap ? length : cap;
    if (kept) memcpy(out, normal, kept);
    return w.damaged || !w.steps ? SIZE_MAX : length;
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

/* What a call prints; counts on past the end of the room. */
typedef struct tfm__text_out { char *data; size_t n, cap; } tfm__text_out;

static void tfm__decode_out(tfm__text_out *o, uint8_t b) {
    if (o->n < o->cap) o->data[o->n] = (char)b;
    o->n++;
}
static void tfm__decode_put(tfm_decoder *d, tfm__text_out *o, const uint8_t *p, size_t n) {
    const tfm_tokenizer *t = d->tokenizer;
    for (; n && !d->started; p++, n--) {
        d->started = p[0] != t->strip_char || d->n_cut >= t->strip_start;
        if (d->started) break;
        d->n_cut++;
    }
    for (size_t i = 0; i < n; i++) {
        if (t->strip_end && p[i] == t->strip_char && d->n_held < t->strip_end) { d->n_held++; continue; }
        for (; t->strip_end && p[i] != t->strip_char && d->n_held; d->n_held--)
            tfm__decode_out(o, (uint8_t)t->strip_char);
        tfm__decode_out(o, p[i]);
    }
}

/* The pending bytes will not become a character. */
static void tfm__decode_drop(tfm_decoder *d, tfm__text_out *o) {
    int marks = d->n_pending && !(d->tokenizer->flags & TFM_TOK_PER_BYTE) ? 1 : d->n_pending;
    d->n_pending = 0;
    while (marks-- > 0) tfm__decode_put(d, o, (const uint8_t *)"\xEF\xBF\xBD", 3);
}

static void tfm__decode_byte(tfm_decoder *d, tfm__text_out *o, uint8_t b) {
    if (d->n_pending && !tfm__utf8_follows(d->pending, d->n_pending, b)) tfm__decode_drop(d, o);
    d->pending[d->n_pending++] = b;
    uint32_t need = tfm__utf8_need(d->pending[0]);
    if (!need || d->bad_run) { tfm__decode_drop(d, o); return; }
    if (d->n_pending < need) return;
    d->n_pending = 0;
    tfm__decode_put(d, o, d->pending, need);
}

static void tfm__decode_id(tfm_decoder *d, tfm__text_out *o, int32_t id) {
    const tfm_tokenizer *t = d->tokenizer;
    uint32_t n;
    int32_t flags = tfm_token_flags(t, id);
    if (!(flags & TFM_TOKEN_PRESENT) || (flags & TFM_TOKEN_SPECIAL && d->flags & TFM_DECODE_SKIP_SPECIAL)) return;
    if (t->flags & TFM_TOK_ONCE && d->last == id) return;
    const uint8_t *p = tfm__tok_text(t, (uint32_t)id, !d->first_done, &n);
    if (n > t->max_text) n = t->max_text; /* a damaged table: tfm_decode_max holds all the same */
    const uint32_t own = tfm__tok_flags(t, (uint32_t)id);
    int literal = (own & TFM_TOK_PIECE_LITERAL) != 0;
    int bare = t->flags & TFM_TOK_FIRST_BARE && !d->first_done && !literal;
    if (t->flags & TFM_TOK_PER_BYTE && !(flags & TFM_TOKEN_BYTE)) tfm__decode_drop(d, o);
    if (d->space) tfm__decode_byte(d, o, ' ');
    d->first_done = 1;
    d->last = id;
    d->space = (own & TFM_TOK_PIECE_SPACE) != 0;
    if (t->flags & TFM_TOK_STRIP_MARKS && (flags & TFM_TOKEN_BYTE || literal)) d->started = 1;
    if (t->flags & TFM_TOK_STRIP_EACH) d->n_cut = 0;
    for (uint32_t i = 0; i < n; i++) if (!bare || p[i] != ' ') tfm__decode_byte(d, o, p[i]);
}

TFM_API void tfm_decode_init(tfm_decoder *d, const tfm_tokenizer *t, int32_t flags) {
    memset(d, 0, sizeof *d);
    d->tokenizer = t;
    d->flags = flags;
    d->last = TFM__NO_ID;
    d->started = d->first_done = (flags & TFM_DECODE_CONTINUATION) != 0;
}

TFM_API size_t tfm_decode(tfm_decoder *d, int32_t id, char *out, size_t cap) {
    tfm_decoder before = *d;
    tfm__text_out o;
    o.data = out;
    o.n = 0;
    o.cap = out ? cap : 0;
    tfm__decode_id(d, &o, id);
    if (o.n > o.cap) *d = before;
    return o.n;
}

TFM_API size_t tfm_decode_flush(tfm_decoder *d, char *out, size_t cap) {
    tfm_decoder before = *d;
    tfm__text_out o;
    o.data = out;
    o.n = 0;
    o.cap = out ? cap : 0;
    tfm__decode_drop(d, &o);
    d->n_held = d->space = 0;
    if (o.n > o.cap) *d = before;
    return o.n;
}

TFM_API size_t tfm_decode_max(const tfm_tokenizer *t) { return 3 * ((size_t)t->max_text + 5) + t->strip_end; }

/* Whether the run of byte tokens that starts at ids[0] is no UTF-8; its length in *run. Ids that print nothing do not
   end it, nor do special ones if they are skipped. */
static int tfm__decode_bad_run(const tfm_tokenizer *t, const int32_t *ids, int64_t n, int32_t skip, int64_t *run) {
    uint8_t pending[4];
    uint32_t have = 0, len;
    int bad = 0;
    int64_t i = 0;
    for (; i < n; i++) {
        int32_t flags = tfm_token_flags(t, ids[i]);
        if (!(flags & TFM_TOKEN_PRESENT) || (skip && flags & TFM_TOKEN_SPECIAL)) continue;
        if (!(flags & TFM_TOKEN_BYTE)) break;
        const uint8_t *p = tfm__tok_text(t, (uint32_t)ids[i], 0, &len);
        if (have && (!len || !tfm__utf8_follows(pending, have, p[0]))) bad = 1;
        if (!len || bad) continue;
        pending[have++] = p[0];
        if (!tfm__utf8_need(pending[0])) bad = 1;
        else if (have == tfm__utf8_need(pending[0])) have = 0;
    }
    *run = i;
    return bad || have;
}

TFM_API size_t tfm_decode_text(const tfm_tokenizer *t, const int32_t *ids, int64_t n, int32_t flags, char *out,
                               size_t cap) {
    tfm_decoder d;
    tfm__text_out o;
    int64_t run_end = 0;
    o.data = out;
    o.n = 0;
    o.cap = out ? cap : 0;
    tfm_decode_init(&d, t, flags);
    for (int64_t i = 0; i < n; i++) {
        if (t->flags & TFM_TOK_BYTE_RUNS && i >= run_end && tfm_token_flags(t, ids[i]) & TFM_TOKEN_BYTE) {
            int64_t run;
            d.bad_run = (uint8_t)tfm__decode_bad_run(t, ids + i, n - i, flags & TFM_DECODE_SKIP_SPECIAL, &run);
            run_end = i + run;
        }
        if (i >= run_end) d.bad_run = 0;
        tfm__decode_id(&d, &o, ids[i]);
    }
    tfm__decode_drop(&d, &o);
    return o.n;
}

/* ---- stop strings ------------------------------------------------------------------------------------------------ */

/* Whether text[at..n) is a stop string and more (1), or may become one (-1). */
static int tfm__stop_at(const tfm_stop *stop, const char *text, size_t at, size_t n) {
    const size_t have = n - at < stop->n ? n - at : stop->n;
    if (!have || memcmp(text + at, stop->text, have)) return 0;
    return have == stop->n ? 1 : -1;
}

TFM_API size_t tfm_stop_scan(const tfm_stop *stops, int32_t n_stops, const char *text, size_t n, int32_t *which) {
    size_t safe = n;
    *which = -1;
    for (size_t at = 0; at < n; at++) {
        for (int32_t i = 0; i < n_stops; i++) {
            const int found = tfm__stop_at(&stops[i], text, at, n);
            if (found > 0) {
                *which = i;
                return at;
            }
            if (found < 0 && at < safe) safe = at;
        }
    }
    return safe;
}

/* ---- chat formats ------------------------------------------------------------------------------------------------ */
/*
   Section: little-endian uint32 words: FORM 1 | SIZE of the section | FLAGS | DATE 1 + offset in STRINGS of a strftime
   format, zero-terminated, or 0 | then for each table its byte offset in the section (a multiple of 4) and its entries:
     JOINS      4 words  what the format writes between two turns: from | to << 8 | mask << 16 | value << 24 (roles; 0
                         is the begin or the end of the conversation), first part, number of parts, 0
     PARTS      3 words  kind, offset in STRINGS and bytes of a TEXT, or the text of the system turn, or the date
     RULES      4 words  what becomes of a turn's text: role | mask << 8 | value << 16, TFM_CHAT_TRIM_... | _CUT_...,
                         offset in STRINGS and bytes, at most 1024, of a mark up to whose last place the text is
                         dropped (0: none)
     ENDS       1 word   ids that end an answer
     VARIABLES  2 words  offsets in STRINGS of a name and a value, zero-terminated
     TEMPLATE   bytes    the text the format was taken from
     STRINGS    bytes
   The place of a turn is the sum of HAS_SYSTEM (the conversation has a system turn), HAS_PROMPT (it ends with a
   prompt), FIRST and LAST (the first, the last turn but for the system's); that of a join has FIRST of the turn before
   it and LAST of the one behind it. The first row counts whose roles fit and whose value is place & mask. Without a
   join the format has no such sequence; without a rule the text stays as it is. FLAGS: KNOWN the rows are the whole
   format | NO_EMPTY they do not hold for turns without text.
*/
struct tfm_chat {
    tfm__bytes base;
    uint32_t flags, date;
    tfm__tok_table table[TFM_CHAT_N_TABLES];
};

/* Words of an entry of each table; 0: bytes. */
static const uint8_t tfm__chat_entry[TFM_CHAT_N_TABLES] = {4, 3, 4, 1, 2, 0, 0};

static uint32_t tfm__chat_word(const tfm_chat *c, int table, uint32_t i, uint32_t word) {
    return tfm__le32(c->base.p + c->table[table].at + ((size_t)i * tfm__chat_entry[table] + word) * 4);
}
static const char *tfm__chat_string(const tfm_chat *c, uint32_t at) {
    return (const char *)c->base.p + c->table[TFM_CHAT_STRINGS].at + at;
}

/* Whether n bytes at `at` lie in STRINGS; with `zero`, whether a zero-terminated string does. */
static int tfm__chat_holds(const tfm_chat *c, uint32_t at, uint32_t n, int zero) {
    const uint32_t size = c->table[TFM_CHAT_STRINGS].count;
    if (at > size || n > size - at) return 0;
    return !zero || (at < size && memchr(tfm__chat_string(c, at), 0, size - at) != NULL);
}

static tfm_result tfm__chat_check(const tfm_chat *c, tfm_error *err) {
    const tfm__tok_table *t = c->table;
    TFM__NEED(!c->date || tfm__chat_holds(c, c->date - 1, 0, 1), "chat: the format of the date lies outside");
    for (uint32_t i = 0; i < t[TFM_CHAT_JOINS].count; i++) {
        const uint32_t first = tfm__chat_word(c, TFM_CHAT_JOINS, i, 1), n = tfm__chat_word(c, TFM_CHAT_JOINS, i, 2);
        TFM__NEED(first <= t[TFM_CHAT_PARTS].count && n <= t[TFM_CHAT_PARTS].count - first,
                  "chat: join %d has parts outside", (int)i);
    }
    for (uint32_t i = 0; i < t[TFM_CHAT_PARTS].count; i++) {
        const uint32_t kind = tfm__chat_word(c, TFM_CHAT_PARTS, i, 0);
        TFM__NEED(kind <= TFM_CHAT_DATE_TEXT, "chat: part %d is of kind %l", (int)i, (int64_t)kind);
        TFM__NEED(tfm__chat_holds(c, tfm__chat_word(c, TFM_CHAT_PARTS, i, 1),
                                  tfm__chat_word(c, TFM_CHAT_PARTS, i, 2), 0),
                  "chat: part %d lies outside", (int)i);
    }
    for (uint32_t i = 0; i < t[TFM_CHAT_RULES].count; i++) {
        const uint32_t n = tfm__chat_word(c, TFM_CHAT_RULES, i, 3);
        TFM__NEED(n <= 1024, "chat: rule %d has a mark of %l bytes, at most 1024 are supported", (int)i, (int64_t)n);
        TFM__NEED(tfm__chat_holds(c, tfm__chat_word(c, TFM_CHAT_RULES, i, 2), n, 0),
                  "chat: rule %d has its mark outside", (int)i);
    }
    for (uint32_t i = 0; i < t[TFM_CHAT_VARIABLES].count; i++)
        TFM__NEED(tfm__chat_holds(c, tfm__chat_word(c, TFM_CHAT_VARIABLES, i, 0), 0, 1) &&
                  tfm__chat_holds(c, tfm__chat_word(c, TFM_CHAT_VARIABLES, i, 1), 0, 1),
                  "chat: variable %d lies outside", (int)i);
    return TFM_OK;
}

static tfm_result tfm__chat_open(tfm_chat *c, const uint8_t *section, size_t size, tfm_error *err) {
    const size_t head = 4 * (TFM_CHAT_TABLES + 2 * TFM_CHAT_N_TABLES);
    memset(c, 0, sizeof *c);
    TFM__NEED(size >= head && size <= 0x7FFFFFFF, "chat: the section has %l bytes", (int64_t)size);
    TFM__NEED(tfm__le32(section) == 1, "chat: form %l, this header reads form 1", (int64_t)tfm__le32(section));
    TFM__NEED(tfm__le32(section + 4 * TFM_CHAT_SIZE) == size, "chat: the section's size is wrong");
    c->base.p = section;
    c->flags = tfm__le32(section + 4 * TFM_CHAT_FLAGS);
    c->date = tfm__le32(section + 4 * TFM_CHAT_DATE);
    for (uint32_t i = 0; i < TFM_CHAT_N_TABLES; i++) {
        const uint8_t *row = section + 4 * (TFM_CHAT_TABLES + 2 * i);
        const uint32_t at = tfm__le32(row), n = tfm__le32(row + 4);
        const uint32_t entry = tfm__chat_entry[i] ? 4u * tfm__chat_entry[i] : 1;
        TFM__NEED(at % 4 == 0 && at >= head && at <= size && n <= (size - at) / entry,
                  "chat: table %d lies outside", (int)i);
        c->table[i].at = at;
        c->table[i].count = n;
    }
    return tfm__chat_check(c, err);
}

TFM_API size_t tfm_chat_size(void) { return sizeof(tfm_chat); }

TFM_API tfm_result tfm_chat_open(const void *section, size_t size, void *mem, size_t mem_bytes, const tfm_chat **out,
                                 tfm_error *err) {
    *out = NULL;
    if (!mem || mem_bytes < sizeof(tfm_chat) || (size_t)mem % 8)
        return tfm__fail(err, TFM_ERR_MEMORY, "tfm_chat_open: mem has %l bytes, needs %l, aligned to 8",
                         (int64_t)mem_bytes, (int64_t)sizeof(tfm_chat));
    const tfm_result r = tfm__chat_open((tfm_chat *)mem, (const uint8_t *)section, size, err);
    if (!r) *out = (const tfm_chat *)mem;
    return r;
}

TFM_API int tfm_chat_known(const tfm_chat *c) { return (c->flags & TFM_CHAT_KNOWN) != 0; }

TFM_API const char *tfm_chat_template(const tfm_chat *c, size_t *n) {
    *n = c->table[TFM_CHAT_TEMPLATE].count;
    return (const char *)c->base.p + c->table[TFM_CHAT_TEMPLATE].at;
}

TFM_API const char *tfm_chat_variable(const tfm_chat *c, int32_t i, const char **value) {
    if (i < 0 || (uint32_t)i >= c->table[TFM_CHAT_VARIABLES].count) return NULL;
    *value = tfm__chat_string(c, tfm__chat_word(c, TFM_CHAT_VARIABLES, (uint32_t)i, 1));
    return tfm__chat_string(c, tfm__chat_word(c, TFM_CHAT_VARIABLES, (uint32_t)i, 0));
}

TFM_API int32_t tfm_chat_end(const tfm_chat *c, int32_t i) {
    if (i < 0 || (uint32_t)i >= c->table[TFM_CHAT_ENDS].count) return TFM__NO_ID;
    const uint32_t id = tfm__chat_word(c, TFM_CHAT_ENDS, (uint32_t)i, 0);
    return id < 0x7FFFFFFF ? (int32_t)id : TFM__NO_ID;
}

TFM_API const char *tfm_chat_date_format(const tfm_chat *c) {
    return c->date ? tfm__chat_string(c, c->date - 1) : NULL;
}

/* What is rendered; counts on past the end of the room. */
typedef struct tfm__chat_out { char *text; uint8_t *marks; size_t n, cap; } tfm__chat_out;

static void tfm__chat_put(tfm__chat_out *o, const void *p, size_t n, uint8_t mark) {
    if (n <= o->cap && o->n <= o->cap - n) {
        if (o->text && n) memcpy(o->text + o->n, p, n);
        if (o->marks) memset(o->marks + o->n, mark, n);
    }
    o->n = n > SIZE_MAX - o->n ? SIZE_MAX : o->n + n;
}

/* Text of a turn: valid UTF-8, not marked. */
static void tfm__chat_put_turn(tfm__chat_out *o, const uint8_t *p, size_t n) {
    for (size_t i = 0, good = 0, len; i < n; i += len) {
        int bad = 0;
        len = p[i] < 0x80 ? 1 : tfm__utf8_scan(p + i, n - i, &bad);
        if (!bad && i + len < n) continue;
        tfm__chat_put(o, p + good, (bad ? i : i + len) - good, 0);
        if (bad) tfm__chat_put(o, "\xEF\xBF\xBD", 3, 0);
        good = i + len;
    }
}

/* White space in the sense of those who write templates; lines: line feeds only. */
static int tfm__chat_blank(uint32_t code, int lines) {
    return lines ? code == 10 : tfm__is_space(code) || (code >= 28 && code <= 31);
}

static void tfm__chat_trim(const uint8_t **p, size_t *n, int left, int right, int lines) {
    uint32_t len;
    while (left && *n && tfm__chat_blank(tfm__utf8_get(*p, *n, &len), lines)) {
        *p += len;
        *n -= len;
    }
    while (right && *n) {
        const size_t from = *n > 4 ? *n - 4 : 0;
        const uint32_t at = tfm__utf8_back(*p + from, (uint32_t)(*n - from), 0);
        if (!tfm__chat_blank(tfm__utf8_get(*p + from + at, *n - from - at, &len), lines)) break;
        *n = from + at;
    }
}

/* The part of a turn's text that the rule at its place leaves. */
static tfm_turn tfm__chat_turn(const tfm_chat *c, const tfm_turn *turn, uint32_t place) {
    const uint8_t *p = (const uint8_t *)turn->text;
    tfm_turn out = *turn;
    for (uint32_t i = 0; i < c->table[TFM_CHAT_RULES].count; i++) {
        const uint32_t key = tfm__chat_word(c, TFM_CHAT_RULES, i, 0), what = tfm__chat_word(c, TFM_CHAT_RULES, i, 1);
        if ((key & 255) != (uint32_t)turn->role || (place & (key >> 8 & 255)) != (key >> 16 & 255)) continue;
        const uint32_t cut_n = tfm__chat_word(c, TFM_CHAT_RULES, i, 3);
        const char *cut = tfm__chat_string(c, tfm__chat_word(c, TFM_CHAT_RULES, i, 2));
        for (size_t k = cut_n && cut_n <= out.n ? out.n - cut_n + 1 : 0; k-- > 0;) {
            if (p[k] != (uint8_t)cut[0] || memcmp(p + k, cut, cut_n)) continue;
            p += k + cut_n;
            out.n -= k + cut_n;
            if (what & (TFM_CHAT_CUT_TRIM | TFM_CHAT_CUT_TRIM_LINES))
                tfm__chat_trim(&p, &out.n, 1, 0, (what & TFM_CHAT_CUT_TRIM_LINES) != 0);
            break;
        }
        tfm__chat_trim(&p, &out.n, what & TFM_CHAT_TRIM_LEFT, what & TFM_CHAT_TRIM_RIGHT, 0);
        tfm__chat_trim(&p, &out.n, what & TFM_CHAT_TRIM_LINES_LEFT, what & TFM_CHAT_TRIM_LINES_RIGHT, 1);
        break;
    }
    out.text = (const char *)p;
    return out;
}

/* What stands between two turns; 0 if the format has no such sequence. */
static int tfm__chat_join(const tfm_chat *c, tfm__chat_out *o, int from, int to, uint32_t place, const tfm_turn *system,
                          const char *date) {
    const uint32_t roles = (uint32_t)from | (uint32_t)to << 8;
    for (uint32_t i = 0; i < c->table[TFM_CHAT_JOINS].count; i++) {
        const uint32_t key = tfm__chat_word(c, TFM_CHAT_JOINS, i, 0);
        if ((key & 0xFFFF) != roles || (place & (key >> 16 & 255)) != key >> 24) continue;
        const uint32_t first = tfm__chat_word(c, TFM_CHAT_JOINS, i, 1), n = tfm__chat_word(c, TFM_CHAT_JOINS, i, 2);
        for (uint32_t k = first; k < first + n; k++) {
            const uint32_t kind = tfm__chat_word(c, TFM_CHAT_PARTS, k, 0);
            if (kind == TFM_CHAT_TEXT)
                tfm__chat_put(o, tfm__chat_string(c, tfm__chat_word(c, TFM_CHAT_PARTS, k, 1)),
                              tfm__chat_word(c, TFM_CHAT_PARTS, k, 2), 1);
            if (kind == TFM_CHAT_SYSTEM_TEXT && system) tfm__chat_put_turn(o, (const uint8_t *)system->text, system->n);
            if (kind == TFM_CHAT_DATE_TEXT && date) tfm__chat_put(o, date, strlen(date), 1);
        }
        return 1;
    }
    return 0;
}

static TFM__UNUSED const char *tfm__chat_role(int32_t role) {
    static const char *const names[] = {"nothing", "system", "user", "assistant"};
    return role >= 0 && role <= TFM_CHAT_ASSISTANT ? names[role] : "?";
}

static tfm_result tfm__chat_check_turns(const tfm_chat *c, const tfm_turn *turns, int64_t n, int32_t flags,
                                        const char *date, tfm_error *err) {
    if (!c || n < 0 || (n && !turns) || flags & ~TFM_CHAT_PROMPT)
        return tfm__fail(err, TFM_ERR_ARG, "tfm_chat_render: bad argument");
    if (!(c->flags & TFM_CHAT_KNOWN))
        return tfm__fail(err, TFM_ERR_UNSUPPORTED, "the chat format of this file is a template only, not data");
    if (c->date && !date) return tfm__fail(err, TFM_ERR_ARG, "the chat format wants a date");
    for (int64_t i = 0; i < n; i++) {
        if (turns[i].role < (i ? TFM_CHAT_USER : TFM_CHAT_SYSTEM) || turns[i].role > TFM_CHAT_ASSISTANT)
            return tfm__fail(err, TFM_ERR_ARG, "turn %l: %s is no role here", i, tfm__chat_role(turns[i].role));
        if (turns[i].n && !turns[i].text) return tfm__fail(err, TFM_ERR_ARG, "turn %l: text is NULL", i);
    }
    return TFM_OK;
}

static uint32_t tfm__chat_bit(int condition, int bit) { return condition ? (uint32_t)bit : 0; }

TFM_API tfm_result tfm_chat_render(const tfm_chat *c, const tfm_turn *turns, int64_t n, int32_t flags, const char *date,
                                   char *text, uint8_t *marks, size_t cap, size_t *need, tfm_error *err) {
    tfm__chat_out o = {text, marks, 0, cap};
    const tfm_result r = tfm__chat_check_turns(c, turns, n, flags, date, err);
    *need = 0;
    if (r) return r;
    const int64_t skip = n && turns[0].role == TFM_CHAT_SYSTEM;
    const uint32_t base = tfm__chat_bit(skip != 0, TFM_CHAT_HAS_SYSTEM) |
                          tfm__chat_bit(flags & TFM_CHAT_PROMPT, TFM_CHAT_HAS_PROMPT);
    tfm_turn system, turn;
    memset(&system, 0, sizeof system);
    if (skip) system = tfm__chat_turn(c, &turns[0], base);
    int empty = skip && !system.n;
    for (int64_t i = skip, from = 0; i <= n; i++) {
        const int to = i < n ? turns[i].role : 0;
        const uint32_t last = tfm__chat_bit(i == n - 1, TFM_CHAT_LAST);
        const uint32_t place = base | last | tfm__chat_bit(i == skip + 1, TFM_CHAT_FIRST);
        if (!tfm__chat_join(c, &o, (int)from, to, place, skip ? &system : NULL, date))
            return tfm__fail(err, TFM_ERR_ARG, "the chat format has no place for %s after %s%s",
                             to ? tfm__chat_role(to) : "the end", from ? tfm__chat_role((int32_t)from) : "the begin",
                             skip && !from ? " and a system text" : "");
        from = to;
        if (i == n) break;
        turn = tfm__chat_turn(c, &turns[i], base | last | tfm__chat_bit(i == skip, TFM_CHAT_FIRST));
        tfm__chat_put_turn(&o, (const uint8_t *)turn.text, turn.n);
        empty |= !turn.n;
    }
    if (empty && c->flags & TFM_CHAT_NO_EMPTY)
        return tfm__fail(err, TFM_ERR_ARG, "the chat format has no place for a turn without text");
    *need = o.n;
    if (o.n <= cap) return TFM_OK;
    return tfm__fail(err, TFM_ERR_MEMORY, "the conversation has %l bytes, there is room for %l",
                     (int64_t)o.n, (int64_t)cap);
}
#endif /* TFM_NO_TEXT */
/* ====================================================================================================================
   [B11] SAMPLER: from logits to one id
   The same logits, settings and seed give the same id on every platform, so everything behind the logits is exact:
   a probability is an integer weight, exp((l - l_max) / temp) in units of 2^-37, made with integer arithmetic. Sums of
   weights do not depend on the order, the largest weight is exactly 2^37, and the draw is an integer below the sum,
   so it always ends at a token whose weight is not 0. The few floating-point steps are single operations or exact
   products, which a fused multiply-add cannot change.

   Memory: tfm_sampler, then logit [n_vocab] (a copy, penalties applied), cand [n_vocab] (the ids that are still in the
   race), weight [n_vocab] (by id). Each step narrows cand and returns how many ids are left in it.
   ================================================================================================================= */

#define TFM__WEIGHT_ONE ((uint64_t)1 << 37)
#define TFM__SAMPLER_MAX_VOCAB ((int32_t)1 << 26) /* 2^26 weights of at most 2^37 sum to 2^63 */
#define TFM__SAMPLER_HEAD 128                     /* bytes before logit[] */

struct tfm_sampler {
    uint64_t rng[4];
    int64_t repeat_last_n;
    int32_t n_vocab, top_k;
    float temp, top_p, min_p;
    float repeat_penalty, presence_penalty, frequency_penalty;
    const tfm_logit_bias *bias;
    int64_t n_bias;
};

/* The three arrays; views into the sampler's memory. */
typedef struct tfm__race { float *logit; int32_t *cand; uint64_t *weight; int32_t n_vocab; } tfm__race;

static tfm__race tfm__sampler_race(tfm_sampler *s) {
    size_t row = tfm__align64((size_t)s->n_vocab * 4);
    char *base = (char *)s + TFM__SAMPLER_HEAD;
    tfm__race r;
    r.logit = (float *)(void *)base;
    r.cand = (int32_t *)(void *)(base + row);
    r.weight = (uint64_t *)(void *)(base + 2 * row);
    r.n_vocab = s->n_vocab;
    return r;
}

/* xoshiro256** (Blackman and Vigna, arXiv:1805.01407), its state filled by splitmix64, whose output is never all zero
   for four steps in a row: every seed is good. */
static uint64_t tfm__splitmix(uint64_t *x) {
    uint64_t z = (*x += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static uint64_t tfm__rotate(uint64_t x, int n) { return (x << n) | (x >> (64 - n)); }

static uint64_t tfm__random(uint64_t rng[4]) {
    uint64_t out = tfm__rotate(rng[1] * 5, 7) * 9, t = rng[1] << 17;
    rng[2] ^= rng[0];
    rng[3] ^= rng[1];
    rng[1] ^= rng[2];
    rng[0] ^= rng[3];
    rng[2] ^= t;
    rng[3] = tfm__rotate(rng[3], 45);
    return out;
}

/* floor(x * n / 2^64): an integer in [0, n) from 64 random bits. */
static uint64_t tfm__random_below(uint64_t x, uint64_t n) {
    uint64_t xl = x & 0xffffffffu, xh = x >> 32, nl = n & 0xffffffffu, nh = n >> 32;
    uint64_t mid = xh * nl + (xl * nl >> 32), mid2 = xl * nh + (mid & 0xffffffffu);
    return xh * nh + (mid >> 32) + (mid2 >> 32);
}

/* exp(-x) in units of 2^-37 for x >= 0, relative error below 2^-29 (and truncation to the unit). With x * log2(e) =
   n + f in steps of 2^-32: 2^-f = sum (-ln 2)^k / k! * f^k, alternating, hence the nested form
   c0 - f (c1 - f (c2 - ...)), shifted right by n. */
static uint64_t tfm__exp_weight(double x) {
    static const uint64_t c[12] = { /* (ln 2)^k / k! in units of 2^-32 */
        4294967296u, 2977044472u, 1031764991u, 238388332u, 41309550u, 5726720u, 661577u, 65510u, 5676u, 437u, 30u, 2u
    };
    if (!(x < 26.5)) return 0; /* exp(-26.5) < 2^-38; also x = infinity */
    uint64_t y = (uint64_t)(x * 6196328018.719481); /* 2^32 / ln 2 */
    uint64_t f = y & 0xffffffffu, r = c[11];
    for (int k = 10; k >= 0; k--) r = c[k] - (f * r >> 32);
    return r << 5 >> (y >> 32);
}

/* Copies the logits; 0 if one is NaN. The test reads the bits: it holds under -ffast-math too. */
static int tfm__copy_logits(float *out, const float *logits, int32_t n) {
    uint32_t bad = 0;
    memcpy(out, logits, (size_t)n * 4);
    for (int32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &out[i], 4);
        bad |= (uint32_t)((bits & 0x7fffffffu) > 0x7f800000u);
    }
    return !bad;
}

/* Each distinct token of the history once: l > 0 ? l / r : l * r, then l -= presence + frequency * count. weight[]
   serves as the counter. A float times a count is exact in double, so no compiler can round it differently. */
static void tfm__penalise(const tfm_sampler *s, tfm__race r, const int32_t *history, int64_t n) {
    for (int64_t i = 0; i < n; i++) r.weight[history[i]] = 0;
    for (int64_t i = 0; i < n; i++) r.weight[history[i]]++;
    for (int64_t i = 0; i < n; i++) {
        int32_t id = history[i];
        uint64_t count = r.weight[id];
        if (!count) continue; /* done at an earlier occurrence */
        r.weight[id] = 0;
        float l = r.logit[id];
        if (s->repeat_penalty > 0) l = l > 0 ? l / s->repeat_penalty : l * s->repeat_penalty;
        double lowered = (double)l - (double)s->frequency_penalty * (double)count;
        r.logit[id] = (float)(lowered - (double)s->presence_penalty);
    }
}

TFM_API int32_t tfm_argmax(const float *x, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) if (x[i] > x[best]) best = i;
    return best;
}

/* Whether id a comes after id b in the order of descending logits, ties by ascending id. */
static int tfm__after(const float *logit, int32_t a, int32_t b) {
    return logit[a] < logit[b] || (logit[a] == logit[b] && a > b);
}

/* Heap whose root is the last in that order: moves the id at `i` down to its place. */
static void tfm__sift_down(const float *logit, int32_t *heap, int32_t n, int32_t i) {
    int32_t id = heap[i];
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && tfm__after(logit, heap[child + 1], heap[child])) child++;
        if (!tfm__after(logit, heap[child], id)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = id;
}

/* cand = the k ids of the largest logits in descending order, ties by id: one pass with a heap of the k best so far,
   whose root is the one to beat. */
static int32_t tfm__select_top(tfm__race r, int32_t k) {
    if (k > r.n_vocab) k = r.n_vocab;
    for (int32_t i = 0; i < k; i++) r.cand[i] = i;
    for (int32_t i = k / 2; i-- > 0;) tfm__sift_down(r.logit, r.cand, k, i);
    float floor = r.logit[r.cand[0]];
    for (int32_t id = k; id < r.n_vocab; id++) {
        if (!(r.logit[id] > floor)) continue; /* equal ones lose to the lower ids before them */
        r.cand[0] = id;
        tfm__sift_down(r.logit, r.cand, k, 0);
        floor = r.logit[r.cand[0]];
    }
    for (int32_t n = k - 1; n > 0; n--) {
        int32_t last = r.cand[0];
        r.cand[0] = r.cand[n];
        r.cand[n] = last;
        tfm__sift_down(r.logit, r.cand, n, 0);
    }
    return k;
}

/* weight[] of the candidates; returns their sum. Temperature keeps the order, so it may come after the selection.
   The largest weighs 2^37 even where it is +infinity. */
static uint64_t tfm__weigh(tfm__race r, int32_t n, float max, float temp) {
    uint64_t sum = 0;
    for (int32_t i = 0; i < n; i++) {
        float l = r.logit[r.cand[i]];
        double below = l == max ? 0.0 : (double)max - (double)l;
        uint64_t w = tfm__exp_weight(below / (double)temp);
        r.weight[r.cand[i]] = w;
        sum += w;
    }
    return sum;
}

/* Keeps the most likely candidates until their sum reaches p * total; the one that crosses stays. Candidates that no
   top-k has sorted are sorted from the top only as far as needed. */
static int32_t tfm__keep_top_p(tfm__race r, int32_t n, int sorted, uint64_t total, float p) {
    double enough = (double)p * (double)total;
    for (int32_t k = sorted ? n : 256;; k = k < n / 16 ? k * 16 : n) {
        if (!sorted) k = tfm__select_top(r, k);
        uint64_t sum = 0;
        for (int32_t i = 0; i < k; i++) {
            sum += r.weight[r.cand[i]];
            if ((double)sum >= enough) return i + 1;
        }
        if (k >= n) return n;
    }
}

/* Keeps p >= min_p * p_max; the largest weight is 2^37, so the comparison is exact. */
static int32_t tfm__keep_min_p(tfm__race r, int32_t n, float min_p) {
    double least = (double)min_p * (double)TFM__WEIGHT_ONE;
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++)
        if ((double)r.weight[r.cand[i]] >= least) r.cand[kept++] = r.cand[i];
    return kept;
}

static int32_t tfm__draw(tfm__race r, int32_t n, uint64_t random) {
    uint64_t sum = 0;
    for (int32_t i = 0; i < n; i++) sum += r.weight[r.cand[i]];
    uint64_t left = tfm__random_below(random, sum);
    int32_t i = 0;
    while (left >= r.weight[r.cand[i]]) left -= r.weight[r.cand[i++]];
    return r.cand[i];
}

/* Penalised logits -> id. */
static int32_t tfm__sample_race(tfm_sampler *s, tfm__race r, float max) {
    int32_t n = r.n_vocab;
    int sorted = s->top_k > 0 && s->top_k < n;
    if (sorted) n = tfm__select_top(r, s->top_k);
    else for (int32_t i = 0; i < n; i++) r.cand[i] = i;
    uint64_t total = tfm__weigh(r, n, max, s->temp);
    if (s->top_p > 0 && s->top_p < 1) n = tfm__keep_top_p(r, n, sorted, total, s->top_p);
    if (s->min_p > 0) n = tfm__keep_min_p(r, n, s->min_p);
    return tfm__draw(r, n, tfm__random(s->rng));
}

TFM_API tfm_result tfm_sample(tfm_sampler *s, const float *logits, const int32_t *history, int64_t n_history,
                              int32_t *id, tfm_error *err) {
    if (!s || !logits || !id) return tfm__fail(err, TFM_ERR_ARG, "tfm_sample: a pointer is NULL");
    if (n_history < 0 || (n_history > 0 && !history)) return tfm__fail(err, TFM_ERR_ARG, "tfm_sample: bad n_history");
    tfm__race r = tfm__sampler_race(s);
    if (!tfm__copy_logits(r.logit, logits, s->n_vocab))
        return tfm__fail(err, TFM_ERR_NUMERIC, "tfm_sample: a logit is NaN");
    for (int64_t i = 0; i < s->n_bias; i++) {
        float *l = &r.logit[s->bias[i].id];
        *l = s->bias[i].bias < -3.4028234e38f ? s->bias[i].bias : *l + s->bias[i].bias; /* even of +infinity */
    }
    int penalties = s->repeat_penalty > 0 || s->presence_penalty != 0 || s->frequency_penalty != 0;
    if (penalties) {
        int64_t first = s->repeat_last_n && s->repeat_last_n < n_history ? n_history - s->repeat_last_n : 0;
        for (int64_t i = first; i < n_history; i++)
            if (history[i] < 0 || history[i] >= s->n_vocab)
                return tfm__fail(err, TFM_ERR_ARG, "tfm_sample: history[%l] = %d is no token", i, (int)history[i]);
        tfm__penalise(s, r, history + first, n_history - first);
    }
    int32_t best = tfm_argmax(r.logit, s->n_vocab);
    float max = r.logit[best];
    if (!(max >= -3.4028234e38f)) return tfm__fail(err, TFM_ERR_NUMERIC, "tfm_sample: all logits are -infinity");
    *id = s->temp > 0 ? tfm__sample_race(s, r, max) : best;
    return TFM_OK;
}

TFM_API tfm_result tfm_sampler_size(int32_t n_vocab, size_t *bytes) {
    if (n_vocab < 1 || n_vocab > TFM__SAMPLER_MAX_VOCAB || !bytes) return TFM_ERR_ARG;
    size_t n = (size_t)n_vocab;
    *bytes = TFM__SAMPLER_HEAD + 2 * tfm__align64(4 * n) + tfm__align64(8 * n);
    return TFM_OK;
}

/* A setting that is a finite number in [low, high]. */
static int tfm__within(float x, float low, float high) { return x >= low && x <= high; }

static tfm_result tfm__sampler_check(const tfm_sampler_config *c, tfm_error *err) {
    const float big = 3.0e38f;
    const char *bad = NULL;
    if (!tfm__within(c->temp, 0, big)) bad = "temp";
    if (c->top_k < 0) bad = "top_k";
    if (!tfm__within(c->top_p, 0, big)) bad = "top_p";
    if (!tfm__within(c->min_p, 0, 1)) bad = "min_p";
    if (!tfm__within(c->repeat_penalty, 0, big)) bad = "repeat_penalty";
    if (!tfm__within(c->presence_penalty, -big, big)) bad = "presence_penalty";
    if (!tfm__within(c->frequency_penalty, -big, big)) bad = "frequency_penalty";
    if (c->repeat_last_n < 0) bad = "repeat_last_n";
    return bad ? tfm__fail(err, TFM_ERR_ARG, "tfm_sampler_config: %s is out of range", bad) : TFM_OK;
}

static tfm_result tfm__bias_check(const tfm_sampler_config *c, int32_t n_vocab, tfm_error *err) {
    if (c->n_bias < 0 || (c->n_bias && !c->bias))
        return tfm__fail(err, TFM_ERR_ARG, "tfm_sampler_config: n_bias is out of range");
    for (int64_t i = 0; i < c->n_bias; i++)
        if (c->bias[i].id < 0 || c->bias[i].id >= n_vocab || !(c->bias[i].bias <= 3.0e38f))
            return tfm__fail(err, TFM_ERR_ARG, "tfm_sampler_config: bias %l: token %d or its bias is out of range",
                             i, (int)c->bias[i].id);
    return TFM_OK;
}

TFM_API tfm_result tfm_sampler_init(const tfm_sampler_config *cfg, int32_t n_vocab, void *mem, size_t bytes,
                                    tfm_sampler **out, tfm_error *err) {
    size_t need;
    if (!cfg || !out) return tfm__fail(err, TFM_ERR_ARG, "tfm_sampler_init: a pointer is NULL");
    if (cfg->size != sizeof *cfg) return tfm__fail(err, TFM_ERR_ARG, "tfm_sampler_config: size must be its sizeof");
    if (tfm_sampler_size(n_vocab, &need))
        return tfm__fail(err, TFM_ERR_ARG, "tfm_sampler_init: n_vocab is out of range");
    if (tfm__sampler_check(cfg, err) || tfm__bias_check(cfg, n_vocab, err)) return TFM_ERR_ARG;
    if (!mem || bytes < need || ((uintptr_t)mem & 63) != 0)
        return tfm__fail(err, TFM_ERR_MEMORY, "tfm_sampler_init: needs %l bytes aligned to 64", (int64_t)need);
    tfm_sampler *s = (tfm_sampler *)mem;
    memset(s, 0, TFM__SAMPLER_HEAD);
    s->n_vocab = n_vocab;
    s->top_k = cfg->top_k;
    s->repeat_last_n = cfg->repeat_last_n;
    s->bias = cfg->bias;
    s->n_bias = cfg->n_bias;
    s->temp = cfg->temp;
    s->top_p = cfg->top_p;
    s->min_p = cfg->min_p;
    s->repeat_penalty = cfg->repeat_penalty == 1 ? 0 : cfg->repeat_penalty; /* 0 = off from here on */
    s->presence_penalty = cfg->presence_penalty;
    s->frequency_penalty = cfg->frequency_penalty;
    uint64_t seed = cfg->seed;
    for (int i = 0; i < 4; i++) s->rng[i] = tfm__splitmix(&seed);
    *out = s;
    return TFM_OK;
}


/* ====================================================================================================================
   [B12] INSTRUCTION SETS: one pass over [C] each, and the choice among them
   This file includes itself once per instruction set with TFM__PASS set; only [C] is then seen, and its macro FN(name)
   gives every function of the pass its own name. To add one: a row here, a block of primitives in [C].
   ================================================================================================================= */

#ifndef TFM_SELF
#define TFM_SELF "tfm.h" /* define it if the file was renamed */
#endif

#define TFM__PASS_SCALAR 1
#define TFM__PASS_AVX2 2
#define TFM__PASS_AVX512 3
#define TFM__PASS_NEON 4
#define TFM__PASS_NEONDOT 5
#define TFM__PASS_WASM 6
#define TFM__PASS_AVXVNNI 7
#define TFM__PASS_AMX 8
#define TFM__PASS_TEST 9
#define TFM__PASS_MVE 10
#define TFM__PASS_I8MM 11
#define TFM__PASS_PORTABLE (TFM__PASS == TFM__PASS_SCALAR || TFM__PASS == TFM__PASS_TEST)

#if !defined(TFM_NO_SIMD) && !defined(__TINYC__) && (defined(__x86_64__) || defined(_M_X64))
#if !defined(TFM_NO_AVX2)
#define TFM__HAS_AVX2 1
#if defined(__clang__) ? __clang_major__ >= 13 : defined(__GNUC__) && __GNUC__ >= 11
#define TFM__HAS_AVXVNNI 1
#endif
#endif
#if !defined(TFM_NO_AVX512)
#define TFM__HAS_AVX512 1
#if !defined(TFM_NO_AMX) && defined(__linux__) && !defined(__ILP32__) && \
    (defined(__clang__) ? __clang_major__ >= 13 : __GNUC__ >= 11)
#define TFM__HAS_AMX 1
#endif
#endif
#endif

/* NEON is part of AArch64. Its dot product is chosen at run time on Linux, elsewhere by the compiler's flags; gcc
   cannot add it to flags that have cryptography without it, and clang before 16 not to any. Its product of matrices is
   an addition to that, chosen at run time on Linux and Apple's systems. */
#if !defined(TFM_NO_SIMD) && defined(__aarch64__) && defined(__GNUC__) && !defined(__TINYC__) && !TFM__BIG_ENDIAN
#define TFM__HAS_NEON 1
#if defined(__ARM_FEATURE_DOTPROD)
#define TFM__HAS_NEONDOT 1
#elif defined(__linux__) && (defined(__clang__) ? __clang_major__ >= 16 : !defined(__ARM_FEATURE_CRYPTO))
#define TFM__HAS_NEONDOT 1
#define TFM__ASK_NEONDOT 1
#endif
#if defined(TFM__HAS_NEONDOT) && defined(__ARM_FEATURE_MATMUL_INT8)
#define TFM__HAS_I8MM 1
#elif defined(TFM__HAS_NEONDOT) && (defined(__linux__) || defined(__APPLE__)) && \
    (defined(__clang__) ? __clang_major__ >= 16 : __GNUC__ >= 10)
#define TFM__HAS_I8MM 1
#define TFM__ASK_I8MM 1
#endif
#if defined(__linux__) && (defined(TFM__ASK_NEONDOT) || defined(TFM__ASK_I8MM))
#include <sys/auxv.h>
#elif defined(TFM__ASK_I8MM) /* its header does not compile in strict modes of C */
int sysctlbyname(const char *name, void *out, size_t *out_bytes, void *in, size_t in_bytes);
#endif
#include <arm_neon.h>
#endif

/* Cortex-M4 and its like: two products at once, in the dot product of the scalar pass. */
#if !defined(TFM_NO_SIMD) && defined(__ARM_FEATURE_DSP) && !defined(__aarch64__) && defined(__GNUC__)
#define TFM__HAS_SMLAD 1
#include <arm_acle.h>
#endif

/* Helium with floating point. */
#if !defined(TFM_NO_SIMD) && defined(__ARM_FEATURE_MVE) && !TFM__BIG_ENDIAN
#if __ARM_FEATURE_MVE & 2
#define TFM__HAS_MVE 1
#include <arm_mve.h>
#endif
#endif

#if !defined(TFM_NO_SIMD) && defined(__wasm_simd128__)
#define TFM__HAS_WASM 1
#include <wasm_simd128.h>
#endif

/* Where SIMD is chosen when compiling, a program runs with it or not at all. */
#if !defined(TFM_NO_SCALAR) || !(defined(TFM__HAS_WASM) || defined(TFM__HAS_MVE))
#define TFM__HAS_SCALAR 1
#endif

#if defined(TFM__HAS_AVX2) || defined(TFM__HAS_AVX512)
#include <immintrin.h> /* before any region: the intrinsics carry their own targets */
#if defined(_MSC_VER)
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#endif

/* Masks, for the attention kernels of all passes: which part of the pattern a head has. */
static int32_t tfm__mask_part(const tfm_attention_args *a, int32_t head) {
    return a->mask_part != TFM_PART_HEADS ? a->mask_part : head & 1 ? TFM_PART_FAR : TFM_PART_NEAR;
}

/* The first position that the query at `pos` may see, given what a window says. */
static int64_t tfm__mask_begin(const tfm_attention_args *a, int32_t head, int32_t pos, int64_t begin) {
    int64_t first = 0;
    if (tfm__mask_part(a, head) == TFM_PART_NEAR)
        first = a->mask == TFM_MASK_STRIDED ? (int64_t)pos - (a->mask_stride - 1) : pos - pos % a->mask_stride;
    return first > begin ? first : begin;
}

/* Whether the query at `pos` sees position j <= pos. */
static int tfm__sees(const tfm_attention_args *a, int32_t head, int32_t pos, int32_t j) {
    const int32_t part = tfm__mask_part(a, head), s = a->mask_stride;
    const int is_near = a->mask == TFM_MASK_STRIDED ? pos - j < s : j / s == pos / s;
    if (part == TFM_PART_NEAR || (is_near && part == TFM_PART_BOTH)) return is_near;
    if (a->mask == TFM_MASK_STRIDED) return (pos - j) % s == 0;
    const int32_t number = a->mask_part == TFM_PART_HEADS ? head / 2 : head;
    const int32_t group = a->mask_groups > 1 ? number % a->mask_groups : 0, last = s - group * a->mask_columns;
    return j == pos || (j % s < last && j % s >= last - a->mask_columns);
}

/* The floats of a panel that a kernel has on its stack: weights [inputs][16 rows], TFM__SLICE elements of 64 keys or
   values, those of keys turned: [TFM__SLICE][64]. */
#ifndef TFM_PANEL
#define TFM_PANEL 16384
#endif
enum { TFM__PANEL = (TFM_PANEL) / 4, TFM__SLICE = TFM__PANEL < 4096 ? TFM__PANEL / 64 : 64 };
typedef char tfm__panel_check[TFM__PANEL >= 1024 && TFM__PANEL % 1024 == 0 ? 1 : -1];

/* What a matmul kernel of one format takes; see [C]. */
typedef void (*tfm__strips_fn)(const tfm_matmul_args *a, int64_t strip0, int64_t strip1);

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__) && !defined(__TINYC__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif
#ifdef TFM__HAS_SCALAR
#define TFM__PASS TFM__PASS_SCALAR
#include TFM_SELF
#undef TFM__PASS
#endif
#if defined(__GNUC__) && !defined(__clang__) && !defined(__TINYC__)
#pragma GCC pop_options
#endif

#ifdef TFM__HAS_AVX2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#pragma GCC optimize("fp-contract=off")
#endif
#define TFM__PASS TFM__PASS_AVX2
#include TFM_SELF
#undef TFM__PASS
#if defined(__clang__)
#pragma clang attribute pop
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#endif

#ifdef TFM__HAS_AVXVNNI
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avxvnni"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avxvnni")
#pragma GCC optimize("fp-contract=off")
#endif
#define TFM__PASS TFM__PASS_AVXVNNI
#include TFM_SELF
#undef TFM__PASS
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#ifdef TFM__HAS_AVX512
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"))), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized" /* g++ 12 warns inside its own avx512fintrin.h */
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wsign-conversion" /* and gcc 12 at -O0 in its macros */
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
#pragma GCC optimize("fp-contract=off")
#endif
#define TFM__PASS TFM__PASS_AVX512
#include TFM_SELF
#undef TFM__PASS
#if defined(__clang__)
#pragma clang attribute pop
#elif defined(__GNUC__)
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
#endif

#ifdef TFM__HAS_AMX
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,amx-tile,amx-int8"))), \
    apply_to = function)
#else
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,amx-tile,amx-int8")
#pragma GCC optimize("fp-contract=off")
#endif
#define TFM__PASS TFM__PASS_AMX
#include TFM_SELF
#undef TFM__PASS
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
#endif

#ifdef TFM__HAS_NEON
#if !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif
#define TFM__PASS TFM__PASS_NEON
#include TFM_SELF
#undef TFM__PASS
#if !defined(__clang__)
#pragma GCC pop_options
#endif
#endif

#ifdef TFM__HAS_NEONDOT
#if !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#ifdef TFM__ASK_NEONDOT
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
#elif defined(TFM__ASK_NEONDOT)
#pragma clang attribute push(__attribute__((target("arch=armv8.2-a+dotprod"))), apply_to = function)
#endif
#define TFM__PASS TFM__PASS_NEONDOT
#include TFM_SELF
#undef TFM__PASS
#if !defined(__clang__)
#pragma GCC pop_options
#elif defined(TFM__ASK_NEONDOT)
#pragma clang attribute pop
#endif
#endif

#ifdef TFM__HAS_I8MM
#if !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#if defined(TFM__ASK_NEONDOT)
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm")
#elif defined(TFM__ASK_I8MM)
#pragma GCC target("+i8mm")
#endif
#elif defined(TFM__ASK_NEONDOT)
#pragma clang attribute push(__attribute__((target("arch=armv8.2-a+dotprod+i8mm"))), apply_to = function)
#elif defined(TFM__ASK_I8MM)
#pragma clang attribute push(__attribute__((target("+i8mm"))), apply_to = function)
#endif
#define TFM__PASS TFM__PASS_I8MM
#include TFM_SELF
#undef TFM__PASS
#if !defined(__clang__)
#pragma GCC pop_options
#elif defined(TFM__ASK_NEONDOT) || defined(TFM__ASK_I8MM)
#pragma clang attribute pop
#endif
#endif

#ifdef TFM__HAS_WASM
#define TFM__PASS TFM__PASS_WASM
#include TFM_SELF
#undef TFM__PASS
#endif

#ifdef TFM__HAS_MVE
#if !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif
#define TFM__PASS TFM__PASS_MVE
#include TFM_SELF
#undef TFM__PASS
#if !defined(__clang__)
#pragma GCC pop_options
#endif
#endif

#ifdef TFM__TEST_PARTS
#define TFM__PASS TFM__PASS_TEST
#include TFM_SELF
#undef TFM__PASS
#endif

/* --- what this CPU and its operating system can run --------------------------------------------------------------- */

#if defined(TFM__HAS_AVX2) || defined(TFM__HAS_AVX512)
static void tfm__cpuid(uint32_t leaf, uint32_t part, uint32_t r[4]) {
#if defined(_MSC_VER)
    int v[4];
    __cpuidex(v, (int)leaf, (int)part);
    for (int i = 0; i < 4; i++) r[i] = (uint32_t)v[i];
#else
    __cpuid_count(leaf, part, r[0], r[1], r[2], r[3]);
#endif
}

/* Which register states the operating system saves: bits 1, 2 SSE and AVX, 5..7 AVX-512. */
static uint32_t tfm__xcr0(void) {
#if defined(_MSC_VER)
    return (uint32_t)_xgetbv(0);
#else
    uint32_t low, high;
    __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0)); /* xgetbv */
    return low;
#endif
}

/* The instruction sets that can run, a bit each. */
static uint32_t tfm__cpu_isas(void) {
    uint32_t r[4], isas = 1u << TFM_ISA_SCALAR;
    const uint32_t need1 = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29; /* FMA, OSXSAVE, AVX, F16C */
    const uint32_t need7 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* AVX-512 F, DQ, BW, VL */
    tfm__cpuid(0, 0, r);
    if (r[0] < 7) return isas;
    tfm__cpuid(1, 0, r);
    if ((r[2] & need1) != need1) return isas;
    const uint32_t saved = tfm__xcr0();
    tfm__cpuid(7, 0, r);
    if (!(r[1] & 1u << 5) || (saved & 6) != 6) return isas;
    isas |= 1u << TFM_ISA_AVX2;
    if ((r[1] & need7) == need7 && (r[2] & 1u << 11) && (saved & 0xe6) == 0xe6) isas |= 1u << TFM_ISA_AVX512;
    if ((r[3] >> 24 & 3) == 3 && (saved >> 17 & 3) == 3) isas |= 1u << TFM_ISA_AMX; /* tiles of bytes and their state */
    if (r[0] < 1) return isas;
    tfm__cpuid(7, 1, r);
    if (r[0] & 1u << 4) isas |= 1u << TFM_ISA_AVXVNNI;
    return isas;
}
#elif defined(TFM__HAS_NEON)
#ifdef TFM__ASK_I8MM
static int tfm__cpu_has_i8mm(void) {
#ifdef __linux__
    return getauxval(AT_HWCAP2) >> 13 & 1;
#else
    int32_t has = 0;
    size_t bytes = sizeof has;
    return sysctlbyname("hw.optional.arm.FEAT_I8MM", &has, &bytes, NULL, 0) == 0 && has;
#endif
}
#endif

static uint32_t tfm__cpu_isas(void) {
    uint32_t isas = 1u << TFM_ISA_SCALAR | 1u << TFM_ISA_NEON;
#if defined(TFM__ASK_NEONDOT)
    if (getauxval(AT_HWCAP) & 1u << 20) isas |= 1u << TFM_ISA_NEONDOT;
#elif defined(TFM__HAS_NEONDOT)
    isas |= 1u << TFM_ISA_NEONDOT;
#endif
#if defined(TFM__ASK_I8MM)
    if ((isas >> TFM_ISA_NEONDOT & 1) && tfm__cpu_has_i8mm()) isas |= 1u << TFM_ISA_I8MM;
#elif defined(TFM__HAS_I8MM)
    isas |= (isas >> TFM_ISA_NEONDOT & 1) << TFM_ISA_I8MM;
#endif
    return isas;
}
#elif defined(TFM__HAS_WASM)
static uint32_t tfm__cpu_isas(void) { return 1u << TFM_ISA_SCALAR | 1u << TFM_ISA_WASM; }
#elif defined(TFM__HAS_MVE)
static uint32_t tfm__cpu_isas(void) { return 1u << TFM_ISA_SCALAR | 1u << TFM_ISA_MVE; }
#elif defined(TFM__TEST_PARTS)
static uint32_t tfm__cpu_isas(void) { return 1u << TFM_ISA_SCALAR | 1u << TFM_ISA_TEST; }
#else
static uint32_t tfm__cpu_isas(void) { return 1u << TFM_ISA_SCALAR; }
#endif

/* Linux gives tile registers to a process that asks, and threads started later inherit them; what it granted is read
   back. The system call is made here because strict modes of C hide its declaration. */
#ifdef TFM__HAS_AMX
static int tfm__amx_permitted(void) {
    enum { ARCH_PRCTL = 158, GET_PERMISSION = 0x1022, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    uint64_t granted = 0;
    long status;
    __asm__ volatile("syscall" : "=a"(status) : "a"((long)ARCH_PRCTL), "D"((long)REQUEST_PERMISSION),
                     "S"((long)TILE_DATA) : "rcx", "r11", "memory");
    if (status != 0) return 0;
    __asm__ volatile("syscall" : "=a"(status) : "a"((long)ARCH_PRCTL), "D"((long)GET_PERMISSION), "S"(&granted)
                     : "rcx", "r11", "memory");
    return status == 0 && (granted >> TILE_DATA & 1);
}
#endif

/* The passes of this build; AUTO takes the last that can run, but for the one that only its name chooses. */
static const tfm_kernels *const tfm__passes[] = {
#ifdef TFM__HAS_SCALAR
    &tfm__kernels_scalar,
#endif
#ifdef TFM__HAS_AVX2
    &tfm__kernels_avx2,
#endif
#ifdef TFM__HAS_AVXVNNI
    &tfm__kernels_avxvnni,
#endif
#ifdef TFM__HAS_AVX512
    &tfm__kernels_avx512,
#endif
#ifdef TFM__HAS_NEON
    &tfm__kernels_neon,
#endif
#ifdef TFM__HAS_NEONDOT
    &tfm__kernels_neondot,
#endif
#ifdef TFM__HAS_I8MM
    &tfm__kernels_i8mm,
#endif
#ifdef TFM__HAS_WASM
    &tfm__kernels_wasm,
#endif
#ifdef TFM__HAS_MVE
    &tfm__kernels_mve,
#endif
#ifdef TFM__HAS_AMX
    &tfm__kernels_amx,
#endif
#ifdef TFM__TEST_PARTS
    &tfm__kernels_test,
#endif
};
enum { TFM__N_PASSES = (int)(sizeof tfm__passes / sizeof tfm__passes[0]) };

TFM_API const tfm_kernels *tfm_kernels_for(int32_t isa) {
    uint32_t isas = tfm__cpu_isas();
#ifdef TFM__HAS_AMX
    if (isa != TFM_ISA_AMX || !(isas >> TFM_ISA_AVX512 & 1) || !tfm__amx_permitted()) isas &= ~(1u << TFM_ISA_AMX);
#endif
    for (int i = TFM__N_PASSES - 1; i >= 0; i--) {
        const int32_t id = tfm__passes[i]->isa;
        if ((isas >> id & 1) && (isa == TFM_ISA_AUTO || isa == id)) return tfm__passes[i];
    }
    return NULL;
}

TFM_API int32_t tfm_isa_list(int i) { return i >= 0 && i < TFM__N_PASSES ? tfm__passes[i]->isa : 0; }

TFM_API const char *tfm_isa_name(int32_t isa) {
    static const char *const names[] = {
        "auto", "scalar", "avx2", "avx512", "neon", "neondot", "wasm", "avxvnni", "amx", "mve", "i8mm",
#ifdef TFM__TEST_PARTS
        "test",
#endif
    };
    return isa >= 0 && isa < (int32_t)(sizeof names / sizeof names[0]) ? names[isa] : NULL;
}

/* --- the plain functions: the pass that the compiler's flags allow ------------------------------------------------ */

#if defined(TFM__HAS_AVX512) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && \
    defined(__AVX512DQ__) && defined(__AVX512VNNI__)
#define TFM__PLAIN tfm__kernels_avx512
#elif defined(TFM__HAS_AVXVNNI) && defined(__AVXVNNI__) && defined(__FMA__) && defined(__F16C__)
#define TFM__PLAIN tfm__kernels_avxvnni
#elif defined(TFM__HAS_AVX2) && defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define TFM__PLAIN tfm__kernels_avx2
#elif defined(TFM__HAS_I8MM) && defined(__ARM_FEATURE_MATMUL_INT8) && defined(__ARM_FEATURE_DOTPROD)
#define TFM__PLAIN tfm__kernels_i8mm
#elif defined(TFM__HAS_NEONDOT) && defined(__ARM_FEATURE_DOTPROD)
#define TFM__PLAIN tfm__kernels_neondot
#elif defined(TFM__HAS_NEON)
#define TFM__PLAIN tfm__kernels_neon
#elif defined(TFM__HAS_WASM)
#define TFM__PLAIN tfm__kernels_wasm
#elif defined(TFM__HAS_MVE)
#define TFM__PLAIN tfm__kernels_mve
#else
#define TFM__PLAIN tfm__kernels_scalar
#endif

TFM_API void tfm_rmsnorm(float *out, const float *x, const float *w, float offset, float eps, int64_t n) {
    TFM__PLAIN.rmsnorm(out, x, w, offset, eps, n);
}
TFM_API void tfm_layernorm(float *out, const float *x, const float *w, const float *b, float offset, float eps,
                           int64_t n) {
    TFM__PLAIN.layernorm(out, x, w, b, offset, eps, n);
}
TFM_API void tfm_softmax(float *x, int64_t n) { TFM__PLAIN.softmax(x, n); }
TFM_API float tfm_logsumexp(const float *x, int64_t n) { return TFM__PLAIN.logsumexp(x, n); }
TFM_API void tfm_softcap(float *x, float cap, int64_t n) { TFM__PLAIN.softcap(x, cap, n); }
TFM_API void tfm_activate(float *x, int32_t act, int64_t n) { TFM__PLAIN.activate(x, act, n); }
TFM_API void tfm_glu(float *out, const float *gate, const float *up, int32_t act, int64_t n) {
    TFM__PLAIN.glu(out, gate, up, act, n);
}
TFM_API void tfm_swiglu(float *out, const float *gate, const float *up, int64_t n) {
    TFM__PLAIN.glu(out, gate, up, TFM_ACT_SILU, n);
}
TFM_API void tfm_rope(float *x, const float *c, const float *s, int32_t style, int32_t dims, int64_t head_dim,
                      int64_t n_heads) {
    TFM__PLAIN.rope(x, c, s, style, dims, head_dim, n_heads);
}
TFM_API void tfm_quantize_rows(void *out, const float *x, int64_t n_rows, int64_t cols) {
    for (int64_t r = 0; r < n_rows; r++) {
        TFM__PLAIN.quantize_row((uint8_t *)out + (size_t)r * tfm_q8_row_bytes(cols), x + r * cols, cols);
    }
}
TFM_API void tfm_embed(float *out, const tfm_tensor *w, int64_t row, float scale) {
    TFM__PLAIN.embed(out, w, row, scale);
}
TFM_API void tfm_matmul(const tfm_matmul_args *a, int64_t strip0, int64_t strip1) {
    TFM__PLAIN.matmul(a, strip0, strip1);
}
TFM_API void tfm_attention(const tfm_attention_args *a, int64_t item0, int64_t item1) {
    TFM__PLAIN.attention(a, item0, item1);
}

/* --- RoPE frequencies: in float32 where the references compute in float32 ----------------------------------------- */

/* theta^(2i/dims), the period of pair i over 2 pi, before any scaling */
static float tfm__rope_period(double theta, int i, int dims) {
    const float exponent = (float)(2 * i) / (float)dims;
    return (float)tfm__pow(theta, (double)exponent);
}

/* YaRN, arXiv:2309.00071: pairs that turn more than `high` times in the trained length are kept, those that turn fewer
   than `low` times divided, those between blended. */
static void tfm__rope_yarn(const tfm_rope_params *p, double theta, float *inv_freq) {
    const double turns[2] = { p->high > 0 ? (double)p->high : 32.0, p->low > 0 ? (double)p->low : 1.0 };
    double bound[2];
    for (int i = 0; i < 2; i++) {
        bound[i] = p->dims * tfm__log(p->ctx_orig / (turns[i] * 6.283185307179586)) / (2 * tfm__log(theta));
        if (!p->no_truncate) bound[i] = i ? -tfm__floor(-bound[i]) : tfm__floor(bound[i]);
    }
    if (bound[0] < 0) bound[0] = 0;
    if (bound[1] > p->dims - 1) bound[1] = p->dims - 1;
    if (bound[0] == bound[1]) bound[1] += 0.001;
    for (int i = 0; i < p->dims / 2; i++) {
        const float period = tfm__rope_period(theta, i, p->dims);
        float ramp = ((float)i - (float)bound[0]) / (float)(bound[1] - bound[0]);
        ramp = ramp < 0 ? 0.0f : ramp > 1 ? 1.0f : ramp;
        const float keep = 1.0f - ramp;
        inv_freq[i] = 1.0f / (p->factor * period) * (1.0f - keep) + 1.0f / period * keep;
    }
}

/* Long wavelengths divided by factor, short ones kept, those between blended. */
static void tfm__rope_bands(const tfm_rope_params *p, float *inv_freq) {
    const double trained = (double)p->ctx_orig;
    const float low = (float)(trained / (double)p->low), high = (float)(trained / (double)p->high);
    for (int i = 0; i < p->dims / 2; i++) {
        const float f = inv_freq[i], wavelength = 6.2831853071795864f / f;
        const float smooth = ((float)p->ctx_orig / wavelength - p->low) / (float)((double)p->high - (double)p->low);
        if (wavelength > low) inv_freq[i] = f / p->factor;
        else if (!(wavelength < high)) inv_freq[i] = (1.0f - smooth) * f / p->factor + smooth * f;
    }
}

static float tfm__rope_mscale(const tfm_rope_params *p) {
    const double s = (double)p->factor;
    if (p->scaling != TFM_ROPE_YARN && p->scaling != TFM_ROPE_LONG) return 1.0f;
    if (p->attn_factor != 0) return p->attn_factor;
    if (p->scaling == TFM_ROPE_LONG)
        return (float)(s <= 1 ? 1.0 : tfm__pow(1 + tfm__log(s) / tfm__log((double)p->ctx_orig), 0.5));
    if (s <= 1) return 1.0f;
    if (p->mscale != 0 && p->mscale_all != 0) {
        return (float)((0.1 * (double)p->mscale * tfm__log(s) + 1.0) /
                       (0.1 * (double)p->mscale_all * tfm__log(s) + 1.0));
    }
    return (float)(0.1 * tfm__log(s) + 1.0);
}

TFM_API void tfm_rope_freqs(const tfm_rope_params *p, int64_t rope_len, float *inv_freq, float *mscale) {
    const int pairs = p->dims / 2;
    const float *factors = p->factors;
    double theta = (double)p->theta;
    if (p->scaling == TFM_ROPE_DYNAMIC) {
        const double factor = (double)p->factor, max = (double)p->ctx_max;
        const double len = rope_len > p->ctx_max ? (double)rope_len : max;
        theta *= tfm__pow(factor * len / max - (factor - 1), (double)p->dims / (p->dims - 2));
    }
    if (p->scaling == TFM_ROPE_STEPS) {
        int64_t reach = p->ctx_max, alpha = 1;
        for (; reach < rope_len && alpha < (int64_t)1 << 61; reach *= 2) alpha = 2 * alpha + 1;
        if (alpha > 1) theta *= tfm__pow((double)alpha, (double)p->dims / (p->dims - 2));
    }
    if (p->scaling == TFM_ROPE_LONG && p->factors_long && rope_len > p->ctx_orig) factors = p->factors_long;
    for (int i = 0; i < pairs; i++) {
        const float period = tfm__rope_period(theta, i, p->dims);
        inv_freq[i] = factors && p->scaling == TFM_ROPE_LONG ? 1.0f / (factors[i] * period) : 1.0f / period;
        if (p->scaling == TFM_ROPE_LINEAR) inv_freq[i] /= p->factor;
        if (p->scaling == TFM_ROPE_FACTORS && factors) inv_freq[i] /= factors[i];
    }
    if (p->scaling == TFM_ROPE_YARN) tfm__rope_yarn(p, theta, inv_freq);
    if (p->scaling == TFM_ROPE_BANDS) tfm__rope_bands(p, inv_freq);
    *mscale = p->scaling == TFM_ROPE_LONG ? (rope_len > p->ctx_orig ? p->mscale_all : p->mscale) : 0.0f;
    if (!(*mscale > 0)) *mscale = tfm__rope_mscale(p);
}

#if defined(__clang__)
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__) && !defined(__TINYC__)
#pragma GCC pop_options
#endif
#endif /* TFM_IMPLEMENTATION */

#ifdef TFM__PASS
/* ====================================================================================================================
   [C] KERNELS: compiled once per instruction set
   First the primitives of this pass: a vector is always 16 lanes (one to four registers or none), reduced in one fixed
   tree, so passes give the same bits wherever madd is not involved. Then the kernels, written once over them.
     VF  16 float32     VI  16 int32     VB  64 bytes: 4 inputs of 16 rows, byte 4*row + j
   ================================================================================================================= */

/* With registers everything is inlined into kernels whose format and shape are constants, and loops over registers are
   unrolled, or arrays of vectors would stay in memory (gcc leaves them at -O2). In the scalar pass that goes for what
   it does row by row (TFM__INNER, TFM__FLAT); its 16 lanes in memory gain nothing from either, and would take minutes
   to compile under sanitizers. */
#define TFM__INNER TFM__INLINE TFM__UNUSED
#if defined(__clang__)
#define TFM__FLAT _Pragma("clang loop unroll(full)")
#define TFM__LOOP _Pragma("clang loop unroll(disable)")
#elif defined(__GNUC__)
#define TFM__FLAT _Pragma("GCC unroll 16")
#define TFM__LOOP _Pragma("GCC unroll 1")
#else
#define TFM__FLAT
#define TFM__LOOP
#endif
/* NOW: a vector is made here, not where it is used. gcc would make all products before it adds them, or what several
   share once for each; engines of WebAssembly keep the order that they get, and run out of registers where all loads
   come first (from 19 on clang has no vectors in its asm).
   STAY: it is read from memory here, where gcc would keep it in a register that sums need more. */
#if !defined(__GNUC__) || (defined(__wasm__) && __clang_major__ >= 19)
#define TFM__NOW(vector) (void)(vector)
#elif defined(__wasm__)
#define TFM__NOW(vector) __asm__ volatile("" : "+r"(vector))
#else
#define TFM__NOW(vector) __asm__ volatile("" : "+v"(vector))
#endif
#ifdef __GNUC__
#define TFM__STAY(object) __asm__ volatile("" : "+m"(object))
#else
#define TFM__STAY(object) (void)(object)
#endif
#if TFM__PASS_PORTABLE
#define TFM__BODY TFM__NOINLINE TFM__UNUSED
#define TFM__UNROLL
#else
#define TFM__BODY TFM__INLINE
#define TFM__UNROLL TFM__FLAT
#endif

#if TFM__PASS_PORTABLE
/* --- primitives, portable C: madd rounds twice -------------------------------------------------------------------- */

#if TFM__PASS == TFM__PASS_SCALAR
#define FN(name) tfm__##name##_scalar
#define TFM__PASS_ISA TFM_ISA_SCALAR
#define TFM__PASS_NAME "scalar"
#else
#define FN(name) tfm__##name##_test
#define TFM__OLD(name) tfm__##name##_scalar
#define TFM__PASS_ISA TFM_ISA_TEST
#define TFM__PASS_NAME "test"
#endif
#define TFM__STRIPS 1 /* float matmul: strips that share one activation */
#define TFM__QUERIES 4 /* attention: queries that share a block in float32, and its turned keys */
#define TFM__BESIDE 2
#define TFM__EACH_OUTPUT TFM__FLAT
#define TFM__FLIP 0   /* 1: the dot product wants 8-bit codes + 128 */

typedef struct FN(vf) { float v[16]; } FN(vf);
typedef struct FN(vi) { int32_t v[16]; } FN(vi);
#define VF FN(vf)
#define VI FN(vi)
#define TFM__LANES for (int i = 0; i < 16; i++)

/* One lane, and 16 of them. Functions of one variable (e^x ...) are compiled for one lane, see EN below. */
TFM__INLINE float FN(set_lane)(float x) { return x; }
TFM__INLINE float FN(add_lane)(float a, float b) { return a + b; }
TFM__INLINE float FN(sub_lane)(float a, float b) { return a - b; }
TFM__INLINE float FN(mul_lane)(float a, float b) { return a * b; }
TFM__INLINE float FN(div_lane)(float a, float b) { return a / b; }
TFM__INLINE float FN(madd_lane)(float a, float b, float c) { return c + a * b; }
TFM__INLINE float FN(nmadd_lane)(float a, float b, float c) { return c - a * b; }
TFM__INLINE float FN(max_lane)(float a, float b) { return a > b ? a : b; } /* b if NaN */
TFM__INLINE float FN(min_lane)(float a, float b) { return a < b ? a : b; }
TFM__INLINE float FN(pick_lane)(float a, float b, float yes, float no) { return a < b ? yes : no; }
TFM__INLINE int32_t FN(bits_lane)(float a) { return (int32_t)tfm__f32_bits(a); }
TFM__INLINE float FN(from_bits_lane)(int32_t a) { return tfm__bits_f32((uint32_t)a); }
TFM__INLINE int32_t FN(round_lane)(float a) { /* ties to even, |a| < 2^22: the integer is in the low bits of the sum */
    return (int32_t)(tfm__f32_bits(a + 12582912.0f) - 0x4b400000u);
}
TFM__INLINE float FN(to_float_lane)(int32_t a) { return (float)a; }
TFM__INLINE int32_t FN(iset_lane)(int32_t x) { return x; }
TFM__INLINE int32_t FN(iadd_lane)(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
TFM__INLINE int32_t FN(isub_lane)(int32_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }
TFM__INLINE int32_t FN(iand_lane)(int32_t a, int32_t b) { return a & b; }
TFM__INLINE int32_t FN(ior_lane)(int32_t a, int32_t b) { return a | b; }
TFM__INLINE int32_t FN(shift_left_lane)(int32_t a, int n) { return (int32_t)((uint32_t)a << n); }
TFM__INLINE int32_t FN(shift_right_lane)(int32_t a, int n) { return a < 0 ? ~(~a >> n) : a >> n; } /* arithmetic */

#define TFM__LIFT2(V, name) \
    TFM__BODY V FN(name)(V a, V b) { TFM__LANES a.v[i] = FN(name##_lane)(a.v[i], b.v[i]); return a; }
#define TFM__LIFT3(name) \
    TFM__BODY VF FN(name)(VF a, VF b, VF c) { TFM__LANES c.v[i] = FN(name##_lane)(a.v[i], b.v[i], c.v[i]); return c; }
TFM__BODY VF FN(set)(float x) { VF r; TFM__LANES r.v[i] = x; return r; }
TFM__BODY VF FN(load)(const float *p) { VF r; memcpy(r.v, p, 64); return r; }
TFM__BODY void FN(store)(float *p, VF a) { memcpy(p, a.v, 64); }
TFM__BODY VF FN(load_n)(const float *p, int n, float fill) { VF r; TFM__LANES r.v[i] = i < n ? p[i] : fill; return r; }
TFM__BODY void FN(store_n)(float *p, VF a, int n) { memcpy(p, a.v, 4 * (size_t)n); }
TFM__BODY VF FN(load_f16)(const uint8_t *p) {
    uint16_t h[16];
    VF r;
    memcpy(h, p, 32);
    TFM__LANES r.v[i] = tfm__f16_to_f32(h[i]);
    return r;
}
TFM__BODY void FN(store_f16)(uint8_t *p, VF a) {
    uint16_t h[16];
    TFM__LANES h[i] = tfm__f32_to_f16(a.v[i]);
    memcpy(p, h, 32);
}
TFM__BODY VF FN(load_bf16)(const uint8_t *p) {
    uint16_t h[16];
    VF r;
    memcpy(h, p, 32);
    TFM__LANES r.v[i] = tfm__bf16_to_f32(h[i]);
    return r;
}
TFM__BODY float FN(half)(uint16_t h) { return tfm__f16_to_f32(h); }
TFM__BODY float FN(sqrt)(float x) { return tfm__sqrt(x); }
TFM__LIFT2(VF, add)
TFM__LIFT2(VF, sub)
TFM__LIFT2(VF, mul)
TFM__LIFT2(VF, div)
TFM__LIFT3(madd) /* c + a * b */
TFM__LIFT3(nmadd) /* c - a * b */
TFM__LIFT2(VF, max)
TFM__LIFT2(VF, min)
TFM__BODY VI FN(bits)(VF a) { VI r; memcpy(r.v, a.v, 64); return r; }
TFM__BODY VF FN(from_bits)(VI a) { VF r; memcpy(r.v, a.v, 64); return r; }
TFM__BODY VI FN(round)(VF a) { VI r; TFM__LANES r.v[i] = FN(round_lane)(a.v[i]); return r; }
TFM__BODY VF FN(to_float)(VI a) { VF r; TFM__LANES r.v[i] = (float)a.v[i]; return r; }
TFM__BODY VI FN(iset)(int32_t x) { VI r; TFM__LANES r.v[i] = x; return r; }
TFM__LIFT2(VI, iadd)
TFM__LIFT2(VI, isub)
TFM__LIFT2(VI, iand)
TFM__BODY VI FN(imax)(VI a, VI b) { TFM__LANES a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i]; return a; }
TFM__BODY VI FN(load_i8)(const uint8_t *p) { VI r; TFM__LANES r.v[i] = (int8_t)p[i]; return r; }
TFM__BODY void FN(store_i8)(int8_t *p, VI a) { TFM__LANES p[i] = (int8_t)a.v[i]; } /* |a| <= 127 */
TFM__BODY float FN(sum)(VF a) {
    for (int w = 8; w; w /= 2) for (int i = 0; i < w; i++) a.v[i] += a.v[i + w];
    return a.v[0];
}
TFM__BODY float FN(max_all)(VF a) {
    for (int w = 8; w; w /= 2) for (int i = 0; i < w; i++) a.v[i] = a.v[i] > a.v[i + w] ? a.v[i] : a.v[i + w];
    return a.v[0];
}
TFM__BODY void FN(turn)(float *to, const float *from) { /* to[c][r] = from[r][c]; rows 64, TFM__SLICE apart */
    for (int c = 0; c < 16; c++, to += 64, from++) TFM__LANES to[i] = from[TFM__SLICE * i];
}
TFM__BODY int32_t FN(isum)(VI a) { int32_t s = 0; TFM__LANES s += a.v[i]; return s; }
TFM__BODY int32_t FN(imax_all)(VI a) { int32_t m = a.v[0]; TFM__LANES m = a.v[i] > m ? a.v[i] : m; return m; }

/* A part of a unit: one row, so that all of it stays in registers. */
#define TFM__BY_ROWS
#define TFM__PARTS(name) FN(name##_lane)
#define TFM__ROWS 1
#define TFM__EACH_TOKEN
#define TFM__EACH_PART
#define TFM__KEEP(pointer)
#define PART(name) TFM__PARTS(name)

typedef float PART(pf);
typedef int32_t PART(pi);
typedef uint32_t PART(pb); /* 4 inputs, the first in the low byte */
TFM__INNER void PART(store)(float *p, float a) { *p = a; }
TFM__INNER float PART(load)(const float *p) { return *p; }
TFM__INNER int32_t PART(iload)(const int32_t *p) { return *p; }
TFM__INNER int32_t PART(imax)(int32_t a, int32_t b) { return a > b ? a : b; }
TFM__INNER int32_t PART(load_i8)(const uint8_t *p) { return (int8_t)*p; }
TFM__INNER int32_t PART(load_u8)(const uint8_t *p) { return *p; }
TFM__INNER float PART(load_f16)(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, TFM__ALIGNED(p, 2), 2);
    return tfm__f16_to_f32(h);
}
TFM__INNER float PART(get)(const float *p, int64_t w, float fill) { return w > 0 ? *p : fill; }
TFM__INNER void PART(put)(float *p, float a, int64_t w) { if (w > 0) *p = a; }
TFM__INNER uint32_t PART(bload)(const void *p) {
    uint32_t r;
    memcpy(&r, TFM__ALIGNED(p, 4), 4);
    return TFM__BIG_ENDIAN ? r >> 24 | (r >> 8 & 0xff00u) | (r & 0xff00u) << 8 | r << 24 : r;
}
/* Bytes four at a time: what a shift brings over from the byte beside is masked away. */
TFM__INNER uint32_t PART(field)(uint32_t a, int shift, int mask) { /* (byte >> shift) & mask */
    return a >> shift & (uint32_t)mask * 0x01010101u;
}
TFM__INNER uint32_t PART(merge)(uint32_t low, uint32_t a, int shift, int mask, int up) {
    return low | PART(field)(a, shift, mask) << up; /* low | ((byte >> shift) & mask) << up */
}
TFM__INNER uint32_t PART(flip)(uint32_t a) { return a ^ 0x80808080u; }
TFM__INNER int32_t PART(byte)(uint32_t a, int j) { return (int32_t)(a >> 8 * j & 255u); } /* unsigned */
TFM__INNER uint32_t PART(lookup)(const int8_t *book, uint32_t a) { /* book[16] at each byte, all below 16 */
    uint32_t r = 0;
    for (int j = 0; j < 4; j++) r |= (uint32_t)(uint8_t)book[PART(byte)(a, j)] << 8 * j;
    return r;
}
TFM__INNER int32_t PART(pairs)(int32_t low, int32_t high) { /* two int16 */
    return (int32_t)(((uint32_t)low & 0xffffu) | (uint32_t)high << 16);
}
TFM__INNER int32_t PART(dot2)(int32_t acc, int32_t pairs, const int16_t *s) { /* acc + low * s[0] + high * s[1] */
    return acc + (int16_t)(pairs & 0xffff) * s[0] + (int16_t)((uint32_t)pairs >> 16) * s[1];
}

/* Activations as dot wants them: of each group of 4 the bytes 0 and 2, then 1 and 3, as pairs of 16 bits. */
typedef struct FN(spread) { int32_t pair[16]; const int8_t *codes; } FN(spread);

/* dot: acc + the products of n groups of 4 codes of `bits` bits (8: signed) with activations, those from group g on. */
#if TFM__PASS == TFM__PASS_TEST
TFM__INNER void FN(spread_x)(FN(spread) *x, const int8_t *codes) { x->codes = codes; }
TFM__INNER int32_t PART(dot)(int32_t acc, const uint32_t *c, int n, const FN(spread) *x, int g, int bits) {
    (void)bits;
    for (int k = 0; k < 4 * n; k++) acc += (int8_t)(c[k / 4] >> 8 * (k % 4) & 255u) * x->codes[4 * g + k];
    return acc;
}
#elif defined(TFM__HAS_SMLAD)
TFM__INNER void FN(spread_x)(FN(spread) *x, const int8_t *codes) {
    for (int g = 0; g < 8; g++) {
        const int8x4_t four = (int8x4_t)PART(bload)(codes + 4 * g);
        x->pair[2 * g] = __sxtb16(four);
        x->pair[2 * g + 1] = __sxtb16((int8x4_t)((uint32_t)four >> 8));
    }
}
TFM__INNER int32_t PART(dot)(int32_t acc, const uint32_t *c, int n, const FN(spread) *x, int g, int bits) {
    const int32_t *pair = x->pair + 2 * g;
    TFM__FLAT
    for (int k = 0; k < n; k++) {
        const uint32_t even = bits == 8 ? (uint32_t)__sxtb16((int8x4_t)c[k]) : c[k] & 0x00ff00ffu;
        const uint32_t odd = bits == 8 ? (uint32_t)__sxtb16((int8x4_t)(c[k] >> 8)) : c[k] >> 8 & 0x00ff00ffu;
        acc = __smlad((int16x2_t)odd, pair[2 * k + 1], __smlad((int16x2_t)even, pair[2 * k], acc));
    }
    return acc;
}
#else
/* Pairs with their halves exchanged: the high half of a product of pairs is then a sum of two products. Sums of these
   products are right while neither half leaves 16 bits, `deep` of them. Bytes with a sign are too large for that. */
TFM__INNER void FN(spread_x)(FN(spread) *x, const int8_t *codes) {
    x->codes = codes;
    for (int g = 0; g < 8; g++, codes += 4) {
        x->pair[2 * g] = codes[0] * 65536 + codes[2];
        x->pair[2 * g + 1] = codes[1] * 65536 + codes[3];
    }
}
TFM__INNER int32_t PART(dot)(int32_t acc, const uint32_t *c, int n, const FN(spread) *x, int g, int bits) {
    const int most = bits == 6 ? 1 : bits == 5 ? 2 : bits == 4 ? 4 : 8; /* in groups */
    const int deep = most < n ? most : n;                               /* divides n */
    if (bits == 8) {
        const int8_t *v = x->codes + 4 * g;
        TFM__FLAT
        for (int k = 0; k < n; k++, v += 4) {
            acc += (int8_t)(c[k] & 255u) * v[0] + (int8_t)(c[k] >> 8 & 255u) * v[1];
            acc += (int8_t)(c[k] >> 16 & 255u) * v[2] + (int8_t)(c[k] >> 24) * v[3];
        }
        return acc;
    }
    TFM__FLAT
    for (int k = 0; k < n; k += deep) {
        uint32_t sums = 0x8000u; /* so that the low half, which may be below 0, takes nothing from the high one */
        TFM__FLAT
        for (int i = k; i < k + deep; i++) {
            sums += (c[i] & 0x00ff00ffu) * (uint32_t)x->pair[2 * (g + i)];
            sums += (c[i] >> 8 & 0x00ff00ffu) * (uint32_t)x->pair[2 * (g + i) + 1];
        }
        acc += (int16_t)(sums >> 16);
    }
    return acc;
}
#endif
#undef PART
#undef TFM__LIFT2
#undef TFM__LIFT3
#undef TFM__LANES

#elif TFM__PASS == TFM__PASS_AVX2 || TFM__PASS == TFM__PASS_AVXVNNI
/* --- primitives, AVX2 with FMA and F16C: two registers a vector; AVX-VNNI differs in its dot products ------------- */

#if TFM__PASS == TFM__PASS_AVX2
#define FN(name) tfm__##name##_avx2
#define TFM__PASS_ISA TFM_ISA_AVX2
#define TFM__PASS_NAME "avx2"
#define TFM__FLIP 0
#define TFM__TOKENS 16 /* q8 matmul: tokens that share one unpacking; codes, too many for registers, are on the stack */
#define TFM__EACH_TILED TFM__LOOP
#define TFM__ABREAST 2 /* of those, the tokens that go side by side: they share the loads of codes */
#define TFM__PAIRED /* tokens side by side go by pair_groups and dot_pairs, one alone by dot */
#else
#define FN(name) tfm__##name##_avxvnni
#define TFM__OLD(name) tfm__##name##_avx2
#define TFM__PASS_ISA TFM_ISA_AVXVNNI
#define TFM__PASS_NAME "avxvnni"
#define TFM__FLIP 1
#define TFM__TOKENS 4
#define TFM__ABREAST 4
#endif
#define TFM__STRIPS 1
#define TFM__QUERIES 24

typedef struct FN(vf) { __m256 a, b; } FN(vf);
typedef struct FN(vi) { __m256i a, b; } FN(vi);
typedef FN(vi) FN(vb);
#define VF FN(vf)
#define VI FN(vi)
#define VB FN(vb)

TFM__BODY VF FN(f2)(__m256 a, __m256 b) { VF r; r.a = a; r.b = b; return r; }
TFM__BODY VI FN(i2)(__m256i a, __m256i b) { VI r; r.a = a; r.b = b; return r; }
TFM__BODY __m128i FN(count)(int n) { return _mm_cvtsi32_si128(n); }
TFM__BODY __m256i FN(mask8)(int n) { /* the first n of 8 lanes */
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
TFM__BODY __m256i FN(load32)(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
TFM__BODY __m128i FN(load16)(const void *p) { return _mm_loadu_si128((const __m128i *)p); }

TFM__BODY VF FN(set)(float x) { return FN(f2)(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
TFM__BODY VF FN(load)(const float *p) { return FN(f2)(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
TFM__BODY void FN(store)(float *p, VF a) { _mm256_storeu_ps(p, a.a); _mm256_storeu_ps(p + 8, a.b); }
TFM__BODY VF FN(load_n)(const float *p, int n, float fill) {
    __m256i m = FN(mask8)(n), k = FN(mask8)(n - 8);
    __m256 f = _mm256_set1_ps(fill);
    return FN(f2)(_mm256_blendv_ps(f, _mm256_maskload_ps(p, m), _mm256_castsi256_ps(m)),
                  _mm256_blendv_ps(f, _mm256_maskload_ps(p + 8, k), _mm256_castsi256_ps(k)));
}
TFM__BODY void FN(store_n)(float *p, VF a, int n) {
    _mm256_maskstore_ps(p, FN(mask8)(n), a.a);
    _mm256_maskstore_ps(p + 8, FN(mask8)(n - 8), a.b);
}
TFM__BODY VF FN(load_f16)(const uint8_t *p) {
    return FN(f2)(_mm256_cvtph_ps(FN(load16)(p)), _mm256_cvtph_ps(FN(load16)(p + 16)));
}
TFM__BODY void FN(store_f16)(uint8_t *p, VF a) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a.a, 0)); /* 0: to nearest, ties to even */
    _mm_storeu_si128((__m128i *)(p + 16), _mm256_cvtps_ph(a.b, 0));
}
TFM__BODY VF FN(load_bf16)(const uint8_t *p) {
    __m256i a = _mm256_cvtepu16_epi32(FN(load16)(p)), b = _mm256_cvtepu16_epi32(FN(load16)(p + 16));
    return FN(f2)(_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16)));
}
TFM__BODY float FN(half)(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }
TFM__BODY float FN(sqrt)(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
TFM__BODY VF FN(add)(VF a, VF b) { return FN(f2)(_mm256_add_ps(a.a, b.a), _mm256_add_ps(a.b, b.b)); }
TFM__BODY VF FN(sub)(VF a, VF b) { return FN(f2)(_mm256_sub_ps(a.a, b.a), _mm256_sub_ps(a.b, b.b)); }
TFM__BODY VF FN(mul)(VF a, VF b) { return FN(f2)(_mm256_mul_ps(a.a, b.a), _mm256_mul_ps(a.b, b.b)); }
TFM__BODY VF FN(div)(VF a, VF b) { return FN(f2)(_mm256_div_ps(a.a, b.a), _mm256_div_ps(a.b, b.b)); }
TFM__BODY VF FN(madd)(VF a, VF b, VF c) {
    return FN(f2)(_mm256_fmadd_ps(a.a, b.a, c.a), _mm256_fmadd_ps(a.b, b.b, c.b));
}
TFM__BODY VF FN(nmadd)(VF a, VF b, VF c) {
    return FN(f2)(_mm256_fnmadd_ps(a.a, b.a, c.a), _mm256_fnmadd_ps(a.b, b.b, c.b));
}
TFM__BODY VF FN(max)(VF a, VF b) { return FN(f2)(_mm256_max_ps(a.a, b.a), _mm256_max_ps(a.b, b.b)); }
TFM__BODY VF FN(min)(VF a, VF b) { return FN(f2)(_mm256_min_ps(a.a, b.a), _mm256_min_ps(a.b, b.b)); }
TFM__BODY VF FN(pick)(VF a, VF b, VF yes, VF no) {
    return FN(f2)(_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(a.a, b.a, _CMP_LT_OQ)),
                  _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(a.b, b.b, _CMP_LT_OQ)));
}
TFM__BODY VI FN(bits)(VF a) { return FN(i2)(_mm256_castps_si256(a.a), _mm256_castps_si256(a.b)); }
TFM__BODY VF FN(from_bits)(VI a) { return FN(f2)(_mm256_castsi256_ps(a.a), _mm256_castsi256_ps(a.b)); }
TFM__BODY VI FN(round)(VF a) { return FN(i2)(_mm256_cvtps_epi32(a.a), _mm256_cvtps_epi32(a.b)); }
TFM__BODY VF FN(to_float)(VI a) { return FN(f2)(_mm256_cvtepi32_ps(a.a), _mm256_cvtepi32_ps(a.b)); }
TFM__BODY VI FN(iset)(int32_t x) { return FN(i2)(_mm256_set1_epi32(x), _mm256_set1_epi32(x)); }
TFM__BODY VI FN(iadd)(VI a, VI b) { return FN(i2)(_mm256_add_epi32(a.a, b.a), _mm256_add_epi32(a.b, b.b)); }
TFM__BODY VI FN(isub)(VI a, VI b) { return FN(i2)(_mm256_sub_epi32(a.a, b.a), _mm256_sub_epi32(a.b, b.b)); }
TFM__BODY VI FN(iand)(VI a, VI b) { return FN(i2)(_mm256_and_si256(a.a, b.a), _mm256_and_si256(a.b, b.b)); }
TFM__BODY VI FN(ior)(VI a, VI b) { return FN(i2)(_mm256_or_si256(a.a, b.a), _mm256_or_si256(a.b, b.b)); }
TFM__BODY VI FN(imax)(VI a, VI b) { return FN(i2)(_mm256_max_epi32(a.a, b.a), _mm256_max_epi32(a.b, b.b)); }
TFM__BODY VI FN(shift_left)(VI a, int n) {
    return FN(i2)(_mm256_sll_epi32(a.a, FN(count)(n)), _mm256_sll_epi32(a.b, FN(count)(n)));
}
TFM__BODY VI FN(shift_right)(VI a, int n) {
    return FN(i2)(_mm256_sra_epi32(a.a, FN(count)(n)), _mm256_sra_epi32(a.b, FN(count)(n)));
}
TFM__BODY VI FN(load_i8)(const uint8_t *p) {
    __m128i v = FN(load16)(p);
    return FN(i2)(_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)));
}
TFM__BODY VI FN(load_u8)(const uint8_t *p) {
    __m128i v = FN(load16)(p);
    return FN(i2)(_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)));
}
TFM__BODY void FN(store_i8)(int8_t *p, VI a) {
    __m256i v = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.a, a.b), 0xd8);
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}
TFM__BODY float FN(sum)(VF a) {
    __m256 s = _mm256_add_ps(a.a, a.b);
    __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_add_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_shuffle_ps(t, t, 1)));
}
TFM__BODY float FN(max_all)(VF a) {
    __m256 s = _mm256_max_ps(a.a, a.b);
    __m128 t = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_max_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_shuffle_ps(t, t, 1)));
}
TFM__BODY __m256 FN(rows4)(const float *p) { /* four elements of a row, and of the fourth after it */
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + 4 * TFM__SLICE), 1);
}
TFM__BODY __m256 FN(low2)(__m256 a, __m256 b) { return _mm256_shuffle_ps(a, b, 0x44); }
TFM__BODY __m256 FN(high2)(__m256 a, __m256 b) { return _mm256_shuffle_ps(a, b, 0xee); }
TFM__BODY void FN(turn)(float *to, const float *from) { /* to[c][r] = from[r][c], 16 x 16 */
    TFM__LOOP
    for (int c = 0; c < 16; c += 4, to += 4 * 64, from += 4) {
        TFM__UNROLL
        for (int h = 0; h < 16; h += 8) {
            const float *p = from + TFM__SLICE * h;
            const __m256 a = FN(rows4)(p), b = FN(rows4)(p + TFM__SLICE);
            const __m256 d = FN(rows4)(p + 2 * TFM__SLICE), e = FN(rows4)(p + 3 * TFM__SLICE);
            const __m256 ab = _mm256_unpacklo_ps(a, b), de = _mm256_unpacklo_ps(d, e);
            const __m256 ba = _mm256_unpackhi_ps(a, b), ed = _mm256_unpackhi_ps(d, e);
            _mm256_storeu_ps(to + h, FN(low2)(ab, de)), _mm256_storeu_ps(to + 64 + h, FN(high2)(ab, de));
            _mm256_storeu_ps(to + 128 + h, FN(low2)(ba, ed)), _mm256_storeu_ps(to + 192 + h, FN(high2)(ba, ed));
        }
    }
}
#define TFM__TURN_HALVES
/* The same of 2 bytes; to: 32 bytes a row. */
TFM__BODY void FN(turn_halves)(uint8_t *to, const uint8_t *from, size_t stride) {
    TFM__UNROLL
    for (int c = 0; c < 2; c++, from += 16) {
        __m256i a[8], b[8];
        TFM__UNROLL
        for (int i = 0; i < 8; i++) /* rows i and i + 8 */
            a[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(FN(load16)(from + stride * (size_t)i)),
                                           FN(load16)(from + stride * (size_t)(i + 8)), 1);
        TFM__UNROLL
        for (int i = 0; i < 4; i++) {
            b[i] = _mm256_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
            b[i + 4] = _mm256_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
        }
        TFM__UNROLL
        for (int i = 0; i < 4; i++) {
            a[2 * i] = _mm256_unpacklo_epi32(b[2 * i], b[2 * i + 1]);
            a[2 * i + 1] = _mm256_unpackhi_epi32(b[2 * i], b[2 * i + 1]);
        }
        TFM__UNROLL
        for (int i = 0; i < 4; i++, to += 64) {
            const __m256i low = a[i / 2 * 4 + i % 2], high = a[i / 2 * 4 + i % 2 + 2];
            _mm256_storeu_si256((__m256i *)(void *)to, _mm256_unpacklo_epi64(low, high));
            _mm256_storeu_si256((__m256i *)(void *)(to + 32), _mm256_unpackhi_epi64(low, high));
        }
    }
}
TFM__BODY int32_t FN(isum)(VI a) {
    __m256i s = _mm256_add_epi32(a.a, a.b);
    __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}
TFM__BODY int32_t FN(imax_all)(VI a) {
    __m256i s = _mm256_max_epi32(a.a, a.b);
    __m128i t = _mm_max_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}
TFM__BODY VB FN(bload)(const uint8_t *p) { return FN(i2)(FN(load32)(p), FN(load32)(p + 32)); }
TFM__BODY __m256i FN(move)(__m256i a, int shift, int mask) { /* bits moved right (left if negative), then masked */
    a = shift > 0 ? _mm256_srl_epi16(a, FN(count)(shift)) : shift < 0 ? _mm256_sll_epi16(a, FN(count)(-shift)) : a;
    return _mm256_and_si256(a, _mm256_set1_epi8((char)mask));
}
TFM__BODY VB FN(field)(VB a, int shift, int mask) {
    return FN(i2)(FN(move)(a.a, shift, mask), FN(move)(a.b, shift, mask));
}
TFM__BODY VB FN(merge)(VB low, VB a, int shift, int mask, int up) {
    return FN(i2)(_mm256_or_si256(low.a, FN(move)(a.a, shift - up, mask << up)),
                  _mm256_or_si256(low.b, FN(move)(a.b, shift - up, mask << up)));
}
TFM__BODY VB FN(flip)(VB a) {
    __m256i h = _mm256_set1_epi8((char)-128);
    return FN(i2)(_mm256_xor_si256(a.a, h), _mm256_xor_si256(a.b, h));
}
TFM__BODY VB FN(lookup)(const int8_t *book, VB a) {
    const __m256i t = _mm256_broadcastsi128_si256(FN(load16)(book));
    return FN(i2)(_mm256_shuffle_epi8(t, a.a), _mm256_shuffle_epi8(t, a.b));
}
TFM__BODY VI FN(byte)(VB a, int j) {
    __m256i m = _mm256_set1_epi32(255);
    return FN(i2)(_mm256_and_si256(_mm256_srl_epi32(a.a, FN(count)(8 * j)), m),
                  _mm256_and_si256(_mm256_srl_epi32(a.b, FN(count)(8 * j)), m));
}
#if TFM__PASS == TFM__PASS_AVXVNNI
TFM__BODY VI FN(dot)(VI acc, const VB *c, int n, const int8_t *x, int bits) {
    (void)bits;
    TFM__UNROLL
    for (int g = 0; g < n; g++) {
        int32_t four;
        memcpy(&four, x + 4 * g, 4);
        acc.a = _mm256_dpbusd_avx_epi32(acc.a, c[g].a, _mm256_set1_epi32(four));
        acc.b = _mm256_dpbusd_avx_epi32(acc.b, c[g].b, _mm256_set1_epi32(four));
    }
    return acc;
}
#else
/* sum[t] + the products of n groups of codes with those of nt tokens, at most 2. maddubs adds two products in int16:
   `deep` groups fit before they must be widened (15 * 127 * 2 * 8 = 30480). */
TFM__BODY void FN(dot_tokens)(const int nt, VI *sum, const VB *c, const int n, const int8_t *const *x, const int bits) {
    const int most = bits == 8 ? 1 : bits == 6 ? 2 : bits == 5 ? 4 : 8, deep = most < n ? most : n; /* divides n */
    const __m256i one = _mm256_set1_epi16(1);
    TFM__UNROLL
    for (int g0 = 0; g0 < n; g0 += deep) {
        __m256i a[2], b[2];
        TFM__UNROLL
        for (int i = 0; i < deep; i++) {
            const int g = g0 + i;
            TFM__UNROLL
            for (int t = 0; t < nt; t++) {
                int32_t four;
                memcpy(&four, x[t] + 4 * g, 4);
                __m256i v = _mm256_set1_epi32(four), ca = c[g].a, cb = c[g].b, va = v, vb = v;
                if (bits == 8) { /* |code| times the activation with the code's sign */
                    va = _mm256_sign_epi8(v, ca), vb = _mm256_sign_epi8(v, cb);
                    ca = _mm256_abs_epi8(ca), cb = _mm256_abs_epi8(cb);
                }
                const __m256i pa = _mm256_maddubs_epi16(ca, va), pb = _mm256_maddubs_epi16(cb, vb);
                a[t] = i == 0 ? pa : _mm256_add_epi16(a[t], pa);
                b[t] = i == 0 ? pb : _mm256_add_epi16(b[t], pb);
            }
            if (nt == 1) continue;
            TFM__NOW(a[0]);
            TFM__NOW(b[0]);
            TFM__NOW(a[1]);
            TFM__NOW(b[1]);
        }
        TFM__UNROLL
        for (int t = 0; t < nt; t++) {
            sum[t].a = _mm256_add_epi32(sum[t].a, _mm256_madd_epi16(a[t], one));
            sum[t].b = _mm256_add_epi32(sum[t].b, _mm256_madd_epi16(b[t], one));
        }
    }
}
TFM__BODY VI FN(dot)(VI acc, const VB *c, int n, const int8_t *x, int bits) {
    FN(dot_tokens)(1, &acc, c, n, &x, bits);
    return acc;
}
TFM__BODY void FN(pair_groups)(VB *c) { (void)c; } /* they are as dot_pairs wants them */
TFM__BODY void FN(dot_pairs)(const int nt, const int ns, VI *sum, const VB *c, const int n, const uint8_t *const *rows,
                             size_t at, int bits) {
    const int8_t *x[2];
    (void)ns;
    x[0] = (const int8_t *)rows[0] + at, x[1] = (const int8_t *)rows[nt - 1] + at;
#ifdef __GNUC__
    __asm__("" : "+r"(x[0]), "+r"(x[1])); /* addresses that gcc would keep one for each group */
#endif
    FN(dot_tokens)(nt, sum, c, n, x, bits);
}
#endif
TFM__BODY VI FN(pairs)(VI low, VI high) {
    return FN(i2)(_mm256_blend_epi16(low.a, _mm256_slli_epi32(high.a, 16), 0xaa),
                  _mm256_blend_epi16(low.b, _mm256_slli_epi32(high.b, 16), 0xaa));
}
TFM__BODY VI FN(dot2)(VI acc, VI pairs, const int16_t *s) {
    int32_t two;
    memcpy(&two, s, 4);
    __m256i v = _mm256_set1_epi32(two);
    acc.a = _mm256_add_epi32(acc.a, _mm256_madd_epi16(pairs.a, v));
    acc.b = _mm256_add_epi32(acc.b, _mm256_madd_epi16(pairs.b, v));
    return acc;
}

#elif TFM__PASS == TFM__PASS_AVX512 || TFM__PASS == TFM__PASS_AMX
/* --- primitives, AVX-512 (F, BW, VL, DQ, VNNI): one register a vector; AMX adds a matmul -------------------------- */

#if TFM__PASS == TFM__PASS_AVX512
#define FN(name) tfm__##name##_avx512
#define TFM__PASS_ISA TFM_ISA_AVX512
#define TFM__PASS_NAME "avx512"
#define TFM__TOKENS 96
#define TFM__ABREAST 6 /* times 2 strips: products take 5 cycles, 2 begin in each; codes take 16 more registers of 32 */
#define TFM__SIDE 2    /* strips that share what is loaded of activations: loads are as dear as products */
#define TFM__EACH_TILED TFM__LOOP
#define TFM__PAIRED
#define TFM__FLIP 1
#define TFM__SUMS_AS_BITS
#else
#define FN(name) tfm__##name##_amx
#define TFM__OLD(name) tfm__##name##_avx512
#define TFM__PASS_ISA TFM_ISA_AMX
#define TFM__PASS_NAME "amx"
#define TFM__TOKENS 16
#define TFM__FLIP 0
#endif
#define TFM__STRIPS 4
#define TFM__QUERIES 24
#define TFM__SUMS 16

#define VF __m512
#define VI __m512i
#define VB __m512i

TFM__BODY __m128i FN(count)(int n) { return _mm_cvtsi32_si128(n); }
TFM__BODY __mmask16 FN(first)(int n) { return (__mmask16)((1u << n) - 1u); }

TFM__BODY VF FN(set)(float x) { return _mm512_set1_ps(x); }
TFM__BODY VF FN(load)(const float *p) { return _mm512_loadu_ps(p); }
TFM__BODY void FN(store)(float *p, VF a) { _mm512_storeu_ps(p, a); }
TFM__BODY VF FN(load_n)(const float *p, int n, float fill) {
    return _mm512_mask_loadu_ps(_mm512_set1_ps(fill), FN(first)(n), p);
}
TFM__BODY void FN(store_n)(float *p, VF a, int n) { _mm512_mask_storeu_ps(p, FN(first)(n), a); }
TFM__BODY VF FN(load_f16)(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
TFM__BODY void FN(store_f16)(uint8_t *p, VF a) {
    _mm256_storeu_si256((__m256i *)p, _mm512_maskz_cvtps_ph((__mmask16)0xffff, a, 0)); /* 0: to nearest, ties to even */
}
TFM__BODY VF FN(load_bf16)(const uint8_t *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
TFM__BODY float FN(half)(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }
TFM__BODY float FN(sqrt)(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
TFM__BODY VF FN(add)(VF a, VF b) { return _mm512_add_ps(a, b); }
TFM__BODY VF FN(sub)(VF a, VF b) { return _mm512_sub_ps(a, b); }
TFM__BODY VF FN(mul)(VF a, VF b) { return _mm512_mul_ps(a, b); }
TFM__BODY VF FN(div)(VF a, VF b) { return _mm512_div_ps(a, b); }
TFM__BODY VF FN(madd)(VF a, VF b, VF c) { return _mm512_fmadd_ps(a, b, c); }
TFM__BODY VF FN(nmadd)(VF a, VF b, VF c) { return _mm512_fnmadd_ps(a, b, c); }
TFM__BODY VF FN(max)(VF a, VF b) { return _mm512_max_ps(a, b); }
TFM__BODY VF FN(min)(VF a, VF b) { return _mm512_min_ps(a, b); }
TFM__BODY VF FN(pick)(VF a, VF b, VF yes, VF no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
TFM__BODY VI FN(bits)(VF a) { return _mm512_castps_si512(a); }
TFM__BODY VF FN(from_bits)(VI a) { return _mm512_castsi512_ps(a); }
TFM__BODY VI FN(round)(VF a) { return _mm512_cvtps_epi32(a); }
TFM__BODY VF FN(to_float)(VI a) { return _mm512_cvtepi32_ps(a); }
#define TFM__LDEXP
TFM__BODY VF FN(ldexp)(VF p, VI n, VF k) { /* p 2^n, rounded once */
    (void)n;
    return _mm512_scalef_ps(p, k);
}
#ifdef TFM__SUMS_AS_BITS
TFM__BODY VI FN(sum_start)(void) { return _mm512_set1_epi32(0x4b400000); } /* 1.5 * 2^23 */
#endif
TFM__BODY VI FN(iset)(int32_t x) { return _mm512_set1_epi32(x); }
TFM__BODY VI FN(iadd)(VI a, VI b) { return _mm512_add_epi32(a, b); }
TFM__BODY VI FN(isub)(VI a, VI b) { return _mm512_sub_epi32(a, b); }
TFM__BODY VI FN(iand)(VI a, VI b) { return _mm512_and_si512(a, b); }
TFM__BODY VI FN(ior)(VI a, VI b) { return _mm512_or_si512(a, b); }
TFM__BODY VI FN(imax)(VI a, VI b) { return _mm512_max_epi32(a, b); }
TFM__BODY VI FN(shift_left)(VI a, int n) { return _mm512_sll_epi32(a, FN(count)(n)); }
TFM__BODY VI FN(shift_right)(VI a, int n) { return _mm512_sra_epi32(a, FN(count)(n)); }
TFM__BODY VI FN(load_i8)(const uint8_t *p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)); }
TFM__BODY VI FN(load_u8)(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
TFM__BODY void FN(store_i8)(int8_t *p, VI a) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a)); }
TFM__BODY float FN(sum)(VF a) {
    __m256 s = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_add_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_shuffle_ps(t, t, 1)));
}
TFM__BODY float FN(max_all)(VF a) {
    __m256 s = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 t = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_max_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_shuffle_ps(t, t, 1)));
}
TFM__BODY __m512 FN(rows4)(const float *p) { /* four elements of a row, and of every fourth after it */
    __m512 a = _mm512_castps128_ps512(_mm_loadu_ps(p));
    a = _mm512_insertf32x4(a, _mm_loadu_ps(p + 4 * TFM__SLICE), 1);
    a = _mm512_insertf32x4(a, _mm_loadu_ps(p + 8 * TFM__SLICE), 2);
    return _mm512_insertf32x4(a, _mm_loadu_ps(p + 12 * TFM__SLICE), 3);
}
TFM__BODY void FN(turn)(float *to, const float *from) { /* to[c][r] = from[r][c], 16 x 16 */
    TFM__LOOP
    for (int c = 0; c < 16; c += 4, to += 4 * 64, from += 4) {
        const __m512 a = FN(rows4)(from), b = FN(rows4)(from + TFM__SLICE);
        const __m512 d = FN(rows4)(from + 2 * TFM__SLICE), e = FN(rows4)(from + 3 * TFM__SLICE);
        const __m512 ab = _mm512_unpacklo_ps(a, b), de = _mm512_unpacklo_ps(d, e);
        const __m512 ba = _mm512_unpackhi_ps(a, b), ed = _mm512_unpackhi_ps(d, e);
        _mm512_storeu_ps(to, _mm512_shuffle_ps(ab, de, 0x44));
        _mm512_storeu_ps(to + 64, _mm512_shuffle_ps(ab, de, 0xee));
        _mm512_storeu_ps(to + 128, _mm512_shuffle_ps(ba, ed, 0x44));
        _mm512_storeu_ps(to + 192, _mm512_shuffle_ps(ba, ed, 0xee));
    }
}
#define TFM__TURN_HALVES
TFM__BODY __m512i FN(load_four)(const uint8_t *a, const uint8_t *b) { /* 16 bytes of a, of b, and those after them */
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)a));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(const void *)b), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(const void *)(a + 16)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(const void *)(b + 16)), 3);
}
/* The same of 2 bytes; to: 32 bytes a row. */
TFM__BODY void FN(turn_halves)(uint8_t *to, const uint8_t *from, size_t stride) {
    __m512i a[8], b[8];
    TFM__UNROLL
    for (int i = 0; i < 8; i++) a[i] = FN(load_four)(from + stride * (size_t)i, from + stride * (size_t)(i + 8));
    TFM__UNROLL
    for (int i = 0; i < 4; i++) {
        b[i] = _mm512_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
        b[i + 4] = _mm512_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
    }
    TFM__UNROLL
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm512_unpacklo_epi32(b[2 * i], b[2 * i + 1]);
        a[2 * i + 1] = _mm512_unpackhi_epi32(b[2 * i], b[2 * i + 1]);
    }
    TFM__UNROLL
    for (int i = 0; i < 4; i++, to += 64) { /* elements 2 i, 2 i + 1, and eight after either */
        const __m512i low = a[i / 2 * 4 + i % 2], high = a[i / 2 * 4 + i % 2 + 2];
        const __m512i even = _mm512_unpacklo_epi64(low, high), odd = _mm512_unpackhi_epi64(low, high);
        _mm256_storeu_si256((__m256i *)(void *)to, _mm512_castsi512_si256(even));
        _mm256_storeu_si256((__m256i *)(void *)(to + 32), _mm512_castsi512_si256(odd));
        _mm256_storeu_si256((__m256i *)(void *)(to + 256), _mm512_extracti64x4_epi64(even, 1));
        _mm256_storeu_si256((__m256i *)(void *)(to + 288), _mm512_extracti64x4_epi64(odd, 1));
    }
}
TFM__BODY int32_t FN(isum)(VI a) {
    __m256i s = _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}
TFM__BODY int32_t FN(imax_all)(VI a) {
    __m256i s = _mm256_max_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    __m128i t = _mm_max_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}
TFM__BODY VB FN(bload)(const uint8_t *p) { return _mm512_loadu_si512(p); }
TFM__BODY VB FN(move)(VB a, int shift) { /* negative: to the left */
    return shift > 0 ? _mm512_srl_epi16(a, FN(count)(shift)) : shift < 0 ? _mm512_sll_epi16(a, FN(count)(-shift)) : a;
}
TFM__BODY VB FN(field)(VB a, int shift, int mask) {
    return _mm512_and_si512(FN(move)(a, shift), _mm512_set1_epi8((char)mask));
}
TFM__BODY VB FN(merge)(VB low, VB a, int shift, int mask, int up) { /* 0xf8: low | (moved & mask) */
    return _mm512_ternarylogic_epi32(low, FN(move)(a, shift - up), _mm512_set1_epi8((char)(mask << up)), 0xf8);
}
TFM__BODY VB FN(flip)(VB a) { return _mm512_xor_si512(a, _mm512_set1_epi8((char)-128)); }
TFM__BODY VB FN(lookup)(const int8_t *book, VB a) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)book)), a);
}
TFM__BODY VI FN(byte)(VB a, int j) {
    return _mm512_and_si512(_mm512_srl_epi32(a, FN(count)(8 * j)), _mm512_set1_epi32(255));
}
TFM__BODY VI FN(dot)(VI acc, const VB *c, int n, const int8_t *x, int bits) {
    (void)bits;
    TFM__UNROLL
    for (int g = 0; g < n; g++) {
        int32_t four;
        memcpy(&four, x + 4 * g, 4);
        acc = _mm512_dpbusd_epi32(acc, c[g], _mm512_set1_epi32(four));
    }
    return acc;
}
TFM__BODY void FN(pair_groups)(VB *c) { (void)c; }
TFM__BODY void FN(dot_pairs)(const int nt, const int ns, VI *sum, const VB *c, const int n, const uint8_t *const *rows,
                             size_t at, int bits) {
    (void)bits;
    TFM__UNROLL
    for (int g = 0; g < n; g++) {
        TFM__UNROLL
        for (int t = 0; t < nt; t++) {
            int32_t four;
            memcpy(&four, rows[t] + at + 4 * g, 4);
            __m512i x = _mm512_set1_epi32(four);
            TFM__NOW(x);
            TFM__UNROLL
            for (int s = 0; s < ns; s++) sum[t * ns + s] = _mm512_dpbusd_epi32(sum[t * ns + s], c[8 * s + g], x);
        }
    }
}
TFM__BODY VI FN(pairs)(VI low, VI high) {
    return _mm512_mask_blend_epi16(0xaaaaaaaau, low, _mm512_slli_epi32(high, 16));
}
TFM__BODY VI FN(dot2)(VI acc, VI pairs, const int16_t *s) {
    int32_t two;
    memcpy(&two, s, 4);
    return _mm512_dpwssd_epi32(acc, pairs, _mm512_set1_epi32(two));
}

#elif TFM__PASS == TFM__PASS_NEON || TFM__PASS == TFM__PASS_NEONDOT || TFM__PASS == TFM__PASS_I8MM
/* --- primitives, NEON of AArch64: four registers a vector; with the dot product of Armv8.2 in a pass of its own, and
       with products of matrices for tokens side by side in another ------------------------------------------------- */

#if TFM__PASS == TFM__PASS_NEON
#define FN(name) tfm__##name##_neon
#define TFM__PASS_ISA TFM_ISA_NEON
#define TFM__PASS_NAME "neon"
#elif TFM__PASS == TFM__PASS_NEONDOT
#define FN(name) tfm__##name##_neondot
#define TFM__OLD(name) tfm__##name##_neon
#define TFM__PASS_ISA TFM_ISA_NEONDOT
#define TFM__PASS_NAME "neondot"
#else
#define FN(name) tfm__##name##_i8mm
#define TFM__OLD(name) tfm__##name##_neon
#define TFM__PASS_ISA TFM_ISA_I8MM
#define TFM__PASS_NAME "i8mm"
#define TFM__PAIRED
#define TFM__EACH_TILED TFM__LOOP
#endif
#ifdef TFM__PAIRED
#define TFM__TOKENS 16
#define TFM__ABREAST 4
#else
#define TFM__TOKENS 4
#define TFM__ABREAST 1
#endif
#define TFM__STRIPS 1
#define TFM__QUERIES 24
#define TFM__FLIP 0

typedef struct FN(vf) { float32x4_t v[4]; } FN(vf);
typedef struct FN(vi) { int32x4_t v[4]; } FN(vi);
typedef struct FN(vb) { uint8x16_t v[4]; } FN(vb);
#define VF FN(vf)
#define VI FN(vi)
#define VB FN(vb)
#define TFM__QUADS TFM__UNROLL for (int i = 0; i < 4; i++)

TFM__BODY VF FN(set)(float x) { VF r; TFM__QUADS r.v[i] = vdupq_n_f32(x); return r; }
TFM__BODY VF FN(load)(const float *p) { VF r; TFM__QUADS r.v[i] = vld1q_f32(p + 4 * i); return r; }
TFM__BODY void FN(store)(float *p, VF a) { TFM__QUADS vst1q_f32(p + 4 * i, a.v[i]); }
TFM__BODY VF FN(load_n)(const float *p, int n, float fill) {
    float x[16];
    for (int i = 0; i < 16; i++) x[i] = i < n ? p[i] : fill;
    return FN(load)(x);
}
TFM__BODY void FN(store_n)(float *p, VF a, int n) {
    float x[16];
    FN(store)(x, a);
    memcpy(p, x, 4 * (size_t)n);
}
TFM__BODY uint16x8_t FN(halves)(const uint8_t *p) { return vreinterpretq_u16_u8(vld1q_u8(p)); } /* at any address */
TFM__BODY float32x4_t FN(widen_f16)(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
TFM__BODY VF FN(load_f16)(const uint8_t *p) {
    const uint16x8_t a = FN(halves)(p), b = FN(halves)(p + 16);
    VF r;
    r.v[0] = FN(widen_f16)(vget_low_u16(a)), r.v[1] = FN(widen_f16)(vget_high_u16(a));
    r.v[2] = FN(widen_f16)(vget_low_u16(b)), r.v[3] = FN(widen_f16)(vget_high_u16(b));
    return r;
}
TFM__BODY void FN(store_f16)(uint8_t *p, VF a) { /* to nearest, ties to even */
    TFM__QUADS vst1_u8(p + 8 * i, vreinterpret_u8_f16(vcvt_f16_f32(a.v[i])));
}
TFM__BODY VF FN(load_bf16)(const uint8_t *p) {
    const uint16x8_t a = FN(halves)(p), b = FN(halves)(p + 16);
    VF r;
    r.v[0] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(a), 16));
    r.v[1] = vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(a), 16));
    r.v[2] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(b), 16));
    r.v[3] = vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(b), 16));
    return r;
}
TFM__BODY float FN(half)(uint16_t h) { return vgetq_lane_f32(FN(widen_f16)(vdup_n_u16(h)), 0); }
TFM__BODY float FN(sqrt)(float x) { return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0); }
TFM__BODY VF FN(add)(VF a, VF b) { TFM__QUADS a.v[i] = vaddq_f32(a.v[i], b.v[i]); return a; }
TFM__BODY VF FN(sub)(VF a, VF b) { TFM__QUADS a.v[i] = vsubq_f32(a.v[i], b.v[i]); return a; }
TFM__BODY VF FN(mul)(VF a, VF b) { TFM__QUADS a.v[i] = vmulq_f32(a.v[i], b.v[i]); return a; }
TFM__BODY VF FN(div)(VF a, VF b) { TFM__QUADS a.v[i] = vdivq_f32(a.v[i], b.v[i]); return a; }
TFM__BODY VF FN(madd)(VF a, VF b, VF c) { TFM__QUADS c.v[i] = vfmaq_f32(c.v[i], a.v[i], b.v[i]); return c; }
TFM__BODY VF FN(nmadd)(VF a, VF b, VF c) { TFM__QUADS c.v[i] = vfmsq_f32(c.v[i], a.v[i], b.v[i]); return c; }
/* fmax and fmin of this hardware treat NaN and zeros otherwise than "b if not greater", hence the comparisons */
TFM__BODY float32x4_t FN(max4)(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
TFM__BODY VF FN(max)(VF a, VF b) { TFM__QUADS b.v[i] = FN(max4)(a.v[i], b.v[i]); return b; }
TFM__BODY VF FN(min)(VF a, VF b) {
    TFM__QUADS b.v[i] = vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]);
    return b;
}
TFM__BODY VF FN(pick)(VF a, VF b, VF yes, VF no) {
    TFM__QUADS no.v[i] = vbslq_f32(vcltq_f32(a.v[i], b.v[i]), yes.v[i], no.v[i]);
    return no;
}
TFM__BODY VI FN(bits)(VF a) { VI r; TFM__QUADS r.v[i] = vreinterpretq_s32_f32(a.v[i]); return r; }
TFM__BODY VF FN(from_bits)(VI a) { VF r; TFM__QUADS r.v[i] = vreinterpretq_f32_s32(a.v[i]); return r; }
TFM__BODY VI FN(round)(VF a) { VI r; TFM__QUADS r.v[i] = vcvtnq_s32_f32(a.v[i]); return r; }
TFM__BODY VF FN(to_float)(VI a) { VF r; TFM__QUADS r.v[i] = vcvtq_f32_s32(a.v[i]); return r; }
TFM__BODY VI FN(iset)(int32_t x) { VI r; TFM__QUADS r.v[i] = vdupq_n_s32(x); return r; }
TFM__BODY VI FN(iadd)(VI a, VI b) { TFM__QUADS a.v[i] = vaddq_s32(a.v[i], b.v[i]); return a; }
TFM__BODY VI FN(isub)(VI a, VI b) { TFM__QUADS a.v[i] = vsubq_s32(a.v[i], b.v[i]); return a; }
TFM__BODY VI FN(iand)(VI a, VI b) { TFM__QUADS a.v[i] = vandq_s32(a.v[i], b.v[i]); return a; }
TFM__BODY VI FN(ior)(VI a, VI b) { TFM__QUADS a.v[i] = vorrq_s32(a.v[i], b.v[i]); return a; }
TFM__BODY VI FN(imax)(VI a, VI b) { TFM__QUADS a.v[i] = vmaxq_s32(a.v[i], b.v[i]); return a; }
TFM__BODY VI FN(shift_left)(VI a, int n) { TFM__QUADS a.v[i] = vshlq_s32(a.v[i], vdupq_n_s32(n)); return a; }
TFM__BODY VI FN(shift_right)(VI a, int n) { TFM__QUADS a.v[i] = vshlq_s32(a.v[i], vdupq_n_s32(-n)); return a; }
TFM__BODY VI FN(from_16)(int16x8_t a, int16x8_t b) {
    VI r;
    r.v[0] = vmovl_s16(vget_low_s16(a)), r.v[1] = vmovl_s16(vget_high_s16(a));
    r.v[2] = vmovl_s16(vget_low_s16(b)), r.v[3] = vmovl_s16(vget_high_s16(b));
    return r;
}
TFM__BODY VI FN(load_i8)(const uint8_t *p) {
    const int8x16_t b = vreinterpretq_s8_u8(vld1q_u8(p));
    return FN(from_16)(vmovl_s8(vget_low_s8(b)), vmovl_s8(vget_high_s8(b)));
}
TFM__BODY VI FN(load_u8)(const uint8_t *p) {
    const uint8x16_t b = vld1q_u8(p);
    return FN(from_16)(vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(b))),
                       vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(b))));
}
TFM__BODY void FN(store_i8)(int8_t *p, VI a) {
    const int16x8_t low = vcombine_s16(vmovn_s32(a.v[0]), vmovn_s32(a.v[1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(a.v[2]), vmovn_s32(a.v[3]));
    vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}
TFM__BODY float32x4_t FN(sum4)(VF a) { return vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3])); }
TFM__BODY float32x4_t FN(low2)(float32x4_t a, float32x4_t b) { return vcombine_f32(vget_low_f32(a), vget_low_f32(b)); }
TFM__BODY float32x4_t FN(high2)(float32x4_t a, float32x4_t b) {
    return vcombine_f32(vget_high_f32(a), vget_high_f32(b));
}
TFM__BODY void FN(turn)(float *to, const float *from) { /* to[c][r] = from[r][c], 16 x 16 */
    for (int c = 0; c < 16; c += 4, to += 4 * 64, from += 4) {
        TFM__QUADS {
            const float *p = from + TFM__SLICE * 4 * i;
            const float32x4_t a = vld1q_f32(p), b = vld1q_f32(p + TFM__SLICE);
            const float32x4_t d = vld1q_f32(p + 2 * TFM__SLICE), e = vld1q_f32(p + 3 * TFM__SLICE);
            const float32x4_t ab = vzip1q_f32(a, b), de = vzip1q_f32(d, e);
            const float32x4_t ba = vzip2q_f32(a, b), ed = vzip2q_f32(d, e);
            vst1q_f32(to + 4 * i, FN(low2)(ab, de)), vst1q_f32(to + 64 + 4 * i, FN(high2)(ab, de));
            vst1q_f32(to + 128 + 4 * i, FN(low2)(ba, ed)), vst1q_f32(to + 192 + 4 * i, FN(high2)(ba, ed));
        }
    }
}
TFM__BODY float FN(sum)(VF a) {
    const float32x4_t s = FN(sum4)(a);
    return vpadds_f32(vadd_f32(vget_low_f32(s), vget_high_f32(s)));
}
TFM__BODY float FN(max_all)(VF a) {
    float32x4_t m = FN(max4)(FN(max4)(a.v[0], a.v[2]), FN(max4)(a.v[1], a.v[3]));
    m = FN(max4)(m, vextq_f32(m, m, 2));
    return vgetq_lane_f32(FN(max4)(m, vextq_f32(m, m, 1)), 0);
}
TFM__BODY int32_t FN(isum)(VI a) {
    return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3])));
}
TFM__BODY int32_t FN(imax_all)(VI a) {
    return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.v[0], a.v[1]), vmaxq_s32(a.v[2], a.v[3])));
}
TFM__BODY VB FN(bload)(const uint8_t *p) { VB r; TFM__QUADS r.v[i] = vld1q_u8(p + 16 * i); return r; }
TFM__BODY VB FN(field)(VB a, int shift, int mask) { /* negative: to the left */
    TFM__QUADS a.v[i] = vandq_u8(vshlq_u8(a.v[i], vdupq_n_s8((int8_t)-shift)), vdupq_n_u8((uint8_t)mask));
    return a;
}
TFM__BODY VB FN(merge)(VB low, VB a, int shift, int mask, int up) {
    a = FN(field)(a, shift - up, mask << up);
    TFM__QUADS low.v[i] = vorrq_u8(low.v[i], a.v[i]);
    return low;
}
TFM__BODY VB FN(flip)(VB a) { TFM__QUADS a.v[i] = veorq_u8(a.v[i], vdupq_n_u8(0x80)); return a; }
TFM__BODY VB FN(lookup)(const int8_t *book, VB a) {
    const uint8x16_t t = vreinterpretq_u8_s8(vld1q_s8(book));
    TFM__QUADS a.v[i] = vqtbl1q_u8(t, a.v[i]);
    return a;
}
TFM__BODY VI FN(byte)(VB a, int j) {
    VI r;
    TFM__QUADS {
        const uint32x4_t lane = vshlq_u32(vreinterpretq_u32_u8(a.v[i]), vdupq_n_s32(-8 * j));
        r.v[i] = vreinterpretq_s32_u32(vandq_u32(lane, vdupq_n_u32(255)));
    }
    return r;
}
TFM__BODY int8x16_t FN(four)(const void *p) { /* 4 bytes, in every lane */
    int32_t bytes;
    memcpy(&bytes, p, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(bytes));
}
#if TFM__PASS != TFM__PASS_NEON
TFM__BODY VI FN(dot)(VI acc, const VB *c, int n, const int8_t *x, int bits) {
    (void)bits;
    TFM__UNROLL
    for (int g = 0; g < n; g++) {
        const int8x16_t v = FN(four)(x + 4 * g);
        TFM__QUADS acc.v[i] = vdotq_s32(acc.v[i], vreinterpretq_s8_u8(c[g].v[i]), v);
    }
    return acc;
}
#else
/* Products are summed in int16 while `deep` of them fit (15 * 127 * 8 = 15240), then in pairs in int32. */
TFM__BODY VI FN(dot)(VI acc, const VB *c, int n, const int8_t *x, int bits) {
    const int most = bits == 8 ? 2 : bits == 6 ? 4 : 8, deep = most < n ? most : n; /* divides n */
    VI low = FN(iset)(0), high = low;                                               /* rows 0, 1 and 2, 3 of each 4 */
    TFM__UNROLL
    for (int g0 = 0; g0 < n; g0 += deep) {
        int16x8_t a[4], b[4];
        TFM__UNROLL
        for (int d = 0; d < deep; d++) {
            const int8x16_t v = FN(four)(x + 4 * (g0 + d));
            TFM__QUADS {
                const int8x16_t q = vreinterpretq_s8_u8(c[g0 + d].v[i]);
                a[i] = d ? vmlal_s8(a[i], vget_low_s8(q), vget_low_s8(v)) : vmull_s8(vget_low_s8(q), vget_low_s8(v));
                b[i] = d ? vmlal_high_s8(b[i], q, v) : vmull_high_s8(q, v);
            }
        }
        TFM__QUADS low.v[i] = vpadalq_s16(low.v[i], a[i]), high.v[i] = vpadalq_s16(high.v[i], b[i]);
    }
    TFM__QUADS acc.v[i] = vaddq_s32(acc.v[i], vpaddq_s32(low.v[i], high.v[i]));
    return acc;
}
#endif
#ifdef TFM__PAIRED
/* Groups two by two: 8 inputs of rows 4 i and 4 i + 1 in v[i] of the first, of the two rows after them in that of the
   second. */
TFM__BODY void FN(pair_groups)(VB *c) {
    TFM__UNROLL
    for (int g = 0; g < 8; g += 2) {
        TFM__QUADS {
            const uint32x4_t a = vreinterpretq_u32_u8(c[g].v[i]), b = vreinterpretq_u32_u8(c[g + 1].v[i]);
            c[g].v[i] = vreinterpretq_u8_u32(vzip1q_u32(a, b));
            c[g + 1].v[i] = vreinterpretq_u8_u32(vzip2q_u32(a, b));
        }
    }
}
TFM__BODY int32x4_t FN(low_halves)(int32x4_t a, int32x4_t b) {
    return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}
TFM__BODY int32x4_t FN(high_halves)(int32x4_t a, int32x4_t b) {
    return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}
TFM__BODY int32x4_t FN(load_x)(const uint8_t *p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
/* sum[t] + the products of n groups of paired codes with the activations of nt tokens, those at rows[t] + at on; the
   sums start alike in all rows. One product is of 2 tokens and 2 rows. */
TFM__BODY void FN(dot_pairs)(const int nt, const int ns, VI *sum, const VB *c, const int n, const uint8_t *const *rows,
                             size_t at, int bits) {
    (void)ns, (void)bits;
    int32x4_t acc[TFM__ABREAST / 2][8], x[TFM__ABREAST / 2][2];
    TFM__UNROLL
    for (int i = 0; i < 8 * nt / 2; i++)
        acc[i / 8][i % 8] = FN(low_halves)(sum[i / 8 * 2].v[0], sum[i / 8 * 2 + 1].v[0]);
    TFM__UNROLL
    for (int g = 0; g < n; g += 4) {
        TFM__UNROLL
        for (int t = 0; t < nt / 2; t++) {
            const int32x4_t p = FN(load_x)(rows[2 * t] + at + 4 * g), q = FN(load_x)(rows[2 * t + 1] + at + 4 * g);
            x[t][0] = FN(low_halves)(p, q), x[t][1] = FN(high_halves)(p, q);
        }
        TFM__UNROLL
        for (int i = 0; i < 16; i++) { /* of two groups all registers, then of the next two */
            const int r = i / 2 % 4, second = i % 2;
            const int8x16_t w = vreinterpretq_s8_u8(c[g + i / 8 * 2 + second].v[r]);
            TFM__UNROLL
            for (int t = 0; t < nt / 2; t++)
                acc[t][2 * r + second] = vmmlaq_s32(acc[t][2 * r + second], vreinterpretq_s8_s32(x[t][i / 8]), w);
        }
    }
    TFM__UNROLL
    for (int t = 0; t < nt / 2; t++) {
        TFM__QUADS {
            sum[2 * t].v[i] = FN(low_halves)(acc[t][2 * i], acc[t][2 * i + 1]);
            sum[2 * t + 1].v[i] = FN(high_halves)(acc[t][2 * i], acc[t][2 * i + 1]);
        }
    }
}
#endif
TFM__BODY VI FN(pairs)(VI low, VI high) { TFM__QUADS low.v[i] = vsliq_n_s32(low.v[i], high.v[i], 16); return low; }
TFM__BODY VI FN(dot2)(VI acc, VI pairs, const int16_t *s) {
    const int16x8_t two = vreinterpretq_s16_s8(FN(four)(s));
    TFM__QUADS {
        const int16x8_t p = vreinterpretq_s16_s32(pairs.v[i]);
        const int32x4_t a = vmull_s16(vget_low_s16(p), vget_low_s16(two)), b = vmull_high_s16(p, two);
        acc.v[i] = vaddq_s32(acc.v[i], vpaddq_s32(a, b));
    }
    return acc;
}
#undef TFM__QUADS

#elif TFM__PASS == TFM__PASS_WASM
/* --- primitives, WebAssembly SIMD128: four registers a vector; madd rounds twice, as in the scalar pass ----------- */

#define FN(name) tfm__##name##_wasm
#define TFM__PASS_ISA TFM_ISA_WASM
#define TFM__PASS_NAME "wasm"
#define TFM__TOKENS 64 /* a loop, so that unpacking counts little */
#define TFM__STRIPS 1
#define TFM__QUERIES 24
#define TFM__FLIP 0

typedef struct FN(vf) { v128_t v[4]; } FN(vf);
typedef struct FN(vi) { v128_t v[4]; } FN(vi);
typedef struct FN(vb) { v128_t v[4]; } FN(vb);
#define VF FN(vf)
#define VI FN(vi)
#define VB FN(vb)
#define TFM__QUADS TFM__UNROLL for (int i = 0; i < 4; i++)

TFM__BODY VF FN(set)(float x) { VF r; TFM__QUADS r.v[i] = wasm_f32x4_splat(x); return r; }
TFM__BODY VF FN(load)(const float *p) { VF r; TFM__QUADS r.v[i] = wasm_v128_load(p + 4 * i); return r; }
TFM__BODY void FN(store)(float *p, VF a) { TFM__QUADS wasm_v128_store(p + 4 * i, a.v[i]); }
TFM__BODY VF FN(load_n)(const float *p, int n, float fill) {
    float x[16];
    for (int i = 0; i < 16; i++) x[i] = i < n ? p[i] : fill;
    return FN(load)(x);
}
TFM__BODY void FN(store_n)(float *p, VF a, int n) {
    float x[16];
    FN(store)(x, a);
    memcpy(p, x, 4 * (size_t)n);
}
TFM__BODY VF FN(load_f16)(const uint8_t *p) { /* the exponent moved by 112 is exact, subnormals included */
    const v128_t top = wasm_i16x8_splat(0x0f80), up = wasm_f32x4_splat(5.192296858534828e33f);
    VF r;
    TFM__UNROLL
    for (int i = 0; i < 2; i++) {
        const v128_t h = wasm_v128_load(p + 16 * i), low = wasm_i16x8_shl(h, 13);
        v128_t high = wasm_v128_and(wasm_i16x8_shr(h, 3), wasm_i16x8_splat((int16_t)0x8fff));
        const v128_t big = wasm_i16x8_eq(wasm_v128_and(high, top), top); /* infinity, NaN */
        high = wasm_v128_or(high, wasm_v128_and(big, wasm_i16x8_splat(0x7000)));
        r.v[2 * i] = wasm_f32x4_mul(wasm_i16x8_shuffle(low, high, 0, 8, 1, 9, 2, 10, 3, 11), up);
        r.v[2 * i + 1] = wasm_f32x4_mul(wasm_i16x8_shuffle(low, high, 4, 12, 5, 13, 6, 14, 7, 15), up);
    }
    return r;
}
TFM__BODY VF FN(load_bf16)(const uint8_t *p) {
    VF r;
    TFM__QUADS r.v[i] = wasm_i32x4_shl(wasm_u32x4_load16x4(p + 8 * i), 16);
    return r;
}
TFM__BODY float FN(sqrt)(float x) { return wasm_f32x4_extract_lane(wasm_f32x4_sqrt(wasm_f32x4_splat(x)), 0); }
TFM__BODY VF FN(add)(VF a, VF b) { TFM__QUADS a.v[i] = wasm_f32x4_add(a.v[i], b.v[i]); return a; }
TFM__BODY VF FN(sub)(VF a, VF b) { TFM__QUADS a.v[i] = wasm_f32x4_sub(a.v[i], b.v[i]); return a; }
TFM__BODY VF FN(mul)(VF a, VF b) { TFM__QUADS a.v[i] = wasm_f32x4_mul(a.v[i], b.v[i]); return a; }
TFM__BODY VF FN(div)(VF a, VF b) { TFM__QUADS a.v[i] = wasm_f32x4_div(a.v[i], b.v[i]); return a; }
TFM__BODY VF FN(madd)(VF a, VF b, VF c) { return FN(add)(c, FN(mul)(a, b)); }
TFM__BODY VF FN(nmadd)(VF a, VF b, VF c) { return FN(sub)(c, FN(mul)(a, b)); }
/* pmax(b, a) is b < a ? a : b, pmin(b, a) is a < b ? a : b */
TFM__BODY VF FN(max)(VF a, VF b) { TFM__QUADS a.v[i] = wasm_f32x4_pmax(b.v[i], a.v[i]); return a; }
TFM__BODY VF FN(min)(VF a, VF b) { TFM__QUADS a.v[i] = wasm_f32x4_pmin(b.v[i], a.v[i]); return a; }
TFM__BODY VF FN(pick)(VF a, VF b, VF yes, VF no) {
    TFM__QUADS a.v[i] = wasm_v128_bitselect(yes.v[i], no.v[i], wasm_f32x4_lt(a.v[i], b.v[i]));
    return a;
}
TFM__BODY VI FN(bits)(VF a) { VI r; TFM__QUADS r.v[i] = a.v[i]; return r; }
TFM__BODY VF FN(from_bits)(VI a) { VF r; TFM__QUADS r.v[i] = a.v[i]; return r; }
TFM__BODY VI FN(iset)(int32_t x) { VI r; TFM__QUADS r.v[i] = wasm_i32x4_splat(x); return r; }
TFM__BODY VI FN(iadd)(VI a, VI b) { TFM__QUADS a.v[i] = wasm_i32x4_add(a.v[i], b.v[i]); return a; }
TFM__BODY VI FN(isub)(VI a, VI b) { TFM__QUADS a.v[i] = wasm_i32x4_sub(a.v[i], b.v[i]); return a; }
TFM__BODY VI FN(iand)(VI a, VI b) { TFM__QUADS a.v[i] = wasm_v128_and(a.v[i], b.v[i]); return a; }
TFM__BODY VI FN(ior)(VI a, VI b) { TFM__QUADS a.v[i] = wasm_v128_or(a.v[i], b.v[i]); return a; }
TFM__BODY VI FN(imax)(VI a, VI b) { TFM__QUADS a.v[i] = wasm_i32x4_max(a.v[i], b.v[i]); return a; }
TFM__BODY VI FN(shift_left)(VI a, int n) { TFM__QUADS a.v[i] = wasm_i32x4_shl(a.v[i], (uint32_t)n); return a; }
TFM__BODY VI FN(shift_right)(VI a, int n) { TFM__QUADS a.v[i] = wasm_i32x4_shr(a.v[i], (uint32_t)n); return a; }
TFM__BODY VI FN(round)(VF a) { /* as in the scalar pass */
    return FN(isub)(FN(bits)(FN(add)(a, FN(set)(12582912.0f))), FN(iset)(0x4b400000));
}
TFM__BODY VF FN(to_float)(VI a) { VF r; TFM__QUADS r.v[i] = wasm_f32x4_convert_i32x4(a.v[i]); return r; }
TFM__BODY VI FN(load_i8)(const uint8_t *p) {
    VI r;
    TFM__QUADS r.v[i] = wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(wasm_v128_load32_zero(p + 4 * i)));
    return r;
}
TFM__BODY VI FN(load_u8)(const uint8_t *p) {
    VI r;
    TFM__QUADS r.v[i] = wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(p + 4 * i)));
    return r;
}
TFM__BODY void FN(store_i8)(int8_t *p, VI a) {
    wasm_v128_store(p, wasm_i8x16_narrow_i16x8(wasm_i16x8_narrow_i32x4(a.v[0], a.v[1]),
                                               wasm_i16x8_narrow_i32x4(a.v[2], a.v[3])));
}
TFM__BODY float FN(sum)(VF a) {
    v128_t s = wasm_f32x4_add(wasm_f32x4_add(a.v[0], a.v[2]), wasm_f32x4_add(a.v[1], a.v[3]));
    s = wasm_f32x4_add(s, wasm_i32x4_shuffle(s, s, 2, 3, 2, 3));
    return wasm_f32x4_extract_lane(s, 0) + wasm_f32x4_extract_lane(s, 1);
}
TFM__BODY float FN(max_all)(VF a) {
    v128_t m = wasm_f32x4_pmax(wasm_f32x4_pmax(a.v[3], a.v[1]), wasm_f32x4_pmax(a.v[2], a.v[0]));
    m = wasm_f32x4_pmax(wasm_i32x4_shuffle(m, m, 2, 3, 2, 3), m);
    return wasm_f32x4_extract_lane(wasm_f32x4_pmax(wasm_i32x4_shuffle(m, m, 1, 1, 1, 1), m), 0);
}
TFM__BODY void FN(turn)(float *to, const float *from) { /* to[c][r] = from[r][c], 16 x 16 */
    TFM__LOOP
    for (int i = 0; i < 16; i++) {
        const float *p = from + TFM__SLICE * 4 * (i % 4) + i / 4 * 4;
        float *t = to + i / 4 * 256 + 4 * (i % 4);
        const v128_t a = wasm_v128_load(p), b = wasm_v128_load(p + TFM__SLICE);
        const v128_t d = wasm_v128_load(p + 2 * TFM__SLICE), e = wasm_v128_load(p + 3 * TFM__SLICE);
        const v128_t ab = wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), de = wasm_i32x4_shuffle(d, e, 0, 4, 1, 5);
        const v128_t ba = wasm_i32x4_shuffle(a, b, 2, 6, 3, 7), ed = wasm_i32x4_shuffle(d, e, 2, 6, 3, 7);
        wasm_v128_store(t, wasm_i32x4_shuffle(ab, de, 0, 1, 4, 5));
        wasm_v128_store(t + 64, wasm_i32x4_shuffle(ab, de, 2, 3, 6, 7));
        wasm_v128_store(t + 128, wasm_i32x4_shuffle(ba, ed, 0, 1, 4, 5));
        wasm_v128_store(t + 192, wasm_i32x4_shuffle(ba, ed, 2, 3, 6, 7));
    }
}
TFM__BODY int32_t FN(isum)(VI a) {
    const v128_t s = wasm_i32x4_add(wasm_i32x4_add(a.v[0], a.v[1]), wasm_i32x4_add(a.v[2], a.v[3]));
    return wasm_i32x4_extract_lane(s, 0) + wasm_i32x4_extract_lane(s, 1) + wasm_i32x4_extract_lane(s, 2) +
           wasm_i32x4_extract_lane(s, 3);
}
TFM__BODY int32_t FN(imax_all)(VI a) {
    v128_t m = wasm_i32x4_max(wasm_i32x4_max(a.v[0], a.v[1]), wasm_i32x4_max(a.v[2], a.v[3]));
    m = wasm_i32x4_max(m, wasm_i32x4_shuffle(m, m, 2, 3, 0, 1));
    return wasm_i32x4_extract_lane(wasm_i32x4_max(m, wasm_i32x4_shuffle(m, m, 1, 0, 3, 2)), 0);
}
TFM__BODY VB FN(bload)(const uint8_t *p) { VB r; TFM__QUADS r.v[i] = wasm_v128_load(p + 16 * i); return r; }
TFM__BODY VB FN(field)(VB a, int shift, int mask) { /* negative: to the left */
    TFM__QUADS {
        const v128_t v = shift < 0 ? wasm_i8x16_shl(a.v[i], (uint32_t)-shift) : wasm_u8x16_shr(a.v[i], (uint32_t)shift);
        a.v[i] = wasm_v128_and(v, wasm_i8x16_splat((int8_t)mask));
    }
    return a;
}
TFM__BODY VB FN(merge)(VB low, VB a, int shift, int mask, int up) {
    a = FN(field)(a, shift - up, mask << up);
    TFM__QUADS low.v[i] = wasm_v128_or(low.v[i], a.v[i]);
    return low;
}
TFM__BODY VB FN(flip)(VB a) { TFM__QUADS a.v[i] = wasm_v128_xor(a.v[i], wasm_i8x16_splat(-128)); return a; }
TFM__BODY VB FN(lookup)(const int8_t *book, VB a) {
    const v128_t t = wasm_v128_load(book);
    TFM__QUADS a.v[i] = wasm_i8x16_swizzle(t, a.v[i]);
    return a;
}
TFM__BODY VI FN(byte)(VB a, int j) {
    VI r;
    TFM__QUADS r.v[i] = wasm_v128_and(wasm_u32x4_shr(a.v[i], (uint32_t)(8 * j)), wasm_i32x4_splat(255));
    return r;
}
#undef TFM__QUADS

/* A module is fetched before it runs, so this pass is small: formats and types of the cache that are rare share their
   code, and one tile serves any number of tokens. */
#define TFM__SMALL

/* A part of a unit: one register, 4 rows. Tokens and parts are loops, not unrolled. */
#define TFM__PARTS(name) tfm__##name##_wasm4
#define TFM__ROWS 4
#define TFM__EACH_OUTPUT TFM__EACH_PART
#define TFM__BESIDE 2
#define TFM__SUMS 8
#define TFM__EACH_TOKEN _Pragma("clang loop unroll(disable)")
#define TFM__EACH_PART _Pragma("clang loop unroll(disable)")
#if defined(__wasm_relaxed_simd__) && !defined(TFM_WASM_DOT)
#define TFM__DOT_PAIRS 1
#else
#define TFM__DOT_PAIRS 0
#endif
/* One pointer in the loop instead of a sum for each load: then offsets are part of the instructions. */
#define TFM__KEEP(pointer) __asm__("" : "+r"(pointer))
#define PART(name) TFM__PARTS(name)

typedef v128_t PART(pf);
typedef v128_t PART(pi);
typedef v128_t PART(pb);
TFM__BODY v128_t PART(set)(float x) { return wasm_f32x4_splat(x); }
TFM__BODY v128_t PART(iset)(int32_t x) { return wasm_i32x4_splat(x); }
TFM__BODY void PART(store)(float *p, v128_t a) { wasm_v128_store(p, a); }
TFM__BODY v128_t PART(load)(const float *p) { return wasm_v128_load(p); }
TFM__BODY v128_t PART(add)(v128_t a, v128_t b) { return wasm_f32x4_add(a, b); }
TFM__BODY v128_t PART(sub)(v128_t a, v128_t b) { return wasm_f32x4_sub(a, b); }
TFM__BODY v128_t PART(mul)(v128_t a, v128_t b) { return wasm_f32x4_mul(a, b); }
TFM__BODY v128_t PART(madd)(v128_t a, v128_t b, v128_t c) { return wasm_f32x4_add(c, wasm_f32x4_mul(a, b)); }
TFM__BODY v128_t PART(nmadd)(v128_t a, v128_t b, v128_t c) { return wasm_f32x4_sub(c, wasm_f32x4_mul(a, b)); }
TFM__BODY v128_t PART(to_float)(v128_t a) { return wasm_f32x4_convert_i32x4(a); }
TFM__BODY v128_t PART(from_bits)(v128_t a) { return a; }
TFM__BODY v128_t PART(iadd)(v128_t a, v128_t b) { return wasm_i32x4_add(a, b); }
TFM__BODY v128_t PART(isub)(v128_t a, v128_t b) { return wasm_i32x4_sub(a, b); }
TFM__BODY v128_t PART(iand)(v128_t a, v128_t b) { return wasm_v128_and(a, b); }
TFM__BODY v128_t PART(imax)(v128_t a, v128_t b) { return wasm_i32x4_max(a, b); }
TFM__BODY v128_t PART(shift_left)(v128_t a, int n) { return wasm_i32x4_shl(a, (uint32_t)n); }
TFM__BODY v128_t PART(shift_right)(v128_t a, int n) { return wasm_i32x4_shr(a, (uint32_t)n); }
TFM__BODY v128_t PART(load_i8)(const uint8_t *p) {
    return wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(wasm_v128_load32_zero(p)));
}
TFM__BODY v128_t PART(load_u8)(const uint8_t *p) {
    return wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(p)));
}
TFM__BODY v128_t PART(load_f16)(const uint8_t *p) { /* as above, sign and magnitude together */
    v128_t v = wasm_v128_and(wasm_i32x4_shl(wasm_i32x4_load16x4(p), 13), wasm_i32x4_splat((int32_t)0x8fffe000u));
    const v128_t top = wasm_i32x4_splat(0x0f800000), big = wasm_i32x4_eq(wasm_v128_and(v, top), top);
    v = wasm_v128_or(v, wasm_v128_and(big, wasm_i32x4_splat(0x70000000)));
    return wasm_f32x4_mul(v, wasm_f32x4_splat(5.192296858534828e33f));
}
TFM__BODY v128_t PART(load_bf16)(const uint8_t *p) { return wasm_i32x4_shl(wasm_u32x4_load16x4(p), 16); }
TFM__NOINLINE v128_t PART(get_n)(const float *p, int64_t w, float fill) {
    float x[4];
    for (int i = 0; i < 4; i++) x[i] = i < w ? p[i] : fill;
    return wasm_v128_load(x);
}
TFM__BODY v128_t PART(get)(const float *p, int64_t w, float fill) {
    return w == 4 ? wasm_v128_load(p) : PART(get_n)(p, w, fill);
}
TFM__BODY void PART(put)(float *p, v128_t a, int64_t w) {
    float x[4];
    if (w == 4) {
        wasm_v128_store(p, a);
    } else { /* w may be below 0: a part that begins beyond the last row */
        wasm_v128_store(x, a);
        for (int i = 0; i < w; i++) p[i] = x[i];
    }
}
TFM__BODY v128_t PART(bload)(const uint8_t *p) { return wasm_v128_load(p); }
TFM__BODY v128_t PART(field)(v128_t a, int shift, int mask) { /* negative: to the left */
    if (shift < 0) a = wasm_i8x16_shl(a, (uint32_t)-shift);
    if (shift > 0) a = wasm_u16x8_shr(a, (uint32_t)shift);
    return wasm_v128_and(a, wasm_i8x16_splat((int8_t)mask));
}
TFM__BODY v128_t PART(merge)(v128_t low, v128_t a, int shift, int mask, int up) {
    return wasm_v128_or(low, PART(field)(a, shift - up, mask << up));
}
TFM__BODY v128_t PART(flip)(v128_t a) { return wasm_v128_xor(a, wasm_i8x16_splat(-128)); }
TFM__BODY v128_t PART(lookup)(const int8_t *book, v128_t a) { return wasm_i8x16_swizzle(wasm_v128_load(book), a); }
TFM__BODY v128_t PART(byte)(v128_t a, int j) {
    return wasm_v128_and(wasm_u32x4_shr(a, (uint32_t)(8 * j)), wasm_i32x4_splat(255));
}
TFM__BODY v128_t PART(pairs)(v128_t low, v128_t high) {
    return wasm_v128_or(wasm_v128_and(low, wasm_i32x4_splat(0xffff)), wasm_i32x4_shl(high, 16));
}
TFM__BODY v128_t PART(dot2)(v128_t acc, v128_t pairs, const int16_t *s) {
    return wasm_i32x4_add(acc, wasm_i32x4_dot_i16x8(pairs, wasm_v128_load32_splat(s)));
}
/* What of activations meets the codes of 16 rows: four, spread over the lanes, or 16 to be spread four by four. */
typedef struct PART(px) { v128_t a, b; } PART(px);
TFM__BODY v128_t PART(lane_of)(v128_t v, int i) {
    if (i == 0) return wasm_i32x4_shuffle(v, v, 0, 0, 0, 0);
    if (i == 1) return wasm_i32x4_shuffle(v, v, 1, 1, 1, 1);
    return i == 2 ? wasm_i32x4_shuffle(v, v, 2, 2, 2, 2) : wasm_i32x4_shuffle(v, v, 3, 3, 3, 3);
}
TFM__BODY PART(px) PART(lane)(PART(px) x, int i) { return x.a = PART(lane_of)(x.a, i), x.b = PART(lane_of)(x.b, i), x; }

#ifdef __wasm_relaxed_simd__
/* Products of a signed byte and one of at most 127: exact, so nothing that is relaxed happens. Codes of 8 bits are the
   signed bytes and |x| the small ones; where x < 0 their complement -c - 1 counts, which is -x too little each time:
   dot_less. */
typedef v128_t PART(pc);
TFM__BODY v128_t PART(as_factors)(v128_t code, int bits) { return (void)bits, code; }
TFM__BODY PART(px) PART(halves)(v128_t x, int bits) {
    PART(px) r;
    r.a = r.b = x;
    if (bits == 8) {
        r.b = wasm_i8x16_lt(x, wasm_i32x4_splat(0));
        r.a = wasm_i8x16_abs(x);
    }
    return r;
}
#ifdef TFM_WASM_DOT
TFM__BODY v128_t PART(dot_four)(v128_t sum, v128_t bytes, v128_t small) {
    sum = (v128_t)__builtin_wasm_relaxed_dot_i8x16_i7x16_add_s_i32x4((__i8x16)bytes, (__i8x16)small, (__i32x4)sum);
    TFM__NOW(sum);
    return sum;
}
TFM__BODY v128_t PART(dot_add)(v128_t sum, v128_t code, PART(px) x, int bits) {
    return bits == 8 ? PART(dot_four)(sum, wasm_v128_xor(code, x.b), x.a) : PART(dot_four)(sum, x.a, code);
}
TFM__BODY v128_t PART(dot_less)(v128_t sum, PART(px) x, int bits) {
    return bits == 8 ? PART(dot_four)(sum, x.b, x.a) : sum;
}
TFM__BODY v128_t PART(dot_start)(v128_t start, int bits) { return (void)bits, start; }
TFM__BODY v128_t PART(dot_sum)(v128_t sum, v128_t start, int bits) { return (void)start, (void)bits, sum; }
#else
/* Pairs of products. Those of up to 4 bits are summed in int16, where 8 of them fit (2 * 15 * 127 * 8 = 30480). */
TFM__BODY v128_t PART(dot_pairs)(v128_t bytes, v128_t small) {
    return (v128_t)__builtin_wasm_relaxed_dot_i8x16_i7x16_s_i16x8((__i8x16)bytes, (__i8x16)small);
}
TFM__BODY v128_t PART(dot_add)(v128_t sum, v128_t code, PART(px) x, int bits) {
    const v128_t pairs = bits == 8 ? PART(dot_pairs)(wasm_v128_xor(code, x.b), x.a) : PART(dot_pairs)(x.a, code);
    sum = bits <= 4 ? wasm_i16x8_add(sum, pairs) : wasm_i32x4_add(sum, wasm_i32x4_extadd_pairwise_i16x8(pairs));
    TFM__NOW(sum);
    return sum;
}
TFM__BODY v128_t PART(dot_less)(v128_t sum, PART(px) x, int bits) {
    return bits == 8 ? wasm_i32x4_add(sum, wasm_i32x4_extadd_pairwise_i16x8(PART(dot_pairs)(x.b, x.a))) : sum;
}
TFM__BODY v128_t PART(dot_start)(v128_t start, int bits) { return bits <= 4 ? wasm_i32x4_splat(0) : start; }
TFM__BODY v128_t PART(dot_sum)(v128_t sum, v128_t start, int bits) {
    return bits <= 4 ? wasm_i32x4_add(start, wasm_i32x4_extadd_pairwise_i16x8(sum)) : sum;
}
#endif
#else
/* int16 times int16, pairs of them: those of even bytes and those of odd ones. */
typedef PART(px) PART(pc);
TFM__BODY PART(pc) PART(as_factors)(v128_t code, int bits) {
    PART(pc) r;
    r.a = bits == 8 ? wasm_i16x8_shr(wasm_i16x8_shl(code, 8), 8) : wasm_v128_and(code, wasm_i16x8_splat(255));
    r.b = bits == 8 ? wasm_i16x8_shr(code, 8) : wasm_u16x8_shr(code, 8);
    return r;
}
TFM__BODY PART(px) PART(halves)(v128_t x, int bits) { return (void)bits, PART(as_factors)(x, 8); }
TFM__BODY v128_t PART(dot_add)(v128_t sum, PART(pc) code, PART(px) x, int bits) {
    (void)bits;
    sum = wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(code.a, x.a));
    sum = wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(code.b, x.b));
    TFM__NOW(sum);
    return sum;
}
TFM__BODY v128_t PART(dot_less)(v128_t sum, PART(px) x, int bits) { return (void)x, (void)bits, sum; }
TFM__BODY v128_t PART(dot_start)(v128_t start, int bits) { return (void)bits, start; }
TFM__BODY v128_t PART(dot_sum)(v128_t sum, v128_t start, int bits) { return (void)start, (void)bits, sum; }
#endif
#undef PART

#elif TFM__PASS == TFM__PASS_MVE
/* --- primitives, Helium of Armv8.1-M: four registers a vector; madd rounds twice, as in the scalar pass. Vectors have
   no subnormal numbers: those are 0. ------------------------------------------------------------------------------- */

#define FN(name) tfm__##name##_mve
#define TFM__PASS_ISA TFM_ISA_MVE
#define TFM__PASS_NAME "mve"
#define TFM__STRIPS 1
#define TFM__QUERIES 4
#define TFM__FLIP 0
#define TFM__SMALL

typedef struct FN(vf) { float32x4_t v[4]; } FN(vf);
typedef struct FN(vi) { int32x4_t v[4]; } FN(vi);
#define VF FN(vf)
#define VI FN(vi)
#define TFM__QUADS TFM__FLAT for (int i = 0; i < 4; i++)

/* One register: a part of a unit, 4 rows. */
#define TFM__BY_ROWS
#define TFM__PARTS(name) tfm__##name##_mve4
#define TFM__ROWS 4
#define TFM__EACH_TOKEN
#define TFM__EACH_PART
#define TFM__KEEP(pointer)
#define PART(name) TFM__PARTS(name)

typedef float32x4_t PART(pf);
typedef int32x4_t PART(pi);
typedef uint8x16_t PART(pb);
TFM__INNER float32x4_t PART(set)(float x) { return vdupq_n_f32(x); }
TFM__INNER float32x4_t PART(load)(const float *p) { return vldrwq_f32(p); }
TFM__INNER void PART(store)(float *p, float32x4_t a) { vstrwq_f32(p, a); }
TFM__INNER float32x4_t PART(get)(const float *p, int64_t w, float fill) {
    const mve_pred16_t some = vctp32q(w < 0 ? 0u : (uint32_t)w);
    return w >= 4 ? vldrwq_f32(p) : vpselq_f32(vldrwq_z_f32(p, some), vdupq_n_f32(fill), some);
}
TFM__INNER void PART(put)(float *p, float32x4_t a, int64_t w) { /* w may be below 0: a part beyond the last row */
    if (w >= 4) vstrwq_f32(p, a);
    else if (w > 0) vstrwq_p_f32(p, a, vctp32q((uint32_t)w));
}
TFM__INNER float32x4_t PART(load_f16)(const uint8_t *p) {
    /* in this register: the assembler (2.40) gets others wrong */
    register uint32x4_t h __asm__("q0") = vldrhq_u32((const uint16_t *)(const void *)p);
    __asm__("vcvtb.f32.f16 q0, q0" : "+w"(h));
    return vreinterpretq_f32_u32(h);
}
TFM__INNER float32x4_t PART(load_bf16)(const uint8_t *p) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vldrhq_u32((const uint16_t *)(const void *)p), 16));
}
TFM__INNER float32x4_t PART(add)(float32x4_t a, float32x4_t b) { return vaddq_f32(a, b); }
TFM__INNER float32x4_t PART(sub)(float32x4_t a, float32x4_t b) { return vsubq_f32(a, b); }
TFM__INNER float32x4_t PART(mul)(float32x4_t a, float32x4_t b) { return vmulq_f32(a, b); }
TFM__INNER float32x4_t PART(madd)(float32x4_t a, float32x4_t b, float32x4_t c) { return vaddq_f32(c, vmulq_f32(a, b)); }
TFM__INNER float32x4_t PART(nmadd)(float32x4_t a, float32x4_t b, float32x4_t c) {
    return vsubq_f32(c, vmulq_f32(a, b));
}
/* "less" is true of NaN here: it is "not greater or equal" */
TFM__INNER float32x4_t PART(max)(float32x4_t a, float32x4_t b) { return vpselq_f32(a, b, vcmpgtq_f32(a, b)); }
TFM__INNER float32x4_t PART(min)(float32x4_t a, float32x4_t b) { return vpselq_f32(a, b, vcmpgtq_f32(b, a)); }
TFM__INNER float32x4_t PART(div)(float32x4_t a, float32x4_t b) { /* no instruction of vectors */
    a = vsetq_lane_f32(vgetq_lane_f32(a, 0) / vgetq_lane_f32(b, 0), a, 0);
    a = vsetq_lane_f32(vgetq_lane_f32(a, 1) / vgetq_lane_f32(b, 1), a, 1);
    a = vsetq_lane_f32(vgetq_lane_f32(a, 2) / vgetq_lane_f32(b, 2), a, 2);
    return vsetq_lane_f32(vgetq_lane_f32(a, 3) / vgetq_lane_f32(b, 3), a, 3);
}
TFM__INNER float32x4_t PART(to_float)(int32x4_t a) { return vcvtq_f32_s32(a); }
TFM__INNER float32x4_t PART(from_bits)(int32x4_t a) { return vreinterpretq_f32_s32(a); }
TFM__INNER int32x4_t PART(iset)(int32_t x) { return vdupq_n_s32(x); }
TFM__INNER int32x4_t PART(iload)(const int32_t *p) { return vldrwq_s32(p); }
TFM__INNER int32x4_t PART(iadd)(int32x4_t a, int32x4_t b) { return vaddq_s32(a, b); }
TFM__INNER int32x4_t PART(isub)(int32x4_t a, int32x4_t b) { return vsubq_s32(a, b); }
TFM__INNER int32x4_t PART(iand)(int32x4_t a, int32x4_t b) { return vandq_s32(a, b); }
TFM__INNER int32x4_t PART(imax)(int32x4_t a, int32x4_t b) { return vmaxq_s32(a, b); }
TFM__INNER int32x4_t PART(shift_left)(int32x4_t a, int n) { return vshlq_r_s32(a, n); }
TFM__INNER int32x4_t PART(shift_right)(int32x4_t a, int n) { return vshlq_r_s32(a, -n); }
TFM__INNER int32x4_t PART(load_i8)(const uint8_t *p) { return vldrbq_s32((const int8_t *)p); }
TFM__INNER int32x4_t PART(load_u8)(const uint8_t *p) { return vreinterpretq_s32_u32(vldrbq_u32(p)); }
TFM__INNER uint8x16_t PART(bload)(const uint8_t *p) { return vldrbq_u8(p); }
TFM__INNER uint8x16_t PART(field)(uint8x16_t a, int shift, int mask) { /* negative: to the left */
    return vandq_u8(vshlq_r_u8(a, -shift), vdupq_n_u8((uint8_t)mask));
}
TFM__INNER uint8x16_t PART(merge)(uint8x16_t low, uint8x16_t a, int shift, int mask, int up) {
    return vorrq_u8(low, PART(field)(a, shift - up, mask << up));
}
TFM__INNER uint8x16_t PART(flip)(uint8x16_t a) { return veorq_u8(a, vdupq_n_u8(0x80)); }
TFM__INNER uint8x16_t PART(lookup)(const int8_t *book, uint8x16_t a) {
    return vreinterpretq_u8_s8(vldrbq_gather_offset_s8(book, a));
}
TFM__INNER int32x4_t PART(byte)(uint8x16_t a, int j) {
    return vreinterpretq_s32_u32(vandq_u32(vshlq_r_u32(vreinterpretq_u32_u8(a), -8 * j), vdupq_n_u32(255)));
}
TFM__INNER int32x4_t PART(pairs)(int32x4_t low, int32x4_t high) {
    return vorrq_s32(vandq_s32(low, vdupq_n_s32(0xffff)), vshlq_n_s32(high, 16));
}
TFM__INNER int32x4_t PART(dot2)(int32x4_t acc, int32x4_t pairs, const int16_t *s) {
    acc = vmlaq_n_s32(acc, vshrq_n_s32(vshlq_n_s32(pairs, 16), 16), s[0]);
    return vmlaq_n_s32(acc, vshrq_n_s32(pairs, 16), s[1]);
}

/* 16 lanes */
TFM__BODY VF FN(set)(float x) { VF r; TFM__QUADS r.v[i] = PART(set)(x); return r; }
TFM__BODY VF FN(load)(const float *p) { VF r; TFM__QUADS r.v[i] = PART(load)(p + 4 * i); return r; }
TFM__BODY void FN(store)(float *p, VF a) { TFM__QUADS PART(store)(p + 4 * i, a.v[i]); }
TFM__BODY VF FN(load_n)(const float *p, int n, float fill) {
    VF r;
    TFM__QUADS r.v[i] = PART(get)(p + 4 * i, n - 4 * i, fill);
    return r;
}
TFM__BODY void FN(store_n)(float *p, VF a, int n) { TFM__QUADS PART(put)(p + 4 * i, a.v[i], n - 4 * i); }
TFM__BODY VF FN(load_f16)(const uint8_t *p) { VF r; TFM__QUADS r.v[i] = PART(load_f16)(p + 8 * i); return r; }
TFM__BODY VF FN(load_bf16)(const uint8_t *p) { VF r; TFM__QUADS r.v[i] = PART(load_bf16)(p + 8 * i); return r; }
TFM__BODY float FN(sqrt)(float x) { return tfm__sqrt(x); }
TFM__BODY VF FN(add)(VF a, VF b) { TFM__QUADS a.v[i] = PART(add)(a.v[i], b.v[i]); return a; }
TFM__BODY VF FN(sub)(VF a, VF b) { TFM__QUADS a.v[i] = PART(sub)(a.v[i], b.v[i]); return a; }
TFM__BODY VF FN(mul)(VF a, VF b) { TFM__QUADS a.v[i] = PART(mul)(a.v[i], b.v[i]); return a; }
TFM__BODY VF FN(div)(VF a, VF b) { TFM__QUADS a.v[i] = PART(div)(a.v[i], b.v[i]); return a; }
TFM__BODY VF FN(madd)(VF a, VF b, VF c) { TFM__QUADS c.v[i] = PART(madd)(a.v[i], b.v[i], c.v[i]); return c; }
TFM__BODY VF FN(nmadd)(VF a, VF b, VF c) { TFM__QUADS c.v[i] = PART(nmadd)(a.v[i], b.v[i], c.v[i]); return c; }
TFM__BODY VF FN(max)(VF a, VF b) { TFM__QUADS b.v[i] = PART(max)(a.v[i], b.v[i]); return b; }
TFM__BODY VF FN(min)(VF a, VF b) { TFM__QUADS b.v[i] = PART(min)(a.v[i], b.v[i]); return b; }
TFM__BODY VF FN(pick)(VF a, VF b, VF yes, VF no) {
    TFM__QUADS no.v[i] = vpselq_f32(yes.v[i], no.v[i], vcmpgtq_f32(b.v[i], a.v[i]));
    return no;
}
TFM__BODY VI FN(bits)(VF a) { VI r; TFM__QUADS r.v[i] = vreinterpretq_s32_f32(a.v[i]); return r; }
TFM__BODY VF FN(from_bits)(VI a) { VF r; TFM__QUADS r.v[i] = PART(from_bits)(a.v[i]); return r; }
TFM__BODY VI FN(round)(VF a) { VI r; TFM__QUADS r.v[i] = vcvtnq_s32_f32(a.v[i]); return r; }
TFM__BODY VF FN(to_float)(VI a) { VF r; TFM__QUADS r.v[i] = PART(to_float)(a.v[i]); return r; }
TFM__BODY VI FN(iset)(int32_t x) { VI r; TFM__QUADS r.v[i] = PART(iset)(x); return r; }
TFM__BODY VI FN(iadd)(VI a, VI b) { TFM__QUADS a.v[i] = PART(iadd)(a.v[i], b.v[i]); return a; }
TFM__BODY VI FN(isub)(VI a, VI b) { TFM__QUADS a.v[i] = PART(isub)(a.v[i], b.v[i]); return a; }
TFM__BODY VI FN(iand)(VI a, VI b) { TFM__QUADS a.v[i] = PART(iand)(a.v[i], b.v[i]); return a; }
TFM__BODY VI FN(ior)(VI a, VI b) { TFM__QUADS a.v[i] = vorrq_s32(a.v[i], b.v[i]); return a; }
TFM__BODY VI FN(imax)(VI a, VI b) { TFM__QUADS a.v[i] = PART(imax)(a.v[i], b.v[i]); return a; }
TFM__BODY VI FN(shift_left)(VI a, int n) { TFM__QUADS a.v[i] = PART(shift_left)(a.v[i], n); return a; }
TFM__BODY VI FN(shift_right)(VI a, int n) { TFM__QUADS a.v[i] = PART(shift_right)(a.v[i], n); return a; }
TFM__BODY VI FN(load_i8)(const uint8_t *p) { VI r; TFM__QUADS r.v[i] = PART(load_i8)(p + 4 * i); return r; }
TFM__BODY void FN(store_i8)(int8_t *p, VI a) { TFM__QUADS vstrbq_s32(p + 4 * i, a.v[i]); }
TFM__BODY float FN(sum)(VF a) {
    const float32x4_t s = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
    return (vgetq_lane_f32(s, 0) + vgetq_lane_f32(s, 2)) + (vgetq_lane_f32(s, 1) + vgetq_lane_f32(s, 3));
}
TFM__BODY void FN(turn)(float *to, const float *from) { /* to[c][r] = from[r][c], 16 x 16 */
    const uint32x4_t at = vmulq_n_u32(vidupq_n_u32(0, 1), TFM__SLICE);
    for (int i = 0; i < 64; i++)
        PART(store)(to + i / 4 * 64 + i % 4 * 4,
                    vldrwq_gather_shifted_offset_f32(from + i % 4 * 4 * TFM__SLICE + i / 4, at));
}
TFM__BODY float FN(max_all)(VF a) {
    float m[4];
    vstrwq_f32(m, PART(max)(PART(max)(a.v[0], a.v[2]), PART(max)(a.v[1], a.v[3])));
    m[0] = m[0] > m[2] ? m[0] : m[2];
    m[1] = m[1] > m[3] ? m[1] : m[3];
    return m[0] > m[1] ? m[0] : m[1];
}
TFM__BODY int32_t FN(isum)(VI a) {
    return vaddvaq_s32(vaddvaq_s32(vaddvaq_s32(vaddvq_s32(a.v[0]), a.v[1]), a.v[2]), a.v[3]);
}
TFM__BODY int32_t FN(imax_all)(VI a) {
    return vmaxvq_s32(vmaxvq_s32(vmaxvq_s32(vmaxvq_s32(INT32_MIN, a.v[0]), a.v[1]), a.v[2]), a.v[3]);
}

/* The dot product of this hardware adds all bytes of a register: 16 inputs of one row, gathered from 4 chunks. */
typedef struct FN(spread) { int8x16_t low, high; } FN(spread);
TFM__INNER void FN(spread_x)(FN(spread) *x, const int8_t *codes) {
    x->low = vldrbq_s8(codes);
    x->high = vldrbq_s8(codes + 16);
}
TFM__INNER uint8x16_t FN(gather)(const uint8_t *chunk) { /* a row's 4 bytes of 4 chunks */
    const uint32x4_t at = vshlq_n_u32(vidupq_n_u32(0, 1), 6);
    return vreinterpretq_u8_u32(vldrwq_gather_offset_u32((const uint32_t *)(const void *)chunk, at));
}
/* Fields of 4 groups, from bit `from` on, in one chunk: byte (lane i) >> from + i * bits. */
TFM__INNER uint8x16_t FN(fields)(const uint8_t *chunk, int from, const int bits) {
    const uint32x4_t word = vdupq_n_u32(*(const uint32_t *)(const void *)chunk);
    const int32x4_t down = vnegq_s32(vreinterpretq_s32_u32(bits == 1 ? vidupq_n_u32(0, 1) : vidupq_n_u32(0, 2)));
    const uint32x4_t moved = vshlq_u32(word, vsubq_n_s32(down, from));
    return vandq_u8(vreinterpretq_u8_u32(moved), vdupq_n_u8((uint8_t)((1 << bits) - 1)));
}

/* The codes of one row: inputs 0 to 15, and 16 to 31. */
TFM__INNER void FN(unpack_row)(const int fmt, const uint8_t *unit, uint8x16_t *a, uint8x16_t *b) {
    const tfm__format *f = &tfm__formats[fmt];
    const int low = f->low.bits, high = f->high.bits;
    if (low == 2) {
        *a = FN(fields)(unit, 0, 2), *b = FN(fields)(unit + 64, 0, 2);
    } else {
        *a = FN(gather)(unit);
        *b = low == 8 ? FN(gather)(unit + 256) : vshrq_n_u8(*a, 4);
        if (low == 4) *a = vandq_u8(*a, vdupq_n_u8(15));
    }
    unit += 64 * low;
    if (high == 1) {
        *a = vorrq_u8(*a, vshlq_r_u8(FN(fields)(unit, 0, 1), low));
        *b = vorrq_u8(*b, vshlq_r_u8(FN(fields)(unit, 4, 1), low));
    } else if (high == 2) {
        *a = vorrq_u8(*a, vshlq_r_u8(FN(fields)(unit, 0, 2), low));
        *b = vorrq_u8(*b, vshlq_r_u8(FN(fields)(unit + 64, 0, 2), low));
    }
    if (f->book) *a = PART(lookup)(tfm__books[f->book], *a), *b = PART(lookup)(tfm__books[f->book], *b);
}
TFM__INNER void FN(row_dots)(const int fmt, const uint8_t *unit, const FN(spread) *x, int32_t *low, int32_t *high) {
    const int halves = tfm__formats[fmt].sub == 16;
    uint8x16_t a, b;
    FN(unpack_row)(fmt, unit, &a, &b);
    *low = vmladavq_s8(vreinterpretq_s8_u8(a), x->low);
    *high = halves ? vmladavq_s8(vreinterpretq_s8_u8(b), x->high) : 0;
    if (!halves) *low = vmladavaq_s8(*low, vreinterpretq_s8_u8(b), x->high);
}
#undef TFM__QUADS
#undef PART
#endif

/* ====================================================================================================================
   From here on every line is shared by all passes.
   ================================================================================================================= */

/* A pass that differs from an older one only in the dot product of bytes (TFM__OLD names its functions) brings its own
   matmul with q8 activations and takes all other kernels from there: nothing else would change but the compile time. */
#ifdef TFM__OLD
#define TFM__OWN(name) TFM__OLD(name)
#else
#define TFM__OWN(name) FN(name)
#endif

/* --- elementary functions ----------------------------------------------------------------------------------------- */
/* Over EF: a vector; in the scalar pass one lane, or most of its code and time would go into handing vectors about. */

#if TFM__PASS_PORTABLE
#define EN(name) FN(name##_lane)
#define EF float
#define EI int32_t
#else
#define EN(name) FN(name)
#define EF VF
#define EI VI
#endif

#ifdef TFM__SMALL
/* No instruction converts to f16 there. */
TFM__BODY void FN(store_f16)(uint8_t *p, VF a) {
    float x[16];
    uint16_t h[16];
    FN(store)(x, a);
    for (int i = 0; i < 16; i++) h[i] = tfm__f32_to_f16(x[i]);
    memcpy(p, h, 32);
}
TFM__BODY float FN(half)(uint16_t h) { return tfm__f16_to_f32(h); }
#define TFM__SHARED TFM__NOINLINE TFM__UNUSED
#else
#define TFM__SHARED TFM__BODY
#endif

#ifndef TFM__LDEXP
/* p 2^n in two factors, so that subnormal results and overflow to infinity come out right; k is n as float. */
TFM__BODY EF EN(ldexp)(EF p, EI n, EF k) {
    const EI half = EN(shift_right)(n, 1), bias = EN(iset)(127);
    (void)k;
    p = EN(mul)(p, EN(from_bits)(EN(shift_left)(EN(iadd)(half, bias), 23)));
    return EN(mul)(p, EN(from_bits)(EN(shift_left)(EN(iadd)(EN(isub)(n, half), bias), 23)));
}
#endif

/* e^x for x in [-105, 90]: x = n ln 2 + r, |r| <= ln 2 / 2, and a polynomial. Within 1.1 ulp; NaN stays NaN. */
TFM__SHARED EF EN(exp_of)(EF x) {
    const EI n = EN(round)(EN(mul)(x, EN(set)(1.44269504f)));
    const EF k = EN(to_float)(n);
    EF r = EN(nmadd)(k, EN(set)(0.693359375f), x);
    r = EN(nmadd)(k, EN(set)(-0.00021219444f), r);
    EF p = EN(set)(0.00139505998f);
    p = EN(madd)(p, r, EN(set)(0.00836895406f));
    p = EN(madd)(p, r, EN(set)(0.041666206f));
    p = EN(madd)(p, r, EN(set)(0.166665182f));
    p = EN(madd)(p, r, EN(set)(0.5f));
    p = EN(madd)(EN(mul)(r, r), p, r);
    return EN(ldexp)(EN(add)(p, EN(set)(1.0f)), n, k);
}

TFM__SHARED EF EN(exp)(EF x) { return EN(exp_of)(EN(max)(EN(set)(-105.0f), EN(min)(EN(set)(90.0f), x))); }

/* e^x for x <= 0, but 0 where it would be subnormal: numbers that cost many processors a hundred cycles each. */
TFM__BODY EF EN(weight)(EF x) {
    const EF least = EN(set)(-87.0f);
    return EN(pick)(x, least, EN(set)(0.0f), EN(exp_of)(EN(max)(least, x)));
}

TFM__BODY EF EN(abs)(EF x) { return EN(from_bits)(EN(iand)(EN(bits)(x), EN(iset)(0x7fffffff))); }
TFM__BODY EF EN(with_sign)(EF magnitude, EF x) {
    return EN(from_bits)(EN(ior)(EN(bits)(magnitude), EN(iand)(EN(bits)(x), EN(iset)(INT32_MIN))));
}

/* tanh: an odd polynomial below 0.625, else 1 - 2 / (e^2|x| + 1). Within 1.3 ulp. */
TFM__SHARED EF EN(tanh)(EF x) {
    const EF a = EN(abs)(x), z = EN(mul)(x, x), one = EN(set)(1.0f), two = EN(set)(2.0f);
    EF p = EN(set)(-0.00566078071f);
    p = EN(madd)(p, z, EN(set)(0.020601999f));
    p = EN(madd)(p, z, EN(set)(-0.0537292287f));
    p = EN(madd)(p, z, EN(set)(0.133313283f));
    p = EN(madd)(p, z, EN(set)(-0.333332777f));
    p = EN(madd)(EN(mul)(p, z), a, a);
    const EF beyond = EN(sub)(one, EN(div)(two, EN(add)(EN(exp)(EN(mul)(two, a)), one)));
    return EN(with_sign)(EN(pick)(a, EN(set)(0.625f), p, beyond), x);
}

/* erf: an odd polynomial below 1, else 1 - e^-Q(|x|) with Q = -ln erfc; 1 from 4 on. Within 1.3 ulp. */
TFM__SHARED EF EN(erf)(EF x) {
    const EF a = EN(min)(EN(set)(4.0f), EN(abs)(x)), z = EN(mul)(a, a);
    EF p = EN(set)(7.8891193e-05f);
    p = EN(madd)(p, z, EN(set)(-0.000802084105f));
    p = EN(madd)(p, z, EN(set)(0.00518953521f));
    p = EN(madd)(p, z, EN(set)(-0.0268544443f));
    p = EN(madd)(p, z, EN(set)(0.112836003f));
    p = EN(madd)(p, z, EN(set)(-0.37612626f));
    p = EN(madd)(p, z, EN(set)(0.128379166f));
    p = EN(madd)(p, a, a);
    EF q = EN(set)(2.0909556e-05f);
    q = EN(madd)(q, a, EN(set)(-0.000432303001f));
    q = EN(madd)(q, a, EN(set)(0.00416052714f));
    q = EN(madd)(q, a, EN(set)(-0.0250914972f));
    q = EN(madd)(q, a, EN(set)(0.108236618f));
    q = EN(madd)(q, a, EN(set)(0.633386672f));
    q = EN(madd)(q, a, EN(set)(1.12949514f));
    q = EN(madd)(q, a, EN(set)(-0.000170552026f));
    const EF beyond = EN(sub)(EN(set)(1.0f), EN(exp)(EN(sub)(EN(set)(0.0f), q)));
    return EN(with_sign)(EN(pick)(a, EN(set)(1.0f), p, beyond), x);
}

TFM__BODY EF EN(sigmoid)(EF x) {
    const EF one = EN(set)(1.0f);
    return EN(div)(one, EN(add)(one, EN(exp)(EN(sub)(EN(set)(0.0f), x))));
}

TFM__BODY EF EN(act_none)(EF x) { return x; }
TFM__BODY EF EN(act_relu)(EF x) { return EN(max)(EN(set)(0.0f), x); }
TFM__BODY EF EN(act_relu2)(EF x) {
    const EF r = EN(max)(EN(set)(0.0f), x);
    return EN(mul)(r, r);
}
TFM__BODY EF EN(act_half)(EF x, EF y) { return EN(mul)(EN(mul)(EN(set)(0.5f), x), EN(add)(EN(set)(1.0f), y)); }
TFM__BODY EF EN(act_gelu_erf)(EF x) { return EN(act_half)(x, EN(erf)(EN(mul)(x, EN(set)(0.70710678f)))); }
TFM__BODY EF EN(act_gelu_tanh)(EF x) {
    const EF r = EN(add)(x, EN(mul)(EN(set)(0.044715f), EN(mul)(x, EN(mul)(x, x))));
    return EN(act_half)(x, EN(tanh)(EN(mul)(EN(set)(0.79788456f), r)));
}
TFM__BODY EF EN(act_gelu_quick)(EF x) { return EN(mul)(x, EN(sigmoid)(EN(mul)(EN(set)(1.702f), x))); }
TFM__BODY EF EN(act_silu)(EF x) { return EN(div)(x, EN(add)(EN(set)(1.0f), EN(exp)(EN(sub)(EN(set)(0.0f), x)))); }
TFM__BODY EF EN(act_sigmoid)(EF x) { return EN(sigmoid)(x); }
#ifdef TFM__TEST_PARTS
TFM__BODY EF EN(act_test)(EF x) { return EN(mul)(x, EN(add)(x, EN(set)(1.0f))); }
#endif

#define TFM__ACT_CASE(name, number, words, function) case number: return EN(act_##function)(x);
TFM__BODY EF EN(act)(EF x, const int32_t act) {
    switch (act) {
    TFM__ACTIVATIONS(TFM__ACT_CASE)
    default: return x;
    }
}

TFM__BODY EF EN(cap)(EF x, EF cap) { return EN(mul)(cap, EN(tanh)(EN(div)(x, cap))); }

#if TFM__PASS_PORTABLE
TFM__BODY VF FN(exp)(VF x) { for (int i = 0; i < 16; i++) x.v[i] = EN(exp)(x.v[i]); return x; }
TFM__BODY VF FN(weight)(VF x) { for (int i = 0; i < 16; i++) x.v[i] = EN(weight)(x.v[i]); return x; }
TFM__BODY VF FN(act)(VF x, const int32_t act) { for (int i = 0; i < 16; i++) x.v[i] = EN(act)(x.v[i], act); return x; }
TFM__BODY VF FN(cap)(VF x, VF cap) { for (int i = 0; i < 16; i++) x.v[i] = EN(cap)(x.v[i], cap.v[i]); return x; }
#endif
#undef EN
#undef EF
#undef EI

/* --- maps and reductions ------------------------------------------------------------------------------------------ */

/* Runs `body` over x in vectors; in the tail `n` lanes are real. Inside: i the index, w the width of this step. */
#define TFM__EACH(i, w, n) \
    for (ptrdiff_t i = 0, w = 16, i##_end = (ptrdiff_t)(n); \
         w = i##_end - i < 16 ? i##_end - i : 16, i < i##_end; i += 16)

/* 16 values, or the last w of an array. */
TFM__BODY VF FN(get)(const float *p, int64_t w, float fill) {
    return w == 16 ? FN(load)(p) : FN(load_n)(p, (int)w, fill);
}
TFM__BODY void FN(put)(float *p, VF a, int64_t w) {
    if (w == 16) FN(store)(p, a);
    else FN(store_n)(p, a, (int)w);
}

#ifndef TFM__OLD
TFM__BODY void FN(glu_of)(float *out, const float *gate, const float *up, const int32_t act, int64_t n) {
    TFM__EACH(i, w, n) {
        VF g = FN(act)(FN(get)(gate + i, w, 0.0f), act);
        FN(put)(out + i, up ? FN(mul)(g, FN(get)(up + i, w, 0.0f)) : g, w);
    }
}

/* act(gate) * up, or act(gate) if up is NULL */
#define TFM__GLU_CASE(name, number, words, function) case number: FN(glu_of)(out, gate, up, number, n); break;
static void FN(glu)(float *out, const float *gate, const float *up, int32_t act, int64_t n) {
#ifdef TFM__SMALL
    FN(glu_of)(out, gate, up, act, n);
#else
    switch (act) {
    TFM__ACTIVATIONS(TFM__GLU_CASE)
    default: break;
    }
#endif
}

static void FN(activate)(float *x, int32_t act, int64_t n) { FN(glu)(x, x, NULL, act, n); }

static void FN(softcap)(float *x, float cap, int64_t n) {
    TFM__EACH(i, w, n) FN(put)(x + i, FN(cap)(FN(get)(x + i, w, 0.0f), FN(set)(cap)), w);
}

static void FN(add_scaled)(float *x, const float *y, float scale, int64_t n) {
    const VF s = FN(set)(scale);
    TFM__EACH(i, w, n) FN(put)(x + i, FN(add)(FN(get)(x + i, w, 0.0f), FN(mul)(s, FN(get)(y + i, w, 0.0f))), w);
}

static void FN(scale)(float *x, float s, int64_t n) {
    TFM__EACH(i, w, n) FN(put)(x + i, FN(mul)(FN(get)(x + i, w, 0.0f), FN(set)(s)), w);
}

/* out = x / sqrt(sum(x^2) / count + eps) * (offset + weight). Statistics in float32, 16 partial sums, products rounded
   before they are added: the same bits in every pass. */
static void FN(norm_by)(float *out, const float *x, const float *weight, float offset, float eps, float count,
                        int64_t n) {
    VF squares = FN(set)(0.0f);
    TFM__EACH(i, w, n) {
        VF v = FN(get)(x + i, w, 0.0f);
        squares = FN(add)(squares, FN(mul)(v, v));
    }
    const VF r = FN(set)(1.0f / FN(sqrt)(FN(sum)(squares) / count + eps));
    TFM__EACH(i, w, n) {
        VF v = FN(mul)(FN(get)(x + i, w, 0.0f), r);
        if (weight) v = FN(mul)(v, FN(add)(FN(set)(offset), FN(get)(weight + i, w, 0.0f)));
        FN(put)(out + i, v, w);
    }
}

static void FN(rmsnorm)(float *out, const float *x, const float *weight, float offset, float eps, int64_t n) {
    FN(norm_by)(out, x, weight, offset, eps, tfm__count(n), n);
}

static void FN(layernorm)(float *out, const float *x, const float *weight, const float *bias, float offset, float eps,
                          int64_t n) {
    VF total = FN(set)(0.0f), squares = total;
    TFM__EACH(i, w, n) total = FN(add)(total, FN(get)(x + i, w, 0.0f));
    const float mean = FN(sum)(total) / tfm__count(n);
    const VF m = FN(set)(mean);
    TFM__EACH(i, w, n) {
        VF v = FN(sub)(FN(get)(x + i, w, mean), m);
        squares = FN(add)(squares, FN(mul)(v, v));
    }
    const VF r = FN(set)(1.0f / FN(sqrt)(FN(sum)(squares) / tfm__count(n) + eps));
    TFM__EACH(i, w, n) {
        VF v = FN(mul)(FN(sub)(FN(get)(x + i, w, 0.0f), m), r);
        if (weight) v = FN(mul)(v, FN(add)(FN(set)(offset), FN(get)(weight + i, w, 0.0f)));
        if (bias) v = FN(add)(v, FN(get)(bias + i, w, 0.0f));
        FN(put)(out + i, v, w);
    }
}

/* Norms under one signature; those that need less leave it out. */
#define TFM__NORM_ARGS \
    float *out, const float *x, const float *weight, const float *bias, float offset, float eps, int64_t n
static void FN(norm_none)(TFM__NORM_ARGS) {
    (void)weight, (void)bias, (void)offset, (void)eps;
    if (out != x) memcpy(out, x, 4 * (size_t)n);
}
static void FN(norm_rms)(TFM__NORM_ARGS) { (void)bias, FN(norm_by)(out, x, weight, offset, eps, tfm__count(n), n); }
static void FN(norm_l2)(TFM__NORM_ARGS) { (void)bias, FN(norm_by)(out, x, weight, offset, eps, 1.0f, n); }
static void FN(norm_layer)(TFM__NORM_ARGS) { FN(layernorm)(out, x, weight, bias, offset, eps, n); }
#ifdef TFM__TEST_PARTS
static void FN(norm_test)(TFM__NORM_ARGS) { (void)bias, FN(norm_by)(out, x, weight, offset, eps, 4.0f, n); }
#endif

#define TFM__NORM_CASE(name, number, words, function) \
    case number: FN(norm_##function)(out, x, weight, bias, offset, eps, n); break;
static void FN(norm)(int32_t kind, TFM__NORM_ARGS) {
    switch (kind) {
    TFM__NORMS(TFM__NORM_CASE)
    default: break;
    }
}

static float FN(maximum)(const float *x, int64_t n) {
    VF m = FN(set)(-TFM__INFINITY);
    TFM__EACH(i, w, n) m = FN(max)(m, FN(get)(x + i, w, -TFM__INFINITY));
    return FN(max_all)(m);
}

/* Sum of e^(x - m): in float32 over 1024 values, and those sums with what rounding took from them (Knuth's two-sum) in
   *low. The terms go to `out` if it is not NULL. */
static float FN(exp_sum)(float *out, const float *x, float m, int64_t n, float *low) {
    const VF top = FN(set)(m);
    float total = 0.0f;
    *low = 0.0f;
    for (int64_t j = 0; j < n; j += 1024) {
        const int64_t len = n - j < 1024 ? n - j : 1024;
        VF part = FN(set)(0.0f);
        TFM__EACH(i, w, len) {
            VF e = FN(exp)(FN(sub)(FN(get)(x + j + i, w, -TFM__INFINITY), top));
            part = FN(add)(part, e);
            if (out) FN(put)(out + j + i, e, w);
        }
        const float more = FN(sum)(part), sum = total + more, taken = sum - total;
        *low += (total - (sum - taken)) + (more - taken);
        total = sum;
    }
    return total;
}

static void FN(softmax)(float *x, int64_t n) {
    float low;
    const float sum = FN(exp_sum)(x, x, FN(maximum)(x, n), n, &low);
    const VF total = FN(set)(sum + low);
    TFM__EACH(i, w, n) FN(put)(x + i, FN(div)(FN(get)(x + i, w, 0.0f), total), w);
}

static float FN(logsumexp)(const float *x, int64_t n) {
    const float m = FN(maximum)(x, n);
    float low;
    const float sum = FN(exp_sum)(NULL, x, m, n, &low);
    return (float)((double)m + tfm__log((double)sum + (double)low));
}

/* --- rotary positions --------------------------------------------------------------------------------------------- */

/* The angle is rounded to float32, as the references do. */
static void FN(rope_angles)(float *cos_out, float *sin_out, const float *inv_freq, float mscale, int64_t pos,
                            int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        tfm__sin_cos(tfm__count(pos) * inv_freq[i], &sin_out[i], &cos_out[i]);
        cos_out[i] *= mscale;
        sin_out[i] *= mscale;
    }
}

static void FN(rope)(float *x, const float *c, const float *s, int32_t style, int32_t dims, int64_t head_dim,
                     int64_t n_heads) {
    const ptrdiff_t pairs = dims / 2;
    for (ptrdiff_t h = 0; h < (ptrdiff_t)n_heads; h++, x += (ptrdiff_t)head_dim) {
        if (style == TFM_ROPE_HALF) {
            TFM__EACH(i, w, pairs) {
                VF a = FN(get)(x + i, w, 0.0f), b = FN(get)(x + pairs + i, w, 0.0f);
                VF vc = FN(get)(c + i, w, 0.0f), vs = FN(get)(s + i, w, 0.0f);
                FN(put)(x + i, FN(sub)(FN(mul)(a, vc), FN(mul)(b, vs)), w);
                FN(put)(x + pairs + i, FN(add)(FN(mul)(b, vc), FN(mul)(a, vs)), w);
            }
        } else if (style == TFM_ROPE_INTERLEAVED) {
            for (ptrdiff_t i = 0; i < pairs; i++) {
                const float a = x[2 * i], b = x[2 * i + 1];
                x[2 * i] = a * c[i] - b * s[i];
                x[2 * i + 1] = b * c[i] + a * s[i];
            }
        }
    }
}

/* --- activations and cache in narrow types ------------------------------------------------------------------------ */

/* Per 32 inputs d = amax / 127 without its two lowest bits, q = round(x * (127 / amax)). Blocks below 2^-119 become
   zero (d would be subnormal); where x is not finite d is neither and the codes are 0, so that products are NaN. */
static void FN(quantize_row)(void *out, const float *x, int64_t n) {
    const ptrdiff_t cols = (ptrdiff_t)n;
    uint8_t *record = (uint8_t *)out;
    const VI magnitude = FN(iset)(0x7fffffff);
    for (ptrdiff_t b = 0; b < cols / 32; b++, record += TFM__UNIT_X) {
        const VF lo = FN(load)(x + 32 * b), hi = FN(load)(x + 32 * b + 16);
        const VI a0 = FN(iand)(FN(bits)(lo), magnitude), a1 = FN(iand)(FN(bits)(hi), magnitude);
        const int32_t top = FN(imax_all)(FN(imax)(a0, a1));
        const int finite = top < 0x7f800000, tiny = top < 0x04000000;
        const float amax = tfm__bits_f32((uint32_t)top);
        const VF inverse = FN(set)(finite && !tiny ? 127.0f / amax : 0.0f);
        VI a = FN(round)(FN(mul)(lo, inverse)), c = FN(round)(FN(mul)(hi, inverse));
        if (!finite) a = c = FN(iset)(0);
        const int16_t sums[2] = { (int16_t)FN(isum)(a), (int16_t)FN(isum)(c) };
        const float d = tiny ? 0.0f : tfm__bits_f32(tfm__f32_bits(amax / 127.0f) & ~3u);
        const float floats[3] = { d, d * TFM__SUM_ZERO, d * (float)(sums[0] + sums[1]) };
        FN(store_i8)((int8_t *)record, a);
        FN(store_i8)((int8_t *)record + 16, c);
        memcpy(record + 32, floats, 12);
        memcpy(record + 44, sums, 4);
    }
}

static void FN(store_kv)(void *out, int32_t kv_type, const float *x, int64_t n) {
    uint8_t *p = (uint8_t *)out;
    if (kv_type == TFM_F32) {
        memcpy(p, x, 4 * (size_t)n);
    } else if (kv_type == TFM_BF16) {
        for (int64_t i = 0; i < n; i++) tfm__float_put(out, TFM_BF16, (size_t)i, x[i]);
    } else if (kv_type == TFM_F16) {
        TFM__EACH(i, w, n) { /* saturates; min and max return their second operand if it is NaN */
            VF v = FN(get)(x + i, w, 0.0f);
            uint16_t h[16];
            FN(store_f16)((uint8_t *)h, FN(max)(FN(set)(-65504.0f), FN(min)(FN(set)(65504.0f), v)));
            memcpy(p + 2 * i, h, 2 * (size_t)w);
        }
    } else if (kv_type == TFM_Q8_0) {
        tfm_quant_block block;
        for (int64_t i = 0; i < n; i += 32, p += 34) {
            tfm__quantize_q8_0(&block, x + i);
            memcpy(p, &block.d, 2);
            memcpy(p + 2, block.code, 32);
        }
    }
}

static void FN(embed)(float *out, const tfm_tensor *w, int64_t row, float scale) {
    tfm_tensor_row(w, row, out);
    FN(scale)(out, scale, w->cols);
}

#endif /* TFM__OLD */

/* --- block formats: one unit of 32 inputs x 16 rows --------------------------------------------------------------- */

/* A unit is taken in parts of TFM__ROWS rows, by functions named PART(...) on the vectors of a part: all 16 rows, or 4
   where those are one register of a vector, so that the codes of a part stay in registers while the tokens pass. */
#ifdef TFM__PARTS
#define PART(name) TFM__PARTS(name)
#define PF TFM__PARTS(pf)
#define PI TFM__PARTS(pi)
#define PB TFM__PARTS(pb)
#else
#define PART(name) FN(name)
#define PF VF
#define PI VI
#define PB VB
#define TFM__ROWS 16
#define TFM__EACH_TOKEN TFM__UNROLL
#define TFM__EACH_PART
#define TFM__KEEP(pointer)
#endif
/* The tokens of a tile: a loop over as many as there are, or unrolled, those past the last being the last again. */
#if defined(TFM__EACH_TILED) && TFM__ABREAST > 1
#define TFM__TILE(left) \
    (int)((left) < TFM__TOKENS ? ((left) + TFM__ABREAST - 1) / TFM__ABREAST * TFM__ABREAST : TFM__TOKENS)
#elif defined(TFM__EACH_TILED)
#define TFM__TILE(left) (int)((left) < TFM__TOKENS ? (left) : TFM__TOKENS)
#else
#define TFM__EACH_TILED TFM__EACH_TOKEN
#define TFM__TILE(left) TFM__TOKENS
#endif
#ifndef TFM__SIDE
#define TFM__SIDE 1
#endif
#ifndef TFM__BESIDE
#define TFM__EACH_OUTPUT TFM__FLAT
#define TFM__BESIDE 4 /* queries that share the loads of keys or values */
#endif
#ifndef TFM__SUMS
#define TFM__SUMS 4 /* vectors that they have in registers */
#endif

/* y = acc + bias for the part of one token whose first row is `row`. */
TFM__INNER void PART(finish)(const tfm_matmul_args *a, int64_t row, int64_t t, PF acc) {
    const int64_t left = a->w->rows - row, w = left < TFM__ROWS ? left : TFM__ROWS;
    if (a->bias) acc = PART(add)(acc, PART(get)(a->bias + row, w, 0.0f));
    PART(put)(a->y + (size_t)t * a->y_stride + row, acc, w);
}

/* The codes of a unit, or the book's entries for them, as 8 groups; those of 8 bits are signed. Layout: [B3]. */
TFM__INNER void PART(unpack)(const int fmt, const uint8_t *unit, PB *c) {
    const tfm__format *f = &tfm__formats[fmt];
    const int low = f->low.bits, high = f->high.bits;
    if (low == 8) {
        TFM__FLAT
        for (int g = 0; g < 8; g++) c[g] = PART(bload)(unit + 64 * g);
    } else if (low == 4) {
        TFM__FLAT
        for (int g = 0; g < 4; g++) {
            const PB v = PART(bload)(unit + 64 * g);
            c[g] = PART(field)(v, 0, 15);
            c[g + 4] = PART(field)(v, 4, 15);
        }
    } else {
        const PB v0 = PART(bload)(unit), v1 = PART(bload)(unit + 64);
        TFM__FLAT
        for (int g = 0; g < 4; g++) {
            c[g] = PART(field)(v0, 2 * g, 3);
            c[g + 4] = PART(field)(v1, 2 * g, 3);
        }
    }
    if (high == 1) {
        const PB h = PART(bload)(unit + 64 * low);
        TFM__FLAT
        for (int g = 0; g < 8; g++) c[g] = PART(merge)(c[g], h, g, 1, low);
    } else if (high == 2) {
        const PB h0 = PART(bload)(unit + 64 * low), h1 = PART(bload)(unit + 64 * low + 64);
        TFM__FLAT
        for (int g = 0; g < 4; g++) {
            c[g] = PART(merge)(c[g], h0, 2 * g, 3, low);
            c[g + 4] = PART(merge)(c[g + 4], h1, 2 * g, 3, low);
        }
    }
    if (f->book) {
        TFM__FLAT
        for (int g = 0; g < 8; g++) c[g] = PART(lookup)(tfm__books[f->book], c[g]);
    }
}

#ifdef TFM__SMALL
/* The same group by group, for a format that is not known when compiling. */
TFM__BODY PB PART(plane)(const uint8_t *p, int bits, int g) {
    const int at = bits == 4 ? g & 3 : g * bits >> 3, shift = bits == 4 ? g & 4 : g * bits & 7;
    return PART(field)(PART(bload)(p + 64 * at), shift, (1 << bits) - 1);
}
TFM__BODY void PART(unpack_any)(const tfm__format *f, const uint8_t *unit, PB *c) {
    const int low = f->low.bits;
    TFM__EACH_PART
    for (int g = 0; g < 8; g++) {
        c[g] = PART(plane)(unit, low, g);
        if (f->high.bits) c[g] = PART(merge)(c[g], PART(plane)(unit + 64 * low, f->high.bits, g), 0, 3, low);
        if (f->book) c[g] = PART(lookup)(tfm__books[f->book], c[g]);
    }
}
#endif

/* What multiplies the codes of a unit: the scale of all of it or of each half, a block's times a sub-block's (at most
   19 bits: exact), and what is added or taken off, or where minima go by halves the block's factor of them. */
typedef struct PART(scales) { PF d[2], m; PI mn[2]; } PART(scales);

/* 2^(e - 128): the exponent moved, but 0 and 1 are subnormal. */
TFM__INNER PF PART(load_e8m0)(const uint8_t *p) {
    const PI e = PART(load_u8)(p), one = PART(iset)(1);
    const PI tiny = PART(shift_left)(PART(iadd)(PART(iand)(e, one), one), 21);
    return PART(from_bits)(PART(imax)(PART(shift_left)(PART(isub)(e, one), 23), tiny));
}

/* The f16 of a block's scales, d and m of 16 rows, converted once a block where each part would do it slowly; else
   NULL. */
#ifdef TFM__SMALL
TFM__NOINLINE TFM__UNUSED void FN(widen_scales)(float *wide, const uint8_t *s, int n) {
    for (int i = 0; i < n; i += 16) FN(store)(wide + i, FN(load_f16)(s + 2 * i));
}
TFM__INNER const float *FN(block_scales)(const int fmt, float *wide, const uint8_t *s) {
    if (tfm__formats[fmt].scale_kind == TFM__SC_E8M0) return NULL;
    FN(widen_scales)(wide, s, tfm__formats[fmt].min ? 32 : 16);
    return wide;
}
#endif

/* `s` are the block's scales, `wide` block_scales of them, `u` is the unit in the block, `row` the part's first. */
TFM__INNER PART(scales) PART(unit_scales)(const int fmt, const uint8_t *s, const float *wide, int u, int row) {
    const tfm__format *f = &tfm__formats[fmt];
    PART(scales) r;
    PF d;
    if (f->scale_kind == TFM__SC_E8M0) d = PART(load_e8m0)(s + row);
    else d = wide ? PART(load)(wide + row) : PART(load_f16)(s + 2 * row);
    r.d[0] = r.d[1] = r.m = d;
    if (f->min) r.m = wide ? PART(load)(wide + 16 + row) : PART(load_f16)(s + 32 + 2 * row);
    r.mn[0] = r.mn[1] = PART(iset)(1);
    s += (f->min ? 64 : 32) + row;
    if (f->sub == 32 && !f->min) {
        r.d[0] = PART(mul)(d, PART(to_float)(PART(load_i8)(s + 16 * u)));
    } else if (f->sub == 32) {
        r.d[0] = PART(mul)(d, PART(to_float)(PART(load_u8)(s + 32 * u)));
        r.m = PART(mul)(r.m, PART(to_float)(PART(load_u8)(s + 32 * u + 16)));
    } else if (f->sub == 16) {
        TFM__FLAT
        for (int i = 0; i < 2; i++) {
            PI sc = f->min ? PART(load_u8)(s + 32 * u + 16 * i) : PART(load_i8)(s + 32 * u + 16 * i);
            r.mn[i] = PART(shift_right)(sc, 4);
            if (f->min) sc = PART(iand)(sc, PART(iset)(15));
            r.d[i] = PART(mul)(d, PART(to_float)(sc));
        }
    }
    return r;
}

/* Dequantised values of the part of a unit that begins at `row`: panel[32][16 rows], each operation rounded as in
   tfm__block_values. */
TFM__INNER void PART(unit_values)(const int fmt, float *panel, const uint8_t *unit, const uint8_t *scales,
                                  int u, int row) {
    const tfm__format *f = &tfm__formats[fmt];
    const PART(scales) s = PART(unit_scales)(fmt, scales, NULL, u, row);
    const PI zero = PART(iset)(f->wide == 8 ? 128 : f->zero);
    PB c[8];
#ifdef TFM__SMALL
    PART(unpack_any)(f, unit + 4 * row, c);
#else
    PART(unpack)(fmt, unit + 4 * row, c);
#endif
    for (int h = 0; h < 2; h++) {
        const PF d = s.d[f->sub == 16 ? h : 0];
        const PF m = f->sub == 16 && f->min ? PART(mul)(s.m, PART(to_float)(s.mn[h])) : s.m;
        for (int g = 4 * h; g < 4 * h + 4; g++) {
            const PB codes = f->wide == 8 ? PART(flip)(c[g]) : c[g];
            TFM__FLAT
            for (int j = 0; j < 4; j++) {
                PF v = PART(mul)(d, PART(to_float)(PART(isub)(PART(byte)(codes, j), zero)));
                if (f->min == 1) v = PART(add)(v, m);
                if (f->min == 2) v = PART(sub)(v, m);
                PART(store)(panel + 64 * g + 16 * j + row, v);
            }
        }
    }
}

/* --- matmul with q8 activations ----------------------------------------------------------------------------------- */

/* A token's part of a unit: 32 codes, their scale, it times SUM_ZERO and times their sum, the sums of their halves. */
typedef struct FN(unit_x) { const int8_t *codes; const int16_t *sums; float d, zero, total; } FN(unit_x);

TFM__INNER FN(unit_x) FN(unit_of)(const uint8_t *record) {
    FN(unit_x) x;
    x.codes = (const int8_t *)record;
    memcpy(&x.d, record + 32, 4);
    memcpy(&x.zero, record + 36, 4);
    memcpy(&x.total, record + 40, 4);
    x.sums = (const int16_t *)(const void *)(record + 44);
    return x;
}

/* A sum of products, which stays below 2^22, times the scale of the activations: rounded once. A pass may start sums at
   1.5 * 2^23 in bits; then a sum is the float 1.5 * 2^23 + sum, and needs no conversion: with d of 22 bits all but the
   end of the multiply-add is exact. */
#ifndef TFM__SUMS_AS_BITS
TFM__INNER PI PART(sum_start)(void) { return PART(iset)(0); }
TFM__INNER PF PART(sum_times)(PI a, const FN(unit_x) *x) { return PART(mul)(PART(to_float)(a), PART(set)(x->d)); }
#else
TFM__BODY PF PART(sum_times)(PI a, const FN(unit_x) *x) {
    return PART(madd)(PART(from_bits)(a), PART(set)(x->d), PART(set)(x->zero));
}
#endif

/* -zero for the sums of both halves of the activations, or where sums go by halves for that of half h. `zeros` is -zero
   twice. */
TFM__INNER PI PART(half_zeros)(const int fmt, int h, PI zeros) {
    const PI low = PART(iand)(zeros, PART(iset)(0xffff));
    return tfm__formats[fmt].sub != 16 ? zeros : h ? PART(isub)(zeros, low) : low;
}

/* Where the sum of half h of a unit starts, or that of all of it: at what the codes' zero adds. */
TFM__INNER PI PART(unit_start)(const int fmt, int h, PI zeros, const int16_t *sums) {
    const tfm__format *f = &tfm__formats[fmt];
    const int zero = f->wide == 8 ? 128 * TFM__FLIP : f->zero;
    return zero ? PART(dot2)(PART(sum_start)(), PART(half_zeros)(fmt, h, zeros), sums) : PART(sum_start)();
}

/* acc + one unit times one token (the manual's "the same bits"), given the sums of codes times activations: of all, or
   of the two halves; then the minima. `mins` are pairs for the sums of the activations of the two halves. */
TFM__INNER PF PART(unit_add)(const int fmt, PF acc, PI a, PI b, const PART(scales) *s, PI mins, const FN(unit_x) *x) {
    const tfm__format *f = &tfm__formats[fmt];
    acc = PART(madd)(PART(sum_times)(a, x), s->d[0], acc);
    if (f->sub == 16) acc = PART(madd)(PART(sum_times)(b, x), s->d[1], acc);
    if (!f->min) return acc;
    if (f->min == 1) return PART(madd)(s->m, PART(set)(x->total), acc);
    if (f->sub == 32) return PART(nmadd)(s->m, PART(set)(x->total), acc);
    const PF least = PART(to_float)(PART(dot2)(PART(iset)(0), mins, x->sums));
    return PART(nmadd)(PART(mul)(least, PART(set)(x->d)), s->m, acc);
}

#ifdef TFM__BY_ROWS
#if TFM__PASS_PORTABLE /* elsewhere among the primitives */
/* The sums of codes times activations of one row: of a unit, or of its halves. */
TFM__INNER void FN(row_dots)(const int fmt, const uint8_t *unit, const FN(spread) *x, int32_t *low, int32_t *high) {
    const tfm__format *f = &tfm__formats[fmt];
    uint32_t c[8];
    PART(unpack)(fmt, unit, c);
    *low = PART(dot)(0, c, f->sub == 16 ? 4 : 8, x, 0, f->wide);
    *high = f->sub == 16 ? PART(dot)(0, c + 4, 4, x, 4, f->wide) : 0;
}
#endif

/* One strip times token t. The integers of a row are summed by themselves, with the activations in a form that serves
   all 16 rows; what follows takes the rows of a part together. */
TFM__INNER void FN(q8_tile)(const int fmt, const tfm_matmul_args *a, int64_t strip, int64_t t) {
    const tfm__format *f = &tfm__formats[fmt];
    const int64_t cols = a->w->cols, blocks = tfm__quotient(cols, f->info.block);
    const int units = f->info.block / 32;
    const uint8_t *codes = (const uint8_t *)a->w->data + (size_t)strip * tfm__strip_of(f, blocks);
    const uint8_t *scales = codes + tfm__scales_at(f, blocks, 0), *x = (const uint8_t *)a->x + (size_t)t * a->x_stride;
    const PI zeros = PART(pairs)(PART(iset)(-f->zero), PART(iset)(-f->zero));
    PF acc[16 / TFM__ROWS];
    for (int p = 0; p < 16 / TFM__ROWS; p++) acc[p] = PART(set)(0.0f);
    for (int64_t b = 0; b < blocks; b++, scales += tfm__scale_bytes(f)) {
        for (int u = 0; u < units; u++, x += TFM__UNIT_X, codes += 64 * f->bits) {
            const FN(unit_x) of = FN(unit_of)(x);
            FN(spread) in;
            FN(spread_x)(&in, of.codes);
            const PI low = PART(unit_start)(fmt, 0, zeros, of.sums), high = PART(unit_start)(fmt, 1, zeros, of.sums);
            for (int p = 0; p < 16 / TFM__ROWS; p++) {
                int32_t sum[2][TFM__ROWS];
                TFM__FLAT
                for (int r = 0; r < TFM__ROWS; r++)
                    FN(row_dots)(fmt, codes + 4 * (TFM__ROWS * p + r), &in, &sum[0][r], &sum[1][r]);
                const PART(scales) s = PART(unit_scales)(fmt, scales, NULL, u, TFM__ROWS * p);
                const PI first = PART(iadd)(low, PART(iload)(sum[0])), second = PART(iadd)(high, PART(iload)(sum[1]));
                acc[p] = PART(unit_add)(fmt, acc[p], first, second, &s, PART(pairs)(s.mn[0], s.mn[1]), &of);
            }
        }
    }
    for (int p = 0; p < 16 / TFM__ROWS; p++) PART(finish)(a, 16 * strip + TFM__ROWS * p, t, acc[p]);
}

TFM__INNER void FN(q8_strips)(const int fmt, const tfm_matmul_args *a, int64_t strip0, int64_t strip1) {
    for (int64_t s = strip0; s < strip1; s++) for (int64_t t = 0; t < a->n; t++) FN(q8_tile)(fmt, a, s, t);
}

#elif TFM__PASS != TFM__PASS_AMX
#ifdef TFM__SMALL
/* A unit as it serves a tile of tokens: its codes as factors of products, [group][part]. Formats differ in what fills
   it; what adds it to the outputs is shared. */
typedef struct FN(panel) {
    PART(pc) codes[8 * 4];
    PART(scales) scales[4];
    float wide[32]; /* block_scales */
} FN(panel);
typedef void (*FN(fill_fn))(FN(panel) *w, const uint8_t *codes, const uint8_t *scales, int u);
typedef void (*FN(add_fn))(PF *acc, const FN(panel) *w, const uint8_t *x, size_t stride, int nt, PI zeros);

TFM__BODY void FN(fill_panel)(const int fmt, FN(panel) *w, const uint8_t *codes, const uint8_t *scales, int u) {
    const float *wide = u ? w->wide : FN(block_scales)(fmt, w->wide, scales);
    TFM__EACH_PART
    for (int p = 0; p < 4; p++) {
        PB c[8];
        PART(unpack)(fmt, codes + 16 * p, c);
        TFM__UNROLL
        for (int g = 0; g < 8; g++) w->codes[4 * g + p] = PART(as_factors)(c[g], tfm__formats[fmt].wide);
        w->scales[p] = PART(unit_scales)(fmt, scales, wide, u, 4 * p);
    }
}

/* sum[t][p] = halves [h0, h1) of a unit times two tokens, x and y. What is loaded of codes serves both, what is spread
   of a token all rows. `zeros` is -zero twice. */
TFM__BODY void FN(two_dots)(const int bits, PI *sum, const PART(pc) *c, const uint8_t *x, const uint8_t *y, int h0,
                            int h1, PI zeros) {
    const PI none = PART(iset)(0);
    const PI start[2] = { PART(dot2)(none, zeros, FN(unit_of)(x).sums), PART(dot2)(none, zeros, FN(unit_of)(y).sums) };
    PI less[2] = { none, none }, a[8];
    TFM__UNROLL
    for (int i = 0; i < 8; i++) a[i] = PART(dot_start)(start[i / 4], bits);
    x += 16 * h0;
    y += 16 * h0;
    c += 16 * h0;
    TFM__EACH_PART
    for (int h = h0; h < h1; h++, c += 16, x += 16, y += 16) {
        const PART(px) v = PART(halves)(wasm_v128_load(x), bits), w = PART(halves)(wasm_v128_load(y), bits);
        TFM__KEEP(c);
        TFM__UNROLL
        for (int g = 0; g < 4; g++) {
            const PART(px) s = PART(lane)(v, g), t = PART(lane)(w, g);
            less[0] = PART(dot_less)(less[0], s, bits);
            less[1] = PART(dot_less)(less[1], t, bits);
            TFM__UNROLL
            for (int p = 0; p < 4; p++) {
                const PART(pc) code = c[4 * g + p];
                a[p] = PART(dot_add)(a[p], code, s, bits);
                a[p + 4] = PART(dot_add)(a[p + 4], code, t, bits);
            }
        }
    }
    TFM__UNROLL
    for (int i = 0; i < 8; i++) sum[i] = PART(isub)(PART(dot_sum)(a[i], start[i / 4], bits), less[i / 4]);
}

/* The same of nt tokens, whose rows are `stride` apart; one left over is its own neighbour. */
#define TFM__UNIT_DOTS(bits) \
    TFM__NOINLINE TFM__UNUSED void FN(unit_dots_##bits)(PI *sum, const PART(pc) *codes, const uint8_t *x, \
                                                        size_t stride, int nt, int h0, int h1, PI zeros) { \
        TFM__EACH_TOKEN \
        for (int t = 0; t < nt; t += 2, x += stride, sum += 8) { \
            const uint8_t *even = x; \
            if (t + 1 < nt) x += stride; \
            FN(two_dots)(bits, sum, codes, even, x, h0, h1, zeros); \
        } \
    }
TFM__UNIT_DOTS(4)
TFM__UNIT_DOTS(6)
TFM__UNIT_DOTS(8)
#undef TFM__UNIT_DOTS

/* acc[t][p] += a unit times nt tokens */
TFM__BODY void FN(add_unit)(const int fmt, PF *acc, const FN(panel) *w, const uint8_t *x, size_t stride,
                            int nt, PI zeros) {
    const tfm__format *f = &tfm__formats[fmt];
    const int halves = f->sub == 16 ? 2 : 1, second = halves == 2 ? 4 * TFM__TOKENS : 0;
    PI sums[2 * 4 * TFM__TOKENS];
    const PI *sum = sums;
    for (int h = 0; h < halves; h++) {
        const PI zero = PART(half_zeros)(fmt, h, zeros);
        const int h1 = halves == 1 ? 2 : h + 1;
        PI *to = sums + h * second;
        if (f->wide == 8) FN(unit_dots_8)(to, w->codes, x, stride, nt, h, h1, zero);
        else if (f->wide > 4 && TFM__DOT_PAIRS) FN(unit_dots_6)(to, w->codes, x, stride, nt, h, h1, zero);
        else FN(unit_dots_4)(to, w->codes, x, stride, nt, h, h1, zero);
    }
    TFM__EACH_TOKEN
    for (int t = 0; t < nt; t++, acc += 4, sum += 4, x += stride) {
        const FN(unit_x) of = FN(unit_of)(x);
        const PART(scales) *s = w->scales;
        TFM__KEEP(acc);
        TFM__UNROLL
        for (int p = 0; p < 4; p++, s++) {
            TFM__KEEP(s);
            acc[p] = PART(unit_add)(fmt, acc[p], sum[p], sum[p + second], s, PART(pairs)(s->mn[0], s->mn[1]), &of);
        }
    }
}

/* y = acc + bias for a token's 16 rows. */
TFM__BODY void FN(finish_rows)(const tfm_matmul_args *a, int64_t row, int64_t t, const PF *acc) {
    float *y = a->y + (size_t)t * a->y_stride + row;
    if (a->w->rows - row < 16) {
        TFM__EACH_PART
        for (int p = 0; p < 4; p++) PART(finish)(a, row + 4 * p, t, acc[p]);
        return;
    }
    TFM__UNROLL
    for (int p = 0; p < 4; p++) {
        PART(store)(y + 4 * p, a->bias ? PART(add)(acc[p], PART(load)(a->bias + row + 4 * p)) : acc[p]);
    }
}

/* One strip times nt tokens from t0 on. */
TFM__NOINLINE void FN(any_tile)(const tfm__format *f, FN(fill_fn) fill, FN(add_fn) add, int nt,
                                const tfm_matmul_args *a, int64_t strip, int64_t t0) {
    const int64_t blocks = tfm__quotient(a->w->cols, f->info.block);
    const int units = f->info.block / 32;
    const uint8_t *codes = (const uint8_t *)a->w->data + (size_t)strip * tfm__strip_of(f, blocks);
    const uint8_t *scales = codes + tfm__scales_at(f, blocks, 0), *x = (const uint8_t *)a->x + (size_t)t0 * a->x_stride;
    const PI zeros = PART(pairs)(PART(iset)(-f->zero), PART(iset)(-f->zero));
    PF acc[4 * TFM__TOKENS];
    FN(panel) panel;
    TFM__EACH_PART
    for (int i = 0; i < 4 * TFM__TOKENS; i++) acc[i] = PART(set)(0.0f);
    for (int64_t b = 0; b < blocks; b++, scales += tfm__scale_bytes(f)) {
        for (int u = 0; u < units; u++, x += TFM__UNIT_X, codes += 64 * f->bits) {
            fill(&panel, codes, scales, u);
            add(acc, &panel, x, a->x_stride, nt, zeros);
        }
    }
    TFM__EACH_TOKEN
    for (int t = 0; t < nt; t++) FN(finish_rows)(a, 16 * strip, t0 + t, acc + 4 * t);
}

/* The format whose add_unit serves: one of the same sub-blocks and minima, and of more than 4 bits too where that is
   another sum. */
TFM__BODY int FN(alike)(const int fmt) {
    switch (fmt) {
    case TFM__IQ4_NL: return TFM__Q8_0;
    case TFM__Q5_0: case TFM__MXFP4: return TFM__DOT_PAIRS ? TFM__Q5_0 : TFM__Q4_0;
    case TFM__Q5_1: return TFM__DOT_PAIRS ? fmt : TFM__Q4_1;
    case TFM__Q5_K: return TFM__DOT_PAIRS ? fmt : TFM__Q4_K;
    case TFM__Q6_K: return TFM__DOT_PAIRS ? fmt : TFM__Q3_K;
    default: return fmt;
    }
}

#define TFM__Q8_UNIT(F) \
    TFM__UNUSED static void FN(fill_##F)(FN(panel) *w, const uint8_t *codes, const uint8_t *scales, int u) { \
        FN(fill_panel)(TFM__##F, w, codes, scales, u); \
    } \
    TFM__UNUSED static void FN(add_##F)(PF *acc, const FN(panel) *w, const uint8_t *x, size_t stride, int nt, \
                                        PI zeros) { \
        FN(add_unit)(TFM__##F, acc, w, x, stride, nt, zeros); \
    }
TFM__BLOCK_TYPES(TFM__Q8_UNIT)
#undef TFM__Q8_UNIT

TFM__BODY void FN(q8_tile)(const int fmt, int nt, const tfm_matmul_args *a, int64_t strip, int64_t t0) {
    FN(fill_fn) fill = NULL;
    FN(add_fn) add = NULL;
#define TFM__PICK(F) \
    if (fmt == TFM__##F) fill = FN(fill_##F); \
    if (FN(alike)(fmt) == TFM__##F) add = FN(add_##F);
    TFM__BLOCK_TYPES(TFM__PICK)
#undef TFM__PICK
    FN(any_tile)(&tfm__formats[fmt], fill, add, nt, a, strip, t0);
}
#else
/* sum[t][s] = half h of a unit, or all of it, times token t, for ns strips: group by group, so that as many chains run
   side by side. */
TFM__BODY void PART(half_dots)(const int fmt, const int h, const int nt, const int ns, PI *sum, const PB *c, PI zeros,
                               const uint8_t *const *rows, size_t at) {
    const tfm__format *f = &tfm__formats[fmt];
    const int groups = f->sub == 16 ? 4 : 8, step = nt > 1 ? 1 : groups;
    TFM__UNROLL
    for (int t = 0; t < nt; t++) {
        const PI start = PART(unit_start)(fmt, h, zeros, FN(unit_of)(rows[t] + at).sums);
        TFM__UNROLL
        for (int s = 0; s < ns; s++) sum[t * ns + s] = start;
    }
    at += 16 * (size_t)h;
    c += 4 * h;
#ifdef TFM__PAIRED
    if (nt > 1) {
        FN(dot_pairs)(nt, ns, sum, c, groups, rows, at, f->wide);
        return;
    }
#endif
    TFM__UNROLL
    for (int g = 0; g < groups; g += step) {
        TFM__UNROLL
        for (int t = 0; t < nt; t++) {
            const int8_t *q = (const int8_t *)rows[t] + at;
            TFM__KEEP(q);
            sum[t] = PART(dot)(sum[t], c + g, step, q + 4 * g, f->wide);
        }
    }
}

/* The tokens that go side by side; where sums go by halves there are twice as many of them. */
TFM__BODY int FN(abreast)(const int fmt) {
    return tfm__formats[fmt].sub == 16 && TFM__ABREAST > 4 ? TFM__ABREAST / 2 : TFM__ABREAST;
}

/* acc[t][p] += one unit times token t, of nt tokens, for ns strips. */
TFM__BODY void PART(unit_dots)(const int fmt, const int nt, const int ns, PF (*acc)[TFM__SIDE * 16 / TFM__ROWS], int p,
                               const PB *c, PART(scales) *s, const PI *mins, PI zeros, const uint8_t *const *rows,
                               size_t at) {
    const int halves = tfm__formats[fmt].sub == 16 ? 2 : 1;
    PI sum[2][TFM__ABREAST * TFM__SIDE];
    TFM__UNROLL
    for (int h = 0; h < halves; h++) PART(half_dots)(fmt, h, nt, ns, sum[h], c, zeros, rows, at);
    for (int i = 0; i < ns && ns > 1; i++) TFM__STAY(s[i]);
    TFM__UNROLL
    for (int t = 0; t < nt; t++) {
        const FN(unit_x) x = FN(unit_of)(rows[t] + at);
        TFM__UNROLL
        for (int i = 0; i < ns; i++) {
            PF *to = &acc[t][p * ns + i];
            *to = PART(unit_add)(fmt, *to, sum[0][t * ns + i], sum[halves - 1][t * ns + i], s + i, mins[i], &x);
        }
    }
}

/* Part p of a unit of ns strips, `next` bytes apart: 8 groups of codes each, their scales and minima. */
TFM__BODY void PART(unit_load)(const int fmt, const int ns, PB *c, PART(scales) *s, PI *mins, const uint8_t *codes,
                               const uint8_t *scales, size_t next, int u, int p) {
    TFM__UNROLL
    for (int i = 0; i < ns; i++, c += 8, codes += next, scales += next) {
        PART(unpack)(fmt, codes + 4 * TFM__ROWS * p, c);
        TFM__UNROLL
        for (int g = 0; g < 8; g++) c[g] = tfm__formats[fmt].wide == 8 && TFM__FLIP ? PART(flip)(c[g]) : c[g];
        s[i] = PART(unit_scales)(fmt, scales, NULL, u, TFM__ROWS * p);
        mins[i] = PART(pairs)(s[i].mn[0], s[i].mn[1]);
    }
}

/* The rows of strips [strip, end) in y are fetched to be written, for tokens [t0, t1): stores that miss would hold up
   all others behind them. */
TFM__BODY void FN(fetch_out)(const tfm_matmul_args *a, int64_t strip, int64_t end, int64_t t0, int64_t t1) {
    for (int64_t t = t0; t < t1 && t < a->n; t++) {
        const float *y = a->y + (size_t)t * a->y_stride;
        TFM__PREFETCH_OUT(y + 16 * strip);
        if (TFM__SIDE > 1) TFM__PREFETCH_OUT(y + 16 * end - 16);
    }
}

/* ns strips times nt tokens from t0 on, `abreast` of them at a time; tokens past n are the last one again, strips from
   `end` on the first. [ahead, to) is fetched meanwhile, a little at each unit: all at once would hold up its loads. */
TFM__BODY void FN(q8_tile)(const int fmt, const int abreast, const int ns, const int nt, const tfm_matmul_args *a,
                           int64_t strip, int64_t end, int64_t t0, const uint8_t *ahead, const uint8_t *to) {
    const tfm__format *f = &tfm__formats[fmt];
    const int units = f->info.block / 32, zero = f->wide == 8 ? 128 * TFM__FLIP : f->zero;
    const int64_t blocks = tfm__quotient(a->w->cols, f->info.block), turns = blocks * units;
    const int64_t step = nt / turns + 1, lines = (to - ahead) / (64 * turns) + 1;
    const size_t bytes = tfm__strip_of(f, blocks), next = end - strip < ns ? 0 : bytes;
    const uint8_t *codes = (const uint8_t *)a->w->data + (size_t)strip * bytes, *rows[TFM__TOKENS];
    const uint8_t *scales = codes + tfm__scales_at(f, blocks, 0);
    const PI zeros = PART(pairs)(PART(iset)(-zero), PART(iset)(-zero));
    PF acc[TFM__TOKENS][TFM__SIDE * 16 / TFM__ROWS];
    int64_t fetched = 0;
    size_t at = 0;
    TFM__EACH_TILED
    for (int t = 0; t < nt; t++) {
        rows[t] = (const uint8_t *)a->x + (size_t)(t0 + t < a->n ? t0 + t : a->n - 1) * a->x_stride;
        for (int p = 0; p < ns * 16 / TFM__ROWS; p++) acc[t][p] = PART(set)(0.0f);
    }
    for (int64_t b = 0; b < blocks; b++, scales += tfm__scale_bytes(f)) {
        for (int u = 0; u < units; u++, at += TFM__UNIT_X, codes += 64 * f->bits) {
            if (nt > 1 && fetched < nt) FN(fetch_out)(a, strip, end, t0 + fetched, t0 + fetched + step);
            fetched += step;
            for (int64_t i = 0; i < lines && ahead < to; i++, ahead += 64) TFM__PREFETCH(ahead);
            TFM__EACH_PART
            for (int p = 0; p < 16 / TFM__ROWS; p++) {
                PB c[TFM__SIDE * 8];
                PART(scales) s[TFM__SIDE];
                PI mins[TFM__SIDE];
                PART(unit_load)(fmt, ns, c, s, mins, codes, scales, next, u, p);
#ifdef TFM__PAIRED
                if (abreast > 1) FN(pair_groups)(c);
#endif
                TFM__EACH_TILED
                for (int t = 0; t < nt; t += abreast)
                    PART(unit_dots)(fmt, abreast, ns, acc + t, p, c, s, mins, zeros, rows + t, at);
            }
        }
    }
    TFM__EACH_TILED
    for (int t = 0; t < nt; t++) {
        if (t > 0 && t0 + t >= a->n) break;
        TFM__EACH_PART
        for (int p = 0; p < 16 / TFM__ROWS * ns && p < 16 / TFM__ROWS * (end - strip); p++) {
            PART(finish)(a, 16 * strip + TFM__ROWS * p, t0 + t, acc[t][p]);
        }
    }
}
#endif

#ifdef TFM__SMALL
/* sum[p] = codes of 4 rows of a unit times one token, whose bytes are spread over the lanes once for all of them. */
TFM__BODY void FN(one_dots)(const int bits, PI *sum, const uint8_t *codes, const int8_t *x, PI nibble) {
    PI less = PART(iset)(0);
    TFM__UNROLL
    for (int p = 0; p < 4; p++) sum[p] = less;
    TFM__EACH_PART
    for (int g = 0; g < bits; g++, codes += 64, x += 4) {
        PART(px) v = PART(halves)(wasm_v128_load32_splat(x), bits), w = v;
        if (bits == 4) w = PART(halves)(wasm_v128_load32_splat(x + 16), bits);
        less = PART(dot_less)(less, v, bits);
        TFM__UNROLL
        for (int p = 0; p < 4; p++) {
            PB c = PART(bload)(codes + 16 * p);
            if (bits == 4) {
                sum[p] = PART(dot_add)(sum[p], PART(as_factors)(wasm_v128_and(c, nibble), bits), v, bits);
                c = wasm_v128_and(wasm_u16x8_shr(c, 4), nibble);
            }
            sum[p] = PART(dot_add)(sum[p], PART(as_factors)(c, bits), w, bits);
        }
    }
    TFM__UNROLL
    for (int p = 0; p < 4; p++) sum[p] = PART(isub)(PART(dot_sum)(sum[p], PART(iset)(0), bits), less);
}

/* 8 scales as float32, if they are below 2; all of them are gathered in *seen. */
TFM__BODY void FN(one_scales)(PF *d, const uint8_t *s, PI *seen, PI moved, PF up) {
    PI h = wasm_v128_load(s);
    const PI low = wasm_i16x8_shl(h, 13), high = wasm_v128_and(wasm_i16x8_shr(h, 3), moved);
    *seen = wasm_v128_or(*seen, h);
    d[0] = PART(mul)(wasm_i16x8_shuffle(low, high, 0, 8, 1, 9, 2, 10, 3, 11), up);
    d[1] = PART(mul)(wasm_i16x8_shuffle(low, high, 4, 12, 5, 13, 6, 14, 7, 15), up);
}

/* One strip times one token, of types without sub-blocks. Where a scale is 2 or more, or not finite, the result is 0,
   and the general way remains. */
TFM__BODY int FN(q8_one)(const int bits, const tfm_matmul_args *a, const tfm__format *f, int64_t strip, int64_t token) {
    const int64_t blocks = tfm__quotient(a->w->cols, 32);
    const uint8_t *codes = (const uint8_t *)a->w->data + (size_t)strip * tfm__strip_of(f, blocks);
    const uint8_t *scales = codes + tfm__scales_at(f, blocks, 0), *end = scales + blocks * tfm__scale_bytes(f);
    const uint8_t *record = (const uint8_t *)a->x + (size_t)token * a->x_stride;
    PI seen = PART(iset)(0), nibble = wasm_i8x16_splat(15), moved = wasm_i16x8_splat((int16_t)0x8fff);
    const PF up = PART(set)(5.192296858534828e33f); /* 2^112, by which exponents differ */
    PF acc[4];
    TFM__UNROLL
    for (int p = 0; p < 4; p++) acc[p] = PART(set)(0.0f);
    for (; scales < end; codes += 64 * bits, record += TFM__UNIT_X) {
        const FN(unit_x) x = FN(unit_of)(record);
        PI sum[4];
        PF d[4];
        FN(one_dots)(bits, sum, codes, x.codes, nibble);
        const PF dx = PART(set)(x.d), total = PART(set)(x.total);
        const PI zeros = PART(iset)(-f->zero * (x.sums[0] + x.sums[1]));
        FN(one_scales)(d, scales, &seen, moved, up);
        FN(one_scales)(d + 2, scales + 16, &seen, moved, up);
        TFM__UNROLL
        for (int p = 0; p < 4; p++) {
            acc[p] = PART(madd)(PART(mul)(PART(to_float)(PART(iadd)(sum[p], zeros)), dx), d[p], acc[p]);
        }
        scales += 32;
        if (!f->min) continue;
        FN(one_scales)(d, scales, &seen, moved, up);
        FN(one_scales)(d + 2, scales + 16, &seen, moved, up);
        TFM__UNROLL
        for (int p = 0; p < 4; p++) acc[p] = PART(madd)(d[p], total, acc[p]);
        scales += 32;
    }
    if (wasm_v128_any_true(wasm_v128_and(seen, wasm_i16x8_splat(0x4000)))) return 0;
    TFM__UNROLL
    for (int p = 0; p < 4; p++) PART(finish)(a, 16 * strip + 4 * p, token, acc[p]);
    return 1;
}
TFM__NOINLINE int FN(one_4)(const tfm_matmul_args *a, const tfm__format *f, int64_t strip, int64_t token) {
    return FN(q8_one)(4, a, f, strip, token);
}
TFM__NOINLINE int FN(one_8)(const tfm_matmul_args *a, const tfm__format *f, int64_t strip, int64_t token) {
    return FN(q8_one)(8, a, f, strip, token);
}
TFM__BODY int FN(one)(const int fmt, const tfm_matmul_args *a, int64_t strip, int64_t token) {
    const tfm__format *f = &tfm__formats[fmt];
    if (fmt == TFM__Q4_0 || fmt == TFM__Q4_1) return FN(one_4)(a, f, strip, token);
    return fmt == TFM__Q8_0 && FN(one_8)(a, f, strip, token);
}
#endif

/* Tokens in portions whose rows stay in the second-level cache while the strips pass by: whole tiles, or where rows are
   long a part of one. */
TFM__BODY int64_t FN(portion)(int64_t cols) {
    const int64_t fit = (int64_t)((5u << 17) / tfm_q8_row_bytes(cols)), some = TFM__TOKENS < 24 ? TFM__TOKENS : 24;
    return fit < some ? some : fit < TFM__TOKENS ? fit / some * some : fit / TFM__TOKENS * TFM__TOKENS;
}

#ifdef TFM__SMALL
TFM__BODY void FN(q8_strips)(const int fmt, const tfm_matmul_args *a, int64_t strip0, int64_t strip1) {
    const int64_t portion = FN(portion)(a->w->cols);
    for (int64_t t0 = 0; t0 < a->n; t0 += portion) {
        const int64_t t1 = a->n - t0 < portion ? a->n : t0 + portion;
        for (int64_t s = strip0; s < strip1; s++) {
            int64_t t = t0;
            for (int nt; t < t1; t += nt) {
                nt = (int)(t1 - t < TFM__TOKENS ? t1 - t : TFM__TOKENS);
                if (nt > 1 || !FN(one)(fmt, a, s, t)) FN(q8_tile)(fmt, nt, a, s, t);
            }
        }
    }
}
#else
/* While a tile passes some strips, its share of the next ones is fetched. A tile that is not full costs less than three
   tokens one by one, each of which reads the weights anew. */
TFM__BODY void FN(q8_strips)(const int fmt, const tfm_matmul_args *a, int64_t strip0, int64_t strip1) {
    const tfm__format *f = &tfm__formats[fmt];
    const int64_t bytes = (int64_t)tfm__strip_of(f, tfm__quotient(a->w->cols, f->info.block));
    const int64_t portion = FN(portion)(a->w->cols);
    for (int64_t t0 = 0; t0 < a->n; t0 += portion) {
        const int64_t t1 = a->n - t0 < portion ? a->n : t0 + portion;
        const int64_t share = TFM__SIDE * bytes / ((t1 - t0) / TFM__TOKENS + 1) + 64;
        for (int64_t s = strip0; s < strip1; s += TFM__SIDE) {
            const int64_t end = strip1 - s < TFM__SIDE ? strip1 : s + TFM__SIDE;
            const int64_t ahead = (strip1 - end < TFM__SIDE ? strip1 - end : TFM__SIDE) * bytes;
            const uint8_t *next = (const uint8_t *)a->w->data + (size_t)(end * bytes), *last = next + ahead;
            int64_t t = t0;
            for (; t + 2 < t1; t += TFM__TILE(t1 - t)) {
                const uint8_t *to = last - next < share ? last : next + share;
                FN(q8_tile)(fmt, FN(abreast)(fmt), TFM__SIDE, TFM__TILE(t1 - t), a, s, end, t, next, to);
                next = to;
            }
            for (; t < t1; t++) for (int64_t i = s; i < end; i++) FN(q8_tile)(fmt, 1, 1, 1, a, i, i + 1, t, next, next);
        }
    }
}
#endif

#else
/* AMX: a unit is a tile of 8 x 64 bytes as it lies in memory, 16 rows of activations are another, and their product 16
   x 16 integers, tokens x rows. Codes count as signed, which they are or are too small to tell. Sub-blocks of 16 take
   half the depth, twice. Tiles: 0, 1 sums; 2, 3 activations; 4, 5 codes. */
/* gcc does not know that a tile load reads memory: whatever was stored before must be there. */
TFM__BODY void FN(stored)(const void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }

TFM__BODY void FN(tiles_on)(const int fmt) {
    const int depth = tfm__formats[fmt].sub == 16 ? 16 : 32;
    struct { uint8_t palette, start, zero[14]; uint16_t row_bytes[16]; uint8_t rows[16]; } config;
    memset(&config, 0, sizeof config);
    config.palette = 1;
    for (int i = 0; i < 6; i++) {
        config.row_bytes[i] = (uint16_t)(i == 2 || i == 3 ? depth : 64);
        config.rows[i] = (uint8_t)(i < 4 ? 16 : depth / 4);
    }
    FN(stored)(&config);
    _tile_loadconfig(&config);
}

/* sum[half][token][row] of a unit */
TFM__BODY void FN(tiles_dot)(const int fmt, int32_t (*sum)[16][16], const uint8_t *codes, const uint8_t *x,
                             size_t x_stride) {
    FN(stored)(codes);
    _tile_zero(0);
    _tile_loadd(2, x, (long)x_stride);
    _tile_loadd(4, codes, 64);
    _tile_dpbssd(0, 2, 4);
    _tile_stored(0, sum[0], 64);
    if (tfm__formats[fmt].sub == 16) {
        _tile_zero(1);
        _tile_loadd(3, x + 16, (long)x_stride);
        _tile_loadd(5, codes + 256, 64);
        _tile_dpbssd(1, 3, 5);
        _tile_stored(1, sum[1], 64);
    }
}

/* One strip times 16 tokens from t0 on; sums and accumulators stay in the first-level cache. */
TFM__BODY void FN(q8_tile)(const int fmt, const tfm_matmul_args *a, int64_t strip, int64_t t0) {
    const tfm__format *f = &tfm__formats[fmt];
    const int64_t cols = a->w->cols, blocks = tfm__quotient(cols, f->info.block);
    const int units = f->info.block / 32;
    const uint8_t *codes = (const uint8_t *)a->w->data + (size_t)strip * tfm__strip_of(f, blocks);
    const uint8_t *scales = codes + tfm__scales_at(f, blocks, 0);
    const uint8_t *x = (const uint8_t *)a->x + (size_t)t0 * a->x_stride;
    const VI zeros = FN(pairs)(FN(iset)(-f->zero), FN(iset)(-f->zero));
    uint8_t unpacked[8 * 64];
    int32_t sum[2][16][16];
    VF acc[16];
    for (int t = 0; t < 16; t++) acc[t] = FN(set)(0.0f);
    for (int64_t b = 0; b < blocks; b++, scales += tfm__scale_bytes(f)) {
        for (int u = 0; u < units; u++, x += TFM__UNIT_X, codes += 64 * f->bits) {
            VB c[8];
            FN(unpack)(fmt, codes, c);
            TFM__UNROLL
            for (int g = 0; g < 8; g++) _mm512_storeu_si512(unpacked + 64 * g, c[g]);
            FN(tiles_dot)(fmt, sum, f->bits == 8 ? codes : unpacked, x, a->x_stride);
            const FN(scales) s = FN(unit_scales)(fmt, scales, NULL, u, 0);
            const VI mins = FN(pairs)(s.mn[0], s.mn[1]);
            for (int t = 0; t < 16; t++) {
                const FN(unit_x) of = FN(unit_of)(x + (size_t)t * a->x_stride);
                VI low = FN(unit_start)(fmt, 0, zeros, of.sums), high = FN(unit_start)(fmt, 1, zeros, of.sums);
                low = FN(iadd)(low, _mm512_loadu_si512(sum[0][t]));
                if (f->sub == 16) high = FN(iadd)(high, _mm512_loadu_si512(sum[1][t]));
                acc[t] = FN(unit_add)(fmt, acc[t], low, high, &s, mins, &of);
            }
        }
    }
    for (int t = 0; t < 16; t++) FN(finish)(a, 16 * strip, t0 + t, acc[t]);
}

/* Sixteens of tokens by tiles, the rest by AVX-512. The tiles are this call's alone. */
TFM__BODY void FN(q8_strips)(const int fmt, const tfm_matmul_args *a, int64_t strip0, int64_t strip1) {
    const int64_t whole = a->n / 16 * 16, fit = (int64_t)((1u << 19) / tfm_q8_row_bytes(a->w->cols)) / 16 * 16;
    const int64_t portion = fit ? fit : 16;
    tfm_matmul_args rest = *a;
    if (whole) FN(tiles_on)(fmt);
    for (int64_t t0 = 0; t0 < whole; t0 += portion) {
        const int64_t t1 = whole - t0 < portion ? whole : t0 + portion;
        for (int64_t s = strip0; s < strip1; s++) for (int64_t t = t0; t < t1; t += 16) FN(q8_tile)(fmt, a, s, t);
    }
    if (whole) _tile_release();
    rest.n = (int32_t)(a->n - whole);
    rest.x = (const uint8_t *)a->x + (size_t)whole * a->x_stride;
    rest.y = a->y + (size_t)whole * a->y_stride;
    if (rest.n) TFM__OLD(q8_kernels)[fmt](&rest, strip0, strip1);
}
#endif

#define TFM__Q8_KERNEL(F) \
    static void FN(q8_##F)(const tfm_matmul_args *a, int64_t s0, int64_t s1) { FN(q8_strips)(TFM__##F, a, s0, s1); }
TFM__BLOCK_TYPES(TFM__Q8_KERNEL)
#undef TFM__Q8_KERNEL

#define TFM__Q8_OF(F) TFM__HAS_TYPE(TFM_##F) ? FN(q8_##F) : NULL,
static const tfm__strips_fn FN(q8_kernels)[TFM__N_FORMATS] = { NULL, NULL, NULL, TFM__BLOCK_TYPES(TFM__Q8_OF) };
#undef TFM__Q8_OF

/* --- matmul with float32 activations ------------------------------------------------------------------------------ */
/* Weights become panels [inputs][16 rows] of float32 (F32 tiles are panels already). Each output is one chain over the
   inputs, carried in y between panels. */

#ifndef TFM__OLD
static void FN(widen_rows)(float *panel, const tfm_tensor *w, int64_t strip, int64_t k0, int nk) {
    const int64_t row0 = 16 * strip;
    const size_t cols = (size_t)w->cols;
    for (int r = 0; r < 16; r++) {
        const size_t at = (size_t)(row0 + r) * cols + (size_t)k0;
        if (row0 + r >= w->rows) {
            for (int k = 0; k < nk; k++) panel[16 * k + r] = 0.0f;
        } else if (w->type == TFM_F32) {
            const float *src = (const float *)w->data + at;
            for (int k = 0; k < nk; k++) panel[16 * k + r] = src[k];
        } else {
            const uint8_t *src = (const uint8_t *)w->data + 2 * at;
            for (int k = 0; k < nk; k += 16) { /* 16 values at once, then spread over the rows */
                const int n = nk - k < 16 ? nk - k : 16;
                float v[16];
                uint16_t half[16] = { 0 };
                const uint8_t *h = (const uint8_t *)half;
                memcpy(half, src + 2 * k, 2 * (size_t)n);
                FN(store)(v, w->type == TFM_F16 ? FN(load_f16)(h) : FN(load_bf16)(h));
                for (int i = 0; i < n; i++) panel[16 * (k + i) + r] = v[i];
            }
        }
    }
}

TFM__BODY void FN(widen_blocks)(const int fmt, float *panel, const uint8_t *strip, int64_t cols, int64_t k0, int nk) {
    const tfm__format *f = &tfm__formats[fmt];
    const int64_t blocks = tfm__quotient(cols, f->info.block), units = f->info.block / 32;
    for (int64_t u = k0 / 32; u < (k0 + nk) / 32; u++, panel += 512) {
        const uint8_t *scales = strip + tfm__scales_at(f, blocks, tfm__quotient(u, units));
        TFM__EACH_PART
        for (int row = 0; row < 16; row += TFM__ROWS) {
            PART(unit_values)(fmt, panel, strip + 64 * f->bits * u, scales, (int)tfm__remainder(u, units), row);
        }
    }
}

/* panel = inputs k0 ... k0 + nk of a strip; k0 and nk are multiples of 32 for block types. */
static void FN(widen)(float *panel, const tfm_tensor *w, int64_t strip, int64_t k0, int nk) {
    const uint8_t *p = (const uint8_t *)w->data + (size_t)strip * tfm_strip_bytes(w->type, w->cols);
    if (w->layout == TFM_ROWS) {
        FN(widen_rows)(panel, w, strip, k0, nk);
        return;
    }
#define TFM__WIDEN(F) \
    case TFM_##F: if (TFM__HAS_TYPE(TFM_##F)) FN(widen_blocks)(TFM__##F, panel, p, w->cols, k0, nk); break;
    switch (w->type) {
    case TFM_F16: for (int k = 0; k < nk; k++) FN(store)(panel + 16 * k, FN(load_f16)(p + 32 * (k0 + k))); break;
    case TFM_BF16: for (int k = 0; k < nk; k++) FN(store)(panel + 16 * k, FN(load_bf16)(p + 32 * (k0 + k))); break;
#ifdef TFM__SMALL
    default: FN(widen_blocks)((int)(tfm__format_of(w->type) - tfm__formats), panel, p, w->cols, k0, nk); break;
#else
    TFM__BLOCK_TYPES(TFM__WIDEN)
    default: break;
#endif
    }
#undef TFM__WIDEN
}

/* Panels in use: ns strips from `strip` on, inputs k0 ... k0 + nk. */
typedef struct FN(panels) { const float *p[4]; int64_t strip, k0; int nk; } FN(panels);

/* Rows from `row` on of ns strips times nt tokens over one depth of panels. */
TFM__INNER void FN(f32_part)(const int ns, const int nt, const tfm_matmul_args *a, const FN(panels) *w, int64_t t0,
                            int row) {
    const uint8_t *x = (const uint8_t *)a->x + (size_t)t0 * a->x_stride + 4 * (size_t)w->k0;
    const int64_t first = 16 * w->strip + row, left = a->w->rows - first - 16 * (ns - 1);
    const int64_t last = left < TFM__ROWS ? left : TFM__ROWS;
    float *y = a->y + (size_t)t0 * a->y_stride + first;
    PF acc[4][6];
    TFM__EACH_OUTPUT
    for (int t = 0; t < nt; t++) {
        TFM__EACH_OUTPUT
        for (int s = 0; s < ns; s++) {
            const float *at = y + (size_t)t * a->y_stride + 16 * s;
            acc[s][t] = w->k0 ? PART(get)(at, s + 1 < ns ? TFM__ROWS : last, 0.0f) : PART(set)(0.0f);
        }
    }
    for (int k = 0; k < w->nk; k++) {
        PF v[4];
        TFM__FLAT
        for (int s = 0; s < ns; s++) v[s] = PART(load)(w->p[s] + 16 * k + row);
        TFM__FLAT
        for (int t = 0; t < nt; t++) {
            float one;
            memcpy(&one, x + (size_t)t * a->x_stride + 4 * (size_t)k, 4);
            const PF xv = PART(set)(one);
            TFM__FLAT
            for (int s = 0; s < ns; s++) acc[s][t] = PART(madd)(v[s], xv, acc[s][t]);
        }
    }
    const int done = w->k0 + w->nk == a->w->cols;
    TFM__EACH_OUTPUT
    for (int t = 0; t < nt; t++) {
        TFM__EACH_OUTPUT
        for (int s = 0; s < ns; s++) {
            if (done) PART(finish)(a, first + 16 * s, t0 + t, acc[s][t]);
            else PART(put)(y + (size_t)t * a->y_stride + 16 * s, acc[s][t], s + 1 < ns ? TFM__ROWS : last);
        }
    }
}
TFM__INNER void FN(f32_tile)(const int ns, const int nt, const tfm_matmul_args *a, const FN(panels) *w, int64_t t0) {
    TFM__EACH_PART
    for (int row = 0; row < 16; row += TFM__ROWS) FN(f32_part)(ns, nt, a, w, t0, row);
}

static void FN(f32_panel)(int ns, const tfm_matmul_args *a, const FN(panels) *w) {
    int64_t t = 0;
    if (ns == TFM__STRIPS) for (; t + 6 <= a->n; t += 6) FN(f32_tile)(TFM__STRIPS, 6, a, w, t);
    else if (ns == 1) for (; t + 6 <= a->n; t += 6) FN(f32_tile)(1, 6, a, w, t);
    for (; t < a->n; t++) {
        if (ns == 4) FN(f32_tile)(4, 1, a, w, t);
        else FN(f32_tile)(1, 1, a, w, t);
    }
}

#if !TFM__PASS_PORTABLE && !defined(TFM__SMALL)
/* One token times ns strips of 16-bit floats, widened on the way: no panel, the memory is what limits. */
TFM__BODY void FN(half_strips)(const int type, const int ns, const tfm_matmul_args *a, int64_t strip) {
    const size_t strip_bytes = tfm_strip_bytes(type, a->w->cols);
    const uint8_t *p = (const uint8_t *)a->w->data + (size_t)strip * strip_bytes;
    const float *x = (const float *)a->x;
    VF acc[4];
    TFM__UNROLL
    for (int s = 0; s < ns; s++) acc[s] = FN(set)(0.0f);
    for (int64_t k = 0; k < a->w->cols; k++, p += 32) {
        const VF xk = FN(set)(x[k]);
        TFM__UNROLL
        for (int s = 0; s < ns; s++) {
            const uint8_t *at = p + (size_t)s * strip_bytes;
            acc[s] = FN(madd)(type == TFM_F16 ? FN(load_f16)(at) : FN(load_bf16)(at), xk, acc[s]);
        }
    }
    TFM__UNROLL
    for (int s = 0; s < ns; s++) FN(finish)(a, 16 * (strip + s), 0, acc[s]);
}

TFM__BODY void FN(half_vector)(const int type, const tfm_matmul_args *a, int64_t strip0, int64_t strip1) {
    for (; strip0 + 4 <= strip1; strip0 += 4) FN(half_strips)(type, 4, a, strip0);
    if (strip0 + 2 <= strip1) FN(half_strips)(type, 2, a, strip0), strip0 += 2;
    if (strip0 < strip1) FN(half_strips)(type, 1, a, strip0);
}

static int FN(matmul_half)(const tfm_matmul_args *a, int64_t strip0, int64_t strip1) {
    if (a->n != 1 || a->w->layout != TFM_TILED) return 0;
    if (a->w->type == TFM_F16) return FN(half_vector)(TFM_F16, a, strip0, strip1), 1;
    if (a->w->type == TFM_BF16) return FN(half_vector)(TFM_BF16, a, strip0, strip1), 1;
    return 0;
}
#else
static int FN(matmul_half)(const tfm_matmul_args *a, int64_t strip0, int64_t strip1) {
    return (void)a, (void)strip0, (void)strip1, 0;
}
#endif

static void FN(matmul_f32)(const tfm_matmul_args *a, int64_t strip0, int64_t strip1) {
    if (FN(matmul_half)(a, strip0, strip1)) return;
    float stack[TFM__PANEL + 16]; /* and room to align */
    const int in_place = a->w->type == TFM_F32 && a->w->layout == TFM_TILED;
    /* GEMV: four chains hide the latency of madd. */
    const int wide = TFM__PANEL < 4096 ? 1 : a->n >= 6 ? TFM__STRIPS : 4;
    const size_t strip_bytes = tfm_strip_bytes(a->w->type, a->w->cols);
    const int on_stack = !a->scratch || a->scratch_bytes < sizeof stack;
    float *panel = on_stack ? stack + (64 - ((uintptr_t)stack & 63)) % 64 / 4 : (float *)a->scratch;
    const size_t room = (on_stack ? (size_t)TFM__PANEL : a->scratch_bytes / 4) / 16;
    FN(panels) w;
    for (int64_t s = strip0; s < strip1;) {
        const int ns = strip1 - s >= wide ? wide : 1;
        const int64_t depth = in_place ? 256 : (int64_t)(room / (size_t)ns < 256 ? room / (size_t)ns : 256) & ~31;
        w.strip = s;
        for (w.k0 = 0; w.k0 < a->w->cols; w.k0 += depth) {
            w.nk = (int)(a->w->cols - w.k0 < depth ? a->w->cols - w.k0 : depth);
            for (int i = 0; i < ns; i++) {
                const uint8_t *strip = (const uint8_t *)a->w->data + (size_t)(s + i) * strip_bytes;
                float *p = panel + 16 * depth * i;
                if (!in_place) FN(widen)(p, a->w, s + i, w.k0, w.nk);
                w.p[i] = in_place ? (const float *)(const void *)strip + 16 * w.k0 : p;
            }
            FN(f32_panel)(ns, a, &w);
        }
        s += ns;
    }
}

#endif /* TFM__OLD */

static void FN(matmul)(const tfm_matmul_args *a, int64_t strip0, int64_t strip1) {
    const int64_t strips = (a->w->rows + 15) / 16;
    TFM__ASSERT(strip0 >= 0 && a->n >= 0 && a->y_stride >= (size_t)a->w->rows);
    TFM__ASSERT(!a->x_q8 || (a->w->layout == TFM_TILED && tfm__format_of(a->w->type)->info.block > 1));
    if (strip1 > strips) strip1 = strips;
    if (a->x_q8) FN(q8_kernels)[tfm__format_of(a->w->type) - tfm__formats](a, strip0, strip1);
    else TFM__OWN(matmul_f32)(a, strip0, strip1);
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

#ifndef TFM__OLD
/* One query of one head: it sees positions [begin, end), or those of them that the mask lets through. m and l are the
   running maximum and sum; out holds the running weighted sum of values. */
typedef struct FN(query) {
    const float *q;
    float *out, m, l, slope, sink;
    int64_t begin, end;
    int32_t head;
} FN(query);

/* A block of 64 positions from `first` on, and the queries that see some of it: rows[r] those in [j0[r], j1[r]). All
   that is read of keys and values lies in [u0, u1). */
typedef struct FN(block) {
    int64_t first;
    int n, u0, u1, j0[TFM__QUERIES], j1[TFM__QUERIES];
    FN(query) *rows[TFM__QUERIES];
    float (*score)[64], keep[TFM__QUERIES], take[TFM__QUERIES];
    float *panel, *some; /* part of the keys or values as float32; [16 keys][TFM__SLICE] that will be turned */
} FN(block);

/* Keys or values of one kv head, stored in a ring. */
typedef struct FN(ring) { const uint8_t *base; size_t row_bytes; int64_t length; } FN(ring);

/* Elements [16 c, 16 c + 16) of a cached row; `at` is where they stand, but for blocks of Q8_0. */
TFM__BODY VF FN(load_kv)(const int32_t type, const uint8_t *at, const uint8_t *row, int64_t c) {
    if (type == TFM_F32) return FN(load)((const float *)(const void *)at);
    if (type == TFM_F16) return FN(load_f16)(at);
    if (type == TFM_BF16) return FN(load_bf16)(at);
    const uint8_t *block = row + 34 * (c / 2);
    uint16_t d;
    memcpy(&d, block, 2);
    return FN(mul)(FN(to_float)(FN(load_i8)(block + 2 + 16 * (c % 2))), FN(set)(FN(half)(d)));
}

/* to[i][TFM__SLICE] = elements [c0, c1) of position `first` + i as float32, n positions. What lies beyond c1 in the
   last 16 is anything. whole: nothing does. */
TFM__BODY void FN(read_rows)(const int32_t type, const int whole, float *to, const FN(ring) *ring, int64_t first, int n,
                             int64_t c0, int64_t c1) {
    const int64_t bytes = type == TFM_F32 ? 64 : 32, length = ring->length, full = c1 / 16, w = c1 % 16;
    uint8_t tail[64] = { 0 };
    int64_t slot = tfm__remainder(first, length);
    for (int i = 0; i < n; i++, to += TFM__SLICE, slot = slot + 1 < length ? slot + 1 : 0) {
        const uint8_t *row = ring->base + (size_t)slot * ring->row_bytes, *at = row + bytes * (c0 / 16);
        float *v = to;
        for (int64_t c = c0 / 16; whole ? c < full : 16 * c < c1; c++, at += bytes, v += 16) {
            if (!whole && c == full &&
                (TFM__NO_OVERREAD || (length - slot) * (int64_t)ring->row_bytes < bytes * (full + 1)))
                at = (const uint8_t *)memcpy(tail, at, (size_t)(bytes / 16 * w));
            FN(store)(v, FN(load_kv)(type, at, row, c));
        }
    }
}

TFM__BODY void FN(read_ring)(const int32_t type, float *to, const FN(ring) *ring, int64_t first, int n, int64_t c0,
                             int64_t c1) {
    if (type == TFM_Q8_0 || (TFM__ROWS == 16 && c1 % 16 == 0)) /* Q8_0 has blocks of 32 */
        FN(read_rows)(type, 1, to, ring, first, n, c0, c1);
    else FN(read_rows)(type, 0, to, ring, first, n, c0, c1);
}

#define TFM__READ_RING(T) \
    static void FN(read_ring_##T)(float *to, const FN(ring) *r, int64_t first, int n, int64_t c0, int64_t c1) { \
        FN(read_ring)(TFM_##T, to, r, first, n, c0, c1); \
    }
TFM__READ_RING(F32)
TFM__READ_RING(F16)
TFM__READ_RING(BF16)
TFM__READ_RING(Q8_0)
#undef TFM__READ_RING

static void FN(read_cache)(int32_t type, float *to, const FN(ring) *r, int64_t first, int n, int64_t c0, int64_t c1) {
    switch (type) {
    case TFM_F32: FN(read_ring_F32)(to, r, first, n, c0, c1); break;
    case TFM_F16: FN(read_ring_F16)(to, r, first, n, c0, c1); break;
    case TFM_BF16: FN(read_ring_BF16)(to, r, first, n, c0, c1); break;
    case TFM_Q8_0: FN(read_ring_Q8_0)(to, r, first, n, c0, c1); break;
    default: break;
    }
}

#ifdef TFM__TURN_HALVES
TFM__BODY void FN(turn_rows)(const int32_t type, float *to, const uint8_t *rows, size_t row_bytes, int64_t n) {
    for (int64_t c = 0; c < n; c += 16, rows += 32) {
        uint8_t turned[16 * 32];
        FN(turn_halves)(turned, rows, row_bytes);
        TFM__UNROLL
        for (int i = 0; i < 16; i++, to += 64)
            FN(store)(to, type == TFM_F16 ? FN(load_f16)(turned + 32 * i) : FN(load_bf16)(turned + 32 * i));
    }
}

/* to[c - c0][16], rows 64 floats apart = elements [c0, c1) of the 16 keys from `first` on, turned and then widened:
   less work, where they are two bytes each and stand together in the ring. Returns 0 where they do not. */
static int FN(read_halves)(float *to, int32_t type, const FN(ring) *ring, int64_t first, int64_t c0, int64_t c1) {
    const int64_t slot = tfm__remainder(first, ring->length);
    const uint8_t *rows = ring->base + (size_t)slot * ring->row_bytes + 2 * c0;
    if (c1 % 16 || slot + 16 > ring->length) return 0;
    if (type == TFM_F16) return FN(turn_rows)(TFM_F16, to, rows, ring->row_bytes, c1 - c0), 1;
    if (type == TFM_BF16) return FN(turn_rows)(TFM_BF16, to, rows, ring->row_bytes, c1 - c0), 1;
    return 0;
}
#endif

/* panel[c - c0][64] = elements [c0, c1) of the block's keys; those that nobody sees are 0. */
static void FN(read_keys)(const FN(block) *b, int32_t type, const FN(ring) *keys, int64_t c0, int64_t c1) {
    for (int j = 0; j < 64; j += 16) {
        const int from = j > b->u0 ? j : b->u0, to = j + 16 < b->u1 ? j + 16 : b->u1;
        if (from >= to) {
            for (int64_t c = 0; c < c1 - c0; c++) FN(store)(b->panel + 64 * c + j, FN(set)(0.0f));
            continue;
        }
#ifdef TFM__TURN_HALVES
        if (to - from == 16 && FN(read_halves)(b->panel + j, type, keys, b->first + j, c0, c1)) continue;
#endif
        if (to - from < 16) memset(b->some, 0, 4 * 16 * TFM__SLICE);
        FN(read_cache)(type, b->some + TFM__SLICE * (from - j), keys, b->first + from, to - from, c0, c1);
        for (int64_t c = 0; c < c1 - c0; c += 16) FN(turn)(b->panel + 64 * c + j, b->some + c);
    }
}

static float FN(bf16)(float x) { return tfm__bf16_to_f32(tfm__f32_to_bf16(x)); }

/* acc[r][i] += the sum over k < n of a[r][k] * b[k][16 i ..], k ascending. Rows of b are `pitch` apart. */
TFM__INNER void FN(products)(const int nr, const int nc, PF (*acc)[4], const float *const *a, const float *b,
                             int64_t pitch, int64_t n) {
    for (int64_t k = 0; k < n; k++, b += pitch) {
        PF x[4];
        TFM__FLAT
        for (int i = 0; i < nc; i++) x[i] = PART(load)(b + 16 * i);
        TFM__FLAT
        for (int r = 0; r < nr; r++) {
            const PF one = PART(set)(a[r][k]);
            TFM__FLAT
            for (int i = 0; i < nc; i++) acc[r][i] = PART(madd)(one, x[i], acc[r][i]);
        }
    }
}

/* score[j] of queries r0 .. r0 + nr: elements [c0, c0 + n) of q times those of 64 keys, added to what elements before
   them gave. */
TFM__INNER void FN(dots)(const int nr, const FN(block) *b, int r0, int64_t c0, int64_t n) {
    const int nc = TFM__SUMS / nr < 4 ? TFM__SUMS / nr : 4, step = 16 * nc;
    const float *q[4];
    TFM__FLAT
    for (int r = 0; r < nr; r++) q[r] = b->rows[r0 + r]->q + c0;
    for (int j0 = b->u0 / step * step; j0 < b->u1; j0 += step) {
        TFM__EACH_PART
        for (int j = j0; j < j0 + 16; j += TFM__ROWS) {
            PF acc[4][4];
            TFM__EACH_TOKEN
            for (int r = 0; r < nr; r++) {
                TFM__FLAT
                for (int i = 0; i < nc; i++)
                    acc[r][i] = c0 ? PART(load)(b->score[r0 + r] + j + 16 * i) : PART(set)(0.0f);
            }
            FN(products)(nr, nc, acc, q, b->panel + j, 64, n);
            TFM__EACH_TOKEN
            for (int r = 0; r < nr; r++) {
                TFM__FLAT
                for (int i = 0; i < nc; i++) PART(store)(b->score[r0 + r] + j + 16 * i, acc[r][i]);
            }
        }
    }
}

/* out = out * keep + (sum over j of p[j] v[j]) * take in a part of nc times 16 elements from d on, for rows r0 ..
   r0 + nr that see the same positions. values: those elements of the positions from u0 on. */
TFM__INNER void FN(mix)(const int nr, const int nc, const FN(block) *b, int r0, const float *values, int64_t d,
                       int64_t w) {
    const int j0 = b->j0[r0];
    const float *weights[4];
    PF acc[4][4];
    TFM__FLAT
    for (int r = 0; r < nr; r++) {
        weights[r] = b->score[r0 + r] + j0;
        TFM__FLAT
        for (int i = 0; i < nc; i++) acc[r][i] = PART(set)(0.0f);
    }
    FN(products)(nr, nc, acc, weights, values + TFM__SLICE * (j0 - b->u0), TFM__SLICE, b->j1[r0] - j0);
    TFM__EACH_TOKEN
    for (int r = 0; r < nr; r++) {
        TFM__FLAT
        for (int i = 0; i < nc; i++) {
            float *out = b->rows[r0 + r]->out + d + 16 * i;
            const PF old = PART(mul)(PART(get)(out, w, 0.0f), PART(set)(b->keep[r0 + r]));
            PART(put)(out, PART(madd)(acc[r][i], PART(set)(b->take[r0 + r]), old), w);
        }
    }
}

/* The same for the nd elements that the panel holds: as many at a time as there are registers, then the last. */
TFM__INNER void FN(mix_rows)(const int nr, const FN(block) *b, int r0, int64_t d, int64_t nd) {
    const int nc = TFM__SUMS / nr < 4 ? TFM__SUMS / nr : 4;
    int64_t i = 0;
    for (; nc > 1 && i + 16 * nc <= nd; i += 16 * nc) {
        TFM__EACH_PART
        for (int64_t c = i; c < i + 16; c += TFM__ROWS) FN(mix)(nr, nc, b, r0, b->panel + c, d + c, TFM__ROWS);
    }
    TFM__EACH_PART
    for (int64_t c = i; c < nd; c += TFM__ROWS)
        FN(mix)(nr, 1, b, r0, b->panel + c, d + c, nd - c < TFM__ROWS ? nd - c : TFM__ROWS);
}

/* As many queries side by side as there are. Functions of their own: in one large function gcc keeps the pointers of
   the innermost loops in vector registers. */
#if TFM__ROWS == 16
#define TFM__APART TFM__NOINLINE
#else
#define TFM__APART TFM__INNER
#endif
#define TFM__ROWS_CASE(nr) \
    TFM__APART void FN(dots_##nr)(const FN(block) *b, int r0, int64_t c0, int64_t n) { FN(dots)(nr, b, r0, c0, n); } \
    TFM__APART void FN(mix_##nr)(const FN(block) *b, int r0, int64_t d, int64_t nd) { FN(mix_rows)(nr, b, r0, d, nd); }
TFM__ROWS_CASE(1)
TFM__ROWS_CASE(2)
#if TFM__BESIDE == 4
TFM__ROWS_CASE(3)
TFM__ROWS_CASE(4)
#endif
#undef TFM__ROWS_CASE
#if TFM__BESIDE == 4
#define TFM__BY_COUNT(name, nr, args) \
    ((nr) == 4 ? FN(name##_4) args : (nr) == 3 ? FN(name##_3) args : (nr) == 2 ? FN(name##_2) args : FN(name##_1) args)
#else
#define TFM__BY_COUNT(name, nr, args) ((nr) == 2 ? FN(name##_2) args : FN(name##_1) args)
#endif

/* score[r][j] = q[r] * k[j] for all j of [u0, u1), by the elements that the panel holds: one chain over all of them. */
static void FN(scores)(FN(block) *b, const tfm_attention_args *a, const FN(ring) *keys) {
    for (int64_t c = 0; c < a->head_dim; c += TFM__SLICE) {
        const int64_t n = a->head_dim - c < TFM__SLICE ? a->head_dim - c : (int64_t)TFM__SLICE;
        FN(read_keys)(b, a->kv_type, keys, c, c + n);
        for (int r = 0; r < b->n; r += TFM__BESIDE) {
            const int nr = b->n - r < TFM__BESIDE ? b->n - r : TFM__BESIDE;
            TFM__BY_COUNT(dots, nr, (b, r, c, n));
        }
    }
}

static int FN(sees_at)(const tfm_attention_args *a, const FN(query) *row, int64_t j) {
    return tfm__sees(a, row->head, (int32_t)row->end - 1, (int32_t)j);
}

TFM__BODY VF FN(lane_numbers)(void) {
    static const float count[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    return FN(load)(count);
}

/* The scores of lanes [from, to), of the others -infinity. */
TFM__BODY VF FN(within)(VF s, int from, int to) {
#if TFM__ROWS == 16
    const VF lane = FN(lane_numbers)(), none = FN(set)(-TFM__INFINITY);
    s = FN(pick)(lane, FN(set)((float)to), s, none);
    return FN(pick)(lane, FN(set)((float)from), none, s);
#else
    float v[16];
    FN(store)(v, s);
    for (int i = 0; i < 16; i++) if (i < from || i >= to) v[i] = -TFM__INFINITY;
    return FN(load)(v);
#endif
}

/* What follows on a dot product: scale, cap, distance, mask. Scores outside [j0, j1) become -infinity; those of all 16
   that lie there may never have been written. Returns the maximum. */
static float FN(finish_scores)(float *score, const tfm_attention_args *a, const FN(query) *row, int64_t first, int j0,
                              int j1) {
    const VF none = FN(set)(-TFM__INFINITY), scale = FN(set)(a->scale);
    const int capped = a->softcap > 0, sloped = a->slopes && !a->slopes_bf16, rounded = a->slopes && a->slopes_bf16;
    VF top = none;
    TFM__UNROLL
    for (int j = 0; j < 64; j += 16) {
        VF s = none;
        if (j + 16 > j0 && j < j1) {
            s = FN(mul)(FN(load)(score + j), scale);
            if (capped) s = FN(cap)(s, FN(set)(a->softcap));
            if (sloped) {
                const VF distance = FN(sub)(FN(lane_numbers)(), FN(set)(tfm__count(row->end - 1 - first - j)));
                s = FN(madd)(FN(set)(row->slope), distance, s);
            }
            if (j < j0 || j + 16 > j1) s = FN(within)(s, j0 - j, j1 - j);
            top = FN(max)(top, s);
        }
        FN(store)(score + j, s);
    }
    if (!a->mask && !rounded) return FN(max_all)(top);
    for (int j = j0; rounded && j < j1; j++) score[j] += a->scale * FN(bf16)(row->slope * tfm__count(first + j));
    for (int j = j0; a->mask && j < j1; j++) if (!FN(sees_at)(a, row, first + j)) score[j] = -TFM__INFINITY;
    return FN(maximum)(score, 64);
}

static float FN(weight_one)(float x) {
    float v[16];
    FN(store)(v, FN(weight)(FN(set)(x)));
    return v[0];
}

/* Turns the scores of a block into weights against their maximum; returns the weights' sum. The chains of e^x are
   long: where registers hold them, all four are under way at a time, and where vectors are loops, only those that see
   anything. */
static float FN(weights)(float *score, int j0, int j1, float top) {
    VF e[4];
    TFM__UNROLL
    for (int i = 0; i < 4; i++) {
        const int some = TFM__ROWS == 16 || (16 * i + 16 > j0 && 16 * i < j1);
        e[i] = some ? FN(weight)(FN(sub)(FN(load)(score + 16 * i), FN(set)(top))) : FN(set)(0.0f);
        FN(store)(score + 16 * i, e[i]);
    }
    return FN(sum)(FN(add)(FN(add)(e[0], e[1]), FN(add)(e[2], e[3])));
}

/* Scores become weights; the block's maximum and sum are merged into those of the query, whose old output counts
   `keep` and that of the block `take`. First all maxima, then all weights: either is a long chain of operations, and
   those of several queries are under way at a time. */
static void FN(weigh)(FN(block) *b, const tfm_attention_args *a) {
    float top[TFM__QUERIES], sum[TFM__QUERIES];
    for (int r = 0; r < b->n; r++) {
        FN(query) *row = b->rows[r];
        top[r] = FN(finish_scores)(b->score[r], a, row, b->first, b->j0[r], b->j1[r]);
        const float m = row->m > top[r] ? row->m : top[r];
        b->keep[r] = row->m - m;
        b->take[r] = top[r] - m;
        row->m = m;
    }
    for (int r = 0; r < b->n; r++) sum[r] = FN(weights)(b->score[r], b->j0[r], b->j1[r], top[r]);
    TFM__EACH(i, w, b->n) FN(put)(b->keep + i, FN(weight)(FN(get)(b->keep + i, w, 0.0f)), w);
    TFM__EACH(i, w, b->n) FN(put)(b->take + i, FN(weight)(FN(get)(b->take + i, w, 0.0f)), w);
    for (int r = 0; r < b->n; r++) b->rows[r]->l = b->rows[r]->l * b->keep[r] + sum[r] * b->take[r];
}

static void FN(values)(FN(block) *b, const tfm_attention_args *a, const FN(ring) *values) {
    for (int64_t d = 0; d < a->head_dim; d += TFM__SLICE) {
        const int64_t nd = a->head_dim - d < TFM__SLICE ? a->head_dim - d : (int64_t)TFM__SLICE;
        FN(read_cache)(a->kv_type, b->panel, values, b->first + b->u0, b->u1 - b->u0, d, d + nd);
        for (int r = 0, nr; r < b->n; r += nr) {
            nr = 1;
            while (nr < TFM__BESIDE && r + nr < b->n && b->j0[r + nr] == b->j0[r] && b->j1[r + nr] == b->j1[r]) nr++;
            TFM__BY_COUNT(mix, nr, (b, r, d, nd));
        }
    }
}

/* The sink is merged like a block of one more position whose value is 0. */
static void FN(sink)(FN(query) *row, int64_t head_dim) {
    const float m = row->m > row->sink ? row->m : row->sink, keep = FN(weight_one)(row->m - m);
    row->l = row->l * keep + FN(weight_one)(row->sink - m);
    TFM__EACH(i, w, head_dim) FN(put)(row->out + i, FN(mul)(FN(get)(row->out + i, w, 0.0f), FN(set)(keep)), w);
}

/* The block of 64 positions from `first` on: which queries see which of them. */
static void FN(look)(FN(block) *b, const tfm_attention_args *a, int64_t first, FN(query) *rows, int n) {
    b->first = first;
    b->n = 0;
    b->u0 = 64;
    b->u1 = 0;
    for (int r = 0; r < n; r++) {
        const int64_t begin = rows[r].begin - first, end = rows[r].end - first;
        int j0 = begin > 0 ? (int)(begin < 64 ? begin : 64) : 0, j1 = end < 64 ? (int)(end > 0 ? end : 0) : 64;
        while (a->mask && j0 < j1 && !FN(sees_at)(a, &rows[r], first + j0)) j0++;
        while (a->mask && j0 < j1 && !FN(sees_at)(a, &rows[r], first + j1 - 1)) j1--;
        if (j0 >= j1) continue;
        b->rows[b->n] = &rows[r];
        b->j0[b->n] = j0;
        b->j1[b->n++] = j1;
        b->u0 = j0 < b->u0 ? j0 : b->u0;
        b->u1 = j1 > b->u1 ? j1 : b->u1;
    }
}

/* Queries that read the same kv head. They share what a block of it is in float32, its keys turned, and up to
   TFM__BESIDE of them the loads; alone or together, the arithmetic is the same. */
static void FN(queries)(const tfm_attention_args *a, int64_t kv_head, FN(query) *rows, int n) {
    const int64_t hd = a->head_dim;
    const int64_t row_bytes = a->kv_type == TFM_F32 ? 4 * hd : a->kv_type == TFM_Q8_0 ? hd / 32 * 34 : 2 * hd;
    const size_t offset = (size_t)(kv_head * a->length * row_bytes);
    const FN(ring) keys = { (const uint8_t *)a->k + offset, (size_t)row_bytes, a->length };
    const FN(ring) values = { (const uint8_t *)a->v + offset, (size_t)row_bytes, a->length };
    int64_t begin = rows[0].begin, end = rows[0].end;
    float stack[TFM__PANEL + 64 * TFM__QUERIES + 16 * TFM__SLICE + 16]; /* and room to align */
    FN(block) b;
    b.panel = stack + (64 - ((uintptr_t)stack & 63)) % 64 / 4;
    b.score = (float(*)[64])(void *)(b.panel + TFM__PANEL);
    b.some = b.score[TFM__QUERIES];
    for (int r = 0; r < n; r++) {
        begin = rows[r].begin < begin ? rows[r].begin : begin;
        end = rows[r].end > end ? rows[r].end : end;
        rows[r].m = -TFM__INFINITY;
        rows[r].l = 0.0f;
        memset(rows[r].out, 0, 4 * (size_t)hd);
    }
    for (int64_t first = begin / 64 * 64; first < end; first += 64) {
        FN(look)(&b, a, first, rows, n);
        if (!b.n) continue;
        FN(scores)(&b, a, &keys);
        FN(weigh)(&b, a);
        FN(values)(&b, a, &values);
    }
    for (int r = 0; r < n; r++) {
        if (a->sinks) FN(sink)(&rows[r], hd);
        const VF l = FN(set)(rows[r].l);
        TFM__EACH(i, w, hd) FN(put)(rows[r].out + i, FN(div)(FN(get)(rows[r].out + i, w, 0.0f), l), w);
    }
}

static void FN(attention)(const tfm_attention_args *a, int64_t item0, int64_t item1) {
    const int64_t n = a->n, group = a->n_heads / a->n_kv_heads;
    TFM__ASSERT(item0 >= 0 && item1 <= a->n_heads * n && a->n_heads % a->n_kv_heads == 0 && a->pos >= 0);
    TFM__ASSERT(a->head_dim >= 1 && a->head_dim <= 1024 && a->length >= 1);
    TFM__ASSERT(a->kv_type != TFM_Q8_0 || a->head_dim % 32 == 0);
    for (int64_t kv = 0; kv < a->n_kv_heads; kv++) {
        FN(query) rows[TFM__QUERIES];
        int used = 0;
        for (int64_t t = tfm__quotient(item0, a->n_heads); t < n && t * a->n_heads < item1; t++) {
            for (int64_t head = kv * group; head < (kv + 1) * group; head++) {
                FN(query) *row = &rows[used];
                const int64_t item = t * a->n_heads + head;
                if (item < item0 || item >= item1) continue;
                row->q = a->q + (t * a->n_heads + head) * a->head_dim;
                row->out = a->out + (t * a->n_heads + head) * a->head_dim;
                row->slope = a->slopes ? a->slopes[head] : 0.0f;
                row->sink = a->sinks ? a->sinks[head] : 0.0f;
                row->end = a->pos + t + 1;
                row->head = (int32_t)head;
                row->begin = a->window > 0 && row->end > a->window ? row->end - a->window : 0;
                if (a->chunk > 0) row->begin = tfm__quotient(a->pos + t, a->chunk) * a->chunk;
                if (a->mask) row->begin = tfm__mask_begin(a, row->head, (int32_t)(a->pos + t), row->begin);
                if (++used < TFM__QUERIES) continue;
                FN(queries)(a, kv, rows, used);
                used = 0;
            }
        }
        if (used) FN(queries)(a, kv, rows, used);
    }
}

#endif /* TFM__OLD */

static const tfm_kernels FN(kernels) = {
    TFM__PASS_ISA, TFM__PASS_NAME, TFM__OWN(rmsnorm), TFM__OWN(layernorm), TFM__OWN(norm), TFM__OWN(softmax),
    TFM__OWN(logsumexp), TFM__OWN(softcap), TFM__OWN(activate), TFM__OWN(glu), TFM__OWN(add_scaled), TFM__OWN(scale),
    TFM__OWN(rope_angles), TFM__OWN(rope), TFM__OWN(quantize_row), TFM__OWN(store_kv), TFM__OWN(embed), FN(matmul),
    TFM__OWN(attention)
};

#undef FN
#undef VF
#undef VI
#undef VB
#undef TFM__EACH
#undef TFM__NORM_ARGS
#undef TFM__NORM_CASE
#undef TFM__GLU_CASE
#undef TFM__ACT_CASE
#undef TFM__OLD
#undef TFM__OWN
#undef TFM__PASS_ISA
#undef TFM__PASS_NAME
#undef TFM__TOKENS
#undef TFM__ABREAST
#undef TFM__SIDE
#undef TFM__QUERIES
#undef TFM__STRIPS
#undef TFM__FLIP
#undef TFM__SUMS_AS_BITS
#undef TFM__PAIRED
#undef TFM__UNROLL
#undef TFM__LOOP
#undef TFM__EACH_TILED
#undef TFM__TILE
#undef TFM__BODY
#undef TFM__INNER
#undef TFM__FLAT
#undef TFM__PARTS
#undef TFM__BY_ROWS
#undef TFM__SMALL
#undef TFM__SHARED
#undef TFM__ROWS
#undef TFM__BESIDE
#undef TFM__SUMS
#undef TFM__LDEXP
#undef TFM__TURN_HALVES
#undef TFM__APART
#undef TFM__BY_COUNT
#undef TFM__EACH_OUTPUT
#undef TFM__EACH_TOKEN
#undef TFM__EACH_PART
#undef TFM__KEEP
#undef TFM__NOW
#undef TFM__STAY
#undef TFM__DOT_PAIRS
#undef PART
#undef PF
#undef PI
#undef PB
#endif /* TFM__PASS */

/* ====================================================================================================================
   [D] HISTORY AND LICENCE
   next   mixtures of experts; attention sinks and chunks: tfm_attention_args has two more fields, tfm_block many;
          qkv_clamp comes after norms of q and k that stand before RoPE, no longer first
          tokenizers: Unigram, WordPiece, WordLevel, every normaliser, pre-tokenizer and decoder of tokenizer.json; the
          section has form 2 (convert again), tfm_decoder other fields; tfm_normalize
          AArch64's product of 8-bit matrices, TFM_ISA_I8MM, where the CPU has it
          WebAssembly: relaxed dot products, TFM_WASM_DOT, TFM_NO_SCALAR; a module without a C library, wrapper and page
          in examples/wasm
          types IQ4_NL, IQ4_XS and MXFP4; tfm_pack_block, tfm_from_f16, tfm_to_f16 for quantisers of one's own
          tfm_source_row gives a packed row back in its source form, as tfm-convert --to-gguf needs; packing is faster
          chat formats: tfm_model_chat, tfm_chat_render, tfm_encode_marked; tfm_stop_scan; tfm_sampler_config.bias
          no libm: own elementary functions, the same bits everywhere; sine and cosine of rotary angles in integers
          without an operating system: TFM_NO_THREADS, TFM_NO_MESSAGES, TFM_NO_EXPERTS, TFM_TYPES; the scalar pass uses
          SMLAD
          Helium; the scalar pass takes rows one by one: twice to four times the speed on 32-bit CPUs; TFM_PANEL
          L2 norms; the residual as the normed value; masks of the Sparse Transformer; queries that grow with the
          logarithm of the position; RoPE that grows in steps; tfm_kernels has one more pointer, norm
          files are version 1, which every later header reads: convert again; sessions have a version and
          tfm_session_restore
          attention: a score is one chain over the elements, lanes are keys: other last places, a quarter less time
          cfg.parallel.run gets more parts than there are threads; items of tfm_attention are a token's heads in turn
          big-endian hosts, tfm_file_order; Windows: files are mapped, paths are UTF-8; 32-bit x86 without the x87
          q8 rows have 48 bytes for 32 inputs; scales are multiplied first: fast mode is faster, last places are others
          types and mixtures that a build leaves out: TFM_ERR_UNSUPPORTED; tfm_encode_marked refuses text without marks
   0.1.0  first version: dense decoders; byte-level and SentencePiece BPE; scalar, AVX2, AVX-VNNI, AVX-512, NEON and
          WebAssembly passes, AMX by name

   This file is available under two licences; choose whichever you prefer: MIT No Attribution (MIT-0), or public domain
   (www.unlicense.org). The texts stand in LICENSE. The software is provided "as is", without warranty of any kind.
   ================================================================================================================= */
