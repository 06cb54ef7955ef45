"""Trains the quickstart's tokenizer: byte-level BPE with 1024 pieces.

    train.py CORPUS.jsonl OUTPUT.json

CORPUS.jsonl has one JSON string a line (corpus.mjs writes it). The pre-tokenizer keeps JSON scaffolding together, so that
`","arguments":{"id":"` can become one token. It splits digits and the characters of opaque ids, so that the model copies
ids character by character.
"""

import json
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 1024
SPECIAL = ["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<done>"]
# Order matters: the first alternative that matches wins.
PRE_TOKENS = "|".join(
    [
        r" ?[A-Z]{3}-",  # prefix of an opaque id
        r"(?:[{}\[\],:\"]+(?:[a-z_]+\":)?)+",  # JSON scaffolding with its keys
        r"[A-Z](?=[A-Z0-9])|(?<=[A-Z0-9])[A-Z]",  # characters of an id, one by one
        r"[0-9]",
        r"\(?[a-z]+(?:_[a-z]+)+\(?",  # names of tools
        r"[(?]*\)\n",  # end of a signature
        r" ?\p{L}+",
        r" ?[^\s\p{L}\p{N}{}\[\],:\"]+",
        r"\s+",
        r"\p{N}",
    ]
)


def main() -> None:
    corpus, output = sys.argv[1:]
    with open(corpus, encoding="utf-8") as lines:
        texts = [json.loads(line) for line in lines]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(output, pretty=False)
    print(f"{tokenizer.get_vocab_size()} pieces from {len(texts)} texts")


if __name__ == "__main__":
    main()
