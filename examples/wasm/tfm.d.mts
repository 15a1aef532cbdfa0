/** Language models in the browser and in Node, by tfm.h compiled to WebAssembly. */

export class TfmError extends Error {
    /** TFM_ERR_ of tfm.h (negative), or 0. */
    code: number;
}
export const ERR_MEMORY: number;
export const ERR_CONTEXT: number;

/** What this engine can run. */
export function features(): { simd: boolean; relaxed: boolean; dot: boolean; threads: boolean; memory64: boolean };

/** A URL or (in Node) a path, a File, a fetched Response, or all the bytes: a .tfm file, or a .gguf file, which is converted. */
export type Source = string | URL | Blob | Response | ArrayBuffer | ArrayBufferView;

export interface LoadOptions {
    /** Which module; default 'auto', the fastest that runs here. All give the same bits. */
    variant?: 'auto' | 'dot' | 'relaxed' | 'simd' | 'scalar';
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
    readonly info: { context: number; vocab: number; layers: number; width: number; bos: number; text: number; chat: number };
    /** Whether the file says how a conversation is written: as a 'format', as a 'template' that is not data and needs a native
     * program to interpret it, or not at all. */
    readonly chat: 'none' | 'template' | 'format';
    readonly bytes: number;
    readonly warnings: string[];
    readonly variant: string;
    readonly threads: number;
    /** Bytes of the module's memory now. */
    readonly memory: number;
    /** Bytes a session will take. */
    sessionSize(options?: SessionOptions): number;
    session(options?: SessionOptions): Session;
    /** A conversation in a session of its own. */
    conversation(options?: SessionOptions & ConversationOptions): Conversation;
    tokenize(text: string, options?: { special?: boolean; parseSpecial?: boolean }): Int32Array;
    /** A conversation to ids, up to where the model answers. What stands in the texts never becomes a special token. */
    tokenizeChat(turns: Turn[], options?: { date?: Date }): Int32Array;
    detokenize(ids: Iterable<number>, options?: { skipSpecial?: boolean }): string;
    /** Pieces of text as ids come, whole characters only; text(-1) after the last. */
    decoder(flags?: number): { text(id: number): string; close(): void };
    /** Whether id ends a text, or in a conversation an answer. */
    isEnd(id: number, options?: { chat?: boolean }): boolean;
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
    /** Strings that end the text where one begins; they are not shown. */
    stop?: string[];
    /** Tokens that end an answer in a conversation end it too. */
    chat?: boolean;
    onToken?: (id: number) => void;
    onPrompt?: (done: number, total: number) => void;
}
export interface Stats {
    promptTokens: number;
    promptSeconds: number;
    tokens: number;
    seconds: number;
    reason: '' | 'end' | 'tokens' | 'stop' | 'stopped' | 'context';
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
    /** Forgets what is not the beginning of ids; how many of these it still holds, at least the last one not. */
    keep(ids: ArrayLike<number>): number;
    sampler(options?: SamplerOptions): { next(): number; close(): void };
    /** Goes on after the session's text and the prompt, text or ids. */
    generate(prompt: string | ArrayLike<number>, options?: GenerateOptions): AsyncGenerator<string, void, void>;
    close(): void;
}

export interface Turn {
    role: 'system' | 'user' | 'assistant';
    text: string;
}
export interface ConversationOptions {
    /** Who the model is to be. */
    system?: string;
}

/** Turns of a user and of the model, in the chat format of the model's file. */
export class Conversation {
    constructor(session: Session, options?: ConversationOptions);
    readonly session: Session;
    /** May be changed at any time; all turns are read again then. */
    system: string;
    /** So far, the system's not among them. */
    turns: Turn[];
    /** What the user says; yields the model's answer as it is made. Without an answer the turns stay as they were. */
    say(text: string, options?: GenerateOptions & { date?: Date }): AsyncGenerator<string, void, void>;
    /** Begins anew. */
    clear(): void;
    close(): void;
}

/** One instance of a module, for those who need its memory and functions (tfm_wasm.c). */
export class Engine {
    static open(options?: LoadOptions): Promise<Engine>;
    readonly memory: WebAssembly.Memory;
    allocate(bytes: number): number;
    close(): void;
}
