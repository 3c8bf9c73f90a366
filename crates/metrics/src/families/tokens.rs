//! Tokens: where they come from, and whether they are the engines'.

use super::Group;
use super::words::MODEL;
use crate::family::{Label, counter, gauge};

const PART: Label = Label::of("part", &["tokenizer", "template"]);
const TEMPLATE_REASONS: &[&str] = &["", "does_not_compile", "fails_on_chats"];

pub(super) const GROUP: Group = Group {
    title: "Tokens",
    about: "Those of a tokenizer begin anew when its files change.",
    families: &[
        gauge(
            "kvasir_template_state",
            &[
                MODEL,
                Label::of("state", &["untried", "ok", "failing", "missing"]),
                Label::of("reason", TEMPLATE_REASONS),
            ],
            "1 for whether the model's chat template renders chats here. `failing`: it does not compile, or failed on the last three chats or more; \
             the log says when that begins and ends, once a minute at most. `missing`: the model has none, and serves \
             completions. Without a series where no tokenizer is in use.",
        ),
        gauge(
            "kvasir_tokenizer_parity",
            &[MODEL, PART, Label::of("state", &["unchecked", "equal", "different"])],
            "1 for whether own tokens are those of the engines' `/tokenize` ([how](configuration.md#own-tokens-and-the-engines)).",
        ),
        counter(
            "kvasir_tokenizer_parity_checks_total",
            &[MODEL, PART, Label::of("result", &["equal", "different", "skipped"])],
            "Texts, chats and requests compared with `/tokenize`. `skipped`: refused by the engine, in fields it does not take, or while \
             all engines were busy for five seconds.",
        ),
        gauge(
            "kvasir_tokenizer_source",
            &[MODEL, Label::of("source", &["staged", "root", "hub_cache"])],
            "1 for the place the tokenizer in use was found in. `staged` is `tokenizer_dir`, `root` where the engine loaded the model \
             from. Where there is a `tokenizer_dir` and it is not `staged`, the log warns of it.",
        ),
        gauge(
            "kvasir_tokenizer_engine",
            &[MODEL, Label::of("engine", &["byte_level", "library"]), Label::any("reason")],
            "1 for the code that tokenises, and why it is not the faster. `byte_level` is our own.",
        ),
        gauge(
            "kvasir_tokenizer_threads",
            &[],
            "Prompts that may be tokenised at one time on threads. Shorter than 2 KiB, or known but for a little, they need none.",
        ),
        gauge("kvasir_tokenizer_threads_busy", &[], "Prompts that are being tokenised on threads."),
        gauge("kvasir_prompt_cache_bytes", &[MODEL], "Memory of token ids of texts seen before."),
        gauge(
            "kvasir_prompt_cache_budget_bytes",
            &[MODEL],
            "The most memory that token ids of texts may take.",
        ),
        gauge("kvasir_prompt_cache_entries", &[MODEL], "Pieces of text whose token ids are kept."),
        counter(
            "kvasir_prompt_cache_hits_total",
            &[MODEL],
            "Texts of which a beginning was found.",
        ),
        counter("kvasir_prompt_cache_misses_total", &[MODEL], "Texts of which nothing was found."),
        counter(
            "kvasir_prompt_cache_hit_bytes_total",
            &[MODEL],
            "Bytes of text whose tokens were found.",
        ),
        counter(
            "kvasir_prompt_cache_miss_bytes_total",
            &[MODEL],
            "Bytes of text that were tokenised.",
        ),
        counter(
            "kvasir_prompt_cache_saved_tokens_total",
            &[MODEL],
            "Tokens that were found and not computed.",
        ),
        counter(
            "kvasir_prompt_cache_evictions_total",
            &[MODEL],
            "Pieces of text dropped for room.",
        ),
        gauge(
            "kvasir_token_headers_believed",
            &[MODEL],
            "1 while token ids in clients' headers are believed, where the pool allows them.",
        ),
        counter(
            "kvasir_token_headers_total",
            &[MODEL, Label::of("result", &["agrees", "differs", "malformed"])],
            "Headers of token ids held against the engine's count, or malformed.",
        ),
    ],
};
