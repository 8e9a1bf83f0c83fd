#!/usr/bin/env python3
"""Writes small SentencePiece models of all kinds, and what the library makes of lines.

The lines are those of make_tokens.py. Run in this folder: python3 make_sentencepieces.py
"""

import json
import os
import pathlib
import tempfile

import sentencepiece

from make_tokens import digest, lines

SIZES = {"vocab_size": 600, "hard_vocab_limit": False, "character_coverage": 0.99}
# What the trainer's map of NFKC is for, in a few rules: characters to others, to several, to none; a space.
RULES = "41\t61\n61 300 62\t2C0\n2026\t2E 2E 2E\nA0\t20\n200B\t\n1C\t\n4F60 597D\t48 69 20 20\n"
MODELS = {
    "unigram": {"model_type": "unigram"},  # nmt_nfkc
    "llama": {"model_type": "bpe", "byte_fallback": True, "split_digits": True, "normalization_rule_name": "identity",
              "allow_whitespace_only_pieces": True, "remove_extra_whitespaces": False},
    "marked": {"model_type": "unigram", "byte_fallback": True, "user_defined_symbols": ["<pad>", "@user", " ==", "e"],
               "add_dummy_prefix": False},
    "chat": {"model_type": "bpe", "user_defined_symbols": ["<pad>", "oftext|>", "\u2581the"], "eos_piece": "<|endoftext|>"},
    "suffix": {"model_type": "bpe", "treat_whitespace_as_suffix": True, "split_by_whitespace": False},
    "words": {"model_type": "word"},
    "word_suffix": {"model_type": "word", "treat_whitespace_as_suffix": True},
    "chars": {"model_type": "char", "user_defined_symbols": ["__init__"]},
}


def train(name, options, folder):
    rules = {} if name == "unigram" or "normalization_rule_name" in options else {
        "normalization_rule_tsv": str(folder / "rules.tsv")}
    sentences = [" ".join(line.replace("\0", "").split("\n")) for line in lines(3000, 1)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_prefix=str(folder / name), num_threads=1, minloglevel=2,
        **{**SIZES, **rules, **options})
    model = pathlib.Path(name + ".model")
    model.write_bytes((folder / (name + ".model")).read_bytes())
    return model


def main():
    golden = []
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "rules.tsv").write_text(RULES)
        for name, options in MODELS.items():
            model = train(name, options, pathlib.Path(folder))
            library = sentencepiece.SentencePieceProcessor(model_file=str(model))
            encoded = [library.encode(line) for line in lines(10000, 2)]
            decoded = [library.decode(ids).lstrip(" ") + "\n" for ids in encoded]
            golden.append({
                "file": model.name, "vocabulary": library.get_piece_size(), "end": library.eos_id(), "first": encoded[:20],
                "digest": digest(" ".join(map(str, ids)) + "\n" for ids in encoded), "decoded": digest(decoded)})
    with open("sentencepieces.json", "w") as out:
        json.dump(golden, out, separators=(",", ":"))


if __name__ == "__main__":
    main()
