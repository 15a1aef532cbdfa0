/** Language models in the browser and in Node, by tfm.h compiled to WebAssembly. */

export class TfmError extends Error {
    /** TFM_ERR_ of tfm.h (negative), or 0. */
    code: number;
}
export const ERR_MEMORY: number;
export const ERR_CONTEXT: number;

/** What this engine can run. */
export function features(): { simd: boolean; relaxed: boolean; threads: boolean; memory64: boolean };

/** A URL or (in Node) a path, a File, a fetched Response, or all the bytes: a .tfm file, or a .gguf file, which is converted. */
export type Source = string | URL | Blob | Response | ArrayBuffer | ArrayBufferView;

export interface LoadOptions {
    /** Which module; default 'auto', the fastest that runs here. All give the same bits. */
    variant?: 'auto' | 'relaxed' | 'simd' | 'scalar';
    /** Threads, if memory may be shared here; default 1. */
    threads?: number;
    /** The module with 64-bit addresses, for models of more than 4 GB. */
    memory64?: boolean;
    onProgress?: (done: number, total: number, what: 'loading' | 'converting') => void;
    signal?: AbortSignal;
    /** Where the .wasm files and thread.mjs lie; default beside tfm.mjs. */
    base?: string | URL;
    /** An instance made by Engine.open(); default a new one. */
    engine?: Engine;
}
export function load(from: Source, options?: LoadOptions): Promise<Model>;

export interface SessionOptions {
    /** Positions there is room for; default min(the model's, 4096). */
    context?: number;
    /** Tokens evaluated together; default 64. */
    batch?: number;
    /** Type of the key-value cache; default f16. */
    kv?: 'f32' | 'f16' | 'bf16' | 'q8_0';
    /** f32: exact; q8 (default): quantised weights meet int8 activations. */
    act?: 'f32' | 'q8';
}

export class Model {
    readonly info: { context: number; vocab: number; layers: number; width: number; bos: number; text: number };
    readonly bytes: number;
    readonly warnings: string[];
    readonly variant: string;
    readonly threads: number;
    /** Bytes of the module's memory now. */
    readonly memory: number;
    /** Bytes a session will take. */
    sessionSize(options?: SessionOptions): number;
    session(options?: SessionOptions): Session;
    tokenize(text: string, options?: { special?: boolean; parseSpecial?: boolean }): Int32Array;
    detokenize(ids: Iterable<number>, options?: { skipSpecial?: boolean }): string;
    /** Pieces of text as ids come, whole characters only; text(-1) after the last. */
    decoder(flags?: number): { text(id: number): string; close(): void };
    isEnd(id: number): boolean;
    isSpecial(id: number): boolean;
    /** The id of a token by its exact text, or -1. */
    find(piece: string): number;
    /** Checks the hashes of weights and tokenizer; throws. */
    verify(): void;
    /** Ends its threads and lets its memory go; sessions are gone too. */
    close(): void;
}

export interface SamplerOptions {
    /** 0: always the likeliest token; default 0.8. */
    temp?: number;
    topK?: number;
    topP?: number;
    minP?: number;
    repeatPenalty?: number;
    presencePenalty?: number;
    frequencyPenalty?: number;
    repeatLastN?: number;
    seed?: number | bigint;
}
export interface GenerateOptions extends SamplerOptions {
    /** At most so many; default until the end of the text or of the context. */
    tokens?: number;
    signal?: AbortSignal;
    /** Goes on after the tokens that end a text. */
    ignoreEnd?: boolean;
    /** Special tokens spelled in the prompt become their ids: never for text of a user. */
    parseSpecial?: boolean;
    onToken?: (id: number) => void;
    onPrompt?: (done: number, total: number) => void;
}
export interface Stats {
    promptTokens: number;
    promptSeconds: number;
    tokens: number;
    seconds: number;
    reason: '' | 'end' | 'tokens' | 'stopped' | 'context';
}

/** One timeline of tokens. Not for two calls at once. */
export class Session {
    readonly context: number;
    readonly length: number;
    /** The ids so far. */
    readonly ids: number[];
    /** Of the last generate. */
    readonly stats: Stats | null;
    eval(ids: ArrayLike<number>, options?: { signal?: AbortSignal; onPrompt?: (done: number, total: number) => void }): Promise<void>;
    /** After the last id; a copy. */
    logits(): Float32Array | null;
    /** Forgets the tokens from `length` on. */
    rewind(length: number): void;
    sampler(options?: SamplerOptions): { next(): number; close(): void };
    /** Goes on after the session's text and the prompt, text or ids. */
    generate(prompt: string | ArrayLike<number>, options?: GenerateOptions): AsyncGenerator<string, void, void>;
    close(): void;
}

/** One instance of a module, for those who need its memory and functions (tfm_wasm.c). */
export class Engine {
    static open(options?: LoadOptions): Promise<Engine>;
    readonly memory: WebAssembly.Memory;
    allocate(bytes: number): number;
    close(): void;
}
