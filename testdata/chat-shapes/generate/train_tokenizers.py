#!/usr/bin/env python3
"""Makes ../models/{unigram,wordpiece}: small tokenizers of the two kinds, trained on the text below.

Needs `tokenizers` (0.23.3 made the committed files). Training is not reproducible bit for bit across
versions of the library: the committed files are the ones the goldens belong to.
"""
import json
from pathlib import Path
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers, AddedToken

OUT = Path(__file__).resolve().parent.parent / "models"
TEXT = """A gateway sends each request to the engine that will answer it soonest. The engine keeps the blocks of
earlier prompts, and a prompt that begins like an earlier one costs less. Question and answer, question and answer:
what is the weather in Zürich today, how many days, which unit, celsius or fahrenheit? It is twenty one degrees.
Où est la bibliothèque? Die Donaudampfschifffahrtsgesellschaft fährt wieder. El niño come una manzana. 日本語のテキスト、天気は晴れです。
한국어 문장도 있습니다. The quick brown fox jumps over the lazy dog, and the dog does not mind. Numbers: 1, 2, 3, 10, 42, 101, 3.14, 1,000.
fn main() { let x = 1 << 3; println!("{}", x); } def f(a, b=2): return a + b  # comment
Don't, won't, can't, I'm, you're. ALL CAPS and camelCase and snake_case and kebab-case words. <b>bold</b> & "quotes".
tokenizers tokenize tokens token tokenizing, running runs run runner, playing plays play player, answering answers answer."""
LINES = [line for line in TEXT.splitlines() for _ in range(4)]
TEMPLATE = """{%- for m in messages -%}
{{ '[' + m['role'] + '] ' + (m['content'] or '') | trim }}
{% if m.tool_calls %}{% for c in m.tool_calls %}call {{ c.function.name }} {{ c.function.arguments | tojson }}
{% endfor %}{% endif %}
{%- endfor -%}
{%- if add_generation_prompt -%}[assistant] {% endif -%}
"""


def save(name, tokenizer, config):
    directory = OUT / name
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    (directory / "chat_template.jinja").write_text(TEMPLATE)


def unigram():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace("  ", " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    t.train_from_iterator(LINES, trainers.UnigramTrainer(vocab_size=600, special_tokens=["<unk>", "<s>", "</s>", "<pad>"], unk_token="<unk>", shrinking_factor=0.75, show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", t.token_to_id("</s>"))])
    t.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    save("unigram", t, {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "model_max_length": 8192, "clean_up_tokenization_spaces": False})


def wordpiece():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(LINES, trainers.WordPieceTrainer(vocab_size=600, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", t.token_to_id("[CLS]")), ("[SEP]", t.token_to_id("[SEP]"))])
    t.decoder = decoders.WordPiece(prefix="##")
    save("wordpiece", t, {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "mask_token": "[MASK]", "model_max_length": 8192, "clean_up_tokenization_spaces": False})


unigram()
wordpiece()
