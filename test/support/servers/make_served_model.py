"""Writes a folder with a Qwen3 model of 2 layers and random weights, for a Tinker server. Usage: make_served_model.py FOLDER TOKENIZER"""
import sys

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

folder, tokenizer = sys.argv[1:]
torch.manual_seed(0)
config = Qwen3Config(
    vocab_size=1024,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    tie_word_embeddings=True,
    max_position_embeddings=2048,
)
Qwen3ForCausalLM(config).save_pretrained(folder)
PreTrainedTokenizerFast(tokenizer_file=tokenizer).save_pretrained(folder)
