#!/usr/bin/env python3
"""Writes tokenizers as GPT-2, Llama 3 and Qwen 2 have them, small ones, and what they make of lines.

Hugging Face's library `tokenizers` trains and runs them. The lines are made of fragments by a
generator that the test has too, so that 10,000 of them need no room here.

Run in this folder: python3 make_tokens.py
"""

import json


CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
CONTRACTIONS += r"|\s*[\r\n]+|\s+(?!\S)|\s+"
FRAGMENTS = [
    "the", " the", "The", " quick", "brown", " fox", "es", " jumps", "over", " lazy", " dog", "'s", "'S", "'t",
    "'re", "'RE", "'ve", "'ll", "'m", "'d", "'x", "\u2019s", "'\u017f", " '", "'", "1", "12", " 123", "4567", "3.14",
    "\u0661\u0662", "\u00bd", "\u2167", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n", "\n ", "\u00a0", "\u3000",
    "\u2028", "\u0085", "\x1c", "\u200b", "!", "?!", " ...", "--", " (", ")", "=>", " ==", "\u2014", "\u00e9", "e\u0301",
    "na\u00efve", " \u00fcber", "Stra\u00dfe", "\u4f60\u597d", "\u4e16\u754c", " \u65e5\u672c", "\u3053\u3093",
    "\ud55c\uad6d", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0627\u0644\u0639\u0631", "\u05e9\u05dc", "\U0001f600",
    "\U0001f468\u200d\U0001f469", "\U0001d400", "\u0130", "\u01c5", "a\u0300b", "_", "__init__", "x_1", "#", "@user",
    "http://", "a/b", "\\n", "{", "}", ";", "\"", "\x00", "\x7f", "<|endoftext|>", "<|end", "oftext|>", "<pad>",
    "I'm", "don't", "WE'LL", "you've", " they'd", "John's", "rock'n'roll", "10,000", "2026-11-22", " $5.00", "50%",
]
# Of Qwen 2's tokenizer, too, which brings texts into NFC.
COMPOSING = ["q", "\u0323", "\u0307", "\u0301", "\u0338", "\u0344", "\u212b", "\u1100", "\u1161", "\u11a8", "cafe", "<t>"]


def numbers(seed):
    """SplitMix64."""
    state = seed
    mask = 2**64 - 1
    while True:
        state = (state + 0x9e3779b97f4a7c15) & mask
        word = state
        word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9 & mask
        word = (word ^ (word >> 27)) * 0x94d049bb133111eb & mask
        yield word ^ (word >> 31)


def lines(count, seed, more=()):
    draw, fragments = numbers(seed), FRAGMENTS + list(more)
    for _ in range(count):
        yield "".join(fragments[next(draw) % len(fragments)] for _ in range(1 + next(draw) % 12))


def digest(texts):
    """FNV-1a."""
    value = 0xcbf29ce484222325
    for text in texts:
        for byte in text.encode():
            value = (value ^ byte) * 0x100000001b3 % 2**64
    return "%016x" % value


def split(digits):
    from tokenizers import Regex, pre_tokenizers
    regex = Regex(CONTRACTIONS % digits)
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(regex, "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def main():
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    golden = {"fragments": FRAGMENTS, "tokenizers": []}
    for name, pre, options in [
            ("gpt2", pre_tokenizers.ByteLevel(add_prefix_space=False), {}),
            ("prefix", pre_tokenizers.ByteLevel(add_prefix_space=True), {}),
            ("llama3", split("{1,3}"), {"ignore_merges": True}),
            ("qwen2", split(""), {})]:
        tokenizer = Tokenizer(models.BPE(**options))
        tokenizer.pre_tokenizer = pre
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False,
                                      special_tokens=[AddedToken("<|endoftext|>", special=True), AddedToken("<pad>", special=True)],
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        composes = name == "qwen2"
        more = COMPOSING if composes else []
        if composes:
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.train_from_iterator(lines(3000, 1, more), trainer)
        if composes:
            tokenizer.add_tokens([AddedToken("caf\u00e9", normalized=True), AddedToken("<t>", normalized=False)])
        file = f"{name}.tokenizer.json"
        with open(file, "w") as out:
            json.dump(json.loads(tokenizer.to_str()), out, separators=(",", ":"))
        encoded = [tokenizer.encode(line, add_special_tokens=False).ids for line in lines(10000, 2, more)]
        golden["tokenizers"].append({
            "file": file, "more": more, "vocabulary": tokenizer.get_vocab_size(), "first": encoded[:20],
            "digest": digest(" ".join(map(str, ids)) + "\n" for ids in encoded)})
    with open("tokens.json", "w") as out:
        json.dump(golden, out, separators=(",", ":"))


if __name__ == "__main__":
    main()
